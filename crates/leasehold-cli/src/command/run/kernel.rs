//! What the kernel is asked directly: the few calls that need `unsafe` (those of a child between fork and exec, sockets
//! passed on, signal dispositions), and what only Linux has.

use std::{
    ffi::CStr,
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::Command,
};

use rustix::{
    io::{FdFlags, fcntl_getfd, fcntl_setfd},
    process::{Pid, getpid, getppid},
};

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
fn die_with(parent: Pid) -> io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the parent died before the call above, no signal will come.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_: Pid) -> io::Result<()> {
    Ok(())
}

/// The number under which a child will find a socket that is passed on to it.
pub(super) fn number_of(socket: &UnixStream) -> i32 {
    socket.as_raw_fd()
}

/// Leaves the socket open in the child.
#[expect(unsafe_code, reason = "what runs between fork and exec is unsafe by its nature")]
pub(super) fn pass_on(command: &mut Command, socket: UnixStream) {
    let prepare = move || Ok(fcntl_setfd(socket.as_fd(), FdFlags::empty())?);
    // SAFETY: between fork and exec one system call is made: fcntl.
    unsafe { command.pre_exec(prepare) };
}

/// The socket that was passed on under this number. No child of this process gets it.
#[expect(unsafe_code, reason = "a number says nothing about who owns it")]
pub(super) fn passed_on(number: &str) -> io::Result<UnixStream> {
    let number = number.parse().ok().filter(|number| *number > libc::STDERR_FILENO);
    let number = number.ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: this process has just begun and has opened nothing; its parent left this number open for it.
    let socket = unsafe { UnixStream::from_raw_fd(number) };
    fcntl_setfd(&socket, fcntl_getfd(&socket)? | FdFlags::CLOEXEC)?;
    Ok(socket)
}

/// Makes this process the parent of all orphans below it.
#[cfg(target_os = "linux")]
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(getpid()))?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

/// The children of this process; none where the system does not list them.
#[cfg(target_os = "linux")]
pub(super) fn children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let listed: io::Result<Vec<_>> =
        threads.map(|thread| std::fs::read_to_string(thread.path().join("children"))).collect();
    let pid = |word: &str| word.parse().ok().and_then(Pid::from_raw);
    match listed {
        Ok(listed) => listed.iter().flat_map(|list| list.split_whitespace()).filter_map(pid).collect(),
        // A kernel without these lists.
        Err(_) => {
            let names = std::fs::read_dir("/proc").into_iter().flatten().flatten();
            let pids = names.filter_map(|name| pid(name.file_name().to_str()?));
            pids.filter(|pid| parent_of(*pid) == Some(getpid())).collect()
        }
    }
}

#[cfg(target_os = "linux")]
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of a program, in parentheses, may contain anything.
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(1)?.parse().ok().and_then(Pid::from_raw)
}

/// Whether this process was started by that one, or by one that it started.
#[cfg(target_os = "linux")]
pub(crate) fn is_below(ancestor: Pid) -> bool {
    std::iter::successors(getppid(), |pid| parent_of(*pid)).any(|pid| pid == ancestor)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_below(_: Pid) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(super) fn children() -> Vec<Pid> {
    Vec::new()
}

/// The name that `ps` and `top` show; at most 15 bytes.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "there is no safe call without another feature of rustix")]
pub(super) fn name_process(name: &CStr) {
    // SAFETY: the name ends with a zero byte and is only read.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

#[cfg(not(target_os = "linux"))]
pub(super) fn name_process(_: &CStr) {}

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
pub(crate) fn stop_own_group() {
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_listed_with_its_parent() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(children().contains(&pid));
        assert_eq!(parent_of(pid), Some(getpid()));
        assert!(is_below(getppid().unwrap()) && is_below(Pid::INIT) && !is_below(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().contains(&pid));
    }
}
