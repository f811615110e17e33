//! The terminal: the command has it while it runs, then we take it back.
//!
//! The command has a process group of its own, so that all of it can be stopped. A terminal serves one group at a
//! time, so the command's must be put in front to read from it and to get Ctrl-C and Ctrl-Z.

use std::{fs::File, io, os::fd::AsFd};

use rustix::{
    fs::{FileType, fstat},
    process::{Pid, getpgrp, getpid},
    termios::{tcgetpgrp, tcsetpgrp},
};

use super::kernel;

/// The terminal that controls this process.
pub(super) struct Terminal {
    device: File,
    own: Pid,
    placement: Placement,
}

/// Where the command starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// There is no terminal.
    None,
    /// Behind. In a pipeline another process, such as a pager, may read the terminal.
    Behind,
    /// In the foreground.
    Front,
}

impl Placement {
    const ALL: [Self; 3] = [Self::None, Self::Behind, Self::Front];

    pub(super) fn as_word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Behind => "behind",
            Self::Front => "front",
        }
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|placement| placement.as_word() == word)
    }
}

impl Terminal {
    /// The terminal, if we have one.
    pub(super) fn open() -> Option<Self> {
        let device = open().ok()?;
        kernel::ignore_terminal_stops();
        let own = getpgrp();
        let in_pipeline = is_pipe(io::stdin()) || is_pipe(io::stdout());
        let at_once = !in_pipeline && tcgetpgrp(&device).is_ok_and(|front| front == own);
        let placement = if at_once { Placement::Front } else { Placement::Behind };
        Some(Self { device, own, placement })
    }

    /// Where the command is to start.
    pub(super) fn placement(&self) -> Placement {
        self.placement
    }

    /// Takes the foreground back after a child took it and did not start.
    pub(super) fn reclaim(&self) {
        if self.placement == Placement::Front {
            let _hung_up = tcsetpgrp(&self.device, self.own);
        }
    }

    /// Puts a group in the foreground if we are there; returns whether it now is.
    pub(super) fn give(&self, group: Pid) -> bool {
        match tcgetpgrp(&self.device) {
            Ok(front) if front == self.own => tcsetpgrp(&self.device, group).is_ok(),
            Ok(front) => front == group,
            Err(_) => false,
        }
    }

    /// Takes the foreground back if one of our groups has it.
    pub(super) fn take_back(&self, group: Pid) {
        if tcgetpgrp(&self.device).is_ok_and(|front| front == group) {
            let _hung_up = tcsetpgrp(&self.device, self.own);
        }
    }
}

fn open() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

/// The child's side of the terminal.
pub(super) struct ForChild {
    /// The terminal, if the child must put itself in the foreground before it can read.
    front: Option<File>,
}

impl ForChild {
    /// What a child does with the terminal between fork and exec, if there is one.
    pub(super) fn open(placement: Placement) -> io::Result<Option<Self>> {
        Ok(match placement {
            Placement::None => None,
            Placement::Behind => Some(Self { front: None }),
            Placement::Front => Some(Self { front: Some(open()?) }),
        })
    }

    /// Called between fork and exec: system calls only.
    pub(super) fn take(&self) -> io::Result<()> {
        if let Some(terminal) = &self.front {
            tcsetpgrp(terminal, getpid())?;
        }
        // We ignore it because of the terminal; a program expects the default.
        kernel::default_terminal_stops();
        Ok(())
    }
}

fn is_pipe(file: impl AsFd) -> bool {
    fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}
