//! From a store URL to an engine.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    engine::Engine,
    error::{Error, Result},
};

/// What an engine needs besides its URL.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "not every engine needs all of it"))]
pub(crate) struct EngineOptions {
    /// Where the time comes from.
    pub(crate) clock: Clock,
    /// Longest wait for one command's answer.
    pub(crate) command_timeout: Duration,
    /// What precedes a name in a shared store.
    pub(crate) prefix: String,
    /// Connections to one server.
    pub(crate) connections: usize,
    /// Most operations under way at once.
    pub(crate) max_in_flight: usize,
    /// How this client calls itself to the server.
    pub(crate) client_name: String,
    /// Longest ttl, and longest lock-delay.
    pub(crate) max_ttl: Duration,
}

/// The schemes of store URLs, each with the feature that it needs.
const SCHEMES: [(&str, &str); 10] = [
    ("memory", "memory"),
    ("sqlite", "sqlite"),
    ("redis", "redis"),
    ("redis-sentinel", "redis"),
    ("redis-cluster", "redis"),
    ("redlock", "redis"),
    ("rediss", "tls"),
    ("rediss-sentinel", "tls"),
    ("rediss-cluster", "tls"),
    ("redlocks", "tls"),
];

const EXPECTED: &str = "memory: · memory:NAME · sqlite:PATH · redis://HOST[:PORT][/DB] · \
    redis-sentinel://HOST[:PORT],HOST[:PORT],…/NAME[/DB] · redis-cluster://HOST[:PORT],… · \
    redlock://HOST[:PORT],HOST[:PORT],HOST[:PORT],… · rediss://…, rediss-sentinel://…, rediss-cluster://… and \
    redlocks://… with TLS";

/// Opens the engine that a URL names. Nothing is dialled yet.
pub(crate) fn open(url: &str, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    let (scheme, rest) = url.split_once(':').unwrap_or_default();
    let Some((_, feature)) = SCHEMES.iter().find(|(known, _)| *known == scheme) else {
        return Err(Error::invalid("store URL", redact(url), EXPECTED));
    };
    match (*feature, rest, options) {
        #[cfg(feature = "memory")]
        ("memory", name, options) => Ok(Arc::new(super::memory::Memory::open(name, options.clock.clone()))),
        #[cfg(feature = "sqlite")]
        ("sqlite", path, options) => Ok(Arc::new(super::sqlite::Sqlite::open(path, options)?)),
        #[cfg(feature = "redis")]
        ("redis", _, options) => open_redis(scheme, url, options),
        #[cfg(feature = "tls")]
        ("tls", _, options) => open_redis(scheme, url, options),
        (feature, ..) => Err(Error::unsupported(
            format!("the store {scheme}:{}", if rest.starts_with("//") { "//" } else { "" }),
            format!(
                "this build lacks the feature \"{feature}\"; add it with: cargo add leasehold --features {feature}"
            ),
        )),
    }
}

#[cfg(feature = "redis")]
fn open_redis(scheme: &str, url: &str, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    use super::{quorum, redis};
    if !scheme.starts_with("redlock") {
        return Ok(Arc::new(redis::Redis::open(url, options)?));
    }
    let quorum = quorum::QuorumOptions {
        clock: options.clock.clone(),
        command_timeout: options.command_timeout,
        max_ttl: options.max_ttl,
        prefix_bytes: options.prefix.len(),
    };
    Ok(Arc::new(quorum::Quorum::over(redis::voter::voters(url, options)?, quorum)))
}

/// The URL without its password, for people.
pub(crate) fn redact(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // A name or a path has no secret; anything else may be a URL with a slip in it, password included.
        let secret =
            if url.starts_with("memory:") || url.starts_with("sqlite:") { None } else { url.rfind('@') };
        return printable(&secret.map_or_else(|| url.to_owned(), |at| format!("…{}", &url[at..])));
    };
    // Either a password with a `?`, or a parameter with an `@`, which may be a password too: nobody can tell.
    if rest.split_once('?').is_some_and(|(_, query)| query.contains('@') && query.contains("password")) {
        return printable(&format!("{scheme}://…"));
    }
    // A password may hold any character but `@` unescaped, so the last one before the path ends it.
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let end = rest[end..].rfind('@').map_or(end, |at| end + at + 1).max(end);
    let host = rest[..end].rsplit_once('@').map_or(&rest[..end], |(_, host)| host);
    let path = rest[end..].split(['?', '#']).next().unwrap_or_default();
    printable(&format!("{scheme}://{host}{path}"))
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn a_redacted_url_keeps_the_place_and_drops_the_secrets() {
        for (url, shown) in [
            ("redis://u:secret@h:1/2?ca=x", "redis://h:1/2"),
            ("redis://:se@cret@h", "redis://h"),
            ("redis://:se/cret@h/0", "redis://h/0"),
            ("redis://h", "redis://h"),
            ("redis:/u:secret@h", "…@h"),
            ("u:secret@h:6379", "…@h:6379"),
            ("redis://h\n/0", "redis://h/0"),
            ("redis-sentinel://u:secret@a:1,b/n/2?sentinel-password=secret", "redis-sentinel://a:1,b/n/2"),
            ("redis-sentinel://a/n?sentinel-password=se@cret", "redis-sentinel://…"),
            ("sqlite:/var/x.db", "sqlite:/var/x.db"),
            ("memory:", "memory:"),
        ] {
            assert_eq!(redact(url), shown);
        }
    }

    /// Runs in builds that lack a feature; see the step `features` of `cargo xtask test`.
    #[test]
    #[cfg(not(all(feature = "memory", feature = "sqlite", feature = "tls")))]
    fn a_store_that_this_build_lacks_names_the_command_that_adds_it() {
        let options = super::EngineOptions {
            clock: crate::Clock::system(),
            command_timeout: std::time::Duration::from_secs(1),
            prefix: String::new(),
            connections: 1,
            max_in_flight: 1,
            client_name: String::new(),
            max_ttl: std::time::Duration::from_secs(300),
        };
        let builds = [
            (cfg!(feature = "memory"), "memory:", "memory"),
            (cfg!(feature = "sqlite"), "sqlite:x.db", "sqlite"),
            (cfg!(feature = "redis"), "redis://h", "redis"),
            (cfg!(feature = "redis"), "redis-sentinel://h/n", "redis"),
            (cfg!(feature = "tls"), "rediss://h", "tls"),
            (cfg!(feature = "tls"), "rediss-sentinel://h/n", "tls"),
        ];
        for (_, url, feature) in builds.into_iter().filter(|(has, ..)| !has) {
            let error = super::open(url, &options).err().expect("this build lacks it");
            assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
            let command = format!("cargo add leasehold --features {feature}");
            assert!(error.to_string().ends_with(&command), "{error}");
        }
    }
}
