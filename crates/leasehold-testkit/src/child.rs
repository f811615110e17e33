//! Child processes that cannot outlive this one.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
#[cfg(feature = "cases")]
use std::process::{ChildStderr, ChildStdout};
use std::sync::mpsc::{self, Sender};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::poll::poll;

/// How long a signalled process may take to react.
const OBEY: Duration = Duration::from_secs(10);

/// Checks whether a process is stopped, without consuming the status for later calls.
const SEES_STOPPED: WaitIdOptions =
    WaitIdOptions::STOPPED.union(WaitIdOptions::NOHANG).union(WaitIdOptions::NOWAIT);

type Order = (Command, Sender<io::Result<Child>>);

/// Linux ties a parent-death signal to the *thread* that forked, and libtest runs each test on its own thread; so one
/// thread that lives as long as the process does all the forking.
static SPAWNER: LazyLock<Sender<Order>> = LazyLock::new(|| {
    let (orders, inbox) = mpsc::channel::<Order>();
    thread::Builder::new()
        .name("testkit-spawner".into())
        .spawn(move || {
            for (mut command, answer) in inbox {
                // The caller has gone: dropping the answer kills the child.
                let _ = answer.send(command.spawn());
            }
        })
        .expect("cannot start the spawner thread");
    orders
});

/// Names a folder with servers of another version than those on the search path.
const SERVERS: &str = "LEASEHOLD_SERVERS";

/// The first executable file called `name` in that folder and on the search path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::var_os(SERVERS).map(PathBuf::from).into_iter().chain(env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A command whose process gets SIGKILL when this process ends, however it ends. Where `setpriv` (util-linux)
/// is missing, only [`Drop`] cleans up.
pub(crate) fn bound_command(program: impl AsRef<OsStr>) -> Command {
    match find_program("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// A running child; dropping it kills it and waits for its end.
#[derive(Debug)]
pub(crate) struct BoundChild {
    child: Mutex<Child>,
    pid: Pid,
}

impl BoundChild {
    pub(crate) fn spawn(command: Command) -> io::Result<Self> {
        let (answer, reply) = mpsc::channel();
        SPAWNER.send((command, answer)).expect("the spawner thread lives as long as the process");
        let child = reply.recv().expect("the spawner thread answers every order")?;
        let pid = Pid::from_child(&child);
        Ok(Self { child: Mutex::new(child), pid })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Both streams, if they are piped and were not taken before.
    #[cfg(feature = "cases")]
    pub(crate) fn take_output(&self) -> Option<(ChildStdout, ChildStderr)> {
        let mut child = self.child();
        child.stdout.take().zip(child.stderr.take())
    }

    /// How it ended, if it has.
    pub(crate) fn exited(&self) -> io::Result<Option<ExitStatus>> {
        self.child().try_wait()
    }

    pub(crate) fn wait(&self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        poll(timeout, || self.exited().transpose()).transpose()
    }

    /// SIGKILL, then waits for the end. A no-op after the end.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let mut child = self.child();
        child.kill()?;
        child.wait().map(drop)
    }

    /// SIGTERM.
    pub(crate) fn ask_to_end(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// SIGTERM, and SIGKILL if the process does not end.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        self.ask_to_end()?;
        match self.wait(OBEY)? {
            Some(_) => Ok(()),
            None => self.kill(),
        }
    }

    /// SIGSTOP; returns when the process has stopped: the signal alone is only a request.
    pub(crate) fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        poll(OBEY, || waitid(WaitId::Pid(self.pid), SEES_STOPPED).transpose())
            .ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "the process did not stop"))?
            .map(drop)
            .map_err(Into::into)
    }

    /// Neither ended nor stopped.
    pub(crate) fn is_running(&self) -> io::Result<bool> {
        if self.exited()?.is_some() {
            return Ok(false);
        }
        Ok(waitid(WaitId::Pid(self.pid), SEES_STOPPED)?.is_none())
    }

    /// SIGCONT.
    pub(crate) fn cont(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let mut child = self.child();
        // The pid of a reaped process may belong to another process by now.
        if child.try_wait()?.is_some() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the process has already ended"));
        }
        Ok(kill_process(self.pid, signal)?)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BoundChild {
    fn drop(&mut self) {
        // Only fails for a process that is gone.
        let _ = self.kill();
    }
}
