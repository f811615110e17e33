//! While the lock is held: signals go to the command, and it is stopped before the lock ends.

use std::{cell::Cell, io, time::Duration};

use leasehold::{Clock, Lease, clock::BootInstant, lease::validity};
use rustix::process::Signal;

use super::{
    child::{Change, Child},
    kernel, plan,
    terminal::Terminal,
};
use crate::{exit::Exit, output, signals::Signals, waiting::ending};

/// How supervision ended. The command has ended in any case.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself.
    Exited(Exit),
    /// It was stopped because the lock can no longer be trusted.
    Lost,
    /// It was stopped because it reached its maximum runtime.
    MaxRuntime,
}

/// Supervises one lease and the command that runs under it.
pub(super) struct Supervisor {
    lease: Lease,
    clock: Clock,
    ttl: Duration,
    grace: Duration,
    runtime_end: Option<BootInstant>,
    terminal: Option<Terminal>,
    /// The end of validity when it was last read. It only moves forward, so an old value is safe.
    valid_until: Cell<BootInstant>,
}

impl Supervisor {
    pub(super) fn new(lease: Lease, ttl: Duration, grace: Duration, max_runtime: Option<Duration>) -> Self {
        let clock = Clock::system();
        let now = clock.now();
        let runtime_end = max_runtime.map(|most| now + most);
        let valid_until = Cell::new(now + lease.remaining());
        Self { lease, clock, ttl, grace, runtime_end, terminal: None, valid_until }
    }

    /// Starts the command.
    pub(super) fn start(&mut self, command: &plan::Command) -> io::Result<Child> {
        self.terminal = Terminal::open();
        let spawned = Child::spawn(command, &self.lease, self.ttl, self.terminal.as_ref());
        if spawned.is_err()
            && let Some(terminal) = &self.terminal
        {
            terminal.reclaim();
        }
        spawned
    }

    /// Watches the command to its end.
    pub(super) async fn watch(self, mut child: Child, signals: &mut Signals) -> End {
        // Only now: being stopped while waiting for the lock does no harm.
        let mut stops = Signals::listen(&[Signal::TSTP]).unwrap_or_default();
        let mut asked_to_stop = false;
        let end = loop {
            tokio::select! {
                biased;
                () = self.last_call() => {
                    child.stop(&self.clock, self.kill_at()).await;
                    break End::Lost;
                }
                change = child.change() => match change {
                    Change::Ended(exit) => break End::Exited(exit),
                    Change::Stopped(signal) => {
                        self.stopped(&child, signal, asked_to_stop);
                        asked_to_stop = false;
                    }
                },
                () = until(&self.clock, self.runtime_end) => {
                    child.stop(&self.clock, self.kill_at()).await;
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

    /// Holds the lock without a command until a signal asks to end.
    pub(super) async fn hold(mut self, signals: &mut Signals) -> End {
        self.grace = Duration::ZERO;
        tokio::select! {
            biased;
            () = self.last_call() => End::Lost,
            _ = ending(signals) => End::Exited(Exit::OK),
            () = until(&self.clock, self.runtime_end) => End::MaxRuntime,
        }
    }

    /// Completes when the command must get TERM so that it has ended before the lock does.
    async fn last_call(&self) {
        let lead = self.grace + validity::margin(self.ttl);
        loop {
            let now = self.clock.now();
            let left = self.lease.remaining();
            if left <= lead {
                return;
            }
            self.valid_until.set(now + left);
            tokio::select! {
                biased;
                () = self.lease.lost() => return,
                () = self.clock.sleep_until(now + left - lead) => {}
            }
        }
    }

    /// When TERM was not enough. Also for a lock that the store gave away: its holder gets the same grace, within the
    /// validity it had.
    fn kill_at(&self) -> BootInstant {
        (self.clock.now() + self.grace).min(self.valid_until.get() - validity::margin(self.ttl))
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
            let left = output::spoken(self.lease.remaining());
            output::say(&format!(
                "\nstopped: \"{}\" is not renewed and expires in {left}",
                self.lease.name()
            ));
            kernel::stop_own_group();
        }
        self.go_on(child);
    }

    /// Continues the command after we were stopped, unless the lock was lost meanwhile.
    fn go_on(&self, child: &Child) {
        if self.lease.is_held() {
            if let Some(terminal) = &self.terminal {
                terminal.give(child.group());
            }
            child.signal(Signal::CONT);
        }
    }
}

async fn until(clock: &Clock, at: Option<BootInstant>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
