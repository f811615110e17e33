//! The store that `REDIS_HOST`, `REDIS_PORT` and `REDIS_PASSWORD` describe, as many programs and Kubernetes set them.

use leasehold_core::template::escape;

use super::sources::{Environment, variable};
use crate::text::quoted;
use crate::{Error, Result};

const NAMES: [&str; 3] = ["REDIS_HOST", "REDIS_PORT", "REDIS_PASSWORD"];

/// The store that they describe, and the first of them that is set.
pub(super) fn redis_url(env: Environment<'_>) -> Result<Option<(String, &'static str)>> {
    let Some(first) = NAMES.into_iter().find(|name| variable(env, name).is_some()) else { return Ok(None) };
    let [host, port, password] = NAMES.map(|name| variable(env, name));
    let (service_host, port) = match &port {
        None => (None, 6379),
        Some(text) => read_port(text)
            .filter(|(_, port)| *port != 0)
            .ok_or_else(|| Error::invalid("REDIS_PORT", quoted(text), "1 to 65535, or tcp://HOST:PORT"))?,
    };
    let host = match host {
        Some(host) => bracketed(&host)?,
        None => service_host.unwrap_or_else(|| "localhost".into()),
    };
    // Everything but what a URL leaves alone everywhere.
    let encode = |secret: &str| escape(secret, |c| !(c.is_ascii_alphanumeric() || "-._~".contains(c)));
    let login = password.map_or(String::new(), |password| format!(":{}@", encode(&password)));
    Ok(Some((format!("redis://{login}{host}:{port}"), first)))
}

/// `6379`, or `tcp://10.0.0.11:6379`, which Kubernetes sets for a service that is called `redis`.
fn read_port(text: &str) -> Option<(Option<String>, u16)> {
    if let Ok(port) = text.parse() {
        return Some((None, port));
    }
    let url = url::Url::parse(text).ok().filter(|url| url.scheme() == "tcp")?;
    Some((Some(url.host_str()?.to_owned()), url.port()?))
}

/// A host as URLs have it: an IPv6 address in brackets.
fn bracketed(host: &str) -> Result<String> {
    let is_bare_ipv6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    let host = if is_bare_ipv6 { format!("[{host}]") } else { host.to_owned() };
    url::Host::parse(&host).map(|_| host.clone()).map_err(|error| {
        Error::invalid("REDIS_HOST", quoted(&host), format!("a host name or an address ({error})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(set: &[(&str, &str)]) -> Result<Option<String>> {
        let env = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Ok(redis_url(&env)?.map(|(url, _)| url))
    }

    #[test]
    fn one_variable_is_enough_and_none_is_not() {
        for (set, expected) in [
            (&[][..], None),
            (&[("REDIS_HOST", ""), ("REDIS_PASSWORD", "")], None),
            (&[("REDIS_HOST", "cache.example")], Some("redis://cache.example:6379")),
            (&[("REDIS_PORT", "7000")], Some("redis://localhost:7000")),
            (&[("REDIS_PASSWORD", "pw")], Some("redis://:pw@localhost:6379")),
            (&[("REDIS_HOST", "::1")], Some("redis://[::1]:6379")),
            (&[("REDIS_HOST", "[::1]"), ("REDIS_PORT", "1")], Some("redis://[::1]:1")),
        ] {
            assert_eq!(url(set).unwrap().as_deref(), expected, "{set:?}");
        }
    }

    #[test]
    fn a_service_address_gives_the_port_and_the_host_only_if_there_is_none() {
        let port = ("REDIS_PORT", "tcp://10.0.0.11:6380");
        assert_eq!(url(&[port]).unwrap().unwrap(), "redis://10.0.0.11:6380");
        assert_eq!(url(&[port, ("REDIS_HOST", "h")]).unwrap().unwrap(), "redis://h:6380");
        assert_eq!(url(&[("REDIS_PORT", "tcp://[fd00::1]:1")]).unwrap().unwrap(), "redis://[fd00::1]:1");
    }

    #[test]
    fn a_password_of_any_characters_survives_a_url() {
        let password = "p@ss:w/o?r#d%41 [ü]\n";
        let text = url(&[("REDIS_PASSWORD", password)]).unwrap().unwrap();
        assert_eq!(text, "redis://:p%40ss%3Aw%2Fo%3Fr%23d%2541%20%5B%C3%BC%5D%0A@localhost:6379");
        let parsed = url::Url::parse(&text).unwrap();
        assert_eq!((parsed.host_str(), parsed.port()), (Some("localhost"), Some(6379)));
    }

    #[test]
    fn bad_addresses_name_their_variable() {
        for (name, value) in [
            ("REDIS_PORT", "0"),
            ("REDIS_PORT", "65536"),
            ("REDIS_PORT", "six"),
            ("REDIS_PORT", "tcp://10.0.0.11"),
            ("REDIS_PORT", "tcp://:6379"),
            ("REDIS_PORT", "tcp://a b:6379"),
            ("REDIS_HOST", "a/b"),
            ("REDIS_HOST", "user@host"),
            ("REDIS_HOST", "host:6379"),
            ("REDIS_HOST", "redis://host"),
        ] {
            let error = url(&[(name, value)]).expect_err(value);
            assert_eq!(error.kind().as_str(), "invalid");
            assert!(error.to_string().starts_with(&format!("invalid {name} ")), "{error}");
        }
    }
}
