//! Everything a client needs, put together from the environment and a file.

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fmt, fs, time::Duration};

use leasehold_core::template::escape;
use serde::Deserialize;
use toml::Value;

use super::file::{Document, duration, written_by_others};
use crate::policy::{LockPolicy, Policies, RecordPolicy};
use crate::text::{placed, quoted, redact};
use crate::{Config, Error, Result, Retry};

/// A store, its settings and its policies, from the environment and a file.
///
/// | in the file | in the environment | default |
/// |---|---|---|
/// | `store` | `LEASEHOLD_STORE` | |
/// | `prefix` | `LEASEHOLD_PREFIX` | `lock:` |
/// | `label` | `LEASEHOLD_LABEL` | |
/// | `default-ttl` | `LEASEHOLD_DEFAULT_TTL`; after the file `LOCK_TTL`, in milliseconds | `30s` |
/// | `acquisition-timeout` | `LEASEHOLD_ACQUISITION_TIMEOUT` | `5s` |
/// | `retry-interval` | `LEASEHOLD_RETRY_INTERVAL` | growing from `50ms` to `1s` |
/// | `command-timeout` | `LEASEHOLD_COMMAND_TIMEOUT` | `2s` |
/// | `max-ttl` | `LEASEHOLD_MAX_TTL` | `5m` |
/// | `connections` | `LEASEHOLD_CONNECTIONS` | `1` |
/// | `max-in-flight` | `LEASEHOLD_MAX_IN_FLIGHT` | `1000` |
/// | `[locks.NAME]` `[idempotency.NAME]` `[markers.NAME]` | | none; see [`policy`](crate::policy) |
///
/// An empty variable counts as unset; only `LEASEHOLD_PREFIX` and `LEASEHOLD_LABEL` can be set to nothing.
///
/// ```
/// use std::time::Duration;
/// use leasehold::{Settings, config::Sources};
///
/// let env = |name: &str| (name == "LEASEHOLD_STORE").then(|| "memory:".to_owned());
/// let mut settings = Settings::load(&Sources::new(&env))?;
/// assert_eq!(settings.store.as_deref(), Some("memory:"));
/// settings.config.wait = Duration::from_secs(1); // code has the last word
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Settings {
    /// The store's URL, if one was given. It may hold a password.
    pub store: Option<String>,
    /// The client's settings.
    pub config: Config,
    /// The named policies.
    pub policies: Policies,
    /// Files that were found and not read, each with the reason; see [`Sources::new`].
    pub ignored: Vec<String>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("store", &self.store.as_deref().map(redact))
            .field("config", &self.config)
            .field("policies", &self.policies)
            .field("ignored", &self.ignored)
            .finish()
    }
}

/// Where [`Settings::load`] looks. Start from [`Sources::new`] and change what you need.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// An environment, as a function from a variable's name to its value.
    pub env: Environment<'a>,
    /// A certain file, which must exist.
    pub file: Option<&'a Path>,
    /// Where `leasehold.toml` is looked for if no file is named. Empty: in the current directory.
    pub directory: &'a Path,
    /// A file to read where neither a file was named nor the directory has one, if it exists.
    pub fallback: Option<&'a Path>,
    /// If neither environment nor file name a store, takes the one that `REDIS_HOST`, `REDIS_PORT` and
    /// `REDIS_PASSWORD` describe. At least one of them must be set; the host is `localhost` and the port 6379 otherwise.
    /// Not the default: these variables are often set for a cache, which is no place for locks.
    pub redis_store: bool,
}

impl<'a> Sources<'a> {
    /// An environment, and the file it names with `LEASEHOLD_CONFIG`. If it names none, `leasehold.toml` in the current
    /// directory, if that exists.
    ///
    /// A file that was not named is read only if it and its directory belong to the effective user or to root and nobody
    /// else can write them: a store in it may name a file whose first line is sent as a password. Otherwise it is
    /// [ignored](Settings::ignored), with a warning in the log. A file that was named is read, but if others can write it,
    /// its store must not have a `password-file`.
    pub fn new(env: Environment<'a>) -> Self {
        Self { env, file: None, directory: Path::new(""), fallback: None, redis_store: false }
    }

    /// The file to read, if there is one, and what was ignored.
    fn find_file(&self) -> (Option<PathBuf>, Vec<String>) {
        let named = self.file.map(Path::to_owned);
        let named = named.or_else(|| variable(self.env, "LEASEHOLD_CONFIG").map(PathBuf::from));
        if named.is_some() {
            return (named, Vec::new());
        }
        let mut ignored = Vec::new();
        let nearby = self.directory.join("leasehold.toml");
        for path in [Some(&*nearby), self.fallback].into_iter().flatten() {
            let Ok(target) = fs::canonicalize(path) else { continue };
            // The folder first: whoever can write it can also replace the file.
            let why = target.parent().and_then(written_by_others).or_else(|| written_by_others(&target));
            let Some(why) = why else { return (Some(path.to_owned()), ignored) };
            let text = format!("ignored {}: {why}; LEASEHOLD_CONFIG can name it", path.display());
            tracing::warn!("{text}");
            ignored.push(text);
        }
        (None, ignored)
    }
}

