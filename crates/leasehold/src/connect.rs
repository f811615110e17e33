//! From a store URL to an engine.

use std::sync::Arc;

use crate::engine::{Engine, EngineOptions};
use crate::{Error, Result, text};

const EXPECTED: &str = "memory: · memory:NAME · sqlite:PATH · redis://HOST[:PORT][/DB] · \
    redis-sentinel://HOST[:PORT],HOST[:PORT],…/NAME[/DB] · redis-cluster://HOST[:PORT],… · \
    redlock://HOST[:PORT],HOST[:PORT],HOST[:PORT],… · etcd://HOST[:PORT],… · rediss://…, rediss-sentinel://…, rediss-cluster://…, \
    redlocks://… and etcds://… with TLS · postgres://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]";

/// Opens the engine that a URL names. Nothing is dialled yet.
pub(crate) fn open(url: &str, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    let (scheme, rest) = url.split_once(':').unwrap_or_default();
    let feature = match scheme {
        "memory" | "sqlite" | "etcd" => scheme,
        "etcds" if cfg!(feature = "tls") => "etcd",
        "redis" | "redis-sentinel" | "redis-cluster" | "redlock" => "redis",
        "postgres" | "postgresql" => "postgres",
        "rediss" | "rediss-sentinel" | "rediss-cluster" | "redlocks" | "etcds" => "tls",
        _ => return Err(Error::invalid("store URL", text::redact(url), EXPECTED)),
    };
    match (feature, options) {
        #[cfg(feature = "memory")]
        ("memory", EngineOptions { clock, .. }) => {
            Ok(Arc::new(crate::engine::memory::Memory::open(rest, clock.clone())))
        }
        #[cfg(feature = "sqlite")]
        ("sqlite", options) => Ok(Arc::new(leasehold_sqlite::Sqlite::open(rest, options)?)),
        #[cfg(feature = "etcd")]
        ("etcd", options) => Ok(Arc::new(leasehold_etcd::Etcd::open(url, options)?)),
        #[cfg(feature = "redis")]
        ("redis", options) => open_redis(scheme, url, options),
        #[cfg(feature = "postgres")]
        ("postgres", options) => Ok(Arc::new(leasehold_postgres::Postgres::open(url, options)?)),
        #[cfg(feature = "tls")]
        ("tls", options) => open_redis(scheme, url, options),
        _ => {
            let slashes = if rest.starts_with("//") { "//" } else { "" };
            let cure = format!("add it with: cargo add leasehold --features {feature}");
            let why = format!("this build lacks the feature \"{feature}\"; {cure}");
            Err(Error::unsupported(format!("the store {scheme}:{slashes}"), why))
        }
    }
}

#[cfg(feature = "redis")]
fn open_redis(scheme: &str, url: &str, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    if !scheme.starts_with("redlock") {
        return Ok(Arc::new(leasehold_redis::Redis::open(url, options)?));
    }
    let voters = leasehold_redis::voters(url, options)?;
    Ok(Arc::new(leasehold_quorum::Quorum::over(voters, options.clone())))
}

#[cfg(test)]
mod tests {
    /// Runs in builds that lack a feature; see the step `features` of `cargo xtask test`.
    #[test]
    #[cfg(not(all(feature = "memory", feature = "sqlite", feature = "tls", feature = "postgres")))]
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
            (cfg!(feature = "postgres"), "postgres://h", "postgres"),
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
