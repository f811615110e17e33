//! While the lock is held: signals go to the command, and it is stopped before the lock ends. Of several locks the one that
//! ends first counts.

use std::time::Duration;

use futures_util::future::select_all;
use leasehold::{Clock, Lease, clock::BootInstant, lease::validity};
use rustix::process::Signal;

use super::{
    child::{Change, Child, NotStarted},
    guardian::Terms,
    kernel, plan,
    terminal::{Placement, Terminal},
    trouble::{Misses, Trouble},
};
use crate::{exit::Exit, output, signals::Signals, waiting::ending};

/// How supervision ended. The command has ended in any case, and all that it has started.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself.
    Exited(Exit),
    /// It was stopped because the lock can no longer be trusted.
    Lost,
    /// It was stopped because it reached its maximum runtime.
    MaxRuntime,
    /// It was stopped because its guardian died.
    Unguarded,
}

/// Supervises leases and the command that runs under them.
pub(super) struct Supervisor {
    /// None: the command runs without a lock.
    leases: Vec<Lease>,
    clock: Clock,
    ttl: Duration,
    grace: Duration,
    runtime_end: Option<BootInstant>,
    terminal: Option<Terminal>,
    /// The end of validity when it was last read. It only moves forward, so an old value is safe.
    valid_until: BootInstant,
    misses: Misses,
    trouble: Trouble,
}

/// The end of a lease that does not exist.
const NEVER: BootInstant = BootInstant::from_nanos(u64::MAX);

impl Supervisor {
    pub(super) fn new(
        leases: Vec<Lease>,
        ttl: Duration,
        grace: Duration,
        max_runtime: Option<Duration>,
        misses: Misses,
    ) -> Self {
        let clock = Clock::system();
        let now = clock.now();
        let runtime_end = max_runtime.map(|most| now + most);
        let valid_until = remaining(&leases).map_or(NEVER, |left| now + left);
        let (terminal, trouble) = (None, Trouble::default());
        misses.forget();
        Self { leases, clock, ttl, grace, runtime_end, terminal, valid_until, misses, trouble }
    }

    /// Starts the command, with these variables besides ours.
    pub(super) async fn start(
        &mut self,
        command: &plan::Command,
        environment: &[(&str, String)],
    ) -> Result<Child, NotStarted> {
        self.terminal = Terminal::open();
        let terms = Terms {
            valid_until: self.valid_until,
            grace: self.grace,
            margin: validity::margin(self.ttl),
            terminal: self.terminal.as_ref().map_or(Placement::None, Terminal::placement),
        };
        let spawned = Child::spawn(command, &terms, environment, &self.clock).await;
        if spawned.is_err()
            && let Some(terminal) = &self.terminal
        {
            terminal.reclaim();
        }
        spawned
    }

    /// Watches the command to its end.
    pub(super) async fn watch(mut self, mut child: Child, signals: &mut Signals) -> End {
        // Only now: being stopped while waiting for the lock does no harm.
        let mut stops = Signals::listen(&[Signal::TSTP]).unwrap_or_default();
        let mut asked_to_stop = false;
        let end = loop {
            child.renewed(self.valid_until);
            tokio::select! {
                biased;
                standing = self.standing() => if self.is_last_call(standing) {
                    self.stop(&mut child).await;
                    break End::Lost;
                },
                change = child.change() => match change {
                    Change::Ended { exit, leftovers } => {
                        if leftovers {
                            output::mention("warning: processes that the command left running were stopped");
                        }
                        break End::Exited(exit);
                    }
                    Change::Stopped(signal) => {
                        self.stopped(&child, signal, asked_to_stop);
                        asked_to_stop = false;
                    }
                    Change::Overdue => {
                        self.stop(&mut child).await;
                        break End::Lost;
                    }
                    Change::Unguarded => {
                        child.take_over(&self.clock, self.kill_at()).await;
                        break End::Unguarded;
                    }
                },
                () = until(&self.clock, self.runtime_end) => {
                    self.stop(&mut child).await;
                    break End::MaxRuntime;
                }
                signal = signals.next() => child.signal(signal),
                _ = stops.next() => {
                    // We stop when the command has stopped: a command that runs on alone could not be stopped in time.
                    asked_to_stop = true;
                    child.signal(Signal::TSTP);
                }
            }
        };
        if let Some(terminal) = &self.terminal {
            terminal.take_back(child.group());
        }
        end
    }

    async fn stop(&self, child: &mut Child) {
        child.stop(&self.clock, self.kill_at(), validity::margin(self.ttl) / 2).await;
    }

