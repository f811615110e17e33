//! `cargo xtask bench --check`: counts the instructions of the hot paths and compares them with stored figures.
//!
//! Times vary with the machine and its load, counts hardly do. They depend on the compiler, on valgrind and on what
//! libc chooses for a CPU, so the figures hold for one set-up and are compared on no other.

use std::fs;
use std::path::Path;
use std::process::Command;

use toml::{Table, Value};

use crate::cargo;
use crate::tally::Tally;

const FIGURES: &str = "bench/instructions.toml";
const FIGURES_HEADER: &str = "\
# Instructions per operation on the hot paths; `cargo xtask bench --check` compares, `--check --update` writes.
";
const PACKAGE: &str = "leasehold-bench-check";
/// The function inside of which instructions are counted.
const COUNTED: &str = "*leasehold_bench_check*counted*";

/// More than this above a stored figure is a regression; two runs differ by less than half of it.
const TOLERANCE_PERCENT: u64 = 3;
/// Runs before a regression is believed.
const RUNS_MAX: usize = 3;

struct HotPath {
    name: &'static str,
    /// So many that what happens by the clock meanwhile is lost in them.
    operations: u64,
    needs_server: bool,
}

const HOT_PATHS: [HotPath; 6] = [
    HotPath { name: "memory-cycle", operations: 5_000, needs_server: false },
    HotPath { name: "memory-handover", operations: 5_000, needs_server: false },
    HotPath { name: "redis-cycle", operations: 500, needs_server: true },
    HotPath { name: "redis-64-tasks", operations: 64 * 20, needs_server: true },
    HotPath { name: "redis-renewal", operations: 2_000, needs_server: true },
    HotPath { name: "quorum-64-tasks", operations: 64 * 20, needs_server: true },
];

/// Counts every hot path; with `update` what was counted becomes what is stored.
pub(crate) fn check(root: &Path, update: bool) -> Tally {
    let mut tally = Tally::default();
    let file = root.join(FIGURES);
    let stored = fs::read_to_string(&file).unwrap_or_default().parse::<Table>().unwrap_or_default();
    let Some(setup) = setup() else {
        tally.skips.add(HOT_PATHS.len() as u64, "valgrind, which counts instructions, is not installed");
        return tally;
    };
    let stored_setup = stored.get("setup").and_then(Value::as_str).unwrap_or("nothing");
    if !update && stored_setup != setup {
        let why = format!("{FIGURES} is for {stored_setup}, and this is {setup}");
        tally.skips.add(HOT_PATHS.len() as u64, &why);
        return tally;
    }
    let (has_server, mut figures) = (runs("redis-server"), Vec::new());
    for path in &HOT_PATHS {
        if path.needs_server && !has_server {
            tally.skips.add(1, "redis-server, which a hot path needs, is not installed");
            continue;
        }
        let figure = stored_figure(&stored, path.name);
        let Some(counted) = fewest(|| count(root, path), figure) else {
            println!("{:<16} could not be counted", path.name);
            tally.failed += 1;
            continue;
        };
        figures.push((path.name, counted));
        let verdict = Verdict::of(figure, counted);
        println!("{:<16} {counted:>8} instructions {}", path.name, verdict.words());
        match verdict {
            Verdict::Worse { .. } | Verdict::NotStored if !update => tally.failed += 1,
            _ => tally.passed += 1,
        }
    }
    if update && figures.len() == HOT_PATHS.len() {
        let written = fs::write(&file, render(&setup, &figures));
        tally.failed +=
            u64::from(written.map_err(|error| println!("cannot write {FIGURES}: {error}")).is_err());
    } else if update {
        println!("{FIGURES} is left as it was");
    }
    tally
}

