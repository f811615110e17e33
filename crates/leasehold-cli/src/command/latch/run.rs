//! `leasehold latch run`: a command that is one part of a latch.

use std::{ffi::OsString, io, path::Path, process::ExitStatus};

use clap::Args;
use leasehold::{Leasehold, Participant, latch::CountedDown};
use rustix::process::{Pid, Signal, kill_process};

use super::{Part, broken, count_down::forgotten};
use crate::{
    exit::{self, Exit, Failure},
    output::{self, clean},
    signals::{FORWARDED, Signals},
};

/// Take part with a command: count down when it has succeeded
#[derive(Args)]
#[command(
    override_usage = "leasehold latch run [OPTIONS] NAME --of N -- CMD [ARGS]...",
    after_help = "\
Joins before the command starts and counts down once it has ended with 0. If it ends otherwise, the
latch is broken, and those who wait are told its label. A latch that is open already is not waited
for: the command runs all the same.

The command is not stopped if another participant breaks the latch meanwhile, nor if leasehold is
killed: then the latch breaks when the ttl is over. TERM, HUP, USR1 and USR2 are forwarded; INT and
QUIT too, unless a terminal sends them to both.

Exit codes: the command's own; 128+N if signal N ended it · 1 as many take part as there are
parties · 69 store unreachable · 80 the name is a barrier · 82 the latch is armed for another
number · 83 broken, before or while the command ran · 126, 127 it cannot be executed, or was not found

Examples:
  leasehold latch run migration --of 3 -- ./migrate shard-a
  leasehold latch run migration --of 3 --label shard-b --ttl 1m -- ./migrate shard-b"
)]
pub(in crate::command) struct Run {
    #[command(flatten)]
    part: Part,

    /// The command to run
    #[arg(value_name = "CMD", last = true, required = true)]
    command: Vec<OsString>,
}

impl Run {
    pub(super) async fn execute(self, leases: &Leasehold) -> Result<Exit, Failure> {
        let (program, arguments) = self.command.split_first().expect("one is required");
        let mut signals = Signals::listen(&FORWARDED)?;
        // Never its arguments: they may hold secrets.
        let file = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        let label: String = file.chars().filter(|c| !c.is_control()).take(32).collect();
        let participant = self.part.join(leases, &label).await?;
        let child = std::process::Command::new(program).args(arguments).spawn();
        let exit = match child {
            Ok(child) => watch(child, &mut signals).await?,
            Err(error) => {
                fail(participant).await;
                return Err(not_started(program, &error));
            }
        };
        match (participant, exit) {
            (Some(participant), Exit::OK) => self.count_down(participant).await,
            (participant, exit) => {
                fail(participant).await;
                Ok(exit)
            }
        }
    }

    async fn count_down(&self, participant: Participant) -> Result<Exit, Failure> {
        let name = &self.part.which.name;
        match participant.count_down().await? {
            CountedDown::Broken { who, .. } => {
                Err(broken(name, who.as_ref()).add("; the command has succeeded"))
            }
            CountedDown::Stranger => Err(forgotten(name)),
            _ => Ok(Exit::OK),
        }
    }
}

/// Breaks the latch; what became of the command counts more.
async fn fail(participant: Option<Participant>) {
    if let Some(participant) = participant
        && let Err(error) = participant.fail().await
    {
        output::say(&format!("warning: {error}"));
    }
}

/// Waits for the command, and forwards signals to it.
async fn watch(mut child: std::process::Child, signals: &mut Signals) -> io::Result<Exit> {
    let pid = Pid::from_child(&child);
    let mut ended = tokio::task::spawn_blocking(move || child.wait());
    // A terminal sends these to all of its foreground.
    let by_terminal = io::IsTerminal::is_terminal(&io::stdin());
    loop {
        tokio::select! {
            status = &mut ended => return Ok(exit_of(status.map_err(io::Error::other)??)),
            signal = signals.next() => {
                if !(by_terminal && matches!(signal, Signal::INT | Signal::QUIT)) {
                    let _ended = kill_process(pid, signal);
                }
            }
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => Exit::by_signal(signal.unwrap_or(0)),
    }
}

fn not_started(program: &OsString, error: &io::Error) -> Failure {
    let (code, kind, hint) = match error.kind() {
        io::ErrorKind::NotFound => (exit::NOT_FOUND, "not_found", "check the name of the command and PATH"),
        _ => (exit::CANNOT_EXECUTE, "cannot_execute", "check that it is a program and its permissions"),
    };
    Failure::new(code, kind, format!("cannot run \"{}\"", clean(&program.to_string_lossy())))
        .cause(error.to_string())
        .hint(hint)
}
