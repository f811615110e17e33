//! A place of its own for every test: a store, a home, and processes that end with it.

use std::{
    fmt, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use leasehold_testkit::{RedisServer, eventually, poll};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

/// Longest time to wait for anything; only reached when a test fails.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) struct Sandbox {
    folder: TempDir,
    store: String,
    started: AtomicU32,
}

impl Sandbox {
    /// With a SQLite store.
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let store = format!("sqlite:{}", folder.path().join("locks.db").display());
        Self { folder, store, started: AtomicU32::new(0) }
    }

    /// With another store.
    pub(crate) fn on(store: impl Into<String>) -> Self {
        Self { store: store.into(), ..Self::new() }
    }

    /// One with a SQLite store, and one with a Redis that other tests share, unless there is none.
    pub(crate) fn on_each_store() -> impl Iterator<Item = Self> {
        let server = RedisServer::shared_or_skip().map(|server| Self::on(server.url()));
        std::iter::once(Self::new()).chain(server)
    }

    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that only its user can write, whatever the umask.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    /// A program in this sandbox: nothing of the caller's environment but the search path.
    pub(crate) fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("LEASEHOLD_STORE", &self.store)
            .current_dir(self.folder.path());
        command
    }

    /// `leasehold` with these words, on the store of this sandbox. It hears every signal, also where the tests run under `nohup` or in the background
    /// of a script: what was ignored there would stay ignored.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let store = ["--store", &self.store];
        let is_named = words.contains(&"--store");
        let store = if is_named { &[][..] } else { &store[..] };
        self.bare_command(&[store, words].concat())
    }

    /// The same without an option that names the store: the environment does.
    pub(crate) fn bare_command(&self, words: &[&str]) -> Command {
        let mut command = self.program("env");
        command.args(["--default-signal", BINARY]).args(words).stdin(Stdio::null());
        command
    }

    /// The same where nothing names a store.
    pub(crate) fn storeless_command(&self, words: &[&str]) -> Command {
        let mut command = self.bare_command(words);
        command.env_remove("LEASEHOLD_STORE");
        command
    }

    /// Runs `leasehold` to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        self.run_command(self.command(words))
    }

    /// Runs `leasehold` to its end with text on its stdin.
    pub(crate) fn run_with_input(&self, words: &[&str], input: &str) -> Ran {
        let output = assert_cmd::Command::from_std(self.command(words)).write_stdin(input).output().unwrap();
        Ran::new(&output, self)
    }

    pub(crate) fn run_command(&self, mut command: Command) -> Ran {
        Ran::new(&command.output().unwrap(), self)
    }

    /// Starts `leasehold` in the background.
    pub(crate) fn start(&self, words: &[&str]) -> Started {
        self.start_command(self.command(words))
    }

    pub(crate) fn start_command(&self, mut command: Command) -> Started {
        let nth = self.started.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.path(&format!("out-{nth}")), self.path(&format!("err-{nth}")));
        command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
        Started { child: command.spawn().unwrap(), out, err }
    }

    /// Starts `leasehold run` of a shell script and waits until the script runs.
    pub(crate) fn start_script(&self, options: &[&str], name: &str, script: &str) -> Started {
        let script = format!("echo $$ > pid; {script}");
        let words = [&["run"], options, &[name, "--", "sh", "-c", &script]].concat();
        let pid = self.path("pid");
        let _none = fs::remove_file(&pid);
        let started = self.start(&words);
        eventually(LONG, "the script runs", || number_in(&pid).is_some());
        started
    }

    /// The process id that a script wrote.
    pub(crate) fn script_pid(&self, file: &str) -> i32 {
        poll(LONG, || number_in(&self.path(file))).expect("a process id")
    }

    /// A fact that `leasehold inspect` prints.
    pub(crate) fn fact(&self, name: &str, fact: &str) -> String {
        let shown = self.run(&["inspect", name]).stdout;
        let line = shown.lines().find_map(|line| line.strip_prefix(fact)?.strip_prefix('\t'));
        line.unwrap_or_default().to_owned()
    }

    pub(crate) fn await_fact(&self, name: &str, fact: &str, value: &str) {
        eventually(LONG, &format!("{fact} of {name} is {value}"), || self.fact(name, fact) == value);
    }
}

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_leasehold");

/// Reports that a test cannot run here. The macros would be captured, and a skip nobody sees is a pass.
pub(crate) fn skip(why: &str) {
    let _ = io::Write::write_all(&mut io::stderr(), format!("skipped: {why}\n").as_bytes());
}

fn number_in(path: &Path) -> Option<i32> {
    fs::read_to_string(path).ok()?.strip_suffix('\n')?.trim().parse().ok()
}

/// Whether a process lives. One that ended and was not reaped does not.
pub(crate) fn lives(pid: i32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok() && state != Some(Some('Z'))
}

/// A command that has ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    fn new(output: &std::process::Output, sandbox: &Sandbox) -> Self {
        let folder = sandbox.folder.path().display().to_string();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&folder, "[FOLDER]");
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// For snapshots: fences differ from run to run, and a tab should be seen.
impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.map_or_else(|| "signal".into(), |code| code.to_string());
        let text = format!("exit {code}\n--- stdout\n{}--- stderr\n{}", self.stdout, self.stderr);
        let text = text.replace('\t', "[TAB]");
        // A fence is the only number this long.
        for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
            let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
            if digits.len() == 16 {
                write!(f, "[FENCE]{}", &part[digits.len()..])?;
            } else {
                f.write_str(part)?;
            }
        }
        Ok(())
    }
}

/// A command that runs; killed at the end of the test.
pub(crate) struct Started {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Started {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    pub(crate) fn await_stdout(&self, what: &str) {
        eventually(LONG, &format!("{what:?} on stdout"), || self.stdout().contains(what));
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Its exit code; `None` if a signal ended it.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let status = poll(LONG, || self.child.try_wait().unwrap());
        status.unwrap_or_else(|| panic!("it does not end; it said: {}", self.stderr())).code()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // TERM reaches all that a script started; KILL only us and the script.
        if self.is_running() {
            self.signal(Signal::CONT);
            self.signal(Signal::TERM);
        }
        let _ended = poll(Duration::from_secs(2), || self.child.try_wait().ok().flatten());
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
