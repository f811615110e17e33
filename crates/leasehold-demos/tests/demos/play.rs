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

pub(crate) struct Play {
    program: Option<Child>,
    folder: TempDir,
}

/// What it said in the end.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
}

impl Play {
    pub(crate) fn begin(program: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command.args(options).arg("--keep").arg(folder.path());
        let program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { program: Some(program), folder }
    }

    /// Waits until a number in its database is at least so high; it must not be higher than `most` then.
    #[track_caller]
    pub(crate) fn until(&self, sql: &str, least: u64, most: u64) {
        let mut found = 0;
        eventually(LONG, sql, || {
            found = self.number(sql);
            found >= least
        });
        assert!(found <= most, "{sql}: {found} is too late for what shall happen now");
    }

    /// A number in its database; zero before its tables exist.
    pub(crate) fn number(&self, sql: &str) -> u64 {
        let file = self.folder.path().join("app.db");
        // The demo refuses to play on a file that exists, so nobody else may make it.
        let database = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY);
        database.and_then(|database| database.query_row(sql, [], |row| row.get(0))).unwrap_or(0)
    }

    pub(crate) fn end(mut self) -> Ended {
        let output = self.program.take().unwrap().wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), said: text(&output.stderr) + &text(&output.stdout) }
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        if let Some(mut program) = self.program.take() {
            // Its processes end with it.
            let _ended_already = program.kill();
            let _ended_already = program.wait();
        }
    }
}

impl Ended {
    #[track_caller]
    pub(crate) fn held(&self) {
        assert_eq!(self.code, Some(0), "{}", self.said);
        assert!(self.said.contains("the invariant held"), "{}", self.said);
        assert!(self.said.contains("12 workers killed with -9"), "{}", self.said);
    }

    #[track_caller]
    pub(crate) fn broke(&self, line: &str) {
        assert_eq!(self.code, Some(1), "{}", self.said);
        assert!(self.said.contains("THE INVARIANT BROKE"), "{}", self.said);
        let broken: Vec<_> = self.said.lines().filter(|line| line.contains('✗')).collect();
        assert!(broken.iter().any(|broken| broken.contains(line)), "{}", self.said);
    }
}
