//! What a command runs under, by name: one lock, or several.

use std::{ffi::OsString, time::Duration};

use leasehold::{Lease, Mode, Name};

use crate::exit::Failure;

/// The locks of a command.
#[derive(Debug)]
pub(crate) enum Names {
    One(String),
    /// In the order in which they were given, each once.
    All(Vec<String>),
}

impl Names {
    /// The name, which is the only word before the command.
    pub(super) fn one(words: Vec<OsString>) -> Result<Self, Failure> {
        let mut words = words.into_iter();
        let Some(name) = words.next() else {
            return Err(Failure::usage("the name of the lock is missing", "leasehold run NAME -- CMD"));
        };
        let name = name.into_string().map_err(|name| {
            Failure::usage(format!("the name {name:?} is not UTF-8"), "choose a printable name")
        })?;
        match words.next() {
            None => Ok(Self::One(name)),
            Some(word) => {
                let word = crate::output::clean(&word.to_string_lossy());
                Err(Failure::usage(
                    format!("\"{word}\" comes after the name \"{name}\": the command comes after --"),
                    format!("leasehold run {name} -- {word}"),
                ))
            }
        }
    }

    /// Those of `--all`.
    pub(super) fn all(names: Vec<String>) -> Result<Self, Failure> {
        for (place, name) in names.iter().enumerate() {
            Name::new(name).map_err(|error| match name.is_empty() {
                true => Failure::from(error).hint("--all a,b: commas between the names, and nothing else"),
                false => Failure::from(error),
            })?;
            if names[..place].contains(name) {
                return Err(Failure::usage(
                    format!("\"{name}\" comes twice in --all"),
                    "name each lock once",
                ));
            }
        }
        Ok(Self::All(names))
    }

    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::All(names) => names,
        }
    }

    /// All of them, to be put between quotes.
    pub(super) fn title(&self) -> String {
        self.as_slice().join("\", \"")
    }

    /// What the command finds in its environment about them. Lists have the order of the names.
    pub(super) fn environment(
        &self,
        leases: &[Lease],
        mode: Mode,
        ttl: Duration,
    ) -> Vec<(&'static str, String)> {
        let (name, fence) = match self {
            Self::One(_) => (NAME, FENCE),
            Self::All(_) => (NAMES, FENCES),
        };
        let mut variables = vec![(name, self.as_slice().join(","))];
        if leases.is_empty() {
            return variables;
        }
        let fences: Vec<_> = leases.iter().map(|lease| lease.fence().to_string()).collect();
        variables.push((fence, fences.join(",")));
        variables.push((TTL_MS, ttl.as_millis().to_string()));
        variables.push((MODE, mode.as_str().to_owned()));
        if let Mode::Permits { take, .. } = mode {
            variables.push((PERMITS, take.to_string()));
        }
        variables
    }
}

pub(crate) const NAME: &str = "LEASEHOLD_NAME";
pub(crate) const NAMES: &str = "LEASEHOLD_NAMES";
const FENCE: &str = "LEASEHOLD_FENCE";
const FENCES: &str = "LEASEHOLD_FENCES";
const TTL_MS: &str = "LEASEHOLD_TTL_MS";
pub(crate) const MODE: &str = "LEASEHOLD_MODE";
pub(crate) const PERMITS: &str = "LEASEHOLD_PERMITS";
/// Those of a command that runs us are not our command's.
pub(super) const INHERITED: [&str; 7] = [NAME, NAMES, FENCE, FENCES, TTL_MS, MODE, PERMITS];

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_name_is_the_only_word_before_the_command() {
        assert_eq!(Names::one(words("x")).unwrap().as_slice(), ["x"]);
        assert!(Names::one(words("")).is_err() && Names::one(words("x ls")).is_err());
    }

    #[test]
    fn several_names_are_each_there_once_and_keep_their_order() {
        let all = |names: &[&str]| Names::all(names.iter().map(|name| (*name).to_owned()).collect());
        let names = all(&["b", "a"]).unwrap();
        assert_eq!((names.as_slice().join(" "), names.title()), ("b a".into(), "b\", \"a".into()));
        assert_eq!(names.environment(&[], Mode::Exclusive, Duration::ZERO), [(NAMES, "b,a".to_owned())]);
        assert!(all(&["a", "b", "a"]).is_err() && all(&["a", ""]).is_err() && all(&["a\n"]).is_err());
    }
}
