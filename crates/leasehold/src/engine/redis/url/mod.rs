//! Store URLs: `redis[s]://`, `redis[s]-sentinel://`, `redis[s]-cluster://` and `redlock[s]://`.
//!
//! All have one form, `SCHEME://[USER[:PASSWORD]@]HOST[:PORT],…[/PATH][?PARAMETERS]`. They differ in how many hosts there are,
//! what the path means, and which parameters there are. Nothing is dialled.

mod endpoint;
mod files;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use percent_encoding::percent_decode_str;
use redis::{Client, ProtocolVersion, RedisConnectionInfo};
use url::Url;

pub(super) use self::endpoint::Endpoint;
use self::files::{Files, read_password};
use crate::{
    engine::connect::redact,
    error::{Error, Result},
};

/// What URLs of one kind of store look like.
struct Form {
    tls_scheme: &'static str,
    syntax: &'static str,
    hosts: RangeInclusive<usize>,
    port: u16,
    /// Parameters besides those that name files for the servers.
    parameters: &'static [&'static str],
}

const SERVER: Form = Form {
    tls_scheme: "rediss",
    syntax: "redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]",
    hosts: 1..=1,
    port: 6379,
    parameters: &[],
};
const CLUSTER: Form = Form {
    tls_scheme: "rediss-cluster",
    syntax: "redis-cluster://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT],…",
    hosts: 1..=256,
    port: 6379,
    parameters: &[],
};
const SENTINEL: Form = Form {
    tls_scheme: "rediss-sentinel",
    syntax: "redis-sentinel://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT],…/NAME[/DB]",
    hosts: 1..=32,
    port: 26379,
    parameters: &["sentinel-user", "sentinel-password", "sentinel-password-file", "tls", "grace"],
};
/// A majority of fewer than three is all of them, and every operation asks all of them.
const QUORUM: Form = Form {
    tls_scheme: "redlocks",
    syntax: "redlock://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB]",
    hosts: 3..=15,
    port: 6379,
    parameters: &[],
};
const FILES: [&str; 4] = ["password-file", "ca", "cert", "key"];

/// The server that a `redis[s]://` URL names.
pub(super) fn server(text: &str) -> Result<Client> {
    let url = StoreUrl::parse(text, &SERVER)?;
    let settings = url.login(url.path.as_deref())?;
    url.client(settings)
}

/// The nodes that a `redis[s]-cluster://` URL names.
pub(super) fn cluster(text: &str) -> Result<Vec<Client>> {
    let url = StoreUrl::parse(text, &CLUSTER)?;
    if url.path.is_some() {
        return Err(url.refuse("no database: a cluster has only one"));
    }
    let settings = url.login(None)?;
    url.clients(settings)
}

/// What a `redis[s]-sentinel://` URL says.
pub(super) struct SentinelUrl {
    /// Where to ask.
    pub(super) sentinels: Vec<Endpoint>,
    /// What the sentinels call the primary.
    pub(super) name: String,
    /// How to log in to a sentinel, whichever it is.
    pub(super) sentinel: Client,
    /// How to log in to a primary, whichever it is.
    pub(super) primary: Client,
    /// Whether a promotion is followed by a time in which nothing new is granted.
    pub(super) grace: bool,
}

/// User, password and `password-file` are for the primary; sentinels get nothing but what `sentinel-user`,
/// `sentinel-password` and `sentinel-password-file` say.
pub(super) fn sentinel(text: &str) -> Result<SentinelUrl> {
    let url = StoreUrl::parse(text, &SENTINEL)?;
    let path = url.path.as_deref().unwrap_or_default();
    let (name, database) = path.split_once('/').map_or((path, None), |(name, db)| (name, Some(db)));
    if name.is_empty() {
        return Err(url.refuse("the name of the primary after the hosts, as the sentinels know it"));
    }
    let mut asking = settings();
    let mut grace = false;
    for (parameter, value) in &url.parameters {
        match parameter.as_str() {
            "sentinel-user" => asking = asking.set_username(value),
            "sentinel-password" => asking = asking.set_password(value),
            "sentinel-password-file" => asking = asking.set_password(read_password(parameter, value)?),
            "grace" => grace = is_on(parameter, value)?,
            _ => {}
        }
    }
    let primary = url.client(url.login(database)?)?;
    let sentinel = url.client(asking)?;
    let mut sentinels: Vec<Endpoint> = Vec::with_capacity(url.hosts.len());
    for host in &url.hosts {
        if !sentinels.contains(host) {
            sentinels.push(host.clone());
        }
    }
    Ok(SentinelUrl { name: decoded(name), sentinel, primary, grace, sentinels })
}

