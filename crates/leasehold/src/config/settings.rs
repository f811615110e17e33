//! Everything a client needs, put together from the environment and a file.

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fmt, fs, time::Duration};

use serde::Deserialize;

use super::environment::{self, Environment, variable};
use super::file::{Document, duration, written_by_others};
use crate::policy::{LockPolicy, Policies, RecordPolicy};
use crate::text::{placed, redact};
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

/// Where [`Settings::load`] looks.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    env: Environment<'a>,
    file: Option<&'a Path>,
    directory: &'a Path,
    fallback: Option<&'a Path>,
    redis_store: bool,
}

impl<'a> Sources<'a> {
    /// An environment, as a function from a variable's name to its value, and the file it names with
    /// `LEASEHOLD_CONFIG`. If it names none, `leasehold.toml` in the current directory, if that exists.
    ///
    /// A file that was not named is read only if it and its directory belong to the effective user or to root and nobody
    /// else can write them: a store in it may name a file whose first line is sent as a password. Otherwise it is
    /// [ignored](Settings::ignored), with a warning in the log. A file that was named is read, but if others can write it,
    /// its store must not have a `password-file`.
    pub fn new(env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { env, file: None, directory: Path::new(""), fallback: None, redis_store: false }
    }

    /// A certain file, which must exist.
    pub fn file(self, file: &'a Path) -> Self {
        Self { file: Some(file), ..self }
    }

    /// Where `leasehold.toml` is looked for, instead of the current directory.
    pub fn directory(self, directory: &'a Path) -> Self {
        Self { directory, ..self }
    }

    /// A file to read where neither a file was named nor the directory has one, if it exists.
    pub fn fallback(self, file: &'a Path) -> Self {
        Self { fallback: Some(file), ..self }
    }

    /// If neither environment nor file name a store, takes the one that `REDIS_HOST`, `REDIS_PORT` and
    /// `REDIS_PASSWORD` describe. At least one of them must be set; the host is `localhost` and the port 6379 otherwise.
    ///
    /// Not the default: these variables are often set for a cache, which is no place for locks.
    pub fn redis_store(self) -> Self {
        Self { redis_store: true, ..self }
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
        environment::replace(&mut document, KEYS, sources.env);
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
            store = environment::redis_url(sources.env)?;
        }
        Ok(Self { store, policies: policies.checked(&document, &config)?, config, ignored })
    }

    /// [`Settings::load`] from the environment of this process, `REDIS_*` included.
    pub fn from_env() -> Result<Self> {
        let env = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self::load(&Sources::new(&env).redis_store())
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
