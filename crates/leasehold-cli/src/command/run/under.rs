//! A command under what is held: it is stopped in time, what was held is given back after it, and both decide the exit code.

use std::io::{self, ErrorKind};

use leasehold::{Error, Fence, Lease};
use serde::Serialize;

use super::{
    Held, Session, Work,
    child::NotStarted,
    plan,
    supervise::{End, Supervisor},
};
use crate::{
    exit::{self, Exit, Failure},
    output::{self, spoken},
    view::{ModeView, millis},
};

#[derive(Serialize)]
struct Holding<'a> {
    name: &'a str,
    fence: Fence,
    ttl_ms: u64,
    acks: u8,
    #[serde(flatten)]
    mode: ModeView,
}

impl Work {
    /// With `-E 0` a lock that is held is no failure, so nothing is printed about it.
    pub(crate) fn not_acquired(&self, failure: Failure) -> Failure {
        let failure = failure.code(self.conflict_code);
        if self.conflict_code == Exit::OK.0 { failure.silent() } else { failure }
    }

    /// Runs the command, or only holds the lock, and gives back what is held.
    pub(crate) async fn under(&self, held: Held, session: &mut Session) -> Result<Exit, Failure> {
        let leases = held.leases(self.names.as_slice());
        let ended = match &self.command {
            Some(command) => self.run(command, leases, session).await,
            None => Ok(self.hold(leases, session).await),
        };
        match ended {
            Ok(end) => self.settle(held, end).await,
            Err(failure) => {
                let _not_run = held.give_back().await;
                Err(failure)
            }
        }
    }

    /// Runs the command although the store is out of reach.
    pub(super) async fn without(&self, cause: Error, session: &mut Session) -> Result<Exit, Failure> {
        let Some(command) = &self.command else { return Err(cause.into()) };
        output::say(&format!(
            "warning: running WITHOUT the lock \"{}\", as on-outage = \"proceed\" says; others may run at the same \
             time, and there is no fence\n  caused by: {cause}",
            output::clean(&self.names.title())
        ));
        match self.run(command, Vec::new(), session).await? {
            End::Exited(exit) => Ok(exit),
            End::MaxRuntime => Err(self.too_long()),
            End::Unguarded | End::Lost => Err(unguarded()),
        }
    }

    async fn run(
        &self,
        command: &plan::Command,
        leases: Vec<Lease>,
        session: &mut Session,
    ) -> Result<End, Failure> {
        let environment = self.names.environment(&leases, self.mode, self.ttl);
        let mut supervisor = self.supervisor(leases, session);
        match supervisor.start(command, &environment).await {
            Ok(child) => Ok(supervisor.watch(child, &mut session.signals).await),
            Err(NotStarted::Ended(end)) => Ok(end),
            Err(NotStarted::Command(error)) => Err(not_started(command, &error)),
            Err(NotStarted::Guardian(error)) => Err(no_guardian(&error)),
        }
    }

    /// Holds the lock without a command; prints a line for each.
    async fn hold(&self, leases: Vec<Lease>, session: &mut Session) -> End {
        for lease in &leases {
            let (name, fence) = (lease.name().as_str(), lease.fence());
            let (ttl_ms, acks, mode) = (millis(self.ttl), lease.acks(), self.mode.into());
            // The lock is held whether or not anybody reads this.
            let _unread = session
                .out
                .print(Holding { name, fence, ttl_ms, acks, mode }, || format!("{name}\t{fence}\n"));
        }
        self.supervisor(leases, session).hold(&mut session.signals).await
    }

    fn supervisor(&self, leases: Vec<Lease>, session: &Session) -> Supervisor {
        Supervisor::new(leases, self.ttl, self.grace, self.max_runtime, session.misses.clone())
    }

    fn too_long(&self) -> Failure {
        let most = self.max_runtime.map(spoken).unwrap_or_default();
        Failure::new(exit::MAX_RUNTIME, "max_runtime", format!("stopped after {most}"))
            .hint("raise --max-runtime, or find out why it took so long")
    }

    /// Gives back what is held and decides the exit code. A lost lock never ends with 0, whatever the command returned.
    async fn settle(&self, held: Held, end: End) -> Result<Exit, Failure> {
        match end {
            End::Lost => {
                let lost = Failure::from(held.lost());
                // Dropped, not released: a lost lock with a lock-delay has to be left to its delay.
                drop(held);
                Err(if self.command.is_some() { lost.add("; the command was stopped") } else { lost })
            }
            End::Unguarded => {
                let _stopped = held.give_back().await;
                Err(unguarded())
            }
            End::MaxRuntime => {
                let _stopped = held.give_back().await;
                Err(self.too_long())
            }
            End::Exited(exit) => {
                let given_back = if held.is_held() { held.give_back().await } else { Err(held.lost()) };
                let gone = format!("; it was gone when the command ended with exit code {}", exit.0);
                given_back.map(|()| exit).map_err(|lost| Failure::from(lost).add(&gone))
            }
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
