//! Where settings are looked for: variables, and files with the trust that each deserves.

use std::path::{Path, PathBuf};
use std::{fs, iter};

use toml::Value;

use super::file::{Document, written_by_others};
use crate::text::{nearest, placed, quoted};
use crate::{Error, Result};

/// The environment, as a function from a variable's name to its value.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The settings that variables can replace.
const KEYS: &str = "store prefix label default-ttl acquisition-timeout retry-interval command-timeout max-ttl connections \
                    max-in-flight";
/// What else is read, or set for the commands that `leasehold run` and `leasehold elect` start.
const OTHERS: &str = "config handle name names fence fences mode permits ttl-ms";
const PREFIX: &str = "LEASEHOLD_";

/// Where [`Settings::load`](super::Settings::load) looks. Start from [`Sources::new`] and change what you need.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// An environment.
    pub env: Environment<'a>,
    /// The names of all variables of that environment: one that begins with `LEASEHOLD_` and is not known is an error. None
    /// is checked if this is empty.
    pub names: &'a [String],
    /// A store that was given explicitly.
    pub store: Option<&'a str>,
    /// A certain file, which must exist. No other file is read.
    pub file: Option<&'a Path>,
    /// Where the nearest `leasehold.toml` is looked for. Empty: in the current directory.
    pub directory: &'a Path,
    /// The file of the host.
    pub host_file: &'a Path,
}

impl<'a> Sources<'a> {
    /// An environment, and the file it names with `LEASEHOLD_CONFIG`. If it names none, those of these files that exist, of
    /// which a nearer one wins over a farther one, key by key and policy by policy: `leasehold.toml` in the current
    /// directory, `leasehold/leasehold.toml` in the user's configuration folder (`XDG_CONFIG_HOME`, or `.config` below
    /// `HOME`), `/etc/leasehold.toml`.
    ///
    /// A file that was not named is read only if it and its directory belong to the effective user or to root and nobody
    /// else can write them: a store in it may name a file whose first line is sent as a password. Otherwise it is
    /// [ignored](super::Settings::ignored), with a warning in the log. A file that was named is read, but if others can write
    /// it, its store must not have a `password-file`.
    pub fn new(env: Environment<'a>) -> Self {
        let host_file = Path::new("/etc/leasehold.toml");
        Self { env, names: &[], store: None, file: None, directory: Path::new(""), host_file }
    }

    /// Why a file is not needed although it cannot be read: the store is named already. If it is not, that file may name the
    /// store that everybody else uses, so reading it must fail.
    fn unreadable(&self, path: &Path) -> Option<String> {
        let is_named = self.store.is_some() || variable(self.env, "LEASEHOLD_STORE").is_some();
        let error = fs::File::open(path).err()?;
        is_named.then(|| format!("it cannot be read ({error})"))
    }

    /// Refuses a variable that looks like ours and is not: a misspelt `LEASEHOLD_STORE` would choose another store.
    pub(super) fn check_names(&self) -> Result<()> {
        let is_known = |key: &str| KEYS.split_whitespace().chain(OTHERS.split(' ')).any(|known| known == key);
        for name in self.names {
            let Some(key) = name.strip_prefix(PREFIX) else { continue };
            let key = key.replace('_', "-").to_lowercase();
            let is_set = variable(self.env, name).is_some();
            if !is_set || (is_known(&key) && variable_of(&key) == *name) || is_service_link(name) {
                continue;
            }
            let ends_alike = |known: &&str| !key.is_empty() && known.ends_with(&key);
            let near = nearest(&key, KEYS.split_whitespace().chain(iter::once("config")))
                .or_else(|| KEYS.split_whitespace().find(ends_alike));
            let near = near.map_or(String::new(), |key| format!("; did you mean {}?", variable_of(key)));
            return Err(Error::invalid("variable", quoted(name), format!("the name of a setting{near}")));
        }
        Ok(())
    }

    /// The file that the environment names, unless the caller names one.
    fn named_by_variable(&self) -> Option<PathBuf> {
        variable(self.env, "LEASEHOLD_CONFIG").filter(|_| self.file.is_none()).map(PathBuf::from)
    }

