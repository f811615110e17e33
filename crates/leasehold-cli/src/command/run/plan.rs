//! What `run` will do, checked before anything is sent.

use std::{ffi::OsString, num::NonZeroU32, path::Path, time::Duration};

use leasehold::{Acks, Config, Format, Mode, OnOutage, Policies, Retry, lease::validity};

use super::{Run, Wait, policy};
use crate::{exit::Failure, output::spoken};

/// A checked `run`.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) mode: Mode,
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
    pub(super) format: Format,
    /// The longest time the lock can be held, if a policy limits it.
    pub(super) max_lifetime: Option<Duration>,
    pub(super) fixed: bool,
    /// How often to ask while it waits, and how often at most.
    pub(super) retry: Option<Retry>,
    pub(super) max_attempts: Option<NonZeroU32>,
    /// What to do when the store is out of reach.
    pub(super) on_outage: OnOutage,
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
        let (name, policy) = match &run.policy {
            Some(policy) => {
                let filled = policy::fill(policies, policy, &run.words)?;
                (filled.name, Some(filled.policy))
            }
            None => (name(run.words)?, None),
        };
        let mode = run.sharing.mode(&name, policy)?;
        let ttl = run.ttl.or(policy.and_then(|policy| policy.ttl)).unwrap_or(defaults.ttl);
        let wait = run.wait.or(policy.and_then(|policy| policy.wait));
        let hold_at_least = run.hold_at_least.or(policy.and_then(|policy| policy.hold_at_least));
        let lock_delay = run.lock_delay.or(policy.and_then(|policy| policy.lock_delay));
        let command = command(run.shell, run.command)?;
        if command.is_none() && !run.hold {
            return Err(Failure::usage(
                format!("what is to run under the lock \"{name}\"? No command was given"),
                format!("leasehold run {name} -- CMD; or --hold to hold the lock without a command"),
            ));
        }
        let own_label = Some(defaults.label.clone()).filter(|label| !label.is_empty());
        Ok(Self {
            grace: grace(ttl, run.kill_after)?,
            label: run.label.or(own_label).unwrap_or_else(|| label(command.as_ref())),
            name,
            mode,
            command,
            ttl,
            wait: Wait::from_flags(run.nonblock, wait).unwrap_or(Wait::Forever),
            conflict_code: run.conflict_exit_code,
            hold_at_least: hold_at_least.unwrap_or_default(),
            max_runtime: run.max_runtime,
            lock_delay: lock_delay.unwrap_or_default(),
            acks: run.acks.or(policy.and_then(|policy| policy.acks)).unwrap_or_default(),
            format: run
                .redisson
                .then_some(Format::Redisson)
                .or(policy.and_then(|policy| policy.format))
                .unwrap_or_default(),
            max_lifetime: policy.and_then(|policy| policy.max_lifetime),
            retry: policy.and_then(|policy| policy.retry),
            max_attempts: policy.and_then(|policy| policy.max_attempts),
            on_outage: policy.map(|policy| policy.on_outage).unwrap_or_default(),
            fixed: run.fixed || policy.and_then(|policy| policy.keep_alive) == Some(false),
        })
    }
}

/// The name, which is the only word before the command.
fn name(words: Vec<OsString>) -> Result<String, Failure> {
    let mut words = words.into_iter();
    let Some(name) = words.next() else {
        return Err(Failure::usage("the name of the lock is missing", "leasehold run NAME -- CMD"));
    };
    let name = name.into_string().map_err(|name| {
        Failure::usage(format!("the name {name:?} is not UTF-8"), "choose a printable name")
    })?;
    match words.next() {
        None => Ok(name),
        Some(word) => {
            let word = crate::output::clean(&word.to_string_lossy());
            Err(Failure::usage(
                format!("\"{word}\" comes after the name \"{name}\": the command comes after --"),
                format!("leasehold run {name} -- {word}"),
            ))
        }
    }
}

/// The command, with or without a shell.
fn command(shell: Option<OsString>, words: Vec<OsString>) -> Result<Option<Command>, Failure> {
    if let Some(script) = shell {
        if !words.is_empty() {
            return Err(Failure::usage("both -c and a command were given", "give one of them"));
        }
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
    fn the_name_is_the_only_word_before_the_command() {
        assert_eq!(name(words("x")).unwrap(), "x");
        assert!(name(words("")).is_err() && name(words("x ls")).is_err());
    }

    #[test]
    fn a_shell_is_used_only_when_asked_for() {
        let plain = command(None, words("ls -n")).unwrap().unwrap();
        assert_eq!((plain.program, plain.arguments), ("ls".into(), words("-n")));
        let shell = command(Some("a;b".into()), vec![]).unwrap().unwrap();
        assert_eq!(shell.arguments, words("-c a;b"));
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
