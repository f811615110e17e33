//! `leasehold run`: a command under a lock.

mod child;
pub(crate) mod guardian;
mod job;
pub(crate) mod kernel;
mod link;
mod plan;
mod policy;
mod supervise;
mod terminal;
mod trouble;

use std::{
    ffi::OsString,
    io::{self, ErrorKind},
    time::Duration,
};

use clap::Args;
use leasehold::{Acks, Error, Event, Guard, Lease, Leasehold, Lock, OnOutage, engine::Released};
use serde::Serialize;

use self::{
    child::NotStarted,
    plan::Plan,
    supervise::{End, Supervisor},
    trouble::Misses,
};
use super::Global;
use crate::{
    duration,
    exit::{self, Exit, Failure},
    output::{self, spoken},
    sharing::Sharing,
    signals::{FORWARDED, Signals},
    store::{self, Store},
    view::{ModeView, millis},
    waiting::{self, Wait, Wanted},
};

/// Run a command while holding a lock
#[derive(Args)]
#[command(
    override_usage = "leasehold run [OPTIONS] NAME -- CMD [ARGS]...\n       \
                      leasehold run [OPTIONS] NAME -c STR\n       \
                      leasehold run [OPTIONS] --policy POLICY [KEY=VALUE]... -- CMD [ARGS]...\n       \
                      leasehold run [OPTIONS] NAME --hold",
    after_help = "\
The lock is renewed while the command runs and released when it ends. The command has
LEASEHOLD_NAME, LEASEHOLD_FENCE, LEASEHOLD_TTL_MS, LEASEHOLD_MODE (exclusive, shared or permits) and
LEASEHOLD_PERMITS (of a semaphore) in its environment; pass the fence to everything it writes to.
INT, TERM, HUP, QUIT, USR1 and USR2 are forwarded. With --hold, leasehold prints the name and the
fence and holds the lock until TERM.

With --shared the command is one of many readers: they run together, and nobody who takes the same
name without --shared beside them. With --of M at most M permits of the name are taken at a time, by
all commands together. All wait in one queue, and nobody overtakes: a reader behind a writer waits,
and so does a small request behind a large one.

If the lock cannot be renewed, the command and all processes it has started get TERM, and KILL
after a grace period, so that none of them outlives the lock. A small second process sees to it
also when leasehold itself is stopped or killed. Processes that the command leaves running have
the grace period to end after it, then they are stopped too: start a service through its manager.
With --fixed the command is stopped before the ttl ends. The lock is not renewed while the job is stopped with Ctrl-Z, and the job never
continues without its lock.

Exit codes:
  the command's own; 128+N if signal N ended the command, or leasehold while it waited
  1         the lock was not acquired (-n, -w); -E sets another code, and -E 0 prints nothing
  64        wrong usage
  69, 77    the store was unreachable, or refused
  76        the lock was lost; the command may have done part of its work
  80        the name is in use as another kind: a lock as a semaphore, or the other way round
  81        the semaphore has another number of permits than --of says
  124       stopped after --max-runtime
  126, 127  the command cannot be executed, or was not found

Examples:
  leasehold run nightly -- ./report.sh --all
  leasehold run -n -E 0 --hold-at-least 1m minutely -- ./collect
  leasehold run --shared catalogue -- ./export
  leasehold run --permits 2 --of 8 gpu -- ./render
  leasehold run -w 30s --ttl 1m deploy -c 'deploy && notify'"
)]
pub(super) struct Run {
    #[command(flatten)]
    sharing: Sharing,

    /// How long the lock stays held after a crash [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    ttl: Option<Duration>,

    /// Fail at once if the lock is held
    #[arg(short, long, conflicts_with = "wait")]
    nonblock: bool,

    /// Wait at most this long, in seconds if there is no unit; 0 means do not wait [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse_wait, allow_hyphen_values = true)]
    wait: Option<Duration>,

    /// Exit code when the lock is not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 1)]
    conflict_exit_code: u8,

    /// Run this with the shell ($SHELL, or /bin/sh)
    #[arg(short = 'c', long, value_name = "STR")]
    shell: Option<OsString>,

    /// Hold the lock at least this long, even if the command ends earlier
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    hold_at_least: Option<Duration>,

    /// Stop the command after this long: TERM, then KILL
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    max_runtime: Option<Duration>,

    /// Description of the holder, shown by inspect [default: the command's file name]
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Keep the lock unavailable this long after it expires (not after a release)
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    lock_delay: Option<Duration>,

    /// Replicas that must acknowledge the lock: a number, or majority
    #[arg(long, value_name = "N")]
    acks: Option<Acks>,

    /// Share the lock with RLock and RFencedLock of Redisson, whose name for it is the store's prefix and NAME
    #[arg(long)]
    redisson: bool,

