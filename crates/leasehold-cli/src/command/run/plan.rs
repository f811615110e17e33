//! What `run` will do, checked before anything is sent.

use std::{ffi::OsString, num::NonZeroU32, path::Path, time::Duration};

use leasehold::{Acks, Config, Format, Mode, OnOutage, Policies, Retry, lease::validity};

use super::{Names, Options, Run, Wait, policy};
use crate::{exit::Failure, output::spoken};

/// A checked `run`.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) work: Work,
    pub(super) wait: Wait,
    pub(super) hold_at_least: Duration,
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
}

/// A command, what it runs under, and how it is stopped.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) names: Names,
    pub(super) mode: Mode,
    /// `None`: the lock is only held.
    pub(super) command: Option<Command>,
    pub(crate) ttl: Duration,
    /// Time between TERM and KILL.
    pub(super) grace: Duration,
    pub(super) max_runtime: Option<Duration>,
    pub(crate) label: String,
    pub(super) conflict_code: u8,
}

/// A program and its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
}

impl Plan {
    /// A flag wins over the policy, the policy over the defaults.
    pub(super) fn new(run: Run, policies: &Policies, defaults: &Config) -> Result<Self, Failure> {
        let (names, policy) = match &run.policy {
            Some(policy) => {
                let filled = policy::fill(policies, policy, &run.words)?;
                (Names::One(filled.name), Some(filled.policy))
            }
            None if run.all.is_empty() => (Names::one(run.words)?, None),
            None => (Names::all(run.all)?, None),
        };
        let mode = run.sharing.mode(&names.title(), policy)?;
        let options = run.options;
        let ttl = options.ttl.or(policy.and_then(|policy| policy.ttl)).unwrap_or(defaults.ttl);
        let wait = options.wait(policy.and_then(|policy| policy.wait));
        let hold_at_least = run.hold_at_least.or(policy.and_then(|policy| policy.hold_at_least));
        let lock_delay = options.lock_delay.or(policy.and_then(|policy| policy.lock_delay));
        let acks = options.acks.or(policy.and_then(|policy| policy.acks));
        let work = Work::new(names, mode, ttl, options, run.command, defaults)?;
        if work.command.is_none() && !run.hold {
            let title = work.names.title();
            return Err(match &work.names {
                Names::One(name) => Failure::usage(
                    format!("what is to run under the lock \"{title}\"? No command was given"),
                    format!("leasehold run {name} -- CMD; or --hold to hold the lock without a command"),
                ),
                Names::All(names) => Failure::usage(
                    format!("what is to run under the locks \"{title}\"? No command was given"),
                    format!(
                        "leasehold run --all {} -- CMD; or --hold to hold them without a command",
                        names.join(",")
                    ),
                ),
            });
        }
        Ok(Self {
            work,
            wait,
            hold_at_least: hold_at_least.unwrap_or_default(),
            lock_delay: lock_delay.unwrap_or_default(),
            acks: acks.unwrap_or_default(),
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

impl Work {
    pub(crate) fn new(
        names: Names,
        mode: Mode,
        ttl: Duration,
        options: Options,
        words: Vec<OsString>,
        defaults: &Config,
    ) -> Result<Self, Failure> {
        let command = command(options.shell, words)?;
        let own_label = Some(defaults.label.clone()).filter(|label| !label.is_empty());
        Ok(Self {
            names,
            mode,
            ttl,
            grace: grace(ttl, options.kill_after)?,
            max_runtime: options.max_runtime,
            label: options.label.or(own_label).unwrap_or_else(|| label(command.as_ref())),
            conflict_code: options.conflict_exit_code,
            command,
        })
    }

    /// Whether there is nothing to run.
    pub(crate) fn is_idle(&self) -> bool {
        self.command.is_none()
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
