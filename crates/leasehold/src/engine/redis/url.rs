//! What a `redis://` or `rediss://` URL says.

use std::path::Path;

use percent_encoding::percent_decode_str;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use url::Url;

use super::slots::Address;
use crate::error::{Error, Result};

const PARAMETERS: &str = "password-file, ca, cert, key";

/// Opens the driver's client for a URL. Nothing is dialled.
///
/// `redis[s]://[USER[:PASSWORD]@]HOST[:PORT][/DB][?password-file=F&ca=F&cert=F&key=F]`
pub(super) fn open(text: &str) -> Result<redis::Client> {
    let shown = super::super::connect::redact(text);
    let refuse = |allowed: &str| Error::invalid("store URL", shown.clone(), allowed);
    let url = Url::parse(text).map_err(|_| refuse("redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]"))?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| refuse("a host name"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = url.port().unwrap_or(6379);
    if url.fragment().is_some() {
        return Err(refuse("no '#'; in a password it is written %23"));
    }
    let files = Files::read(&url, &shown)?;

    let mut settings = settings();
    if !url.username().is_empty() {
        settings = settings.set_username(decoded(url.username()));
    }
    if let Some(password) = files.password.clone().or_else(|| url.password().map(decoded)) {
        settings = settings.set_password(password);
    }
    let database = url.path().trim_start_matches('/');
    if !database.is_empty() {
        let number = database_number(database).ok_or_else(|| refuse("a database number after the host"))?;
        settings = settings.set_db(number);
    }
    let tls = url.scheme() == "rediss";
    files.only_with_tls(tls, &shown)?;
    template(host, port, settings, tls, files).map_err(|error| Error::invalid("store URL", shown, error))
}

/// What every connection says of itself before it is used.
pub(super) fn settings() -> RedisConnectionInfo {
    // Without CLIENT SETINFO: a right that no lock needs, and that Redis 7.0 cannot even grant.
    RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name()
}

/// The driver's client for one server.
pub(super) fn template(
    host: String,
    port: u16,
    settings: RedisConnectionInfo,
    tls: bool,
    files: Files,
) -> Result<redis::Client, String> {
    let addr = if tls {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let info = addr.into_connection_info().map_err(|error| error.to_string())?;
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    client(info.set_redis_settings(settings).set_tcp_settings(tcp), tls, files)
}

/// Opens a client for each node that a URL of a cluster names.
///
/// `redis[s]-cluster://[USER[:PASSWORD]@]HOST[:PORT],...[?password-file=F&ca=F&cert=F&key=F]`
pub(super) fn open_cluster(text: &str) -> Result<Vec<redis::Client>> {
    let shown = super::super::connect::redact(text);
    let refuse = |allowed: &str| Error::invalid("store URL", shown.clone(), allowed);
    let form = "redis-cluster://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT],...";
    let (scheme, rest) = text.split_once("://").ok_or_else(|| refuse(form))?;
    let (place, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    let (user, hosts) = place.rsplit_once('@').map_or(("", place), |(user, hosts)| (user, hosts));
    let hosts = hosts.trim_end_matches('/');
    if hosts.contains('/') {
        return Err(refuse("no database: a cluster has only one"));
    }
    let (scheme, at) = (scheme.trim_end_matches("-cluster"), if user.is_empty() { "" } else { "@" });
    // As texts of their own, because a URL has one host.
    let one = |host: &str| match open(&format!("{scheme}://{user}{at}{host}{query}")) {
        _ if host.is_empty() => Err(refuse(form)),
        Err(Error::Invalid { what, expected, .. }) if what == "store URL" => Err(refuse(&expected)),
        client => client,
    };
    hosts.split(',').map(one).collect()
}

/// The same kind of client, for another node.
pub(super) fn elsewhere(client: &redis::Client, to: &Address) -> redis::Client {
    let info = client.get_connection_info().clone();
    let addr = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host: to.host.clone(),
            port: to.port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(to.host.clone(), to.port),
    };
    redis::Client::open(info.set_addr(addr)).unwrap_or_else(|_| client.clone())
}

/// Where a client goes.
pub(super) fn address(client: &redis::Client) -> Address {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Address { host: host.clone(), port: *port }
        }
        _ => Address { host: String::new(), port: 0 },
    }
}

#[cfg(feature = "tls")]
fn client(info: ConnectionInfo, tls: bool, files: Files) -> Result<redis::Client, String> {
    if !tls {
        return redis::Client::open(info).map_err(|error| error.to_string());
    }
    let client_tls = match (files.cert, files.key) {
        (Some(client_cert), Some(client_key)) => Some(redis::ClientTlsConfig { client_cert, client_key }),
        (None, None) => None,
        _ => return Err("cert and key together".into()),
    };
    // Without one, or with two to choose from, rustls panics when it is dialled. A program's own choice stays.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _another_was_faster = rustls::crypto::ring::default_provider().install_default();
    }
    let certificates = redis::TlsCertificates { client_tls, root_cert: files.ca };
    redis::Client::build_with_tls(info, certificates)
        .map_err(|error| format!("certificates in PEM form: {error}"))
}

#[cfg(not(feature = "tls"))]
fn client(info: ConnectionInfo, _: bool, _: Files) -> Result<redis::Client, String> {
    redis::Client::open(info).map_err(|error| error.to_string())
}

pub(super) fn database_number(text: &str) -> Option<i64> {
    text.parse().ok().filter(|number| (0..=1_000_000).contains(number))
}

