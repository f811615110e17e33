//! What a `redis-sentinel://` URL says.

use std::path::Path;

use ::url::Url;

use super::Address;
use crate::{
    engine::{
        connect::redact,
        redis::url::{self, Files},
    },
    error::{Error, Result},
};

const FORM: &str = "redis-sentinel://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT],…/NAME[/DB]";
const PARAMETERS: &str = "password-file, sentinel-user, sentinel-password, sentinel-password-file, tls, ca, \
                          cert, key, grace";
const PORT: u16 = 26379;
/// Sentinels that one URL may name.
const SENTINELS_MAX: usize = 32;

/// A URL, read.
pub(super) struct Target {
    /// Where to ask.
    pub(super) sentinels: Vec<Address>,
    /// What the sentinels call the primary.
    pub(super) name: String,
    /// How to log in to a sentinel, whichever it is.
    pub(super) sentinel: redis::Client,
    /// How to log in to a primary, whichever it is.
    pub(super) primary: redis::Client,
    /// Whether a promotion is followed by a time in which nothing new is granted.
    pub(super) grace: bool,
}

/// Reads `redis[s]-sentinel://[USER[:PASSWORD]@]HOST[:PORT],…/NAME[/DB][?PARAMETERS]`.
///
/// User, password and `password-file` are for the primary; sentinels get nothing but what `sentinel-user`,
/// `sentinel-password` and `sentinel-password-file` say.
pub(super) fn read(text: &str) -> Result<Target> {
    let shown = redact(text);
    let refuse = |allowed: &str| Error::invalid("store URL", shown.clone(), allowed);
    let (hosts, single) = split_hosts(text).ok_or_else(|| refuse(FORM))?;
    let url = Url::parse(&single).map_err(|_| refuse(FORM))?;
    if url.fragment().is_some() {
        return Err(refuse("no '#'; in a password it is written %23"));
    }
    let sentinels = addresses(&hosts).ok_or_else(|| refuse(FORM))?;
    if sentinels.len() > SENTINELS_MAX {
        return Err(refuse(&format!("at most {SENTINELS_MAX} sentinels")));
    }
    let parameters = Parameters::read(&url, &shown)?;

    let mut settings = url::settings();
    let mut path = url.path().trim_start_matches('/').splitn(2, '/');
    let name = path.next().map(url::decoded).filter(|name| !name.is_empty());
    let name =
        name.ok_or_else(|| refuse("the name of the primary after the hosts, as the sentinels know it"))?;
    if let Some(database) = path.next().filter(|database| !database.is_empty()) {
        let number = url::database_number(database);
        settings = settings.set_db(number.ok_or_else(|| refuse("a database number after the name"))?);
    }
    if !url.username().is_empty() {
        settings = settings.set_username(url::decoded(url.username()));
    }
    if let Some(password) = parameters.files.password.clone().or_else(|| url.password().map(url::decoded)) {
        settings = settings.set_password(password);
    }
    let mut asking = url::settings();
    if let Some(user) = &parameters.sentinel_user {
        asking = asking.set_username(user);
    }
    if let Some(password) = &parameters.sentinel_password {
        asking = asking.set_password(password);
    }

    let tls = parameters.tls || url.scheme() == "rediss-sentinel";
    parameters.files.only_with_tls(tls, &shown)?;
    let first = &sentinels[0];
    let template = |settings| {
        url::template(first.host.clone(), first.port, settings, tls, parameters.files.clone())
            .map_err(|error| refuse(&error))
    };
    let (sentinel, primary) = (template(asking)?, template(settings)?);
    Ok(Target { name, sentinel, primary, grace: parameters.grace, sentinels })
}

