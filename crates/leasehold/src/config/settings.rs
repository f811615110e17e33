//! Everything a client needs, put together from the environment and a file.

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Deserialize;

use super::file::{Document, duration, written_by_others};
use super::sources::{Sources, set_by_variables};
use super::{default_store, redis_variables::redis_url};
use crate::policy::{LockPolicy, Policies, RecordPolicy};
use crate::text::{placed, redact};
use crate::{Config, Error, Result, Retry};

/// A store, its settings and its policies, from the environment and files.
///
/// The store is the first that is named, in this order: in code, by `LEASEHOLD_STORE`, by `store` in a file, by `REDIS_HOST`,
/// `REDIS_PORT` or `REDIS_PASSWORD`; if none is named, [`Settings::from_env`] takes a SQLite file of this host. The command
/// line follows the same rule. [`Sources::new`] says which files are read.
///
/// | in a file | in the environment | default |
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
    /// What chose the store.
    pub chosen_by: Option<ChosenBy>,
    /// The client's settings.
    pub config: Config,
    /// The named policies.
    pub policies: Policies,
    /// Files that were read, the nearest first.
    pub files: Vec<PathBuf>,
    /// Files that were found and not read, each with the reason; see [`Sources::new`].
    pub ignored: Vec<String>,
}

/// Where a store can be named, as the end of a sentence that begins with "expected".
pub(crate) const STORE_PLACES: &str =
    "a URL in LEASEHOLD_STORE or in `store` of leasehold.toml, or a REDIS_HOST";

/// What chose a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChosenBy {
    /// The caller.
    Caller,
    /// The variable of this name.
    Variable(&'static str),
    /// This file.
    File(String),
    /// Nothing named one. If another default store exists, `besides` says so.
    Default {
        /// The other one, and why it is not used.
        besides: Option<String>,
    },
}

impl fmt::Display for ChosenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller => f.write_str("the caller"),
            Self::Variable(name) => f.write_str(name),
            Self::File(file) => f.write_str(file),
            Self::Default { besides: None } => f.write_str("default"),
            Self::Default { besides: Some(besides) } => write!(f, "default; {besides}"),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("store", &self.store.as_deref().map(redact))
            .field("chosen_by", &self.chosen_by)
            .field("config", &self.config)
            .field("policies", &self.policies)
            .field("files", &self.files)
            .field("ignored", &self.ignored)
            .finish()
    }
}

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
    /// Reads environment and files: a `LEASEHOLD_*` variable wins over the files, a nearer file over a farther one, and all
    /// of them over `LOCK_TTL`.
    ///
    /// # Errors
    /// `invalid`, with the variable or the file and what is expected: for an unknown key or variable, a value of the wrong
    /// type or out of range, a policy that cannot work, a file that cannot be read.
    pub fn load(sources: &Sources<'_>) -> Result<Self> {
        sources.check_names()?;
        let (files, ignored) = sources.find_files();
        let mut document = Document::default();
        for (at, path) in files.iter().enumerate() {
            let farther = Document::load(path).map_err(|error| sources.naming(error))?;
            // While it is known which file is wrong.
            farther.read::<File>()?;
            if at == 0 { document = farther } else { document.add(farther) }
        }
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
        let (store, chosen_by) = named_store(sources, &document, file.store)?.unzip();
        let policies = policies.checked(&document, &config)?;
        Ok(Self { store, chosen_by, policies, config, files, ignored })
    }

    /// [`Settings::load`] from the environment of this process. If no store is named, it is a SQLite file: in
    /// `/var/lib/leasehold` where this user can write there and not every user can, so that all users of the host share
    /// locks; otherwise in the user's state folder, which is created if it is missing. Errors as [`Settings::load`].
    pub fn from_env() -> Result<Self> {
        Self::from_env_or(None)
    }

    /// The same for a store that may have been given explicitly.
    pub fn from_env_or(store: Option<&str>) -> Result<Self> {
        let env = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        let names: Vec<_> = names.collect();
        let mut settings = Self::load(&Sources { store, names: &names, ..Sources::new(&env) })?;
        if settings.store.is_none() {
            let (url, besides) = default_store::choose(&env)?;
            settings.store = Some(url);
            settings.chosen_by = Some(ChosenBy::Default { besides });
        }
        Ok(settings)
    }
}

/// The store that something names, and what that is.
fn named_store(
    sources: &Sources<'_>,
    document: &Document,
    in_document: Option<String>,
) -> Result<Option<(String, ChosenBy)>> {
    if let Some(url) = sources.store {
        return Ok(Some((url.to_owned(), ChosenBy::Caller)));
    }
    let Some(url) = in_document else {
        let named = redis_url(sources.env)?;
        return Ok(named.map(|(url, name)| (url, ChosenBy::Variable(name))));
    };
    if document.variables.contains_key("store") {
        return Ok(Some((url, ChosenBy::Variable("LEASEHOLD_STORE"))));
    }
    let file = document.origin_of(&["store"]);
    if url.contains("password-file=")
        && let Some(why) = written_by_others(Path::new(file))
    {
        // Whoever wrote the file could make us send the first line of any file that we can read.
        let expected = format!("a URL without password-file, because {why}");
        return Err(Error::invalid(document.place(&["store"]), redact(&url), expected));
    }
    Ok(Some((url, ChosenBy::File(file.to_owned()))))
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
