//! Who asks, and what they may do: bearer tokens, of which only hashes are kept, with rights per prefix of names.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, StatusCode, header};
use leasehold::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use crate::{
    limits::Rate,
    problem::{Problem, Result},
    views::unhex,
};

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// To see locks, records and deadlines.
    Read,
    /// To hold, wait for and give back.
    Hold,
    /// To take from others: force-release, limits of semaphores, removal of records.
    Force,
}

impl Right {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Hold => "hold",
            Self::Force => "force",
        }
    }
}

/// Rights for all names that begin with a prefix.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grant {
    #[serde(default)]
    pub(crate) prefix: String,
    pub(crate) allow: Vec<Right>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    tokens: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Entry {
    /// The SHA-256 of the token in hexadecimal.
    sha256: String,
    rights: Vec<Grant>,
    /// Until when it is good.
    expires: Option<toml::value::Datetime>,
    #[serde(default = "rate")]
    requests_per_second: u32,
    #[serde(default = "connections")]
    connections: u32,
}

fn rate() -> u32 {
    10_000
}

fn connections() -> u32 {
    10_000
}

/// The tokens that are accepted; made from a file with [`Tokens::load`].
///
/// ```toml
/// [tokens.deploy]
/// sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" # printf %s "$TOKEN" | sha256sum
/// rights = [{ prefix = "deploy:", allow = ["read", "hold"] }]
/// expires = 2030-01-01T00:00:00Z
/// requests-per-second = 100
/// connections = 50
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    known: Vec<(Hash, Arc<Token>)>,
}

type Hash = [u8; 32];

#[derive(Debug)]
struct Token {
    name: String,
    rights: Vec<Grant>,
    expires_at: Option<SystemTime>,
    rate: Option<Rate>,
    connections: u32,
    connected: AtomicU32,
}

impl Tokens {
    /// Reads a file of tokens.
    ///
    /// # Errors
    /// `invalid`: names what is wrong in it.
    pub fn load(path: impl AsRef<Path>) -> leasehold::Result<Self> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|error| Error::invalid("file of tokens", &shown, format!("a readable file: {error}")))?;
        Self::parse(&text).map_err(|why| Error::invalid("file of tokens", shown, why))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if file.tokens.is_empty() {
            return Err("at least one table [tokens.NAME]".into());
        }
        let known = file.tokens.into_iter().map(|(name, entry)| Token::read(name, entry));
        Ok(Self { known: known.collect::<Result<_, _>>()? })
    }

    /// Whose token it is. Every known hash is compared, so that the time tells nothing.
    fn find(&self, token: &str) -> Option<&Arc<Token>> {
        let hash: Hash = Sha256::digest(token).into();
        let mut found = u32::MAX;
        for (index, (known, _)) in (0u32..).zip(&self.known) {
            found.conditional_assign(&index, known.ct_eq(&hash));
        }
        self.known.get(found as usize).map(|(_, token)| token)
    }
}

impl Token {
    fn read(name: String, entry: Entry) -> Result<(Hash, Arc<Self>), String> {
        let place = format!("[tokens.{name}]");
        let hash = unhex(&entry.sha256).and_then(|bytes| Hash::try_from(bytes).ok());
        let hash =
            hash.ok_or_else(|| format!("64 lower-case hexadecimal digits as the sha256 of {place}"))?;
        if entry.rights.is_empty() {
            return Err(format!("at least one of the rights in {place}"));
        }
        if entry.requests_per_second == 0 || entry.connections == 0 {
            return Err(format!("limits of at least 1 in {place}"));
        }
        let expires_at = entry.expires.map(|at| {
            instant(&at)
                .ok_or_else(|| format!("expires in {place} with its time zone, such as 2030-01-01T00:00:00Z"))
        });
        let token = Self {
            name,
            rights: entry.rights,
            expires_at: expires_at.transpose()?,
            rate: Some(Rate::new(entry.requests_per_second)),
            connections: entry.connections,
            connected: AtomicU32::new(0),
        };
        Ok((hash, Arc::new(token)))
    }
}

