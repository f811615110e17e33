//! Everything a client needs, put together from the environment and a file.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    Config, Section,
    duration::parse_duration,
    environment::{self, Environment, variable},
    placed, quoted, read_text,
};
use crate::{
    engine::connect::redact,
    error::{Error, Result},
    lock::Retry,
    policy::{self, Policies},
};

/// The file that is read unless another one is named.
const FILE: &str = "leasehold.toml";

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
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("store", &self.store.as_deref().map(redact))
            .field("config", &self.config)
            .field("policies", &self.policies)
            .finish()
    }
}

/// Where [`Settings::load`] looks.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    env: Environment<'a>,
    file: Option<&'a Path>,
    directory: &'a Path,
    redis_store: bool,
}

impl<'a> Sources<'a> {
    /// An environment, as a function from a variable's name to its value, and the file it names with
    /// `LEASEHOLD_CONFIG`. If it names none, `leasehold.toml` in the current directory, if that exists.
    pub fn new(env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { env, file: None, directory: Path::new(""), redis_store: false }
    }

    /// A certain file, which must exist.
    pub fn file(self, file: &'a Path) -> Self {
        Self { file: Some(file), ..self }
    }

    /// Where `leasehold.toml` is looked for, instead of the current directory.
    pub fn directory(self, directory: &'a Path) -> Self {
        Self { directory, ..self }
    }

    /// If neither environment nor file name a store, takes the one that `REDIS_HOST`, `REDIS_PORT` and
    /// `REDIS_PASSWORD` describe. At least one of them must be set; the host is `localhost` and the port 6379 otherwise.
    ///
    /// Not the default: these variables are often set for a cache, which is no place for locks.
    pub fn redis_store(self) -> Self {
        Self { redis_store: true, ..self }
    }

    fn find_file(&self) -> Option<PathBuf> {
        let named = self.file.map(Path::to_owned);
        let named = named.or_else(|| variable(self.env, "LEASEHOLD_CONFIG").map(PathBuf::from));
        named.or_else(|| Some(self.directory.join(FILE)).filter(|path| path.exists()))
    }
}

impl fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("file", &self.file)
            .field("directory", &self.directory)
            .field("redis_store", &self.redis_store)
            .finish_non_exhaustive()
    }
}

/// One setting of file and environment.
struct Key {
    name: &'static str,
    /// What [`Config::check`] calls it.
    checked_as: &'static str,
    set: Set,
}

enum Set {
    Text(fn(&mut Settings, String)),
    Duration(fn(&mut Settings, Duration)),
    Count(fn(&mut Settings, usize)),
}

const fn key(name: &'static str, checked_as: &'static str, set: Set) -> Key {
    Key { name, checked_as, set }
}

const KEYS: [Key; 10] = [
    key("store", "store", Set::Text(|to, store| to.store = Some(store))),
    key("prefix", "prefix", Set::Text(|to, prefix| to.config.prefix = prefix)),
    key("label", "label", Set::Text(|to, label| to.config.label = label)),
    key(DEFAULT_TTL, "ttl", Set::Duration(|to, ttl| to.config.ttl = ttl)),
    key("acquisition-timeout", "wait", Set::Duration(|to, wait| to.config.wait = wait)),
    key("retry-interval", "retry interval", Set::Duration(|to, pause| to.config.retry = Retry::fixed(pause))),
    key("command-timeout", "command timeout", Set::Duration(|to, most| to.config.command_timeout = most)),
    key("max-ttl", "max ttl", Set::Duration(|to, most| to.config.max_ttl = most)),
    key("connections", "connections", Set::Count(|to, count| to.config.connections = count)),
    key("max-in-flight", "max in flight", Set::Count(|to, count| to.config.max_in_flight = count)),
];

const DEFAULT_TTL: &str = "default-ttl";

impl Key {
    /// `default-ttl` is `LEASEHOLD_DEFAULT_TTL`.
    fn variable(&self) -> String {
        format!("LEASEHOLD_{}", self.name.replace('-', "_").to_uppercase())
    }

