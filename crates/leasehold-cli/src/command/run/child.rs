//! The command that runs under the lock, and everything it starts: one process group.

use std::{io, os::unix::process::CommandExt, process, time::Duration};

use leasehold::{Clock, Lease};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process_group, test_kill_process_group, waitpid,
};
use tokio::signal::unix::{self, SignalKind};

use super::{kernel, plan, terminal::Terminal};
use crate::exit::Exit;

/// How often to check whether a process group is gone: the system reports only the end of its leader.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// A running command.
pub(super) struct Child {
    pid: Pid,
    changes: unix::Signal,
    exit: Option<Exit>,
}

/// What happened to the command.
pub(super) enum Change {
    Ended(Exit),
    Stopped(Signal),
}

impl Child {
    /// Starts the command from the calling thread; the command is killed when that thread ends.
    pub(super) fn spawn(
        command: &plan::Command,
        lease: &Lease,
        ttl: Duration,
        terminal: Option<&Terminal>,
    ) -> io::Result<Self> {
        // Before the child exists, so that its end cannot be missed.
        let changes = unix::signal(SignalKind::child())?;
        let mut ready = process::Command::new(&command.program);
        ready
            .args(&command.arguments)
            .process_group(0)
            .env("LEASEHOLD_NAME", lease.name().as_str())
            .env("LEASEHOLD_FENCE", lease.fence().to_string())
            .env("LEASEHOLD_TTL_MS", ttl.as_millis().to_string());
        kernel::before_exec(&mut ready, terminal.map(Terminal::for_child));
        let child = ready.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the system gave no process id"))?;
        Ok(Self { pid, changes, exit: None })
    }

    pub(super) fn group(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the whole group; does nothing if the group is gone.
    pub(super) fn signal(&self, signal: Signal) {
        if let Err(error) = kill_process_group(self.pid, signal) {
            tracing::debug!(?signal, %error, "the command's processes did not get a signal");
        }
    }

    /// The next change of the command itself.
    ///
    /// # Cancel safety
    /// Safe: a change stays until it is taken.
    pub(super) async fn change(&mut self) -> Change {
        loop {
            if let Some(change) = self.poll_change() {
                return change;
            }
            self.changes.recv().await;
        }
    }

    fn poll_change(&mut self) -> Option<Change> {
        if let Some(exit) = self.exit {
            return Some(Change::Ended(exit));
        }
        let (_, status) = waitpid(Some(self.pid), WaitOptions::NOHANG | WaitOptions::UNTRACED).ok()??;
        if let Some(signal) = status.stopping_signal() {
            return Signal::from_named_raw(signal).map(Change::Stopped);
        }
        let exit = exit_of(status)?;
        self.exit = Some(exit);
        Some(Change::Ended(exit))
    }

    /// Stops the whole group: TERM now, KILL at `kill_at`. Returns when no process of it is left.
    pub(super) async fn stop(&mut self, clock: &Clock, kill_at: leasehold::clock::BootInstant) {
        let in_time = clock.now() < kill_at;
        if in_time {
            self.signal(Signal::TERM);
            // A stopped process does not handle signals until it is continued.
            self.signal(Signal::CONT);
        }
        if !in_time || clock.bounded(kill_at, self.gone()).await.is_none() {
            self.signal(Signal::KILL);
            // A process that the kernel cannot kill at once must not delay the report.
            let _gone = clock.bounded(clock.now() + Duration::from_secs(2), self.gone()).await;
        }
    }

    async fn gone(&mut self) {
        loop {
            let ended = matches!(self.poll_change(), Some(Change::Ended(_)));
            if ended && test_kill_process_group(self.pid).is_err() {
                return;
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

/// The exit code a shell would report.
fn exit_of(status: WaitStatus) -> Option<Exit> {
    let exited = status.exit_status().map(|code| Exit(u8::try_from(code).unwrap_or(u8::MAX)));
    exited.or_else(|| status.terminating_signal().map(Exit::by_signal))
}
