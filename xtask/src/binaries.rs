//! Test binaries, run side by side: most of them wait for servers and leases most of the time.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cargo;

/// Those that take longest begin first, or the last of them would run alone at the end.
const LONGEST: [&str; 8] = [
    "leasehold/conformance",
    "leasehold/quorum",
    "leasehold/quorum_simulation",
    "leasehold-demos/demos",
    "leasehold/torture",
    "leasehold/sentinel_grace",
    "bench/smoke",
    "chaos/short",
];

/// A binary that cargo built, as `cargo test` would run it.
pub(crate) struct Binary {
    /// `PACKAGE/TARGET`, as in `leasehold/conformance`.
    pub(crate) name: String,
    program: PathBuf,
    package: PathBuf,
}

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
    cargo::succeeds_reading(&mut build, |line| binaries.extend(binary(line))).then(|| in_order(binaries))
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
    Some(Binary { name: format!("{crate_name}/{target}"), program, package })
}

fn in_order(mut binaries: Vec<Binary>) -> Vec<Binary> {
    let position = |name: &str| LONGEST.iter().position(|long| *long == name).unwrap_or(LONGEST.len());
    binaries.sort_by_key(|binary| position(&binary.name));
    binaries
}

/// Runs all, `jobs` at a time, and hands each result over as it comes, with the number of those that still run or wait.
pub(crate) fn run(
    binaries: Vec<Binary>,
    jobs: usize,
    prepare: impl Fn(&mut Command) + Sync,
    mut on_end: impl FnMut(Ended, &[String]),
) {
    let mut open: Vec<String> = binaries.iter().map(|binary| binary.name.clone()).collect();
    let queue = Mutex::new(VecDeque::from(binaries));
    let (ended, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (queue, prepare, ended) = (&queue, &prepare, ended.clone());
            scope.spawn(move || {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(binary) = next() {
                    let _ = ended.send(run_one(&binary, prepare));
                }
            });
        }
        drop(ended);
        for result in results {
            open.retain(|name| *name != result.name);
            on_end(result, &open);
        }
    });
}

fn run_one(binary: &Binary, prepare: impl Fn(&mut Command)) -> Ended {
    let began = Instant::now();
    let mut command = Command::new(&binary.program);
    command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package).stdin(Stdio::null());
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
            "target":{"name":"conformance"},"profile":{"test":TEST},"executable":"/t/conformance-1"}"#;
        let found = binary(&message.replace("TEST", "true")).expect("a test binary");
        assert_eq!(found.name, "leasehold/conformance");
        assert_eq!(found.package, Path::new("/w/crates/leasehold"));
        assert!(binary(&message.replace("TEST", "false")).is_none(), "an example");
        assert!(binary(r#"{"reason":"build-finished"}"#).is_none());
        assert!(binary("not JSON").is_none());
    }

    #[test]
    fn all_binaries_run_and_each_reports_its_own_output() {
        let binaries = ["a", "b", "c", "d", "e"]
            .map(|name| Binary { name: name.into(), program: "sh".into(), package: ".".into() })
            .into();
        let prepare = |command: &mut Command| {
            command.args(["-c", "echo out; echo err >&2; exit 3"]);
        };
        let mut left = Vec::new();
        run(binaries, 2, prepare, |ended, open| {
            assert!(!ended.succeeded);
            assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
            left.push(open.len());
        });
        assert_eq!(left, [4, 3, 2, 1, 0]);
    }

    #[test]
    fn a_binary_that_cannot_run_has_failed() {
        let gone = Binary { name: "gone".into(), program: "no-such-program".into(), package: ".".into() };
        run(
            vec![gone],
            1,
            |_| {},
            |ended, _| {
                assert!(!ended.succeeded && ended.stderr.starts_with("cannot run no-such-program"));
            },
        );
    }
}