/// What the URL's parameters name.
#[derive(Clone, Default)]
pub(super) struct Files {
    pub(super) password: Option<String>,
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl Files {
    fn read(url: &Url, shown: &str) -> Result<Self> {
        let mut files = Self::default();
        for (parameter, path) in url.query_pairs() {
            if !files.take(&parameter, &path)? {
                return Err(unknown(&parameter, PARAMETERS, shown));
            }
        }
        Ok(files)
    }

    /// Reads what a parameter names; false if it is none of these.
    pub(super) fn take(&mut self, parameter: &str, path: &str) -> Result<bool> {
        let path = Path::new(path);
        match parameter {
            "password-file" => self.password = Some(read_password(parameter, path)?),
            "ca" => self.ca = Some(read_pem(parameter, path, "CERTIFICATE-----")?),
            "cert" => self.cert = Some(read_pem(parameter, path, "CERTIFICATE-----")?),
            "key" => self.key = Some(read_pem(parameter, path, "PRIVATE KEY-----")?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses certificates that nothing would look at.
    pub(super) fn only_with_tls(&self, tls: bool, shown: &str) -> Result<()> {
        if !tls && (self.ca.is_some() || self.cert.is_some()) {
            let allowed = "ca, cert and key only with TLS (rediss)";
            return Err(Error::invalid("store URL", shown, allowed));
        }
        Ok(())
    }
}

/// A parameter that the scheme does not have.
pub(super) fn unknown(parameter: &str, allowed: &str, shown: &str) -> Error {
    // With an `@` in it, it is the rest of a password that had a `?`.
    let got = if parameter.contains('@') { "…" } else { parameter };
    Error::invalid(format!("parameter of the store URL {shown}"), got, allowed)
}

pub(super) fn read_password(parameter: &str, path: &Path) -> Result<String> {
    let text = String::from_utf8_lossy(&read(parameter, path)?).into_owned();
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn read(parameter: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        Error::invalid(parameter, path.display().to_string(), format!("a readable file ({error})"))
    })
}

/// A file that must hold at least one of `kind`: without this check a wrong file would only show as a certificate that
/// nobody trusts.
fn read_pem(parameter: &str, path: &Path, kind: &str) -> Result<Vec<u8>> {
    let bytes = read(parameter, path)?;
    if bytes.windows(kind.len()).any(|part| part == kind.as_bytes()) {
        return Ok(bytes);
    }
    let kind = kind.trim_end_matches('-').to_lowercase();
    Err(Error::invalid(parameter, path.display().to_string(), format!("a file with a {kind} in PEM form")))
}

pub(super) fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_user_password_and_database() {
        let client = open("redis://ann:p%40ss@[::1]:7000/3").unwrap();
        let info = client.get_connection_info();
        assert_eq!(info.addr().to_string(), "::1:7000");
        let settings = info.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("ann"), Some("p@ss"), 3));
        assert!(info.tcp_settings().nodelay());
    }

    #[test]
    fn bad_urls_say_what_is_allowed_and_hide_the_password() {
        for bad in [
            "redis://",
            "redis://:secret@h/x",
            "redis://:secret@h?what=1",
            "redis://:secret@h?ca=/nowhere",
            "redis://:secret@h?ca=/etc/hostname",
            "redis://u:1?secret@h",
            "redis://u:1#secret@h",
        ] {
            let text = open(bad).unwrap_err().to_string();
            assert!(text.contains("expected") && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn a_cluster_url_gives_a_client_for_each_node_and_for_those_it_names() {
        let seeds = open_cluster("redis-cluster://ann:p%40ss@a,[::1]:7000,b:1/").unwrap();
        let at = |host: &str, port| Address { host: host.into(), port };
        assert_eq!(
            seeds.iter().map(address).collect::<Vec<_>>(),
            [at("a", 6379), at("::1", 7000), at("b", 1)]
        );
        let other = elsewhere(&seeds[0], &at("c", 2));
        assert_eq!(address(&other), at("c", 2));
        let settings = other.get_connection_info().redis_settings().clone();
        assert_eq!((settings.username(), settings.password()), (Some("ann"), Some("p@ss")));
        assert!(other.get_connection_info().tcp_settings().nodelay());
    }

    #[test]
    #[cfg(feature = "tls")]
    fn every_node_of_a_cluster_with_tls_is_spoken_to_with_tls() {
        let seeds = open_cluster("rediss-cluster://a,b").unwrap();
        let to = Address { host: "c".into(), port: 2 };
        assert!(matches!(
            elsewhere(&seeds[0], &to).get_connection_info().addr(),
            ConnectionAddr::TcpTls { host, port: 2, insecure: false, .. } if host == "c"
        ));
    }

    #[test]
    fn bad_cluster_urls_say_what_is_allowed_and_hide_the_password() {
        for bad in [
            "redis-cluster:",
            "redis-cluster://",
            "redis-cluster://:secret@",
            "redis-cluster://:secret@a,,b",
            "redis-cluster://:secret@a:x,b",
            "redis-cluster://:secret@a,b/1",
            "redis-cluster://:secret@a,b?what=1",
            "redis-cluster://:secret@a,b?ca=/nowhere",
        ] {
            let text = open_cluster(bad).unwrap_err().to_string();
            assert!(text.contains("expected") && !text.contains("secret"), "{text}");
        }
    }
}