/// The nodes of a quorum.
pub(super) fn quorum(text: &str) -> Result<Vec<Client>> {
    let url = StoreUrl::parse(text, &QUORUM)?;
    for (at, host) in url.hosts.iter().enumerate() {
        if url.hosts[..at].iter().any(|other| other.to_string().eq_ignore_ascii_case(&host.to_string())) {
            return Err(url.refuse(&format!("each host once; {host} would vote twice")));
        }
    }
    let settings = url.login(url.path.as_deref())?;
    url.clients(settings)
}

/// A URL in its parts.
struct StoreUrl {
    /// The URL as people may see it.
    shown: String,
    user: String,
    password: Option<String>,
    hosts: Vec<Endpoint>,
    /// Without the slashes around it; `None` if it is empty.
    path: Option<String>,
    tls: bool,
    files: Files,
    /// Those of the form, in order.
    parameters: Vec<(String, String)>,
}

impl StoreUrl {
    fn parse(text: &str, form: &Form) -> Result<Self> {
        let shown = redact(text);
        let refuse = |expected: &str| Err(Error::invalid("store URL", &shown, expected));
        let hosts_expected = match form.hosts.clone().into_inner() {
            (1, 1) => format!("a host name, as in {}", form.syntax),
            (least, most) => format!("{least} to {most} hosts, as in {}", form.syntax),
        };
        let Some((scheme, rest)) = text.split_once("://") else { return refuse(&hosts_expected) };
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
        let Some(hosts) = hosts else { return refuse(&format!("{}{hint}", form.syntax)) };
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let path = path.trim_matches('/');
        let (user, password) = login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
        let mut url = Self {
            user: decoded(user),
            password: password.map(decoded),
            hosts,
            path: (!path.is_empty()).then(|| path.to_owned()),
            tls: scheme == form.tls_scheme,
            files: Files::default(),
            parameters: Vec::new(),
            shown,
        };
        url.read_parameters(query, form)?;
        Ok(url)
    }

    fn read_parameters(&mut self, query: &str, form: &Form) -> Result<()> {
        // Not as a form, where a plus would be a space: it may be part of a password.
        let pairs: Vec<_> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(parameter, value)| (parameter, decoded(value)))
            .collect();
        for (_, value) in pairs.iter().filter(|(parameter, _)| *parameter == "tls" && form.port == 26379) {
            self.tls |= is_on("tls", value)?;
        }
        for (parameter, value) in pairs {
            if ["ca", "cert", "key"].contains(&parameter) && !self.tls {
                return Err(self.refuse(&format!("ca, cert and key only with TLS ({}://)", form.tls_scheme)));
            }
            if form.parameters.contains(&parameter) {
                self.parameters.push((parameter.to_owned(), value));
            } else if !self.files.take(parameter, &value)? {
                // With an `@` in it, it is the rest of a password that had a `?`.
                let got = if parameter.contains('@') { "…" } else { parameter };
                let known = [&FILES[..], form.parameters].concat().join(", ");
                return Err(Error::invalid(format!("parameter of the store URL {}", self.shown), got, known));
            }
        }
        Ok(())
    }

    fn refuse(&self, expected: &str) -> Error {
        Error::invalid("store URL", &self.shown, expected)
    }

    /// How to log in to the servers that have the data.
    fn login(&self, database: Option<&str>) -> Result<RedisConnectionInfo> {
        let mut settings = settings();
        if !self.user.is_empty() {
            settings = settings.set_username(&self.user);
        }
        if let Some(password) = self.files.password.as_ref().or(self.password.as_ref()) {
            settings = settings.set_password(password);
        }
        if let Some(database) = database {
            let number = database.parse().ok().filter(|number| (0..=1_000_000).contains(number));
            settings = settings.set_db(number.ok_or_else(|| self.refuse("a database number in the path"))?);
        }
        Ok(settings)
    }

    /// A client for the first host, which others are made of.
    fn client(&self, settings: RedisConnectionInfo) -> Result<Client> {
        let client = self.files.clone().client(self.hosts[0].clone(), settings, self.tls);
        client.map_err(|error| self.refuse(&error))
    }

    /// A client for each host.
    fn clients(&self, settings: RedisConnectionInfo) -> Result<Vec<Client>> {
        let first = self.client(settings)?;
        let each = self.hosts.iter().map(|host| host.client(&first).map_err(|error| self.refuse(&error.why)));
        each.collect()
    }
}

fn endpoint(host: &str, port: u16) -> Option<Endpoint> {
    let url = Url::parse(&format!("redis://{host}")).ok()?;
    let name = url.host_str().filter(|host| !host.is_empty())?;
    Some(Endpoint::new(name, url.port().unwrap_or(port)))
}

/// What every connection says of itself before it is used.
fn settings() -> RedisConnectionInfo {
    // Without CLIENT SETINFO: a right that no lock needs, and that Redis 7.0 cannot even grant.
    RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name()
}

fn is_on(parameter: &str, value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(Error::invalid(parameter, other.chars().take(24).collect::<String>(), "on or off")),
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
