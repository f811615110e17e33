//! Test binaries, run side by side: most of them wait for servers and leases most of the time.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cargo;

/// A binary that cargo built, as `cargo test` would run it.
pub(crate) struct Binary {
    /// `PACKAGE/TARGET`, as in `leasehold/conformance`.
    pub(crate) name: String,
    /// Not the unit tests of a library or program.
    pub(crate) is_integration_test: bool,
    program: PathBuf,
    package: PathBuf,
    /// Only tests with one of these texts in their name run, if there is one.
    filters: &'static [&'static str],
}

impl Binary {
    /// With a name of its own: a part takes another time than the whole.
    pub(crate) fn with_filters(mut self, filters: &'static [&'static str]) -> Self {
        if !filters.is_empty() {
            self.name += " (in part)";
            self.filters = filters;
        }
        self
    }

    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        let (program, package) = ("sh".into(), ".".into());
        Self { name: name.to_owned(), is_integration_test: false, program, package, filters: &[] }
    }
}

/// What happens while binaries run.
pub(crate) enum Event {
    Began(String),
    Ended(Ended),
    /// Nothing, for a second.
    Tick,
}

const TICK: Duration = Duration::from_secs(1);

/// How one binary ended.
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) succeeded: bool,
    pub(crate) took: Duration,
    pub(crate) stdout: String,
    /// What no test caught; of interest when it failed.
    pub(crate) stderr: String,
}

/// Builds what `cargo test` with these arguments would run; `None` if it does not compile.
pub(crate) fn build(root: &Path, args: &[&str]) -> Option<Vec<Binary>> {
    let mut build = cargo::command(root, args);
    build.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let mut binaries = Vec::new();
    cargo::succeeds_reading(&mut build, |line| binaries.extend(binary(line))).then_some(binaries)
}

/// The test binary in a message of cargo, if that is one.
fn binary(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let program = message["executable"].as_str()?.into();
    let package = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let (crate_name, target) = (package.file_name()?.to_str()?, message["target"]["name"].as_str()?);
    let kind = &message["target"]["kind"][0];
    let is_integration_test = kind == "test";
    // An example may have the name of an integration test.
    let name = format!("{crate_name}/{target}{}", if kind == "example" { " (example)" } else { "" });
    Some(Binary { name, is_integration_test, program, package, filters: &[] })
}

/// Runs all in this order, `jobs` at a time, and hands over what happens as it happens.
pub(crate) fn run(
    binaries: Vec<Binary>,
    jobs: usize,
    prepare: impl Fn(&mut Command) + Sync,
    mut on_event: impl FnMut(Event),
) {
    let queue = Mutex::new(VecDeque::from(binaries));
    let (sender, events) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (queue, prepare, sender) = (&queue, &prepare, sender.clone());
            scope.spawn(move || {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(binary) = next() {
                    let _ = sender.send(Event::Began(binary.name.clone()));
                    let _ = sender.send(Event::Ended(run_one(&binary, prepare)));
                }
            });
        }
        drop(sender);
        loop {
            match events.recv_timeout(TICK) {
                Ok(event) => on_event(event),
                Err(RecvTimeoutError::Timeout) => on_event(Event::Tick),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
}

fn run_one(binary: &Binary, prepare: impl Fn(&mut Command)) -> Ended {
    let began = Instant::now();
    let mut command = Command::new(&binary.program);
    command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package).stdin(Stdio::null());
    command.args(binary.filters);
    prepare(&mut command);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (succeeded, stdout, stderr) = match command.output() {
        Ok(output) => (output.status.success(), text(output.stdout), text(output.stderr)),
        Err(error) => (false, String::new(), format!("cannot run {}: {error}\n", binary.program.display())),
    };
    Ended { name: binary.name.clone(), succeeded, took: began.elapsed(), stdout, stderr }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_binary_is_told_from_other_messages_of_cargo() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/leasehold/Cargo.toml",
            "target":{"name":"conformance","kind":["test"]},"profile":{"test":TEST},"executable":"/t/conformance-1"}"#;
        let found = binary(&message.replace("TEST", "true")).expect("a test binary");
        assert_eq!(found.name, "leasehold/conformance");
        assert_eq!(found.package, Path::new("/w/crates/leasehold"));
        assert!(found.is_integration_test);
        let example = binary(&message.replace("TEST", "true").replace("[\"test\"]", "[\"example\"]"));
        assert_eq!(example.expect("an example with tests").name, "leasehold/conformance (example)");
        assert!(binary(&message.replace("TEST", "false")).is_none(), "an example");
        assert!(binary(r#"{"reason":"build-finished"}"#).is_none());
        assert!(binary("not JSON").is_none());
    }

    #[test]
    fn all_binaries_run_and_each_reports_its_own_output() {
        let prepare = |command: &mut Command| {
            command.args(["-c", "echo out; echo err >&2; exit 3"]);
        };
        let (mut began, mut results) = (Vec::new(), Vec::new());
        run(["a", "b", "c", "d", "e"].map(Binary::named).into(), 2, prepare, |event| match event {
            Event::Began(name) => began.push(name),
            Event::Ended(ended) => {
                assert!(!ended.succeeded);
                assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
                assert!(began.contains(&ended.name));
                results.push(ended.name);
            }
            Event::Tick => {}
        });
        results.sort();
        assert_eq!(results, ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn filters_are_arguments_and_part_of_the_name() {
        let some = Binary { program: "echo".into(), ..Binary::named("all") }.with_filters(&["one", "two"]);
        let mut results = Vec::new();
        run(
            vec![some],
            1,
            |_| {},
            |event| {
                if let Event::Ended(ended) = event {
                    results.push((ended.name, ended.stdout));
                }
            },
        );
        assert_eq!(results, [("all (in part)".to_owned(), "one two\n".to_owned())]);
    }

    #[test]
    fn a_binary_that_cannot_run_has_failed() {
        let gone = Binary { program: "no-such-program".into(), ..Binary::named("gone") };
        let mut failed = 0;
        run(
            vec![gone],
            1,
            |_| {},
            |event| {
                if let Event::Ended(ended) = event {
                    failed += 1;
                    assert!(!ended.succeeded && ended.stderr.starts_with("cannot run no-such-program"));
                }
            },
        );
        assert_eq!(failed, 1);
    }
}
