//! How far the test binaries are, and how long the rest will take.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::binaries::{Binary, Ended};
use crate::durations::{Durations, time_left};

pub(crate) struct Progress {
    durations: Durations,
    began: Instant,
    all: usize,
    /// In the order in which they will begin.
    waiting: Vec<String>,
    running: Vec<(String, Instant)>,
}

impl Progress {
    pub(crate) fn new(durations: Durations, binaries: &[Binary], now: Instant) -> Self {
        let waiting: Vec<_> = binaries.iter().map(|binary| binary.name.clone()).collect();
        Self { durations, began: now, all: waiting.len(), waiting, running: Vec::new() }
    }

    pub(crate) fn began(&mut self, name: &str, now: Instant) {
        self.waiting.retain(|waiting| waiting != name);
        self.running.push((name.to_owned(), now));
    }

    /// When a binary failed says nothing about how long the next run takes.
    pub(crate) fn ended(&mut self, ended: &Ended) {
        self.running.retain(|(running, _)| *running != ended.name);
        if ended.succeeded {
            self.durations.record(&ended.name, ended.took);
        }
    }

    /// As in `[12/70, 45 s, about 3 min left]`.
    pub(crate) fn line(&self, now: Instant) -> String {
        let ended = self.all - self.waiting.len() - self.running.len();
        let (passed, left) = (now.duration_since(self.began).as_secs(), self.left(now));
        if ended == self.all {
            format!("[{ended}/{ended}, {passed} s]")
        } else {
            format!("[{ended}/{}, {passed} s, {} left]", self.all, about(left))
        }
    }

    /// What runs now, the longest first.
    fn now_running(&self, now: Instant) -> String {
        let one =
            |(name, began): &(String, Instant)| format!("{name} {} s", now.duration_since(*began).as_secs());
        self.running.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn left(&self, now: Instant) -> Duration {
        let left = |(name, began): &(String, Instant)| {
            self.durations.expected(name).saturating_sub(now.duration_since(*began))
        };
        let waiting = self.waiting.iter().map(|name| self.durations.expected(name));
        time_left(self.running.iter().map(left), waiting)
    }

    /// Shows on a terminal what runs now, in one line that the next call replaces.
    pub(crate) fn show(&self, now: Instant) {
        let mut stdout = std::io::stdout();
        if stdout.is_terminal() {
            // Without wrapping: only one line can be replaced.
            let _ = write!(stdout, "\r\x1b[K\x1b[?7l{} {}\x1b[?7h", self.line(now), self.now_running(now));
            let _ = stdout.flush();
        }
    }

    /// Removes what [`Progress::show`] has written.
    pub(crate) fn hide(&self) {
        let mut stdout = std::io::stdout();
        if stdout.is_terminal() {
            let _ = write!(stdout, "\r\x1b[K");
        }
    }

    pub(crate) fn store_durations(&self) {
        if let Err(error) = self.durations.store() {
            println!("hint: the next run cannot estimate its time: {error}");
        }
    }
}

/// Rounded, because it is an estimate: full minutes, or tens of seconds.
fn about(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 90 {
        format!("about {} s", (seconds / 10 + 1) * 10)
    } else {
        format!("about {} min", (seconds + 30) / 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ended(name: &str, succeeded: bool) -> Ended {
        let (stdout, stderr) = (String::new(), String::new());
        Ended { name: name.to_owned(), succeeded, took: 7 * SECOND, stdout, stderr }
    }

    #[test]
    fn the_estimate_falls_while_binaries_run_and_end() {
        let folder = std::env::temp_dir().join(format!("xtask-progress-{}", std::process::id()));
        let mut durations = Durations::load(&folder);
        for (name, seconds) in [("long", 300), ("short", 20), ("last", 40)] {
            durations.record(name, seconds * SECOND);
        }
        let start = Instant::now();
        let binaries = ["long", "short", "last"].map(Binary::named);
        let mut progress = Progress::new(durations, &binaries, start);
        progress.began("long", start);
        progress.began("short", start);
        assert_eq!(progress.line(start), "[0/3, 0 s, about 5 min left]");
        progress.ended(&ended("short", false));
        progress.began("last", start + 20 * SECOND);
        assert_eq!(progress.line(start + 241 * SECOND), "[1/3, 241 s, about 60 s left]");
        assert_eq!(progress.now_running(start + 25 * SECOND), "long 25 s, last 5 s");
        progress.ended(&ended("long", true));
        // It takes longer than it ever did.
        assert_eq!(progress.line(start + 900 * SECOND), "[2/3, 900 s, about 10 s left]");
        progress.ended(&ended("last", true));
        assert_eq!(progress.line(start + 901 * SECOND), "[3/3, 901 s]");
        let expected = |name| progress.durations.expected(name);
        assert_eq!(
            [expected("long"), expected("short")],
            [7 * SECOND, 20 * SECOND],
            "only what passed is stored"
        );
    }

    #[test]
    fn estimates_are_rounded() {
        assert_eq!(about(Duration::ZERO), "about 10 s");
        assert_eq!(about(89 * SECOND), "about 90 s");
        assert_eq!(about(95 * SECOND), "about 2 min");
        assert_eq!(about(600 * SECOND), "about 10 min");
    }
}
