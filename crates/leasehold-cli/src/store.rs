//! Which store is used, and with which settings.
//!
//! Flag, then environment, then `leasehold.toml`, then a SQLite file in the user's state folder.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold::{Config, Error, Leasehold, Retry};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{command::Global, duration, exit::Failure, output};

/// A chosen store with its settings.
pub(crate) struct Store {
    url: String,
    /// Who chose it, for `-v`.
    chosen_by: String,
    config: Config,
    /// How long to wait for a lock, if the file says so.
    pub(crate) wait: Option<Duration>,
    verbose: bool,
}

impl Store {
    /// Chooses the store.
    pub(crate) fn choose(global: &Global) -> Result<Self, Failure> {
        let file = File::find()?;
        let (url, chosen_by) = match choice(global, file.as_ref()) {
            Some((url, by)) if url == "env" => (redis_from_env(&|name| env::var(name).ok())?, by),
            Some(chosen) => chosen,
            None => (default_url()?, "by default".to_owned()),
        };
        let mut config = Config::default();
        let wait = match &file {
            Some(file) => file.settings(&mut config)?,
            None => None,
        };
        Ok(Self { url, chosen_by, config, wait, verbose: global.verbose > 0 })
    }

    /// The ttl of a lock for which none is given.
    pub(crate) fn default_ttl(&self) -> Duration {
        self.config.ttl
    }

    /// Checks a ttl before anything is sent.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), Error> {
        self.config.check_ttl(ttl)
    }

    /// Allows a lock to be kept closed this long, beyond what a crashed holder may block it.
    pub(crate) fn allow_hold(&mut self, least: Duration) {
        self.config.max_ttl = self.config.max_ttl.max(least);
    }

    /// Reaches the store.
    pub(crate) async fn connect(&self) -> Result<Leasehold, Failure> {
        let leases = Leasehold::builder(&self.url).config(self.config.clone()).connect().await?;
        if self.verbose {
            output::say(&format!("store: {} (chosen {})", leases.store(), self.chosen_by));
        }
        Ok(leases)
    }
}

/// Ends a client. What could not be given back ends with its ttl, which is worth a word and no failure.
pub(crate) async fn close(leases: &Leasehold) {
    if let Err(error) = leases.close().await {
        output::say(&format!("warning: {error}"));
    }
}

fn choice(global: &Global, file: Option<&File>) -> Option<(String, String)> {
    let given = |text: &String| !text.is_empty();
    let flag = global.store.clone().map(|url| (url, "by --store".to_owned()));
    flag.or_else(|| {
        let url = env::var("LEASEHOLD_STORE").ok().filter(given)?;
        Some((url, "by LEASEHOLD_STORE".to_owned()))
    })
    .or_else(|| {
        let file = file?;
        let url = file.table.get("store")?.as_str()?.to_owned();
        Some((url, format!("by {}", file.path.display())))
    })
}

/// `leasehold.toml`, of which unknown keys are left to others.
struct File {
    path: PathBuf,
    table: toml::Table,
}

impl File {
    const NAME: &str = "leasehold.toml";

    /// The one in the current folder, or else the user's.
    fn find() -> Result<Option<Self>, Failure> {
        let user =
            folder("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("leasehold").join(Self::NAME));
        for path in [Some(PathBuf::from(Self::NAME)), user].into_iter().flatten() {
            match fs::read_to_string(&path) {
                Ok(text) => return Self::parse(path, &text).map(Some),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Failure::file(format!("cannot read {}", path.display()), &error)),
            }
        }
        Ok(None)
    }

    fn parse(path: PathBuf, text: &str) -> Result<Self, Failure> {
        match text.parse() {
            Ok(table) => Ok(Self { path, table }),
            Err(error) => Err(Failure::usage(
                format!("{} is not TOML: {}", path.display(), error.message()),
                "write lines such as: store = \"redis://localhost\"",
            )),
        }
    }

    /// Applies what the file sets; answers how long to wait for a lock.
    fn settings(&self, config: &mut Config) -> Result<Option<Duration>, Failure> {
        if let Some(ttl) = self.duration("default-ttl")? {
            config.ttl = ttl;
        }
        if let Some(timeout) = self.duration("command-timeout")? {
            config.command_timeout = timeout;
        }
        if let Some(pause) = self.duration("retry-interval")? {
            config.retry = Retry::fixed(pause);
        }
        if let Some(prefix) = self.text("prefix")? {
            config.prefix = prefix.to_owned();
        }
        self.duration("acquisition-timeout")
    }

    fn text(&self, key: &str) -> Result<Option<&str>, Failure> {
        match self.table.get(key) {
            None => Ok(None),
            Some(toml::Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.bad(key, &other.to_string(), "a text in quotes")),
        }
    }

