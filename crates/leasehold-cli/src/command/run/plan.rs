//! What `run` will do, checked before anything is sent.

use std::{ffi::OsString, path::Path, time::Duration};

use leasehold::{Acks, Config, Policies, lease::validity};

use super::{Run, Wait, policy};
use crate::{exit::Failure, output::spoken};

/// A checked `run`.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    /// `None`: the lock is only held.
    pub(super) command: Option<Command>,
    pub(super) ttl: Duration,
    pub(super) wait: Wait,
    pub(super) conflict_code: u8,
    pub(super) hold_at_least: Duration,
    pub(super) max_runtime: Option<Duration>,
    pub(super) label: String,
    pub(super) lock_delay: Duration,
    pub(super) acks: Acks,
    /// The longest time the lock can be held, if a policy limits it.
    pub(super) max_lifetime: Option<Duration>,
    pub(super) fixed: bool,
    /// Time between TERM and KILL.
    pub(super) grace: Duration,
}

/// A program and its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
}

impl Plan {
    /// A flag wins over the policy, the policy over the defaults.
    pub(super) fn new(run: Run, policies: &Policies, defaults: &Config) -> Result<Self, Failure> {
        let words = Words::split(run.words, run.policy.is_some());
        let (name, policy) = match &run.policy {
            Some(policy) => {
                let filled = policy::fill(policies, policy, &words.before)?;
                (filled.name, Some(filled.policy))
            }
            None => (text(words.before.into_iter().next().unwrap_or_default())?, None),
        };
        let ttl = run.ttl.or(policy.and_then(|policy| policy.ttl)).unwrap_or(defaults.ttl);
        let wait = run.wait.or(policy.and_then(|policy| policy.wait));
        let hold_at_least = run.hold_at_least.or(policy.and_then(|policy| policy.hold_at_least));
        let lock_delay = run.lock_delay.or(policy.and_then(|policy| policy.lock_delay));
        let command = command(run.shell, words.command)?;
        let own_label = Some(defaults.label.clone()).filter(|label| !label.is_empty());
        Ok(Self {
            grace: grace(ttl, run.kill_after)?,
            label: run.label.or(own_label).unwrap_or_else(|| label(command.as_ref())),
            name,
            command,
            ttl,
            wait: Wait::from_flags(run.nonblock, wait).unwrap_or(Wait::Forever),
            conflict_code: run.conflict_exit_code,
            hold_at_least: hold_at_least.unwrap_or_default(),
            max_runtime: run.max_runtime,
            lock_delay: lock_delay.unwrap_or_default(),
            acks: run.acks.or(policy.and_then(|policy| policy.acks)).unwrap_or_default(),
            max_lifetime: policy.and_then(|policy| policy.max_lifetime),
            fixed: run.fixed || policy.and_then(|policy| policy.keep_alive) == Some(false),
        })
    }
}

/// The words after the options: the name or the policy's values, then the command.
struct Words {
    before: Vec<OsString>,
    command: Vec<OsString>,
}

impl Words {
    fn split(mut words: Vec<OsString>, for_policy: bool) -> Self {
        let names = if for_policy {
            words.iter().take_while(|word| policy::pair(word).is_some()).count()
        } else {
            words.len().min(1)
        };
        let mut command = words.split_off(names);
        if command.first().is_some_and(|word| word == "--") {
            command.remove(0);
        }
        Self { before: words, command }
    }
}

fn text(word: OsString) -> Result<String, Failure> {
    word.into_string()
        .map_err(|word| Failure::usage(format!("the name {word:?} is not UTF-8"), "choose a printable name"))
}

/// The command, with or without a shell. As in flock, `-c STR` may also follow the name.
fn command(shell: Option<OsString>, mut words: Vec<OsString>) -> Result<Option<Command>, Failure> {
    let after_name = words.first().is_some_and(|word| word == "-c" || word == "--shell");
    let script = match shell {
        None if after_name && words.len() == 2 => words.pop(),
        None if after_name => {
            return Err(Failure::usage(
                "-c takes one word",
                "put the whole command into quotes: -c 'a && b'",
            ));
        }
        Some(_) if !words.is_empty() => {
            return Err(Failure::usage("both -c and a command were given", "give one of them"));
        }
        shell => shell,
    };
    if let Some(script) = script {
        let program = std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or("/bin/sh".into());
        return Ok(Some(Command { program, arguments: vec!["-c".into(), script] }));
    }
    let mut words = words.into_iter();
    Ok(words.next().map(|program| Command { program, arguments: words.collect() }))
}

/// The file name of the program. Never its arguments, nor a shell's: they may hold secrets.
fn label(command: Option<&Command>) -> String {
    let program = command.map(|command| Path::new(&command.program));
    let name = program.and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    name.chars().filter(|c| !c.is_control()).take(32).collect()
}

/// The time between TERM and KILL. A grant leaves at least a quarter of the ttl; grace and margin must fit into it,
/// or a command could outlive its lock.
fn grace(ttl: Duration, given: Option<Duration>) -> Result<Duration, Failure> {
    let most = validity::least_remaining(ttl).saturating_sub(validity::margin(ttl));
    let grace = given.unwrap_or(ttl / 6);
    if grace <= most {
        return Ok(grace);
    }
    let what = if given.is_some() { "--kill-after" } else { "the time between TERM and KILL" };
    Err(Failure::usage(
        format!(
            "{what} of {} is too long for a ttl of {}: at most {} leaves time to stop before the lock ends",
            spoken(grace),
            spoken(ttl),
            spoken(most)
        ),
        "give a longer --ttl or a shorter --kill-after",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_first_word_is_the_name_and_the_rest_the_command() {
        for (given, name, command) in [
            ("x", "x", ""),
            ("x --", "x", ""),
            ("x -- ls -n", "x", "ls -n"),
            ("x ls -n", "x", "ls -n"),
            ("x ls -- -n", "x", "ls -- -n"),
        ] {
            let split = Words::split(words(given), false);
            assert_eq!((split.before, split.command), (words(name), words(command)), "{given}");
        }
    }

    #[test]
    fn a_policys_values_come_before_the_command() {
        let split = Words::split(words("deal_id=42 n=1 -- env a=b"), true);
        assert_eq!((split.before, split.command), (words("deal_id=42 n=1"), words("env a=b")));
        assert_eq!(Words::split(words("ls"), true).command, words("ls"));
    }

    #[test]
    fn a_shell_is_used_only_when_asked_for() {
        let plain = command(None, words("ls -n")).unwrap().unwrap();
        assert_eq!((plain.program, plain.arguments), ("ls".into(), words("-n")));
        for (flag, rest) in [(Some("a;b"), ""), (None, "-c a;b")] {
            let shell = command(flag.map(OsString::from), words(rest)).unwrap().unwrap();
            assert_eq!(shell.arguments, words("-c a;b"));
        }
        assert!(command(None, words("-c a b")).is_err());
        assert!(command(Some("a".into()), words("b")).is_err());
        assert!(command(None, vec![]).unwrap().is_none());
    }

    #[test]
    fn a_grace_that_does_not_fit_is_refused() {
        let ttl = Duration::from_secs(30);
        assert_eq!(grace(ttl, None).unwrap(), Duration::from_secs(5));
        assert_eq!(grace(ttl, Some(Duration::from_secs(6))).unwrap(), Duration::from_secs(6));
        assert!(grace(ttl, Some(Duration::from_secs(7))).is_err());
        assert!(grace(Duration::from_millis(50), None).is_err());
        assert!(grace(Duration::from_millis(250), None).is_ok());
    }
}