    /// An error of reading a file, with the variable that named it.
    pub(super) fn naming(&self, error: Error) -> Error {
        match &error {
            Error::Invalid { what, .. } if what == "file" && self.named_by_variable().is_some() => {
                placed(error, "LEASEHOLD_CONFIG")
            }
            _ => error,
        }
    }

    /// The files to read, the nearest first, and what was ignored.
    pub(super) fn find_files(&self) -> (Vec<PathBuf>, Vec<String>) {
        let named = self.file.map(Path::to_owned);
        let named = named.or_else(|| self.named_by_variable());
        if let Some(named) = named {
            return (vec![named], Vec::new());
        }
        let (mut files, mut ignored) = (Vec::new(), Vec::new());
        let of_user = user_folder(self.env, "XDG_CONFIG_HOME", ".config");
        let of_user = of_user.map(|folder| folder.join("leasehold/leasehold.toml"));
        let nearby = self.directory.join("leasehold.toml");
        for path in [Some(nearby), of_user, Some(self.host_file.to_owned())].into_iter().flatten() {
            let Ok(target) = fs::canonicalize(&path) else { continue };
            // The folder first: whoever can write it can also replace the file.
            let why = target.parent().and_then(written_by_others).or_else(|| written_by_others(&target));
            let why = why.or_else(|| self.unreadable(&path));
            let Some(why) = why else {
                files.push(path);
                continue;
            };
            let text = format!("ignored {}: {why}; LEASEHOLD_CONFIG can name it", path.display());
            tracing::warn!("{text}");
            ignored.push(text);
        }
        (files, ignored)
    }
}

/// The variable of a setting.
fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('-', "_").to_uppercase())
}

/// A variable's value; an empty one counts as unset, because that is what `X=${X:-}` leaves behind.
pub(super) fn variable(env: Environment<'_>, name: &str) -> Option<String> {
    env(name).filter(|value| !value.is_empty())
}

/// A folder of the user: absolute from the environment, or below the home.
pub(super) fn user_folder(env: Environment<'_>, name: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| variable(env, name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(name).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

/// Kubernetes sets such variables in every pod beside a service whose name begins with `leasehold`.
fn is_service_link(name: &str) -> bool {
    let port = name.split("_PORT").nth(1);
    name.ends_with("_SERVICE_HOST")
        || port.is_some_and(|after| after.is_empty() || name.contains("_SERVICE_PORT"))
        || port.is_some_and(|after| {
            after.strip_prefix('_').is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
        })
}

/// Lets `LEASEHOLD_*` replace settings of a file, and `LOCK_TTL` give what neither has. That may be meant for another
/// library, so it is not even read otherwise.
pub(super) fn set_by_variables(document: &mut Document, env: Environment<'_>) {
    for key in KEYS.split_whitespace() {
        let name = variable_of(key);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str) -> Option<String> {
        let names = [name.to_owned()];
        let env = |_: &str| Some("x".to_owned());
        let checked = Sources { names: &names, ..Sources::new(&env) }.check_names();
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn an_unknown_variable_is_refused_with_the_nearest() {
        let told = |name: &str| refused(name).expect(name);
        assert!(told("LEASEHOLD_STOER").ends_with("did you mean LEASEHOLD_STORE?"));
        assert!(told("LEASEHOLD_TTL").ends_with("did you mean LEASEHOLD_DEFAULT_TTL?"));
        assert!(told("LEASEHOLD_store").ends_with("did you mean LEASEHOLD_STORE?"));
        assert!(told("LEASEHOLD_MAX-TTL").ends_with("did you mean LEASEHOLD_MAX_TTL?"));
        assert!(told("LEASEHOLD_").ends_with("the name of a setting"));
    }

    #[test]
    fn what_is_read_or_exported_or_set_by_kubernetes_is_known() {
        for known in KEYS.split_whitespace().chain(OTHERS.split(' ')) {
            assert_eq!(refused(&variable_of(known)), None);
        }
        for name in [
            "OTHER",
            "LEASEHOLD_SERVICE_HOST",
            "LEASEHOLD_SERVICE_PORT",
            "LEASEHOLD_REDIS_SERVICE_PORT_CLIENT",
            "LEASEHOLD_PORT",
            "LEASEHOLD_REDIS_PORT_6379_TCP",
            "LEASEHOLD_REDIS_PORT_6379_TCP_ADDR",
        ] {
            assert_eq!(refused(name), None);
        }
    }
}