    /// Sets it from the file and answers where, if it is there.
    fn set_from_file(&self, to: &mut Settings, top: &Section) -> Result<Option<String>> {
        let name = self.name;
        let found = match self.set {
            Set::Text(set) => top.text(name)?.map(|value| set(to, value)),
            Set::Duration(set) => top.duration(name)?.map(|value| set(to, value)),
            Set::Count(set) => top.count(name)?.map(|value| set(to, value)),
        };
        Ok(found.map(|()| top.place_of(name)))
    }

    /// Sets it from the environment and answers where, if it is there.
    fn set_from_env(&self, to: &mut Settings, env: Environment<'_>) -> Result<Option<String>> {
        let name = self.variable();
        let may_be_empty = matches!(self.name, "prefix" | "label");
        let Some(text) = (if may_be_empty { env(&name) } else { variable(env, &name) }) else {
            return Ok(None);
        };
        match self.set {
            Set::Text(set) => set(to, text),
            Set::Duration(set) => {
                set(to, parse_duration(&text).map_err(|error| placed(error, name.as_str()))?);
            }
            Set::Count(set) => {
                let count = text.parse();
                set(to, count.map_err(|_| Error::invalid(name.as_str(), quoted(&text), "a whole number"))?);
            }
        }
        Ok(Some(name))
    }
}

impl Settings {
    /// Reads environment and file: a `LEASEHOLD_*` variable wins over the file, the file over `LOCK_TTL`.
    ///
    /// # Errors
    /// `invalid`, with the variable or the file and what is allowed: for an unknown key, a value of the wrong type or
    /// out of range, a policy that cannot work, a file that cannot be read.
    pub fn load(sources: &Sources<'_>) -> Result<Self> {
        let mut settings = Self::default();
        let top = sources.find_file().map(|path| parse_file(&path)).transpose()?;
        let mut places = Vec::new();
        for key in &KEYS {
            let in_file =
                top.as_ref().map(|top| key.set_from_file(&mut settings, top)).transpose()?.flatten();
            let place = key.set_from_env(&mut settings, sources.env)?.or(in_file);
            places.push((key, place));
        }
        settings.fall_back(sources, &mut places)?;
        settings.config.check().map_err(|error| at_its_place(error, &places))?;
        if let Some(top) = &top {
            settings.policies = Policies::read(top)?;
            settings.policies.check(&settings.config)?;
        }
        Ok(settings)
    }

    /// [`Settings::load`] from the environment of this process, `REDIS_*` included.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn from_env() -> Result<Self> {
        let env = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self::load(&Sources::new(&env).redis_store())
    }

    /// Variables of other libraries, for what is still unset. They are not even looked at otherwise: they may be meant
    /// for somebody else.
    fn fall_back(&mut self, sources: &Sources<'_>, places: &mut [(&Key, Option<String>)]) -> Result<()> {
        for (key, place) in places {
            if key.name == DEFAULT_TTL
                && place.is_none()
                && let Some(ttl) = environment::lock_ttl(sources.env)?
            {
                self.config.ttl = ttl;
                *place = Some("LOCK_TTL".into());
            }
        }
        if sources.redis_store && self.store.is_none() {
            self.store = environment::redis_url(sources.env)?;
        }
        Ok(())
    }
}

fn parse_file(path: &Path) -> Result<Section> {
    let known: Vec<_> = KEYS.iter().map(|key| key.name).chain(policy::TABLES).collect();
    Section::parse(&read_text(path)?, &path.display().to_string(), &known)
}

/// An error of [`Config::check`] with the variable or the file that the value came from.
fn at_its_place(error: Error, places: &[(&Key, Option<String>)]) -> Error {
    let Error::Invalid { what, .. } = &error else { return error };
    let Some((key, place)) = places.iter().find(|(key, _)| key.checked_as == what) else { return error };
    placed(error, place.clone().unwrap_or_else(|| format!("{} (not set, so the default)", key.name)))
}
