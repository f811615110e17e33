//! While the lock is held: signals go to the command, and it is stopped before the lock ends.

use std::time::Duration;

use leasehold::{Clock, Lease, Mode, clock::BootInstant, lease::validity};
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

/// Supervises one lease and the command that runs under it.
pub(super) struct Supervisor {
    /// `None`: the command runs without a lock.
    lease: Option<Lease>,
    mode: Mode,
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
        lease: Option<Lease>,
        mode: Mode,
        ttl: Duration,
        grace: Duration,
        max_runtime: Option<Duration>,
        misses: Misses,
    ) -> Self {
        let clock = Clock::system();
        let now = clock.now();
        let runtime_end = max_runtime.map(|most| now + most);
        let valid_until = lease.as_ref().map_or(NEVER, |lease| now + lease.remaining());
        let (terminal, trouble) = (None, Trouble::default());
        Self { lease, mode, clock, ttl, grace, runtime_end, terminal, valid_until, misses, trouble }
    }

    /// Starts the command.
    pub(super) async fn start(&mut self, command: &plan::Command, name: &str) -> Result<Child, NotStarted> {
        self.terminal = Terminal::open();
        let terms = Terms {
            valid_until: self.valid_until,
            grace: self.grace,
            margin: validity::margin(self.ttl),
            terminal: self.terminal.as_ref().map_or(Placement::None, Terminal::placement),
        };
        let mut environment = vec![("LEASEHOLD_NAME", name.to_owned())];
        if let Some(lease) = &self.lease {
            environment.push(("LEASEHOLD_FENCE", lease.fence().to_string()));
            environment.push(("LEASEHOLD_TTL_MS", self.ttl.as_millis().to_string()));
            environment.push(("LEASEHOLD_MODE", self.mode.as_str().to_owned()));
            if let Mode::Permits { take, .. } = self.mode {
                environment.push(("LEASEHOLD_PERMITS", take.to_string()));
            }
        }
        let spawned = Child::spawn(command, &terms, &environment, &self.clock).await;
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
        let Some(lease) = &self.lease else { return std::future::pending().await };
        let lead = self.grace + validity::margin(self.ttl);
        loop {
            let now = self.clock.now();
            let left = lease.remaining();
            if left <= lead {
                return Standing::LastCall;
            }
            // Two readings of one instant differ a little.
            if now + left > self.valid_until + validity::margin(self.ttl) {
                return Standing::ValidUntil(now + left);
            }
            tokio::select! {
                biased;
                () = lease.lost() => return Standing::LastCall,
                why = self.misses.next() => return Standing::Missed(why),
                // The guardian has to hear of a renewal well before it would act.
                () = self.clock.sleep_until(now + (left - lead).min(self.ttl / 16)) => {}
            }
        }
    }

    /// Takes note of what a look at the lease found; returns whether it is the last call.
    fn is_last_call(&mut self, standing: Standing) -> bool {
        let name = self.lease.as_ref().map(|lease| lease.name().as_str()).unwrap_or_default();
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
            if let Some(lease) = &self.lease {
                let left = output::spoken(lease.remaining());
                output::mention(&format!(
                    "\nstopped: \"{}\" is not renewed and expires in {left}",
                    lease.name()
                ));
            }
            kernel::stop_own_group();
        }
        self.go_on(child);
    }

    /// Continues the command after we were stopped, unless the lock was lost meanwhile.
    fn go_on(&self, child: &Child) {
        if self.lease.as_ref().is_none_or(Lease::is_held) {
            if let Some(terminal) = &self.terminal {
                terminal.give(child.group());
            }
            child.signal(Signal::CONT);
        }
    }
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
