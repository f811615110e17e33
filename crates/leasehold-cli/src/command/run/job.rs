//! The processes of a job: the command, its process group, and what left the group.
//!
//! The group has what the command started and what that started. A process leaves it with `setsid`, and its parent by ending
//! first. On Linux such an orphan becomes a child of the nearest subreaper above it, which is whoever made a [`Job`]. So
//! ending all children, until there is none, ends everything: the children of each that ended are the next.

use std::{collections::HashSet, io, time::Duration};

use leasehold::{Clock, clock::BootInstant};
use rustix::{
    io::Errno,
    process::{
        Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpgid, kill_process,
        kill_process_group, test_kill_process_group, wait, waitid,
    },
};
use tokio::signal::unix::{self, SignalKind};

use super::kernel;
use crate::exit::Exit;

/// How often to check whether a job is gone: the system reports only the end of children.
const POLL_EVERY: Duration = Duration::from_millis(5);
/// How long to wait for the end of what was killed: a process that the kernel cannot end at once must not delay the report.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// A process that adopts the orphans of a job, and knows which of its children belong to none.
pub(super) struct Family {
    changes: unix::Signal,
    strangers: HashSet<Pid>,
}

impl Family {
    /// Adopts all orphans below this process from now on. Children that it has already are not of the job: the program
    /// that became this one may have started them.
    pub(super) fn adopt() -> io::Result<Self> {
        // The guardian of an earlier job has ended, and its id may soon be another's.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let strangers = kernel::children().into_iter().collect();
        kernel::adopt_orphans()?;
        Ok(Self { changes: unix::signal(SignalKind::child())?, strangers })
    }

    /// Completes when a child that must not be stopped was, and has been continued.
    ///
    /// # Cancel safety
    /// Safe: a stop stays until it is taken.
    pub(super) async fn keep_running(&mut self, child: Pid) {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        while !matches!(waitid(WaitId::Pid(child), options), Ok(Some(_))) {
            self.changes.recv().await;
        }
        let _gone = kill_process(child, Signal::CONT);
    }

    /// The job of a command that was started after this process began to adopt.
    pub(super) fn job(self, leader: Pid) -> Job {
        Job { leader, family: self, exit: None, end_is_told: false, stopped: None, asked: HashSet::new() }
    }
}

/// A running job.
pub(super) struct Job {
    leader: Pid,
    pub(super) family: Family,
    exit: Option<Exit>,
    end_is_told: bool,
    stopped: Option<Signal>,
    /// Those outside of the group that got TERM.
    asked: HashSet<Pid>,
}

/// What happened to a job.
pub(super) enum Change {
    /// A signal stopped the command.
    Stopped(Signal),
    /// The command ended.
    Ended,
    /// After that, nothing of the job is left.
    Gone,
}

impl Job {
    pub(super) fn leader(&self) -> Pid {
        self.leader
    }

    /// How the command ended; by KILL if it cannot be told yet.
    pub(super) fn exit(&self) -> Exit {
        self.exit.unwrap_or(Exit::by_signal(Signal::KILL.as_raw()))
    }

    /// Sends a signal to the whole group; does nothing if the group is gone.
    pub(super) fn signal(&self, signal: Signal) {
        if let Err(error) = kill_process_group(self.leader, signal) {
            tracing::debug!(?signal, %error, "the command's processes did not get a signal");
        }
    }

    /// The next change.
    ///
    /// # Cancel safety
    /// Safe: a change stays until it is taken.
    pub(super) async fn change(&mut self) -> Change {
        loop {
            self.reap();
            if let Some(signal) = self.stopped.take() {
                return Change::Stopped(signal);
            }
            if self.exit.is_some() {
                if !std::mem::replace(&mut self.end_is_told, true) {
                    return Change::Ended;
                }
                self.each_poll(|_| {}).await;
                return Change::Gone;
            }
            self.family.changes.recv().await;
        }
    }

    /// Takes note of what became of all children; returns whether any is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.leader => self.note(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn note(&mut self, status: WaitStatus) {
        self.stopped = status.stopping_signal().and_then(Signal::from_named_raw);
        self.exit = exit_of(status);
    }

    /// Whether nothing of the job is left.
    fn is_gone(&mut self) -> bool {
        let childless = !self.reap() || (!self.family.strangers.is_empty() && self.children().is_empty());
        childless && test_kill_process_group(self.leader).is_err()
    }

    /// Ends the whole job: TERM now, KILL at `kill_at`. Returns when nothing of it is left.
    pub(super) async fn stop(&mut self, clock: &Clock, kill_at: BootInstant) {
        if clock.now() < kill_at {
            self.signal(Signal::TERM);
            // A stopped process does not handle signals until it is continued.
            self.signal(Signal::CONT);
            if clock.bounded(kill_at, self.each_poll(Self::ask_outsiders)).await.is_some() {
                return;
            }
        }
        let _gone = clock.bounded(clock.now() + KILLED_WITHIN, self.each_poll(Self::kill)).await;
    }

    /// Does it again and again until the job is gone.
    async fn each_poll(&mut self, act: fn(&mut Self)) {
        loop {
            act(self);
            if self.is_gone() {
                return;
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Those outside of the group get TERM once, as soon as they are children.
    fn ask_outsiders(&mut self) {
        for pid in self.children() {
            if getpgid(Some(pid)) != Ok(self.leader) && self.asked.insert(pid) {
                let _refused = kill_process(pid, Signal::TERM);
                let _refused = kill_process(pid, Signal::CONT);
            }
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        for pid in self.children() {
            let _refused = kill_process(pid, Signal::KILL);
        }
    }

    /// Children that belong to the job. None of their ids can be another's: only this process can reap them.
    fn children(&self) -> Vec<Pid> {
        let mut children = kernel::children();
        children.retain(|pid| !self.family.strangers.contains(pid));
        children
    }
}

/// The exit code a shell would report.
fn exit_of(status: WaitStatus) -> Option<Exit> {
    let exited = status.exit_status().map(|code| Exit(u8::try_from(code).unwrap_or(u8::MAX)));
    exited.or_else(|| status.terminating_signal().map(Exit::by_signal))
}
