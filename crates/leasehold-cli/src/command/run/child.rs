//! The command as the wrapper sees it: through the guardian of its job.

use std::{io, time::Duration};

use leasehold::{Clock, clock::BootInstant};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    guardian::{self, Terms},
    job::{Family, Job},
    link::{Frame, Link, Order, Report},
    names::INHERITED,
    plan,
    supervise::End,
};
use crate::exit::Exit;

/// A running command.
pub(super) struct Child {
    guardian: Pid,
    link: Link,
    /// Its processes are the guardian's children, and ours if the guardian dies.
    job: Job,
    valid_until: BootInstant,
}

/// What happened to the command.
pub(super) enum Change {
    /// It ended, and nothing of the job is left.
    Ended {
        exit: Exit,
        /// Processes that it had left running were ended.
        leftovers: bool,
    },
    Stopped(Signal),
    /// The guardian ends the job: it heard of no renewal in time.
    Overdue,
    /// The guardian died.
    Unguarded,
}

/// Why a command was not started.
#[derive(Debug)]
pub(super) enum NotStarted {
    Command(io::Error),
    Guardian(io::Error),
    /// It may have run for a while.
    Ended(End),
}

impl Child {
    /// Starts the command under a guardian, which has this environment besides ours.
    pub(super) async fn spawn(
        command: &plan::Command,
        terms: &Terms,
        environment: &[(&str, String)],
        clock: &Clock,
    ) -> Result<Self, NotStarted> {
        let mut family = Family::adopt().map_err(NotStarted::Guardian)?;
        let set = |guardian: &mut std::process::Command| {
            let guardian = INHERITED.iter().fold(guardian, |guardian, name| guardian.env_remove(name));
            guardian.envs(environment.iter().map(|(name, value)| (name, value)));
        };
        let (guardian, mut link) = guardian::start(command, terms, set).map_err(NotStarted::Guardian)?;
        let in_time = clock.bounded(terms.valid_until, next(&mut link, &mut family, guardian)).await;
        // If we were stopped, it may have come meanwhile.
        let report = in_time.or_else(|| link.waiting().map(Some));
        let not_started = match report.map(|frame| frame.and_then(Report::read)) {
            Some(Some(Report::Started(leader))) => {
                return Ok(Self { guardian, link, job: family.job(leader), valid_until: terms.valid_until });
            }
            Some(Some(Report::NotStarted(error))) => {
                return Err(NotStarted::Command(io::Error::from_raw_os_error(error)));
            }
            Some(None) => None,
            Some(Some(_)) | None => Some(NotStarted::Ended(End::Lost)),
        };
        // It may have started the command, which becomes ours with the guardian's death.
        let mut job = family.job(guardian);
        job.stop(clock, clock.now()).await;
        Err(not_started.unwrap_or_else(|| match job.exit() {
            guardian::FAILED => NotStarted::Guardian(io::Error::other("it could not begin")),
            _ => NotStarted::Ended(End::Unguarded),
        }))
    }

    pub(super) fn group(&self) -> Pid {
        self.job.leader()
    }

    /// Sends a signal to the whole group.
    pub(super) fn signal(&self, signal: Signal) {
        self.link.send(Order::Signal(signal));
    }

    /// Tells the guardian until when the lease is valid.
    pub(super) fn renewed(&mut self, valid_until: BootInstant) {
        if valid_until > self.valid_until {
            self.valid_until = valid_until;
            self.link.send(Order::ValidUntil(valid_until));
        }
    }

    /// The next change of the command.
    ///
    /// # Cancel safety
    /// Safe: a change stays until it is taken.
    pub(super) async fn change(&mut self) -> Change {
        loop {
            let frame = next(&mut self.link, &mut self.job.family, self.guardian).await;
            return match frame.map(Report::read) {
                Some(Some(Report::Ended { exit, leftovers })) => Change::Ended { exit, leftovers },
                Some(Some(Report::Stopped(signal))) => Change::Stopped(signal),
                Some(Some(Report::Overdue)) => Change::Overdue,
                Some(_) => continue,
                None => Change::Unguarded,
            };
        }
    }

    /// Ends the whole job: TERM now, KILL at `kill_at`. Returns when nothing of it is left. If the guardian has not done it
    /// until `patience` after that, it is stopped itself, and we do it.
    pub(super) async fn stop(&mut self, clock: &Clock, kill_at: BootInstant, patience: Duration) {
        self.link.send(Order::Stop { kill_at });
        let over = kill_at.max(clock.now()) + patience;
        let ended = clock.bounded(over, async {
            loop {
                match self.change().await {
                    Change::Ended { .. } => return true,
                    Change::Unguarded => return false,
                    Change::Stopped(_) | Change::Overdue => {}
                }
            }
        });
        if ended.await != Some(true) {
            self.take_over(clock, kill_at).await;
        }
    }

    /// Ends the job without the guardian.
    pub(super) async fn take_over(&mut self, clock: &Clock, kill_at: BootInstant) {
        // Its children become ours.
        let _dead = kill_process(self.guardian, Signal::KILL);
        self.job.stop(clock, kill_at).await;
    }
}

/// The next frame of the guardian, which cannot act and does not report while it is stopped.
///
/// # Cancel safety
/// Safe: a frame stays until it is taken.
async fn next(link: &mut Link, family: &mut Family, guardian: Pid) -> Option<Frame> {
    loop {
        tokio::select! {
            frame = link.next() => return frame,
            () = family.keep_running(guardian) => {}
        }
    }
}
