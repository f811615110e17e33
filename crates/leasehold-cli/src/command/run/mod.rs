//! `leasehold run`: a command under a lock, or under several.

mod child;
pub(crate) mod guardian;
mod held;
mod job;
pub(crate) mod kernel;
mod link;
mod names;
mod options;
mod plan;
mod policy;
mod session;
mod supervise;
mod terminal;
mod trouble;
mod under;

use std::{ffi::OsString, time::Duration};

use clap::Args;
use leasehold::{Leasehold, Lock, OnOutage};

use self::plan::Plan;
pub(crate) use self::{
    held::{Held, Successor},
    names::{MODE, NAME, NAMES, Names, PERMITS},
    options::Options,
    plan::Work,
    session::Session,
};
use super::Global;
use crate::{
    duration,
    exit::{Exit, Failure},
    sharing::Sharing,
    store::{self, Store},
    waiting::{self, Wait, Wanted},
};

/// Run a command while holding a lock
#[derive(Args)]
#[command(
    override_usage = "leasehold run [OPTIONS] NAME -- CMD [ARGS]...\n       \
                      leasehold run [OPTIONS] NAME -c STR\n       \
                      leasehold run [OPTIONS] --all NAME,NAME... -- CMD [ARGS]...\n       \
                      leasehold run [OPTIONS] --policy POLICY [KEY=VALUE]... -- CMD [ARGS]...\n       \
                      leasehold run [OPTIONS] NAME --hold",
    after_help = "\
The lock is renewed while the command runs and released when it ends. The command has
LEASEHOLD_NAME, LEASEHOLD_FENCE, LEASEHOLD_TTL_MS, LEASEHOLD_MODE (exclusive, shared or permits) and
LEASEHOLD_PERMITS (of a semaphore) in its environment; pass the fence to everything it writes to.
INT, TERM, HUP, QUIT, USR1 and USR2 are forwarded. With --hold, leasehold prints the name and the
fence and holds the lock until TERM.

With --all the command runs under all these locks or does not run. Commands that name the same locks
in another order never wait for each other in a circle. It has LEASEHOLD_NAMES and LEASEHOLD_FENCES
instead of LEASEHOLD_NAME and LEASEHOLD_FENCE: lists with commas, in the order of --all. The first
lock that is lost ends it.

With --shared the command is one of many readers: they run together, and nobody who takes the same
name without --shared beside them. With --of M at most M permits of the name are taken at a time, by
all commands together. All wait in one queue, and nobody overtakes: a reader behind a writer waits,
and so does a small request behind a large one.

If the lock cannot be renewed, the command and all processes it has started get TERM, and KILL
after a grace period, so that none of them outlives the lock. A small second process sees to it
also when leasehold itself is stopped or killed. Processes that the command leaves running have
the grace period to end after it, then they are stopped too: start a service through its manager.
With --fixed the command is stopped before the ttl ends. The lock is not renewed while the job is
stopped with Ctrl-Z, and the job never continues without its lock.

Exit codes:
  the command's own; 128+N if signal N ended the command, or leasehold while it waited
  1         the lock was not acquired (-n, -w); -E sets another code, and -E 0 prints nothing
  64        wrong usage
  69, 77    the store was unreachable, or refused
  70        the store cannot do it: --redisson or --acks without a Redis, --of on a quorum
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
  leasehold run --all account:7,account:8 -- ./transfer
  leasehold run -w 30s --ttl 1m deploy -c 'deploy && notify'"
)]
pub(super) struct Run {
    #[command(flatten)]
    sharing: Sharing,

    /// Hold all these locks at once; names that contain a comma cannot be listed
    #[arg(long, value_name = "NAME,NAME...", value_delimiter = ',', conflicts_with_all = ["permits", "of", "policy", "words"])]
    all: Vec<String>,

    #[command(flatten)]
    options: Options,

    /// Hold the lock at least this long, even if the command ends earlier
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    hold_at_least: Option<Duration>,

    /// Share the lock with RLock and RFencedLock of Redisson, whose name for it is the store's prefix and NAME
    #[arg(long, conflicts_with_all = ["shared", "permits", "of"])]
    redisson: bool,

    /// Do not renew the lock: the command is stopped before the ttl ends
    #[arg(long)]
    fixed: bool,

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

impl Run {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let store = Store::choose(global)?;
        let plan = Plan::new(self, store.policies(), store.defaults())?;
        store.check_ttl(plan.work.ttl)?;
        let mut session = Session::open(&store, global)?;
        // A store that is away may be no reason not to run.
        let reached = match plan.on_outage {
            OnOutage::Proceed => Ok(()),
            _ => session.leases.reach().await,
        };
        let result = match reached {
            Ok(()) => plan.execute(&mut session).await,
            Err(error) => Err(error.into()),
        };
        store::close(&session.leases).await;
        result
    }
}

impl Plan {
    async fn execute(&self, session: &mut Session) -> Result<Exit, Failure> {
        let Session { leases, signals, verbose, .. } = session;
        let (work, wait, verbose) = (&self.work, self.wait, *verbose);
        let wanted = match &work.names {
            Names::One(name) => {
                let (lock, wanted) = (self.lock(leases, name), (name.as_str(), work.mode));
                let held = waiting::acquire(lock, wanted, wait, self.on_outage, signals, verbose).await;
                held?.map(Held::One)
            }
            Names::All(names) => {
                let locks = names.iter().map(|name| (name.as_str(), self.lock(leases, name)));
                let held = waiting::acquire_all(leases, locks, work.mode, wait, signals, verbose).await;
                held?.map(Held::All)
            }
        };
        match wanted {
            Wanted::Held(held) => work.under(held, session).await,
            Wanted::Unprotected(cause) => work.without(cause, session).await,
            Wanted::NotAcquired(failure) => Err(work.not_acquired(failure)),
            Wanted::Interrupted(signal) => Ok(Exit::by_signal(signal.as_raw())),
        }
    }

    fn lock(&self, leases: &Leasehold, name: &str) -> Lock {
        let lock = leases
            .lock(name)
            .mode(self.work.mode)
            .ttl(self.work.ttl)
            .label(&self.work.label)
            .lock_delay(self.lock_delay)
            .acks(self.acks)
            .format(self.format)
            .hold_at_least(self.hold_at_least);
        let lock = if self.fixed { lock.without_keep_alive() } else { lock.keep_alive() };
        let lock = self.max_lifetime.into_iter().fold(lock, Lock::max_lifetime);
        let lock = self.retry.into_iter().fold(lock, Lock::retry);
        self.max_attempts.into_iter().fold(lock, |lock, most| lock.max_attempts(most.get()))
    }
}