    /// Do not renew the lock: the command is stopped before the ttl ends
    #[arg(long)]
    fixed: bool,

    /// Time between TERM and KILL [default: a sixth of the ttl]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    kill_after: Option<Duration>,

    /// Use [locks.POLICY] of leasehold.toml for the lock name and for any option not given on the command line
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,

    /// Hold the lock without a command, until TERM
    #[arg(long, conflicts_with_all = ["shell", "command"])]
    hold: bool,

    /// The lock; with --policy, values for its name
    #[arg(value_name = "NAME")]
    words: Vec<OsString>,

    /// The command to run
    #[arg(value_name = "CMD", last = true)]
    command: Vec<OsString>,
}

#[derive(Serialize)]
struct Holding<'a> {
    name: &'a str,
    fence: leasehold::Fence,
    ttl_ms: u64,
    acks: u8,
    #[serde(flatten)]
    mode: ModeView,
}

impl Run {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let store = Store::choose(global)?;
        let plan = Plan::new(self, store.policies(), store.defaults())?;
        store.check_ttl(plan.ttl)?;
        let mut signals = Signals::listen(&FORWARDED)?;
        let misses = Misses::default();
        let leases = store.connect_observed({
            let misses = misses.clone();
            move |event: &Event| misses.on_event(event)
        })?;
        // A store that is away may be no reason not to run.
        let reached = match plan.on_outage {
            OnOutage::Proceed => Ok(()),
            _ => leases.reach().await,
        };
        let result = match reached {
            Ok(()) => plan.execute(&leases, &mut signals, misses, global).await,
            Err(error) => Err(error.into()),
        };
        store::close(&leases).await;
        result
    }
}

impl Plan {
    async fn execute(
        &self,
        leases: &Leasehold,
        signals: &mut Signals,
        misses: Misses,
        global: &Global,
    ) -> Result<Exit, Failure> {
        let lock = leases
            .lock(&self.name)
            .mode(self.mode)
            .ttl(self.ttl)
            .label(&self.label)
            .lock_delay(self.lock_delay)
            .acks(self.acks)
            .format(self.format)
            .hold_at_least(self.hold_at_least);
        let lock = if self.fixed { lock.without_keep_alive() } else { lock.keep_alive() };
        let lock = self.max_lifetime.into_iter().fold(lock, Lock::max_lifetime);
        let lock = self.retry.into_iter().fold(lock, Lock::retry);
        let lock = self.max_attempts.into_iter().fold(lock, |lock, most| lock.max_attempts(most.get()));
        let (name, on_outage) = (&self.name, self.on_outage);
        let wanted = (name.as_str(), self.mode);
        match waiting::acquire(lock, wanted, self.wait, on_outage, signals, global.verbose > 0).await? {
            Wanted::Held(guard) => self.under(guard, signals, misses, global).await,
            Wanted::Unprotected(cause) => self.without(cause, signals, misses).await,
            Wanted::NotAcquired(failure) => Err(self.conflict(failure)),
            Wanted::Interrupted(signal) => Ok(Exit::by_signal(signal.as_raw())),
        }
    }

    /// With `-E 0` a lock that is held is no failure, so nothing is printed about it.
    fn conflict(&self, failure: Failure) -> Failure {
        let failure = failure.code(self.conflict_code);
        if self.conflict_code == Exit::OK.0 { failure.silent() } else { failure }
    }

    fn supervisor(&self, lease: Option<Lease>, misses: Misses) -> Supervisor {
        Supervisor::new(lease, self.mode, self.ttl, self.grace, self.max_runtime, misses)
    }

    /// Runs the command although the store is out of reach.
    async fn without(&self, cause: Error, signals: &mut Signals, misses: Misses) -> Result<Exit, Failure> {
        let Some(command) = &self.command else { return Err(cause.into()) };
        output::say(&format!(
            "warning: running WITHOUT the lock \"{}\", as on-outage = \"proceed\" says; others may run at the same \
             time, and there is no fence\n  caused by: {cause}",
            output::clean(&self.name)
        ));
        let mut supervisor = self.supervisor(None, misses);
        let end = match supervisor.start(command, &self.name).await {
            Ok(child) => supervisor.watch(child, signals).await,
            Err(NotStarted::Ended(end)) => end,
            Err(NotStarted::Command(error)) => return Err(not_started(command, &error)),
            Err(NotStarted::Guardian(error)) => return Err(no_guardian(&error)),
        };
        match end {
            End::Exited(exit) => Ok(exit),
            End::MaxRuntime => Err(self.too_long()),
            End::Unguarded | End::Lost => Err(unguarded()),
        }
    }