/// What the figures depend on besides our own code; `None` without valgrind.
fn setup() -> Option<String> {
    let valgrind = first_line("valgrind", &["--version"])?;
    let rustc = first_line("rustc", &["--version"])?;
    let libc = first_line("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_else(|| "unknown libc".to_owned());
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    // What valgrind has of a CPU: it knows no later extension.
    let avx2 = if flags.split_whitespace().any(|flag| flag == "avx2") { "with" } else { "without" };
    Some(format!("{rustc}, {valgrind}, {libc}, {} {avx2} AVX2", std::env::consts::ARCH))
}

fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

fn runs(program: &str) -> bool {
    first_line(program, &["--version"]).is_some()
}

/// Counts again what looks like a regression: a busy machine can only add, by timers that fire and calls that are smaller.
fn fewest(count: impl Fn() -> Option<u64>, stored: Option<u64>) -> Option<u64> {
    let mut fewest = None;
    for _ in 0..RUNS_MAX {
        fewest = fewest.into_iter().chain(count()).min();
        if fewest.is_some_and(|fewest| !matches!(Verdict::of(stored, fewest), Verdict::Worse { .. })) {
            break;
        }
    }
    fewest
}

/// Instructions per operation.
fn count(root: &Path, path: &HotPath) -> Option<u64> {
    let valgrind = [
        "valgrind",
        "--tool=callgrind",
        "--collect-atstart=no",
        &format!("--toggle-collect={COUNTED}"),
        "--callgrind-out-file=/dev/null",
        "--log-fd=1",
    ];
    let runner = Value::from(valgrind.to_vec());
    let (config, operations) =
        (format!("target.'cfg(all())'.runner = {runner}"), path.operations.to_string());
    let args = [
        "run",
        "--quiet",
        "--profile",
        "counted",
        "-p",
        PACKAGE,
        "--config",
        &config,
        "--",
        path.name,
        &operations,
    ];
    let mut total = None;
    let succeeded = cargo::succeeds_reading(&mut cargo::command(root, &args), |line| {
        total = collected(line).or(total);
    });
    // None at all: the function was not found.
    total.filter(|total| succeeded && *total > 0).map(|total| total / path.operations)
}

/// The number in callgrind's last line: `==77== Collected : 1234`.
fn collected(line: &str) -> Option<u64> {
    line.split_once("Collected : ")?.1.trim().parse().ok()
}

fn stored_figure(stored: &Table, name: &str) -> Option<u64> {
    let figure = stored.get("instructions")?.get(name)?.as_integer()?;
    figure.try_into().ok().filter(|figure| *figure > 0)
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    NotStored,
    Same { stored: u64 },
    Worse { stored: u64 },
    Better { stored: u64 },
}

impl Verdict {
    fn of(stored: Option<u64>, counted: u64) -> Self {
        let Some(stored) = stored else { return Self::NotStored };
        if counted * 100 > stored * (100 + TOLERANCE_PERCENT) {
            Self::Worse { stored }
        } else if counted * 100 < stored * (100 - TOLERANCE_PERCENT) {
            Self::Better { stored }
        } else {
            Self::Same { stored }
        }
    }

    fn words(&self) -> String {
        match self {
            Self::NotStored => format!("and nothing in {FIGURES}; write it with --update"),
            Self::Same { stored } => format!("stored {stored}"),
            Self::Worse { stored } => format!("REGRESSION, stored {stored}"),
            Self::Better { stored } => format!("better than the stored {stored}; keep it with --update"),
        }
    }
}

fn render(setup: &str, figures: &[(&str, u64)]) -> String {
    let lines: String = figures.iter().map(|(name, figure)| format!("{name} = {figure}\n")).collect();
    format!("{FIGURES_HEADER}setup = {}\n\n[instructions]\n{lines}", Value::from(setup))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_tolerance_is_a_regression() {
        let of = |counted| Verdict::of(Some(1_000), counted);
        assert_eq!(of(1_030), Verdict::Same { stored: 1_000 });
        assert_eq!(of(1_031), Verdict::Worse { stored: 1_000 });
        assert_eq!(of(970), Verdict::Same { stored: 1_000 });
        assert_eq!(of(969), Verdict::Better { stored: 1_000 });
        assert_eq!(Verdict::of(None, 1), Verdict::NotStored);
    }

    #[test]
    fn a_regression_is_believed_if_every_run_shows_it() {
        let runs = |counts: &[Option<u64>], stored| {
            let left = std::cell::RefCell::new(counts.to_vec());
            let fewest = fewest(|| left.borrow_mut().remove(0), stored);
            (fewest, left.into_inner().len())
        };
        assert_eq!(runs(&[Some(1_000)], Some(1_000)), (Some(1_000), 0));
        assert_eq!(runs(&[Some(1_200), Some(1_001), Some(1)], Some(1_000)), (Some(1_001), 1));
        assert_eq!(runs(&[Some(1_200), Some(1_100), Some(1_300)], Some(1_000)), (Some(1_100), 0));
        assert_eq!(runs(&[None, Some(1_000), Some(1)], Some(1_000)), (Some(1_000), 1));
        assert_eq!(runs(&[Some(7), Some(1)], None), (Some(7), 1));
    }

    #[test]
    fn what_is_written_reads_back() {
        let text = render("rustc \"1\"", &[("memory-cycle", 12), ("redis-cycle", 0)]);
        let table: Table = text.parse().unwrap();
        assert_eq!(table["setup"].as_str(), Some("rustc \"1\""));
        assert_eq!(stored_figure(&table, "memory-cycle"), Some(12));
        assert_eq!(stored_figure(&table, "redis-cycle"), None);
        assert_eq!(stored_figure(&table, "other"), None);
    }

    #[test]
    fn the_count_is_read_from_what_callgrind_prints() {
        assert_eq!(collected("==77== Collected : 9314"), Some(9_314));
        assert_eq!(collected("==77== Events    : Ir"), None);
    }
}