/// A time with its zone.
fn instant(at: &toml::value::Datetime) -> Option<SystemTime> {
    use toml::value::Offset;
    let (date, time) = (at.date?, at.time?);
    let minutes = match at.offset? {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let (year, month, day) = (i64::from(date.year), i64::from(date.month), i64::from(date.day));
    // Days since 1970 in the Gregorian calendar, with years that begin in March.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = years * 365 + years.div_euclid(4) - years.div_euclid(100)
        + years.div_euclid(400)
        + (153 * months + 2) / 5
        + day
        - 1
        - 719_468;
    let seconds = ((days * 24 + i64::from(time.hour)) * 60 + i64::from(time.minute) - minutes) * 60
        + i64::from(time.second.unwrap_or(0));
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    token: Arc<Token>,
    is_anonymous: bool,
}

impl Caller {
    /// Whoever reaches the loopback address, where no tokens are set.
    pub(crate) fn anonymous() -> Self {
        let all = Grant { prefix: String::new(), allow: vec![Right::Read, Right::Hold, Right::Force] };
        let token = Token {
            name: "anonymous".into(),
            rights: vec![all],
            expires_at: None,
            rate: None,
            connections: u32::MAX,
            connected: AtomicU32::new(0),
        };
        Self { token: Arc::new(token), is_anonymous: true }
    }

    /// The caller that the header proves.
    pub(crate) fn of(tokens: &Tokens, headers: &HeaderMap) -> Result<Self> {
        let refused = |detail: &str| {
            Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "a token is needed", detail)
        };
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Err(refused("send the header Authorization: Bearer TOKEN"));
        };
        let bearer = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let token = bearer.and_then(|token| tokens.find(token));
        let token = token.ok_or_else(|| refused("the token is not known to this service"))?;
        if token.expires_at.is_some_and(|at| at <= SystemTime::now()) {
            return Err(refused("the token has expired"));
        }
        Ok(Self { token: token.clone(), is_anonymous: false })
    }

    pub(crate) fn name(&self) -> &str {
        &self.token.name
    }

    pub(crate) fn token_name(&self) -> Option<&str> {
        (!self.is_anonymous).then(|| self.name())
    }

    pub(crate) fn rights(&self) -> &[Grant] {
        &self.token.rights
    }

    /// Whether it has this right for this name.
    pub(crate) fn may(&self, right: Right, name: &str) -> bool {
        self.rights().iter().any(|grant| grant.allow.contains(&right) && name.starts_with(&grant.prefix))
    }

    /// Whether it has this right for some names.
    pub(crate) fn may_some(&self, right: Right) -> bool {
        self.rights().iter().any(|grant| grant.allow.contains(&right))
    }

    pub(crate) fn take_rate(&self) -> Result<()> {
        let Some(rate) = &self.token.rate else { return Ok(()) };
        rate.take(std::time::Instant::now()).map_err(|pause| {
            let detail = format!("the token {} sends more requests a second than it may", self.name());
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", "too many requests", detail)
                .again_in(pause)
        })
    }

    /// Counts a connection of this token for as long as the result lives.
    pub(crate) fn connect(&self) -> Result<Connected> {
        let before = self.token.connected.fetch_add(1, Ordering::Relaxed);
        let connected = Connected(self.token.clone());
        if before < self.token.connections {
            return Ok(connected);
        }
        let detail = format!("the token {} has more connections than it may", self.name());
        Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", "too many connections", detail)
            .again_in(Duration::from_secs(1)))
    }

    /// Whether it is the token of another connected caller.
    pub(crate) fn is_same(&self, connected: &Connected) -> bool {
        Arc::ptr_eq(&self.token, &connected.0)
    }
}

/// A connection that a token has.
#[derive(Debug)]
pub(crate) struct Connected(Arc<Token>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connected.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        let hash = |token: &str| crate::views::hex(&Sha256::digest(token));
        let text = format!(
            "[tokens.a]\nsha256 = \"{}\"\nrights = [{{ prefix = \"a:\", allow = [\"read\", \"hold\"] }}]\n\
             [tokens.old]\nsha256 = \"{}\"\nrights = [{{ allow = [\"read\"] }}]\nexpires = 2001-01-01T00:00:00Z\n",
            hash("one"),
            hash("two"),
        );
        Tokens::parse(&text).unwrap()
    }

    fn caller(authorization: &str) -> Result<Caller> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
        Caller::of(&tokens(), &headers)
    }

    #[test]
    fn a_token_gives_its_rights_and_no_others() {
        let one = caller("Bearer one").unwrap();
        assert_eq!(one.name(), "a");
        assert!(one.may(Right::Hold, "a:1") && !one.may(Right::Force, "a:1") && !one.may(Right::Read, "b"));
        for refused in ["Bearer two", "Bearer three", "Bearer ", "Basic one", "one"] {
            assert_eq!(caller(refused).expect_err(refused).status(), 401);
        }
    }

    #[test]
    fn a_file_with_a_mistake_names_it() {
        for (text, says) in [
            ("", "tokens"),
            ("[tokens]", "at least one table"),
            ("[tokens.a]\nsha256 = \"x\"\nrights = []", "64 lower-case"),
            ("[tokens.a]\ntoken = \"x\"", "token"),
        ] {
            let why = Tokens::parse(text).expect_err(text);
            assert!(why.contains(says), "{text}: {why}");
        }
    }

    #[test]
    fn a_time_is_read_with_its_zone() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-03-01T00:00:00Z", 951_868_800),
            ("2024-02-29T12:30:15+01:30", 1_709_204_415),
        ] {
            let at: toml::value::Datetime = text.parse().unwrap();
            assert_eq!(instant(&at), Some(UNIX_EPOCH + Duration::from_secs(seconds)), "{text}");
        }
    }
}
