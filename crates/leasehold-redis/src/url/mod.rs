//! Store URLs: `redis[s]://`, `redis[s]-sentinel://`, `redis[s]-cluster://` and `redlock[s]://`.
//!
//! All have one form, `SCHEME://[USER[:PASSWORD]@]HOST[:PORT],…[/PATH][?PARAMETERS]`. They differ in how many hosts there are,
//! what the path means, and which parameters there are. Nothing is dialled.

mod endpoint;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;

use std::{collections::HashSet, ops::RangeInclusive};

use percent_encoding::percent_decode_str;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use url::Url;

pub(super) use self::endpoint::Endpoint;
use leasehold_core::{
    error::{Error, Result},
    text::redact,
};

/// What URLs of one kind of store look like.
struct Form {
    scheme: &'static str,
    tls_scheme: &'static str,
    /// What follows the login.
    syntax: &'static str,
    hosts: RangeInclusive<usize>,
    port: u16,
    /// Parameters besides those of all forms.
    parameters: &'static [&'static str],
}

const FORMS: [Form; 4] = [
    Form {
        scheme: "redis",
        tls_scheme: "rediss",
        syntax: "HOST[:PORT][/DB]",
        hosts: 1..=1,
        port: 6379,
        parameters: &[],
    },
    Form {
        scheme: "redis-cluster",
        tls_scheme: "rediss-cluster",
        syntax: "HOST[:PORT],HOST[:PORT],…",
        hosts: 1..=256,
        port: 6379,
        parameters: &[],
    },
    Form {
        scheme: "redis-sentinel",
        tls_scheme: "rediss-sentinel",
        syntax: "HOST[:PORT],HOST[:PORT],…/NAME[/DB]",
        hosts: 1..=32,
        port: 26379,
        parameters: &["sentinel-user", "sentinel-password", "sentinel-password-file", "tls", "grace"],
    },
    // A majority of fewer than three is all of them, and every operation asks all of them.
    Form {
        scheme: "redlock",
        tls_scheme: "redlocks",
        syntax: "HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB]",
        hosts: 3..=15,
        port: 6379,
        parameters: &[],
    },
];
/// Parameters of all forms; what they name is for the servers that have the data.
const FILES: [&str; 4] = ["password-file", "ca", "cert", "key"];

/// The servers that a URL names: one, some nodes of a cluster, or all nodes of a quorum.
pub(super) fn servers(text: &str) -> Result<Vec<Client>> {
    let url = StoreUrl::parse(text)?;
    if url.form.scheme == "redis-cluster" && url.path.is_some() {
        return Err(url.refuse("no database: a cluster has only one"));
    }
    if url.form.scheme == "redlock" {
        let mut known = HashSet::new();
        let mut hosts = url.hosts.iter();
        if let Some(host) = hosts.find(|host| !known.insert(host.to_string().to_ascii_lowercase())) {
            return Err(url.refuse(&format!("each host once; {host} would vote twice")));
        }
    }
    let first = url.client(url.login(url.path.as_deref())?)?;
    let each = url.hosts.iter().map(|host| host.client(&first).map_err(|error| url.refuse(&error.why)));
    each.collect()
}

/// What a `redis[s]-sentinel://` URL names.
pub(super) struct SentinelUrl {
    /// Where to ask.
    pub(super) sentinels: Vec<Endpoint>,
    /// What the sentinels call the primary.
    pub(super) name: String,
    /// How to log in to a sentinel, whichever it is.
    pub(super) login: Client,
    /// How to log in to a primary, whichever it is.
    pub(super) primary: Client,
    /// Whether a promotion is followed by a time in which nothing new is granted.
    pub(super) grace: bool,
}

/// User, password and `password-file` are for the primary; sentinels get nothing but what `sentinel-user`,
/// `sentinel-password` and `sentinel-password-file` say.
pub(super) fn sentinel(text: &str) -> Result<SentinelUrl> {
    let url = StoreUrl::parse(text)?;
    let path = url.path.as_deref().unwrap_or_default();
    let (name, database) = path.split_once('/').map_or((path, None), |(name, db)| (name, Some(db)));
    if name.is_empty() {
        return Err(url.refuse("the name of the primary after the hosts, as the sentinels know it"));
    }
    let user = url.parameter("sentinel-user").unwrap_or_default();
    let password = url.password("sentinel-password-file", url.parameter("sentinel-password"))?;
    let mut known = HashSet::new();
    Ok(SentinelUrl {
        sentinels: url.hosts.iter().filter(|host| known.insert(*host)).cloned().collect(),
        name: decoded(name),
        login: url.client(settings(user, password))?,
        primary: url.client(url.login(database)?)?,
        grace: url.is_on("grace")?,
    })
}

/// A URL in its parts.
struct StoreUrl {
    form: &'static Form,
    /// The URL as people may see it.
    shown: String,
    user: String,
    password: Option<String>,
    hosts: Vec<Endpoint>,
    /// Without the slashes around it; `None` if it is empty.
    path: Option<String>,
    tls: bool,
    parameters: Vec<(String, String)>,
}

