//! The terminal: the command has it while it runs, then we take it back.
//!
//! The command has a process group of its own, so that all of it can be stopped. A terminal serves one group at a
//! time, so the command's must be put in front to read from it and to get Ctrl-C and Ctrl-Z.

use std::{fs::File, io, os::fd::AsFd, sync::Arc};

use rustix::{
    fs::{FileType, fstat},
    process::{Pid, getpgrp, getpid},
    termios::{tcgetpgrp, tcsetpgrp},
};

use super::kernel;

/// The terminal that controls this process.
pub(super) struct Terminal {
    device: Arc<File>,
    own: Pid,
    /// Whether the command starts in the foreground. In a pipeline another process, such as a pager, may read the terminal.
    at_once: bool,
}

impl Terminal {
    /// The terminal, if we have one.
    pub(super) fn open() -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/tty").ok()?;
        kernel::ignore_terminal_stops();
        let own = getpgrp();
        let in_pipeline = is_pipe(io::stdin()) || is_pipe(io::stdout());
        let at_once = !in_pipeline && tcgetpgrp(&device).is_ok_and(|front| front == own);
        Some(Self { device: Arc::new(device), own, at_once })
    }

    /// What a child does with the terminal between fork and exec.
    pub(super) fn for_child(&self) -> ForChild {
        ForChild { front: self.at_once.then(|| self.device.clone()) }
    }

    /// Takes the foreground back after a child took it and did not start.
    pub(super) fn reclaim(&self) {
        if self.at_once {
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

/// The child's side of the terminal.
pub(super) struct ForChild {
    /// The terminal, if the child must put itself in the foreground before it can read.
    front: Option<Arc<File>>,
}

impl ForChild {
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
