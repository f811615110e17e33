//! The store of a command, and its settings. The library's rule chooses it: see docs/stores.md.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold::{
    Config, Leasehold, Observer, Policies, Settings,
    config::ChosenBy,
    lease::validity::{TTL_MAX_LIMIT, TTL_MIN},
};

use crate::{command::Global, duration, exit::Failure, output};

/// A chosen store with its settings.
pub(crate) struct Store {
    settings: Settings,
    verbose: bool,
    json: bool,
}

impl Store {
    /// Chooses a store that other processes can share.
    pub(crate) fn choose(global: &Global) -> Result<Self, Failure> {
        let store = Self::choose_any(global)?;
        if store.settings.store.as_deref().is_some_and(|url| url.starts_with("memory:")) {
            return Err(Failure::usage(
                format!(
                    "the store memory: (chosen by {}) ends with this command, so no other process would see its locks",
                    store.chosen_by()
                ),
                "choose a store that processes share: sqlite:PATH on one host, redis://HOST between hosts",
            ));
        }
        Ok(store)
    }

    /// Chooses a store, also one that only this process can use.
    pub(crate) fn choose_any(global: &Global) -> Result<Self, Failure> {
        let settings = Settings::from_env_or(global.store.as_deref())?;
        // With -v the log already contains it.
        for ignored in settings.ignored.iter().filter(|_| global.verbose == 0) {
            output::say(&format!("warning: {ignored}"));
        }
        Ok(Self { settings, verbose: global.verbose > 0, json: global.json })
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
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), Failure> {
        let most = self.settings.config.max_ttl;
        let checked = self.settings.config.check_ttl(ttl);
        checked.map_err(|error| Failure::from(error).hint(self.ttl_hint(ttl, most)))
    }

    fn ttl_hint(&self, ttl: Duration, most: Duration) -> String {
        let (wanted, most) = (duration::written(ttl), duration::written(most));
        let file =
            self.settings.files.first().map_or("leasehold.toml".into(), |file| file.display().to_string());
        if ttl < TTL_MIN {
            format!("the shortest ttl is {}", duration::written(TTL_MIN))
        } else if ttl > TTL_MAX_LIMIT {
            "a lock that is renewed can be held longer than its ttl; the ttl is how long it stays held after a crash"
                .into()
        } else if is_set("LEASEHOLD_MAX_TTL") {
            format!("max-ttl is {most}; raise it with LEASEHOLD_MAX_TTL={wanted}")
        } else {
            format!(
                "max-ttl is {most}; raise it with max-ttl = \"{wanted}\" in {file} or LEASEHOLD_MAX_TTL={wanted}"
            )
        }
    }

    /// Connects to the store.
    pub(crate) async fn connect(&self) -> Result<Leasehold, Failure> {
        let leases = self.connect_lazy()?;
        leases.reach().await?;
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
        // A program reads stderr with --json, and has chosen the store.
        if self.verbose || self.may_surprise() && !self.json {
            output::say(&format!("store: {} (chosen by {})", leases.store(), self.chosen_by()));
        }
    }

    /// Neither was the store named in the command, nor is it the only default.
    fn may_surprise(&self) -> bool {
        !matches!(self.settings.chosen_by, Some(ChosenBy::Caller | ChosenBy::Default { besides: None }))
    }

    fn chosen_by(&self) -> String {
        match &self.settings.chosen_by {
            Some(ChosenBy::Caller) | None => "--store".into(),
            Some(other) => other.to_string(),
        }
    }
}

/// Closes a client. Locks that could not be released end with their ttl: a warning, not a failure.
pub(crate) async fn close(leases: &Leasehold) {
    if let Err(error) = leases.close().await {
        output::say(&format!("warning: {error}"));
    }
}

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// Where handles of this user are kept.
pub(crate) fn state_folder() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_STATE_HOME").or_else(|| {
        let is_root = rustix::process::geteuid().is_root();
        if is_root { Some("/var/lib".into()) } else { Some(absolute("HOME")?.join(".local/state")) }
    });
    base.map(|base| base.join("leasehold")).ok_or_else(|| {
        Failure::usage("cannot choose a file for the handle: HOME is not set", "name one with --handle FILE")
    })
}

/// Creates a folder that only its user can enter.
pub(crate) fn make_private(folder: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| Failure::file(format!("cannot create the folder {}", folder.display()), &error))
}
