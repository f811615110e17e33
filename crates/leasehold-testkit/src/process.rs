//! Worker processes for tests that kill, stop and resume holders for real.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::{BoundChild, bound_command};

// Not LEASEHOLD_*: a client in the helper would refuse a variable it does not know.
const ROLE: &str = "TESTKIT_HELPER";
/// The test that runs the roles, in every test binary that has helpers.
const ENTRY: &str = "helper_process";

/// The test binary itself, started once more as a worker.
///
/// A test file with helpers has one test called `helper_process`, at its root, that runs the given role and does nothing
/// in an ordinary run:
///
/// ```no_run
/// use leasehold_testkit::Helper;
/// use std::time::Duration;
///
/// #[test]
/// fn helper_process() {
///     match Helper::role().as_deref() {
///         None => {}
///         Some("holder") => {
///             Helper::say("held 17");
///             std::thread::park();
///         }
///         Some(role) => panic!("no such role: {role}"),
///     }
/// }
///
/// #[test]
/// fn a_killed_holder_is_replaced() {
///     let holder = Helper::spawn("holder", &[("URL", "redis://…")]);
///     let fence = holder.wait_for_line("held ", Duration::from_secs(10));
///     holder.kill9();
/// }
/// ```
///
/// Its stderr, such as a panic, is shown when waiting for it fails. Dropping it kills the process, which also dies with
/// the test process.
#[derive(Debug)]
pub struct Helper {
    role: String,
    child: BoundChild,
    output: Arc<Output>,
}

#[derive(Debug, Default)]
struct Output {
    state: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    stdout: Vec<String>,
    /// Lines before this one were already waited for.
    next: usize,
    stderr: Vec<String>,
    /// Streams that have not reached their end.
    open: usize,
}

impl Lines {
    fn report(&self) -> String {
        format!("{}\n{}", self.stdout.join("\n"), self.stderr.join("\n"))
    }
}

impl Helper {
    /// Starts this test binary in `role`, with `env` added to its environment.
    ///
    /// # Panics
    /// When the process cannot be started.
    #[track_caller]
    pub fn spawn(role: &str, env: &[(&str, &str)]) -> Self {
        let mut command = bound_command(this_binary());
        // With one test thread libtest would print the name of the test in front of the first line.
        command.args(["--exact", ENTRY, "--nocapture", "--test-threads=2"]);
        command.env(ROLE, role).envs(env.iter().copied());
        Self::start(role, command)
    }

    /// Starts this program once more, with other arguments: for programs that bring their own workers.
    ///
    /// # Panics
    /// When the process cannot be started.
    #[track_caller]
    pub fn spawn_self(args: &[&str]) -> Self {
        let mut command = bound_command(this_binary());
        command.args(args);
        Self::start(&args.join(" "), command)
    }

    #[track_caller]
    fn start(role: &str, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = BoundChild::spawn(command)
            .unwrap_or_else(|error| panic!("cannot start a helper as {role:?}: {error}"));
        let output = Arc::<Output>::default();
        let (stdout, stderr) = child.take_output().expect("stdout and stderr are piped");
        output.collect(stdout, |lines| &mut lines.stdout);
        output.collect(stderr, |lines| &mut lines.stderr);
        Self { role: role.to_owned(), child, output }
    }

    /// The role this process was started in; `None` in an ordinary test run.
    pub fn role() -> Option<String> {
        env::var(ROLE).ok()
    }

    /// For the worker: one line to the test that started it.
    ///
    /// # Panics
    /// When stdout is closed, that is when the test has gone.
    pub fn say(line: &str) {
        let mut stdout = io::stdout().lock();
        stdout
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| stdout.flush())
            .expect("stdout is open");
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// SIGKILL; returns when the process is gone.
    #[track_caller]
    pub fn kill9(&self) {
        self.obeyed("kill", self.child.kill());
    }

    /// SIGTERM; returns at once. Does nothing when the process has ended.
    #[track_caller]
    pub fn term(&self) {
        match self.child.ask_to_end() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => self.obeyed("end", outcome),
        }
    }

    /// SIGSTOP; returns when the process has stopped.
    #[track_caller]
    pub fn stop(&self) {
        self.obeyed("stop", self.child.stop());
    }

    /// SIGCONT, after [`stop`](Self::stop).
    #[track_caller]
    pub fn cont(&self) {
        self.obeyed("continue", self.child.cont());
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When `timeout` has passed; the message shows its output.
    #[track_caller]
    pub fn wait(&self, timeout: Duration) -> ExitStatus {
        match self.obeyed("wait for", self.child.wait(timeout)) {
            Some(status) => status,
            None => panic!(
                "helper {:?} still runs after {timeout:?}; its output:\n{}",
                self.role,
                self.output.lines().report()
            ),
        }
    }

    /// Waits for the next line that starts with `prefix`, after the last one waited for; returns what follows the
    /// prefix.
    ///
    /// # Panics
    /// When `timeout` has passed or the helper has ended without it; the message shows its output.
    #[track_caller]
    pub fn wait_for_line(&self, prefix: &str, timeout: Duration) -> String {
        let give_up = Instant::now() + timeout;
        let mut lines = self.output.lines();
        loop {
            let found = lines.stdout[lines.next..].iter().position(|line| line.starts_with(prefix));
            if let Some(offset) = found {
                let index = lines.next + offset;
                lines.next = index + 1;
                return lines.stdout[index][prefix.len()..].to_owned();
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if lines.open == 0 || left.is_zero() {
                let why = if lines.open == 0 { "ended" } else { "was silent" };
                let said = lines.report();
                drop(lines);
                panic!("helper {:?} {why} without a line {prefix:?}…; its output:\n{said}", self.role);
            }
            lines = self.output.changed.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Its stderr so far.
    pub fn stderr(&self) -> String {
        self.output.lines().stderr.join("\n")
    }

    #[track_caller]
    fn obeyed<T>(&self, what: &str, outcome: io::Result<T>) -> T {
        outcome.unwrap_or_else(|error| panic!("cannot {what} helper {:?}: {error}", self.role))
    }
}

fn this_binary() -> PathBuf {
    env::current_exe().expect("a program knows its path")
}

impl Output {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collect(
        self: &Arc<Self>,
        stream: impl Read + Send + 'static,
        place: fn(&mut Lines) -> &mut Vec<String>,
    ) {
        let output = Arc::clone(self);
        output.lines().open += 1;
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                place(&mut output.lines()).push(line);
                output.changed.notify_all();
            }
            output.lines().open -= 1;
            output.changed.notify_all();
        });
    }
}