    fn too_long(&self) -> Failure {
        let most = self.max_runtime.map(spoken).unwrap_or_default();
        Failure::new(exit::MAX_RUNTIME, "max_runtime", format!("stopped after {most}"))
            .hint("raise --max-runtime, or find out why it took so long")
    }

    async fn under(
        &self,
        guard: Guard,
        signals: &mut Signals,
        misses: Misses,
        global: &Global,
    ) -> Result<Exit, Failure> {
        let mut supervisor = self.supervisor(Some(guard.lease()), misses);
        let end = match &self.command {
            Some(command) => match supervisor.start(command, &self.name).await {
                Ok(child) => supervisor.watch(child, signals).await,
                Err(NotStarted::Ended(end)) => end,
                Err(NotStarted::Command(error)) => {
                    let _logged = guard.release().await;
                    return Err(not_started(command, &error));
                }
                Err(NotStarted::Guardian(error)) => {
                    let _logged = guard.release().await;
                    return Err(no_guardian(&error));
                }
            },
            None => {
                let (name, fence) = (self.name.as_str(), guard.fence());
                let out = global.output();
                let (ttl_ms, acks, mode) = (millis(self.ttl), guard.acks(), self.mode.into());
                let holding = Holding { name, fence, ttl_ms, acks, mode };
                // The lock is held whether or not anybody reads this.
                let _unread = out.print(holding, || format!("{name}\t{fence}\n"));
                supervisor.hold(signals).await
            }
        };
        self.settle(guard, end).await
    }

    /// Releases the lock and decides the exit code. A lost lock never ends with 0, whatever the command returned.
    async fn settle(&self, guard: Guard, end: End) -> Result<Exit, Failure> {
        let lost = Error::Lost { name: guard.name().clone(), fence: guard.fence() };
        let lost = Failure::from(lost);
        match end {
            End::Lost => {
                // Dropped, not released: a lost lock with a lock-delay has to be left to its delay.
                drop(guard);
                Err(if self.command.is_some() { lost.add("; the command was stopped") } else { lost })
            }
            End::Unguarded => {
                give_back(guard).await;
                Err(unguarded())
            }
            End::MaxRuntime => {
                give_back(guard).await;
                Err(self.too_long())
            }
            End::Exited(exit) => {
                let held = guard.is_held();
                let ours = if held {
                    give_back(guard).await
                } else {
                    drop(guard);
                    false
                };
                if ours {
                    return Ok(exit);
                }
                Err(lost.add(&format!("; it was gone when the command ended with exit code {}", exit.0)))
            }
        }
    }
}

/// Releases the lock; returns whether it was still ours according to the store.
async fn give_back(guard: Guard) -> bool {
    match guard.release().await {
        Ok(outcome) => !matches!(outcome, Released::Expired | Released::Taken { .. }),
        Err(error) => {
            // It was valid until now, and ends with its ttl.
            output::say(&format!("warning: {error}"));
            true
        }
    }
}

fn unguarded() -> Failure {
    let code = Exit::by_signal(rustix::process::Signal::KILL.as_raw()).0;
    Failure::new(code, "unguarded", "the guardian of the command was killed, so the command was stopped")
        .hint("check what the work has done; the kernel kills processes when memory is short")
}

fn no_guardian(error: &io::Error) -> Failure {
    let what = "cannot start the guardian of the command";
    Failure::new(exit::CANNOT_EXECUTE, "cannot_execute", what)
        .cause(error.to_string())
        .hint(short_of(error).unwrap_or("it is this program again, found through /proc; is that mounted?"))
}

fn not_started(command: &plan::Command, error: &io::Error) -> Failure {
    let program = command.program.to_string_lossy();
    let (code, kind, hint) = match (error.kind(), short_of(error)) {
        (ErrorKind::NotFound, _) => (
            exit::NOT_FOUND,
            "not_found",
            "check the name of the command and PATH, or the interpreter that the script names",
        ),
        (_, Some(hint)) => (exit::CANNOT_EXECUTE, "cannot_execute", hint),
        _ => (exit::CANNOT_EXECUTE, "cannot_execute", "check that it is a program and its permissions"),
    };
    Failure::new(code, kind, format!("cannot run \"{}\"", output::clean(&program)))
        .cause(error.to_string())
        .hint(hint)
}

/// What helps when the system has too little for another process.
fn short_of(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::WouldBlock => {
            "raise the limit of processes (`ulimit -u`, TasksMax of a systemd unit, pids of a container)"
        }
        ErrorKind::OutOfMemory => "free memory of the host or raise the limit of the container",
        ErrorKind::ArgumentListTooLong => {
            "the command line with its environment is too long for the system: pass a file instead"
        }
        _ if error.raw_os_error() == Some(libc::EMFILE) => "raise the limit of open files (`ulimit -n`)",
        _ => return None,
    })
}
