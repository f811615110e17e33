//! A demo that is played in a test.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use leasehold_testkit::eventually;
use rusqlite::Connection;

/// Starts a demo with its database in `folder`.
pub(crate) fn begin(program: &str, folder: &Path, args: &[&str]) -> Play {
    let mut command = Command::new(program);
    command.args(args).arg("--keep").arg(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    Play { process: command.spawn().unwrap(), database: folder.join("app.db") }
}

/// Plays a demo to its end: whether the invariant held, and what was shown.
pub(crate) fn whole(program: &str, args: &[&str]) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    begin(program, folder.path(), args).end()
}

pub(crate) struct Play {
    process: Child,
    database: std::path::PathBuf,
}

impl Play {
    /// Waits until a number in the database is that high.
    pub(crate) fn await_number(&self, sql: &str, least: u64) {
        eventually(Duration::from_secs(120), sql, || {
            let number = Connection::open(&self.database)
                .and_then(|database| database.query_row(sql, [], |row| row.get::<_, u64>(0)));
            number.is_ok_and(|number| number >= least)
        });
    }

    pub(crate) fn end(self) -> (bool, String) {
        let ended = self.process.wait_with_output().unwrap();
        let shown = String::from_utf8_lossy(&[ended.stderr, ended.stdout].concat()).into_owned();
        match ended.status.code() {
            Some(0) => (true, shown),
            Some(1) => (false, shown),
            _ => panic!("{}\n{shown}", ended.status),
        }
    }
}
