//! Who takes part: a library in a program of its own.

use std::process::Command;

use crate::peers::Program;

/// Both runtimes of tokio.
pub(crate) const RUNTIMES: [&str; 2] = ["mt", "ct"];

/// One contestant, before it is started.
#[derive(Clone)]
pub(crate) struct Side<'a> {
    /// What tables call it; on a certain runtime, that is the last word.
    pub(crate) label: String,
    program: Which<'a>,
}

#[derive(Clone)]
enum Which<'a> {
    /// This program.
    Own {
        library: &'static str,
        runtime: &'static str,
    },
    Peer(&'a Program),
}

impl<'a> Side<'a> {
    /// A library of this program on the multi-thread runtime.
    pub(crate) fn own(library: &'static str, label: &str) -> Self {
        Self { label: label.to_owned(), program: Which::Own { library, runtime: RUNTIMES[0] } }
    }

    /// A library of this program on each runtime.
    pub(crate) fn on_both(library: &'static str, label: &str) -> [Self; 2] {
        RUNTIMES.map(|runtime| Self {
            label: format!("{label} {runtime}"),
            program: Which::Own { library, runtime },
        })
    }

    pub(crate) fn peer(program: &'a Program) -> Self {
        Self { label: program.name.to_owned(), program: Which::Peer(program) }
    }

    /// The same under another name.
    pub(crate) fn labelled(self, label: &str) -> Self {
        Self { label: label.to_owned(), ..self }
    }

    /// A peer may fail without ending the run.
    pub(crate) fn is_peer(&self) -> bool {
        matches!(self.program, Which::Peer(_))
    }

    pub(crate) fn command(&self, workload: &str, keys: &[(&str, &str)]) -> Command {
        let mut command = match self.program {
            Which::Own { library, runtime } => {
                let mut command = Command::new(std::env::current_exe().expect("a program knows its path"));
                command.args(["contestant", workload]);
                command.args([format!("lib={library}"), format!("runtime={runtime}")]);
                command
            }
            Which::Peer(program) => program.command(workload),
        };
        // No two contestants share a name, unless the workload says so.
        command.arg(format!("prefix=bench:{}:", self.label.replace(' ', "-")));
        command.args(keys.iter().map(|(key, value)| format!("{key}={value}")));
        command
    }
}
