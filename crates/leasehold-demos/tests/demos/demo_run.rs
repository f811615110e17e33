//! A demo as a user starts it, watched through its database.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use leasehold_testkit::eventually;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

/// For anything that has to happen on a busy machine.
const LONG: Duration = Duration::from_secs(120);

pub(crate) struct DemoRun {
    program: Option<Child>,
    folder: TempDir,
}

/// Its exit code and output.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    /// The logs of all its processes.
    pub(crate) logs: String,
}

impl DemoRun {
    pub(crate) fn start(program: &str, options: &[&str]) -> Self {
        Self::start_with(program, options, true)
    }

    /// One that keeps nothing, and cannot be watched.
    pub(crate) fn start_unkept(program: &str, options: &[&str]) -> Self {
        Self::start_with(program, options, false)
    }

    fn start_with(program: &str, options: &[&str], keep: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command.args(options);
        if keep {
            command.arg("--keep").arg(folder.path());
        } else {
            command.env("TMPDIR", folder.path());
        }
        let program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { program: Some(program), folder }
    }

    /// Waits until a number in its database is at least `least`; it must not be above `most` by then.
    #[track_caller]
    pub(crate) fn until(&self, sql: &str, least: u64, most: u64) {
        let mut found = 0;
        eventually(LONG, sql, || {
            found = self.number(sql);
            found >= least
        });
        assert!(found <= most, "{sql}: {found} is too late for the next step");
    }

    /// A number in its database; zero before its tables exist.
    pub(crate) fn number(&self, sql: &str) -> u64 {
        let file = self.folder.path().join("app.db");
        // The demo refuses to run on a file that exists, so only the demo may create it.
        let database = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY);
        database.and_then(|database| database.query_row(sql, [], |row| row.get(0))).unwrap_or(0)
    }

    /// As by Ctrl-C.
    pub(crate) fn interrupt(self) -> Ended {
        let pid = rustix::process::Pid::from_child(self.program.as_ref().unwrap());
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.end()
    }

    pub(crate) fn end(mut self) -> Ended {
        let output = self.program.take().unwrap().wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let files = std::fs::read_dir(self.folder.path()).unwrap().map(|file| file.unwrap().path());
        let logs = files.filter(|file| file.extension().is_some_and(|extension| extension == "log"));
        let logs = logs.map(|log| std::fs::read_to_string(log).unwrap()).collect();
        Ended { code: output.status.code(), output: text(&output.stderr) + &text(&output.stdout), logs }
    }
}

impl Drop for DemoRun {
    fn drop(&mut self) {
        if let Some(mut program) = self.program.take() {
            // Its processes end with it.
            let _ended_already = program.kill();
            let _ended_already = program.wait();
        }
    }
}

impl Ended {
    /// With the number of kills that a demo has by default.
    #[track_caller]
    pub(crate) fn held(&self) {
        self.held_after("12");
    }

    #[track_caller]
    pub(crate) fn held_after(&self, kills: &str) {
        assert_eq!(self.code, Some(0), "{}", self.output);
        assert!(self.output.contains("the invariant held"), "{}", self.output);
        let killed = format!("; {kills} workers killed with -9; ");
        assert!(self.output.contains(&killed), "{}", self.output);
    }

    /// A number of its verdict.
    #[track_caller]
    pub(crate) fn number(&self, what: &str) -> u64 {
        let line = self
            .output
            .lines()
            .find_map(|line| line.split_once(what))
            .unwrap_or_else(|| panic!("{}", self.output));
        line.1
            .split_whitespace()
            .next()
            .and_then(|number| number.replace(',', "").parse().ok())
            .unwrap_or_else(|| panic!("{}", self.output))
    }

    #[track_caller]
    pub(crate) fn broke(&self, line: &str) {
        assert_eq!(self.code, Some(1), "{}", self.output);
        assert!(self.output.contains("THE INVARIANT BROKE"), "{}", self.output);
        assert!(self.is_broken(line), "{}", self.output);
    }

    pub(crate) fn is_broken(&self, line: &str) -> bool {
        self.output.lines().any(|said| said.contains('✗') && said.contains(line))
    }
}
