//! How a command ends: exit codes, and failures as people and programs read them.

use std::{io, process::ExitCode};

use leasehold::{Error, ErrorKind};
use serde::Serialize;

use crate::{
    hint,
    output::{self, Envelope},
};

/// The exit code of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    pub(crate) const OK: Self = Self(0);
    /// Warnings were found, or nothing was done.
    pub(crate) const NO: Self = Self(1);
    /// No majority of nodes votes.
    pub(crate) const NO_MAJORITY: Self = Self(2);
    /// It cannot be told.
    pub(crate) const UNKNOWN: Self = Self(2);

    /// What shells report for a program killed by a signal.
    pub(crate) fn by_signal(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }
}

/// A command ran longer than it was allowed to, as in `timeout(1)`.
pub(crate) const MAX_RUNTIME: u8 = 124;
/// A command was found and could not be executed, as in a shell.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// A command was not found, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;
/// A latch is broken: it never opens.
pub(crate) const BROKEN: u8 = 83;
/// A file or the terminal failed (`EX_IOERR`).
const IO: u8 = 74;

/// The exit code of an error (`sysexits.h` where it has one; 76 for a lost lock).
pub(crate) const fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::TimedOut => 1,
        ErrorKind::Invalid => 64,
        ErrorKind::WrongType => 65,
        ErrorKind::StoreUnreachable => 69,
        ErrorKind::Overloaded => 75,
        ErrorKind::Lost => 76,
        ErrorKind::StoreRefused => 77,
        ErrorKind::Corrupt => 78,
        ErrorKind::OtherMode => 80,
        ErrorKind::OtherLimit => 81,
        ErrorKind::OtherCount => 82,
        // `Unsupported`, and what a later library adds.
        _ => 70,
    }
}

/// Why a command failed.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    #[serde(skip)]
    code: u8,
    kind: &'static str,
    retry: bool,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// It is not printed.
    #[serde(skip)]
    silent: bool,
}

impl Failure {
    pub(crate) fn new(code: u8, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            kind,
            retry: false,
            message: message.into(),
            causes: Vec::new(),
            hint: None,
            name: None,
            silent: false,
        }
    }

    /// Wrong usage.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        let kind = ErrorKind::Invalid;
        Self::new(code_of(kind), kind.as_str(), message).hint(hint)
    }

    /// A file could not be used.
    pub(crate) fn file(what: impl Into<String>, error: &io::Error) -> Self {
        Self::new(IO, "io", what).cause(error.to_string())
    }

    pub(crate) fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Whether it may go well another time: the store may answer again, and a term that was lost or stopped is followed by
    /// another.
    pub(crate) fn is_passing(&self) -> bool {
        self.retry || matches!(self.kind, "lost" | "max_runtime" | "unguarded")
    }

    pub(crate) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Appends to the message.
    pub(crate) fn add(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    pub(crate) fn silent(mut self) -> Self {
        self.silent = true;
        self
    }

    /// Prints it to stderr and returns the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if self.silent {
        } else if json {
            output::say_json(&Envelope::new(ErrorObject { error: self }));
        } else {
            output::say(&self.text());
        }
        ExitCode::from(self.code)
    }

    fn text(&self) -> String {
        let mut text = format!("error: {}", self.message);
        for cause in &self.causes {
            text.push_str(&format!("\n  caused by: {cause}"));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n\nhint: {hint}"));
        }
        text
    }
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    error: &'a Failure,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let name = match &error {
            Error::TimedOut { name, .. }
            | Error::Lost { name, .. }
            | Error::WrongType { name, .. }
            | Error::OtherMode { name, .. }
            | Error::OtherLimit { name, .. }
            | Error::OtherCount { name, .. } => Some(name.to_string()),
            _ => None,
        };
        let kind = error.kind();
        let failure = Self::new(code_of(kind), kind.as_str(), error.to_string());
        Self { retry: error.is_retryable(), hint: hint::hint(&error), name, ..failure }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The reader of our output is gone.
            io::ErrorKind::BrokenPipe => Self::new(Exit::OK.0, "io", "").silent(),
            _ => Self::file("input or output failed", &error),
        }
    }
}

/// Help and version are output; any other error of clap is wrong usage.
pub(crate) fn after_parsing(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _closed = error.print();
        return ExitCode::from(Exit::OK.0);
    }
    // No options were parsed, so search the arguments for the word itself.
    let wants_json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if wants_json {
        let text = error.render().to_string();
        let message = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        return Failure::usage(message, "see `leasehold --help`").report(true);
    }
    let _closed = error.print();
    ExitCode::from(code_of(ErrorKind::Invalid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_as_error_causes_blank_line_and_hint() {
        let failure = Failure::usage("no such thing", "try another").cause("it is gone").cause("long ago");
        assert_eq!(
            failure.text(),
            "error: no such thing\n  caused by: it is gone\n  caused by: long ago\n\nhint: try another"
        );
    }

    #[test]
    fn codes_of_the_command_line_differ_from_those_of_the_library() {
        let own = [MAX_RUNTIME, CANNOT_EXECUTE, NOT_FOUND, BROKEN, IO];
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|kind| code_of(*kind)).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorKind::ALL.len(), "each kind has its own");
        assert!(codes.iter().all(|code| *code != 0 && !own.contains(code)));
    }
}
