//! Processes pinned to cores, so that client and server do not take turns on one.

use std::{fs, io::Write};

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::Failure;

/// Where servers run.
pub(super) const SERVER_CORE: usize = 0;
/// Where contestants run.
pub(super) const CLIENT_CORE: usize = 1;

/// All threads of a process; those that it starts later inherit it.
pub(super) fn to_core(pid: u32, core: usize) {
    warn(pin_threads(pid, core));
}

fn pin_threads(pid: u32, core: usize) -> Result<(), Failure> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?.file_name().to_string_lossy().parse()?;
        sched_setaffinity(Pid::from_raw(thread), &only(core))?;
    }
    Ok(())
}

/// Processes that `start` starts on this thread have the core from their first moment, and know it.
pub(super) fn from_the_start<T>(core: usize, start: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None);
    warn(sched_setaffinity(None, &only(core)).map_err(Into::into));
    let started = start();
    if let Ok(before) = before {
        warn(sched_setaffinity(None, &before).map_err(Into::into));
    }
    started
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

/// Once; then it goes on without.
fn warn(outcome: Result<(), Failure>) {
    static SAID: std::sync::Once = std::sync::Once::new();
    if let Err(error) = outcome {
        SAID.call_once(|| {
            let _ = writeln!(std::io::stderr(), "warning: cannot pin processes to cores: {error}");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_inherits_the_core_and_this_thread_does_not_keep_it() {
        let before = sched_getaffinity(None).unwrap();
        let output = from_the_start(0, || std::process::Command::new("nproc").output()).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1");
        assert!(sched_getaffinity(None).unwrap() == before);
    }
}
