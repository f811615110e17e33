//! Store URLs: `redis[s]://`, `redis[s]-sentinel://`, `redis[s]-cluster://` and `redlock[s]://`.
//!
//! All have one form, `SCHEME://[USER[:PASSWORD]@]HOST[:PORT],…[/PATH][?PARAMETERS]`. They differ in how many hosts there are,
//! what the path means, and which parameters there are. Nothing is dialled.

mod endpoint;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;

use std::{collections::HashSet, fs::File, io::Read, ops::RangeInclusive};

use percent_encoding::percent_decode_str;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use url::Url;

pub(super) use self::endpoint::Endpoint;
use leasehold_core::{
    error::{Error, Result},
    text::{cut, redact},
};

/// Largest password or certificate file.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// What URLs of one kind of store look like.
struct Form {
    /// Without TLS; with it, an `s` follows the first word.
    scheme: &'static str,
    /// What follows the login.
    syntax: &'static str,
    hosts: RangeInclusive<usize>,
    port: u16,
}

const FORMS: [Form; 4] = [
    Form { scheme: "redis", syntax: "HOST[:PORT][/DB]", hosts: 1..=1, port: 6379 },
    Form { scheme: CLUSTER, syntax: "HOST[:PORT],HOST[:PORT],…", hosts: 1..=256, port: 6379 },
    Form { scheme: SENTINEL, syntax: "HOST[:PORT],HOST[:PORT],…/NAME[/DB]", hosts: 1..=32, port: 26379 },
    // A majority of fewer than three is all of them, and every operation asks all of them.
    Form { scheme: QUORUM, syntax: "HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB]", hosts: 3..=15, port: 6379 },
];
pub(super) const CLUSTER: &str = "redis-cluster";
pub(super) const SENTINEL: &str = "redis-sentinel";
const QUORUM: &str = "redlock";

/// Parameters of all forms, for the servers that have the data; and those that only sentinels have.
const FILES: [&str; 4] = ["password-file", "ca", "cert", "key"];
const OF_SENTINELS: [&str; 5] =
    ["sentinel-user", "sentinel-password", "sentinel-password-file", "tls", "grace"];

impl Form {
    fn tls_scheme(&self) -> String {
        self.scheme.replacen("redis", "rediss", 1).replacen("redlock", "redlocks", 1)
    }
}

pub(super) struct StoreUrl {
    form: &'static Form,
    /// The URL as people may see it.
    shown: String,
    user: String,
    password: Option<String>,
    /// The server, all nodes of a quorum, some nodes of a cluster, or sentinels: each once.
    pub(super) hosts: Vec<Endpoint>,
    /// What the sentinels call the primary.
    pub(super) primary: String,
    /// Empty if there is none.
    database: String,
    tls: bool,
    /// Whether a promotion is followed by a time in which nothing new is granted.
    pub(super) grace: bool,
    parameters: Vec<(String, String)>,
}

impl StoreUrl {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let shown = redact(text);
        let refuse = |expected: &str| Err(Error::invalid("store URL", &shown, expected));
        let scheme = text.split(':').next().unwrap_or_default();
        let is_form = |form: &&Form| form.scheme == scheme || form.tls_scheme() == scheme;
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
        let (primary, database) = match form.scheme {
            SENTINEL => path.split_once('/').unwrap_or((path, "")),
            _ => ("", path),
        };
        let (user, password) = login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
        let mut url = Self {
            form,
            user: decoded(user),
            password: password.map(decoded),
            hosts,
            primary: decoded(primary),
            database: database.to_owned(),
            tls: scheme == form.tls_scheme(),
            grace: false,
            parameters: Vec::new(),
            shown,
        };
        url.read_parameters(query)?;
        url.check()?;
        Ok(url)
    }

    fn read_parameters(&mut self, query: &str) -> Result<()> {
        let more: &[&str] = if self.form.scheme == SENTINEL { &OF_SENTINELS } else { &[] };
        let known = [&FILES, more].concat();
        // Not as a form, where a plus would be a space: it may be part of a password.
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        for (parameter, value) in pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
            if !known.contains(&parameter) {
                // With an `@` in it, it is the rest of a password that had a `?`.
                let got = if parameter.contains('@') { "…" } else { parameter };
                let what = format!("parameter of the store URL {}", self.shown);
                return Err(Error::invalid(what, got, known.join(", ")));
            }
            self.parameters.push((parameter.to_owned(), decoded(value)));
        }
        self.tls |= self.is_on("tls")?;
        self.grace = self.is_on("grace")?;
        Ok(())
    }

    /// What only some forms ask for. A host that is named twice is asked once; it must not vote twice.
    fn check(&mut self) -> Result<()> {
        let scheme = self.form.scheme;
        if !self.tls && ["ca", "cert", "key"].iter().any(|file| self.parameter(file).is_some()) {
            let scheme = self.form.tls_scheme();
            return Err(self.refuse(&format!("ca, cert and key only with TLS ({scheme}://)")));
        }
        if scheme == SENTINEL && self.primary.is_empty() {
            return Err(self.refuse("the name of the primary after the hosts, as the sentinels know it"));
        }
        if scheme == CLUSTER && !self.database.is_empty() {
            return Err(self.refuse("no database: a cluster has only one"));
        }
        let mut known = HashSet::new();
        let (once, twice): (Vec<_>, Vec<_>) =
            self.hosts.drain(..).partition(|host| known.insert(host.to_string().to_ascii_lowercase()));
        self.hosts = once;
        match twice.first().filter(|_| scheme == QUORUM) {
            Some(host) => Err(self.refuse(&format!("each host once; {host} would vote twice"))),
            None => Ok(()),
        }
    }

    /// The engine's word, which is the scheme without TLS.
    pub(super) fn engine(&self) -> &'static str {
        self.form.scheme
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
            Some(got) => Err(Error::invalid(parameter, cut(got, 24), "on or off")),
        }
    }

    /// The password in the file that a parameter names, or the one that was `given`.
    fn password(&self, file: &str, given: Option<&str>) -> Result<Option<String>> {
        let Some(path) = self.parameter(file) else { return Ok(given.map(str::to_owned)) };
        let text = String::from_utf8_lossy(&read(file, path)?).into_owned();
        Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    /// A client for the servers that have the data, at the first host: others are made of it.
    pub(super) fn login(&self) -> Result<Client> {
        let password = self.password("password-file", self.password.as_deref())?;
        let settings = settings(&self.user, password);
        if self.database.is_empty() {
            return self.client(settings);
        }
        let number = self.database.parse().ok().filter(|number| (0..=1_000_000).contains(number));
        self.client(settings.set_db(number.ok_or_else(|| self.refuse("a database number in the path"))?))
    }

    /// A client for sentinels, which get nothing but what parameters of their own say.
    pub(super) fn sentinel_login(&self) -> Result<Client> {
        let password = self.password("sentinel-password-file", self.parameter("sentinel-password"))?;
        self.client(settings(self.parameter("sentinel-user").unwrap_or_default(), password))
    }

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
    let refuse = |why: String| Error::invalid(parameter, path, why);
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| refuse(format!("a readable file ({error})")))?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(refuse("a file of at most 1 MiB".into()));
    }
    Ok(bytes)
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
