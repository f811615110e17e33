//! The few system calls that need `unsafe`: those of a child between fork and exec, and signal dispositions.

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::process::getpid;

use super::terminal::ForChild;

/// Kills the child when this process dies, and lets it take the terminal before it can read from it.
#[expect(unsafe_code, reason = "what runs between fork and exec is unsafe by its nature")]
pub(super) fn before_exec(command: &mut Command, terminal: Option<ForChild>) {
    let parent = getpid();
    let prepare = move || {
        die_with(parent)?;
        terminal.as_ref().map_or(Ok(()), ForChild::take)
    };
    // SAFETY: between fork and exec only system calls are made: prctl, getppid, getpid, ioctl and signal. Nothing is
    // allocated, locked or dropped; `io::Error` from an errno does not allocate.
    unsafe { command.pre_exec(prepare) };
}

#[cfg(target_os = "linux")]
fn die_with(parent: rustix::process::Pid) -> io::Result<()> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the parent died before the call above, no signal will come.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_: rustix::process::Pid) -> io::Result<()> {
    Ok(())
}

/// Ignores SIGTTOU: a background process that hands the terminal on would be stopped by it.
#[expect(unsafe_code, reason = "there is no safe call to ignore a signal")]
pub(super) fn ignore_terminal_stops() {
    // SAFETY: SIG_IGN is a valid disposition, and nothing in this process handles SIGTTOU.
    unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
}

/// Undoes [`ignore_terminal_stops`].
#[expect(unsafe_code, reason = "there is no safe call to reset a signal")]
pub(super) fn default_terminal_stops() {
    // SAFETY: SIG_DFL is a valid disposition; async-signal-safe, as needed between fork and exec.
    unsafe { libc::signal(libc::SIGTTOU, libc::SIG_DFL) };
}

/// Stops our process group as the terminal would have done; returns when it is continued. The kernel does nothing if
/// nobody could continue us.
#[expect(unsafe_code, reason = "the default action of a handled signal needs its disposition changed")]
pub(super) fn stop_own_group() {
    // SAFETY: an all-zero sigaction is a valid value: no flags, an empty mask, SIG_DFL.
    let mut default: libc::sigaction = unsafe { std::mem::zeroed() };
    default.sa_sigaction = libc::SIG_DFL;
    // SAFETY: as above; the call below overwrites it.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both point to valid values, and SIGTSTP may be given its default.
    if unsafe { libc::sigaction(libc::SIGTSTP, &raw const default, &raw mut before) } == 0 {
        let _stopped = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
        // SAFETY: what the first call returned.
        unsafe { libc::sigaction(libc::SIGTSTP, &raw const before, std::ptr::null_mut()) };
    }
}
