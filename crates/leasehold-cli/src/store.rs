//! Which store is used, and with which settings.
//!
//! Flag, then environment, then `leasehold.toml`, then a SQLite file in the user's state folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold::{Config, Error, Leasehold, Observer, Policies, Settings, config::Sources};

use crate::{command::Global, exit::Failure, output};

/// A chosen store with its settings.
pub(crate) struct Store {
    settings: Settings,
    /// What chose it, for `-v`.
    chosen_by: String,
    verbose: bool,
}

impl Store {
    /// Chooses the store.
    pub(crate) fn choose(global: &Global) -> Result<Self, Failure> {
        let user_file =
            folder("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("leasehold/leasehold.toml"));
        let sources = Sources { fallback: user_file.as_deref(), ..Sources::new(&variable) };
        let mut settings = Settings::load(&sources)?;
        // With -v the log already contains it.
        for ignored in settings.ignored.iter().filter(|_| global.verbose == 0) {
            output::say(&format!("warning: {ignored}"));
        }
        let (url, chosen_by) = match (&global.store, settings.store.take()) {
            (Some(url), _) => (url.clone(), "by --store"),
            (None, Some(url)) if is_set("LEASEHOLD_STORE") => (url, "by LEASEHOLD_STORE"),
            (None, Some(url)) => (url, "by leasehold.toml"),
            (None, None) => (default_url()?, "by default"),
        };
        settings.store = Some(if url == "env" { redis_from_env()? } else { url });
        Ok(Self { settings, chosen_by: chosen_by.into(), verbose: global.verbose > 0 })
    }

    /// The defaults of all flags.
    pub(crate) fn defaults(&self) -> &Config {
        &self.settings.config
    }

    /// The named policies.
    pub(crate) fn policies(&self) -> &Policies {
        &self.settings.policies
    }

    /// Checks a ttl before anything is sent.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), Error> {
        self.settings.config.check_ttl(ttl)
    }

    /// Connects to the store.
    pub(crate) async fn connect(&self) -> Result<Leasehold, Failure> {
        let leases = Leasehold::from_settings(self.settings.clone())?.connect().await?;
        self.tell(&leases);
        Ok(leases)
    }

    /// Connects on first use: the store may not be ready for locks yet.
    pub(crate) fn connect_lazy(&self) -> Result<Leasehold, Failure> {
        let leases = Leasehold::from_settings(self.settings.clone())?.connect_lazy()?;
        self.tell(&leases);
        Ok(leases)
    }

    /// The same, with an observer of what happens.
    pub(crate) fn connect_observed(&self, observer: impl Observer) -> Result<Leasehold, Failure> {
        let leases = Leasehold::from_settings(self.settings.clone())?.observer(observer).connect_lazy()?;
        self.tell(&leases);
        Ok(leases)
    }

    fn tell(&self, leases: &Leasehold) {
        if self.verbose {
            output::say(&format!("store: {} (chosen {})", leases.store(), self.chosen_by));
        }
    }
}

/// Closes a client. Locks that could not be released end with their ttl: a warning, not a failure.
pub(crate) async fn close(leases: &Leasehold) {
    if let Err(error) = leases.close().await {
        output::say(&format!("warning: {error}"));
    }
}

fn variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// The store that `REDIS_HOST`, `REDIS_PORT` and `REDIS_PASSWORD` name, whatever else is set.
fn redis_from_env() -> Result<String, Failure> {
    let redis_only = |name: &str| name.starts_with("REDIS_").then(|| variable(name)).flatten();
    let nowhere = Path::new("/dev/null");
    let sources = Sources { directory: nowhere, redis_store: true, ..Sources::new(&redis_only) };
    let settings = Settings::load(&sources)?;
    settings.store.ok_or_else(|| {
        Failure::usage(
            "the store \"env\" needs REDIS_HOST, REDIS_PORT or REDIS_PASSWORD, and none is set",
            "set REDIS_HOST, or name a store with --store URL",
        )
    })
}

/// The SQLite file of this user, in a folder that is created if it is missing.
fn default_url() -> Result<String, Failure> {
    let folder = state_folder()?;
    make_private(&folder)?;
    Ok(format!("sqlite:{}", folder.join("leasehold.db").display()))
}

/// The folder of this user's locks. The root account shares one folder with its cron jobs and services.
pub(crate) fn state_folder() -> Result<PathBuf, Failure> {
    let is_root = rustix::process::geteuid().is_root() && !is_set("XDG_STATE_HOME");
    let base = if is_root { Some("/var/lib".into()) } else { folder("XDG_STATE_HOME", ".local/state") };
    base.map(|base: PathBuf| base.join("leasehold")).ok_or_else(|| {
        Failure::usage(
            "cannot choose a default store: HOME is not set",
            "choose a store with --store or LEASEHOLD_STORE",
        )
    })
}

/// Creates a folder that only its user can enter.
pub(crate) fn make_private(folder: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| Failure::file(format!("cannot create the folder {}", folder.display()), &error))
}

/// A folder of the user: absolute from the environment, or below the home.
fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}