    /// Holds the lock without a command until a signal asks to end.
    pub(super) async fn hold(mut self, signals: &mut Signals) -> End {
        self.grace = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                standing = self.standing() => if self.is_last_call(standing) {
                    return End::Lost;
                },
                _ = ending(signals) => return End::Exited(Exit::OK),
                () = until(&self.clock, self.runtime_end) => return End::MaxRuntime,
            }
        }
    }

    /// Completes when the lease has been renewed, when a renewal was missed, and when the command must get TERM so that it has ended before the lock
    /// does.
    async fn standing(&self) -> Standing {
        let lead = self.grace + validity::margin(self.ttl);
        loop {
            let now = self.clock.now();
            let Some(left) = remaining(&self.leases) else { return std::future::pending().await };
            if left <= lead {
                return Standing::LastCall;
            }
            // Two readings of one instant differ a little.
            if now + left > self.valid_until + validity::margin(self.ttl) {
                return Standing::ValidUntil(now + left);
            }
            tokio::select! {
                biased;
                _ = select_all(self.leases.iter().map(|lease| Box::pin(lease.lost()))) => return Standing::LastCall,
                why = self.misses.next() => return Standing::Missed(why),
                // The guardian has to hear of a renewal well before it would act.
                () = self.clock.sleep_until(now + (left - lead).min(self.ttl / 16)) => {}
            }
        }
    }

    /// Takes note of what a look at the lease found; returns whether it is the last call.
    fn is_last_call(&mut self, standing: Standing) -> bool {
        let name = &self.title();
        let now = self.clock.now();
        let said = match standing {
            Standing::LastCall => return true,
            Standing::ValidUntil(at) => {
                self.valid_until = at;
                self.trouble.renewed(name, now)
            }
            Standing::Missed(why) => self.trouble.missed(name, &why, now, self.valid_until, self.ttl),
        };
        said.iter().for_each(|line| output::mention(line));
        false
    }

    /// All names, to be put between quotes.
    fn title(&self) -> String {
        let names: Vec<_> = self.leases.iter().map(|lease| lease.name().as_str()).collect();
        names.join("\", \"")
    }

    /// When TERM was not enough. Also for a lock that the store gave away: its holder gets the same grace, within the
    /// validity it had.
    fn kill_at(&self) -> BootInstant {
        (self.clock.now() + self.grace).min(self.valid_until - validity::margin(self.ttl))
    }

    /// The command was stopped, by Ctrl-Z or because it wanted the terminal.
    fn stopped(&self, child: &Child, signal: Signal, asked: bool) {
        let for_terminal = matches!(signal, Signal::TTIN | Signal::TTOU);
        let by_terminal = for_terminal || signal == Signal::TSTP;
        let Some(terminal) = self.terminal.as_ref().filter(|_| by_terminal) else {
            // A `kill -STOP` from outside is not ours to undo; a stop that we forwarded is.
            if asked {
                kernel::stop_own_group();
                self.go_on(child);
            }
            return;
        };
        if !(for_terminal && terminal.give(child.group())) {
            terminal.take_back(child.group());
            if let Some(left) = remaining(&self.leases).map(output::spoken) {
                let title = self.title();
                output::mention(&format!("\nstopped: \"{title}\" is not renewed and expires in {left}"));
            }
            kernel::stop_own_group();
        }
        self.go_on(child);
    }

    /// Continues the command after we were stopped, unless the lock was lost meanwhile.
    fn go_on(&self, child: &Child) {
        if self.leases.iter().all(Lease::is_held) {
            if let Some(terminal) = &self.terminal {
                terminal.give(child.group());
            }
            child.signal(Signal::CONT);
        }
    }
}

/// How long all leases can be trusted.
fn remaining(leases: &[Lease]) -> Option<Duration> {
    leases.iter().map(Lease::remaining).min()
}

/// What a look at the lease found.
enum Standing {
    ValidUntil(BootInstant),
    /// A renewal got no answer.
    Missed(String),
    LastCall,
}

async fn until(clock: &Clock, at: Option<BootInstant>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_lease_that_ends_first_counts() {
        let leases = leasehold::Leasehold::connect("memory:").await.unwrap();
        let lock = |name, seconds| leases.lock(name).ttl(Duration::from_secs(seconds)).acquire();
        let (short, long) = (lock("a", 10).await.unwrap(), lock("b", 60).await.unwrap());
        for both in [[short.lease(), long.lease()], [long.lease(), short.lease()]] {
            assert!(remaining(&both).unwrap() <= Duration::from_secs(10));
            let supervisor = Supervisor::new(
                both.into(),
                Duration::from_secs(10),
                Duration::ZERO,
                None,
                Misses::default(),
            );
            assert!(supervisor.valid_until <= Clock::system().now() + Duration::from_secs(10));
        }
        assert_eq!(remaining(&[]), None);
    }
}