impl StoreUrl {
    fn parse(text: &str) -> Result<Self> {
        let shown = redact(text);
        let refuse = |expected: &str| Err(Error::invalid("store URL", &shown, expected));
        let scheme = text.split(':').next().unwrap_or_default();
        let is_form = |form: &&Form| form.scheme == scheme || form.tls_scheme == scheme;
        let form = FORMS.iter().find(is_form).unwrap_or(&FORMS[0]);
        let syntax = format!("{}://[USER[:PASSWORD]@]{}", form.scheme, form.syntax);
        let hosts_expected = match form.hosts.clone().into_inner() {
            (1, 1) => format!("a host name, as in {syntax}"),
            (least, most) => format!("{least} to {most} hosts, as in {syntax}"),
        };
        let Some((_, rest)) = text.split_once("://") else { return refuse(&hosts_expected) };
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if tail.contains('#') {
            return refuse("no '#'; in a password it is written %23");
        }
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        // The rest of a password that had one.
        let hint = if tail.contains('@') { "; in a password '/' is written %2F, and '?' %3F" } else { "" };
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.contains(&"") || !form.hosts.contains(&hosts.len()) {
            return refuse(&format!("{hosts_expected}{hint}"));
        }
        let hosts: Option<Vec<_>> = hosts.into_iter().map(|host| endpoint(host, form.port)).collect();
        let Some(hosts) = hosts else { return refuse(&format!("{syntax}{hint}")) };
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let path = path.trim_matches('/');
        let (user, password) = login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
        let mut url = Self {
            form,
            user: decoded(user),
            password: password.map(decoded),
            hosts,
            path: (!path.is_empty()).then(|| path.to_owned()),
            tls: scheme == form.tls_scheme,
            parameters: Vec::new(),
            shown,
        };
        url.read_parameters(query)?;
        Ok(url)
    }

    fn read_parameters(&mut self, query: &str) -> Result<()> {
        // Not as a form, where a plus would be a space: it may be part of a password.
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        for (parameter, value) in pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
            let known = [&FILES[..], self.form.parameters].concat();
            if !known.contains(&parameter) {
                // With an `@` in it, it is the rest of a password that had a `?`.
                let got = if parameter.contains('@') { "…" } else { parameter };
                let what = format!("parameter of the store URL {}", self.shown);
                return Err(Error::invalid(what, got, known.join(", ")));
            }
            self.parameters.push((parameter.to_owned(), decoded(value)));
        }
        self.tls |= self.is_on("tls")?;
        if !self.tls && ["ca", "cert", "key"].iter().any(|file| self.parameter(file).is_some()) {
            let scheme = self.form.tls_scheme;
            return Err(self.refuse(&format!("ca, cert and key only with TLS ({scheme}://)")));
        }
        Ok(())
    }

    fn refuse(&self, expected: &str) -> Error {
        Error::invalid("store URL", &self.shown, expected)
    }

    /// The last value of a parameter.
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rfind(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn is_on(&self, parameter: &str) -> Result<bool> {
        match self.parameter(parameter) {
            Some("on") => Ok(true),
            None | Some("off") => Ok(false),
            Some(got) => {
                Err(Error::invalid(parameter, got.chars().take(24).collect::<String>(), "on or off"))
            }
        }
    }

    /// The password in the file that a parameter names, or the one that was `given`.
    fn password(&self, file: &str, given: Option<&str>) -> Result<Option<String>> {
        let Some(path) = self.parameter(file) else { return Ok(given.map(str::to_owned)) };
        let text = String::from_utf8_lossy(&read(file, path)?).into_owned();
        Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    /// How to log in to the servers that have the data.
    fn login(&self, database: Option<&str>) -> Result<RedisConnectionInfo> {
        let password = self.password("password-file", self.password.as_deref())?;
        let settings = settings(&self.user, password);
        let Some(database) = database else { return Ok(settings) };
        let number = database.parse().ok().filter(|number| (0..=1_000_000).contains(number));
        Ok(settings.set_db(number.ok_or_else(|| self.refuse("a database number in the path"))?))
    }

    /// A client for the first host, which others are made of.
    fn client(&self, settings: RedisConnectionInfo) -> Result<Client> {
        let Endpoint { host, port } = self.hosts[0].clone();
        let addr = match self.tls {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let refuse = |error: redis::RedisError| self.refuse(&error.to_string());
        let info = addr.into_connection_info().map_err(refuse)?;
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        #[cfg(feature = "tls")]
        if self.tls {
            return self.open_with_tls(info);
        }
        Client::open(info).map_err(refuse)
    }
}

fn endpoint(host: &str, port: u16) -> Option<Endpoint> {
    let url = Url::parse(&format!("redis://{host}")).ok()?;
    let name = url.host_str().filter(|host| !host.is_empty())?;
    Some(Endpoint::new(name, url.port().unwrap_or(port)))
}

/// What every connection says of itself before it is used.
fn settings(user: &str, password: Option<String>) -> RedisConnectionInfo {
    // Without CLIENT SETINFO: a right that no lock needs, and that Redis 7.0 cannot even grant.
    let mut settings =
        RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    if !user.is_empty() {
        settings = settings.set_username(user);
    }
    match password {
        Some(password) => settings.set_password(password),
        None => settings,
    }
}

fn read(parameter: &str, path: &str) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::invalid(parameter, path, format!("a readable file ({error})")))
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