/// The hosts, and the URL with only the first of them, which is all that a URL may have.
fn split_hosts(text: &str) -> Option<(String, String)> {
    let begin = text.find("://")? + 3;
    let end = text[begin..].find(['/', '?', '#']).map_or(text.len(), |at| begin + at);
    let begin = text[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
    let hosts = &text[begin..end];
    let first = hosts.split(',').next()?;
    Some((hosts.to_owned(), format!("{}{first}{}", &text[..begin], &text[end..])))
}

fn addresses(hosts: &str) -> Option<Vec<Address>> {
    let mut found: Vec<Address> = Vec::new();
    for host in hosts.split(',') {
        let url = Url::parse(&format!("redis-sentinel://{host}")).ok()?;
        let name = url.host_str().filter(|host| !host.is_empty())?;
        let address = Address::new(name, url.port().unwrap_or(PORT));
        if !found.contains(&address) {
            found.push(address);
        }
    }
    Some(found)
}

#[derive(Default)]
struct Parameters {
    files: Files,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    tls: bool,
    grace: bool,
}

impl Parameters {
    fn read(url: &Url, shown: &str) -> Result<Self> {
        let mut found = Self::default();
        // Not as a form, where a plus would be a space: it may be part of a password.
        for pair in url.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (parameter, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = url::decoded(value);
            match parameter {
                "sentinel-user" => found.sentinel_user = Some(value),
                "sentinel-password" => found.sentinel_password = Some(value),
                "sentinel-password-file" => {
                    found.sentinel_password = Some(url::read_password(parameter, Path::new(&value))?);
                }
                "tls" => found.tls = is_on(parameter, &value)?,
                "grace" => found.grace = is_on(parameter, &value)?,
                _ if found.files.take(parameter, &value)? => {}
                _ => return Err(url::unknown(parameter, PARAMETERS, shown)),
            }
        }
        Ok(found)
    }
}

fn is_on(parameter: &str, value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(Error::invalid(parameter, other.chars().take(24).collect::<String>(), "on or off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(client: &redis::Client) -> (Option<&str>, Option<&str>, i64) {
        let settings = client.get_connection_info().redis_settings();
        (settings.username(), settings.password(), settings.db())
    }

    #[test]
    fn a_url_names_sentinels_primary_and_two_logins() {
        let text = "redis-sentinel://ann:p%40s,s@a,b:7000,[::1]:7001,a:26379/my%20primary/3\
                    ?sentinel-user=sam&sentinel-password=x+%2By&grace=on";
        let target = read(text).unwrap();
        let shown: Vec<_> = target.sentinels.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a:26379", "b:7000", "[::1]:7001"]);
        assert_eq!((target.name.as_str(), target.grace), ("my primary", true));
        assert_eq!(login(&target.primary), (Some("ann"), Some("p@s,s"), 3));
        assert_eq!(login(&target.sentinel), (Some("sam"), Some("x++y"), 0));
    }

    #[test]
    fn a_login_for_the_primary_is_not_one_for_sentinels() {
        let target = read("redis-sentinel://ann:secret@a/primary").unwrap();
        assert_eq!(login(&target.sentinel), (None, None, 0));
        assert!(!target.grace);
    }

    #[test]
    fn bad_urls_say_what_is_allowed_and_hide_passwords() {
        for bad in [
            "redis-sentinel:///primary",
            "redis-sentinel://a",
            "redis-sentinel://a/",
            "redis-sentinel://a,,b/primary",
            "redis-sentinel://a:x/primary",
            "redis-sentinel://:secret@a/primary/x",
            "redis-sentinel://:secret@a/primary?what=1",
            "redis-sentinel://a/primary?sentinel-password=secret&grace=yes",
            "redis-sentinel://a/primary?sentinel-password=secret&ca=/nowhere",
            "redis-sentinel://a/primary?sentinel-password=se@secret&what=1",
            "redis-sentinel://u:1?secret@a/primary",
            "redis-sentinel://u:1#secret@a/primary",
        ] {
            let Err(error) = read(bad) else { panic!("{bad} was taken") };
            let text = error.to_string();
            assert!(text.contains("expected") && !text.contains("secret"), "{text}");
        }
    }
}
