//! Processes pinned to cores, so that client and server do not take turns on one.

use std::fs;

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

use crate::Failure;

/// Where servers run.
pub(crate) const SERVER_CORE: usize = 0;
/// Where contestants run.
pub(crate) const CLIENT_CORE: usize = 1;

/// All threads of a process; those that it starts later inherit it.
pub(crate) fn to_core(pid: u32, core: usize) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    set.set(core);
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?.file_name().to_string_lossy().parse()?;
        sched_setaffinity(Pid::from_raw(thread), &set)
            .map_err(|error| format!("cannot pin a process to core {core}: {error}"))?;
    }
    Ok(())
}