/// The settings that variables can replace.
const KEYS: &str = "store prefix label default-ttl acquisition-timeout retry-interval command-timeout max-ttl connections \
                    max-in-flight";

/// A whole file.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    store: Option<String>,
    prefix: Option<String>,
    label: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    default_ttl: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    acquisition_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    retry_interval: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    command_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    max_ttl: Option<Duration>,
    connections: Option<usize>,
    max_in_flight: Option<usize>,
    #[serde(default)]
    locks: BTreeMap<String, LockPolicy>,
    #[serde(default)]
    idempotency: BTreeMap<String, RecordPolicy>,
    #[serde(default)]
    markers: BTreeMap<String, RecordPolicy>,
}

impl Settings {
    /// Reads environment and file: a `LEASEHOLD_*` variable wins over the file, the file over `LOCK_TTL`.
    ///
    /// # Errors
    /// `invalid`, with the variable or the file and what is expected: for an unknown key, a value of the wrong type or
    /// out of range, a policy that cannot work, a file that cannot be read.
    pub fn load(sources: &Sources<'_>) -> Result<Self> {
        let (path, ignored) = sources.find_file();
        let mut document = path.as_deref().map(Document::load).transpose()?.unwrap_or_default();
        set_by_variables(&mut document, sources.env);
        let file: File = document.read()?;
        let (prefix, max_ttl) = (file.prefix, file.max_ttl);
        let (locks, idempotency, markers) = (file.locks, file.idempotency, file.markers);
        let policies = Policies { prefix, max_ttl, locks, idempotency, markers };
        let mut config = Config::default();
        policies.take_over(&mut config);
        replace(&mut config.ttl, file.default_ttl);
        replace(&mut config.wait, file.acquisition_timeout);
        replace(&mut config.retry, file.retry_interval.map(Retry::fixed));
        replace(&mut config.command_timeout, file.command_timeout);
        replace(&mut config.connections, file.connections);
        replace(&mut config.max_in_flight, file.max_in_flight);
        replace(&mut config.label, file.label);
        config.check().map_err(|error| at_its_place(error, &document))?;
        let mut store = file.store;
        if let (Some(path), Some(url)) = (&path, &store)
            && url.contains("password-file=")
            && !document.variables.contains_key("store")
            && let Some(why) = written_by_others(path)
        {
            // Whoever wrote the file could make us send the first line of any file that we can read.
            let expected = format!("a URL without password-file, because {why}");
            return Err(Error::invalid(document.place(&["store"]), redact(url), expected));
        }
        if sources.redis_store && store.is_none() {
            store = redis_url(sources.env)?;
        }
        Ok(Self { store, policies: policies.checked(&document, &config)?, config, ignored })
    }

    /// [`Settings::load`] from the environment of this process, `REDIS_*` included.
    pub fn from_env() -> Result<Self> {
        let env = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self::load(&Sources { redis_store: true, ..Sources::new(&env) })
    }
}

pub(crate) fn replace<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

/// An error of [`Config::check`] with the variable or the file that the value came from.
fn at_its_place(error: Error, document: &Document) -> Error {
    let Error::Invalid { what, .. } = &error else { return error };
    let key = match what.as_str() {
        "ttl" => "default-ttl".into(),
        "wait" => "acquisition-timeout".into(),
        other => other.replace(' ', "-"),
    };
    let is_set = document.table.contains_key(&key);
    placed(error, if is_set { document.place(&[&key]) } else { format!("{key} (not set, so the default)") })
}

/// The environment, as a function from a variable's name to its value.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A variable's value; an empty one counts as unset, because that is what `X=${X:-}` leaves behind.
fn variable(env: Environment<'_>, name: &str) -> Option<String> {
    env(name).filter(|value| !value.is_empty())
}

/// Lets `LEASEHOLD_*` replace settings of a file, and `LOCK_TTL` give what neither has. That may be meant for another
/// library, so it is not even read otherwise.
fn set_by_variables(document: &mut Document, env: Environment<'_>) {
    for key in KEYS.split_whitespace() {
        let name = format!("LEASEHOLD_{}", key.replace('-', "_").to_uppercase());
        let value = match key {
            "prefix" | "label" => env(&name).map(Value::String),
            "store" => variable(env, &name).map(Value::String),
            _ => variable(env, &name).map(|text| text.parse().map_or(Value::String(text), Value::Integer)),
        };
        if let Some(value) = value {
            document.set(key, value, name);
        }
    }
    if !document.table.contains_key("default-ttl")
        && let Some(text) = variable(env, "LOCK_TTL")
    {
        let text = if text.parse::<u64>().is_ok() { text + "ms" } else { text };
        document.set("default-ttl", Value::String(text), "LOCK_TTL".into());
    }
}

/// The store that `REDIS_*` name, if one of them is set.
fn redis_url(env: Environment<'_>) -> Result<Option<String>> {
    let [host, port, password] =
        ["REDIS_HOST", "REDIS_PORT", "REDIS_PASSWORD"].map(|name| variable(env, name));
    if host.is_none() && port.is_none() && password.is_none() {
        return Ok(None);
    }
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
    Ok(Some(format!("redis://{login}{host}:{port}")))
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
        redis_url(&env)
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