    fn duration(&self, key: &str) -> Result<Option<Duration>, Failure> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        duration::parse(text).map(Some).map_err(|_| self.bad(key, text, "a duration such as \"30s\""))
    }

    fn bad(&self, key: &str, got: &str, allowed: &str) -> Failure {
        Failure::usage(
            format!("invalid {key} {got} in {}: allowed is {allowed}", self.path.display()),
            "change the value",
        )
    }
}

/// The store that `REDIS_HOST`, `REDIS_PORT` and `REDIS_PASSWORD` name. Kubernetes sets the port as `tcp://host:port`.
fn redis_from_env(read: &dyn Fn(&str) -> Option<String>) -> Result<String, Failure> {
    let read = |name: &str| read(name).filter(|value| !value.is_empty());
    let (mut host, mut port) = (read("REDIS_HOST"), "6379".to_owned());
    if let Some(given) = read("REDIS_PORT") {
        let address = given.strip_prefix("tcp://").and_then(|address| address.rsplit_once(':'));
        let (its_host, its_port) = address.map_or((None, given.as_str()), |(host, port)| (Some(host), port));
        host = host.or_else(|| its_host.map(str::to_owned));
        port = its_port.to_owned();
    }
    if port.parse::<u16>().is_err() {
        return Err(Failure::usage(
            format!("invalid REDIS_PORT \"{port}\": allowed is 1 to 65535 or tcp://HOST:PORT"),
            "change the value",
        ));
    }
    let host = host.unwrap_or_else(|| "localhost".into());
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    let password = read("REDIS_PASSWORD").map_or_else(String::new, |password| {
        format!(":{}@", utf8_percent_encode(&password, NON_ALPHANUMERIC))
    });
    Ok(format!("redis://{password}{host}:{port}"))
}

/// The SQLite file of this user, in a folder that is made if it is missing.
fn default_url() -> Result<String, Failure> {
    let folder = state_folder()?;
    make_private(&folder)?;
    Ok(format!("sqlite:{}", folder.join("leasehold.db").display()))
}

/// Where this user's locks live. The system's own account shares one place with its cron jobs and services.
pub(crate) fn state_folder() -> Result<PathBuf, Failure> {
    let is_root = rustix::process::geteuid().is_root() && env::var_os("XDG_STATE_HOME").is_none();
    let base = if is_root { Some("/var/lib".into()) } else { folder("XDG_STATE_HOME", ".local/state") };
    base.map(|base: PathBuf| base.join("leasehold")).ok_or_else(|| {
        Failure::usage(
            "cannot tell where the locks of this user live: HOME is not set",
            "choose a store with --store or LEASEHOLD_STORE",
        )
    })
}

/// Makes a folder that only its user can enter.
pub(crate) fn make_private(folder: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| Failure::file(format!("cannot make the folder {}", folder.display()), &error))
}

/// A folder of the user: absolute from the environment, or below the home.
fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_variables_make_a_url() {
        let cases: [(&[(&str, &str)], &str); 5] = [
            (&[], "redis://localhost:6379"),
            (&[("REDIS_HOST", "db"), ("REDIS_PORT", "7000")], "redis://db:7000"),
            (&[("REDIS_PORT", "tcp://10.0.0.1:6380")], "redis://10.0.0.1:6380"),
            (&[("REDIS_HOST", "::1"), ("REDIS_PASSWORD", "p@:/%")], "redis://:p%40%3A%2F%25@[::1]:6379"),
            (&[("REDIS_HOST", ""), ("REDIS_PASSWORD", "")], "redis://localhost:6379"),
        ];
        for (set, url) in cases {
            let read =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            assert_eq!(redis_from_env(&read).unwrap(), url);
        }
        assert!(redis_from_env(&|_| Some("99999".into())).is_err());
    }

    #[test]
    fn the_file_sets_what_it_names_and_leaves_the_rest() {
        let text = "store = 'memory:'\ndefault-ttl = '10s'\nacquisition-timeout = '3s'\nprefix = 'p:'\n[locks.x]\nkey = 'x'";
        let file = File::parse("leasehold.toml".into(), text).unwrap();
        let mut config = Config::default();
        assert_eq!(file.settings(&mut config).unwrap(), Some(Duration::from_secs(3)));
        assert_eq!((config.ttl, config.prefix.as_str()), (Duration::from_secs(10), "p:"));
        assert_eq!(config.command_timeout, Config::default().command_timeout);
    }

    #[test]
    fn a_bad_value_in_the_file_is_named() {
        for text in ["default-ttl = 30", "default-ttl = '30'", "prefix = true"] {
            let file = File::parse("leasehold.toml".into(), text).unwrap();
            let failure = file.settings(&mut Config::default()).unwrap_err();
            assert!(format!("{failure:?}").contains("in leasehold.toml"), "{failure:?}");
        }
    }
}
