//! `cargo xtask test`: every check in order, then which failed, then the count of tests.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::failures::Failures;
use crate::tally::Tally;
use crate::{api, binaries, cargo, instructions, manifests, packages, tidy};

/// Makes tests that need a server that is not installed skip, and counts them.
const ALLOW_MISSING: &str = "LEASEHOLD_ALLOW_MISSING";

#[derive(Args)]
pub(crate) struct Options {
    /// Go on when servers are not installed: install nothing, and count the tests that need them as skipped
    #[arg(long)]
    allow_missing: bool,
    /// Run only this step; can be given several times
    #[arg(long, value_name = "STEP")]
    only: Vec<Step>,
    /// Show also what passing tests print
    #[arg(short, long)]
    verbose: bool,
    /// Test binaries that run side by side
    #[arg(short, long, default_value_t = processors())]
    jobs: usize,
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Formatting
    Fmt,
    /// Lints, with warnings as errors
    Clippy,
    /// House rules: cargo xtask tidy
    Tidy,
    /// Unit and integration tests; examples compile
    Test,
    /// Examples in the documentation
    DocTests,
    /// The documentation has no warning, and the public API is the one in the repository: cargo xtask api
    Api,
    /// The library compiles with each of its features alone, and with none
    Features,
    /// The crates that get published can be packaged
    Package,
    /// The hot paths take no more instructions than before: cargo xtask bench --check
    BenchCheck,
}

impl Step {
    fn name(self) -> String {
        self.to_possible_value().expect("no step is hidden").get_name().to_owned()
    }

    fn needs_packages(self) -> bool {
        matches!(self, Step::Test | Step::DocTests | Step::BenchCheck)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ok,
    Failed,
    /// The test binaries could not be built, so every later step would repeat the same errors.
    DoesNotCompile,
    NotRun,
}

impl Outcome {
    fn of(succeeded: bool) -> Self {
        if succeeded { Outcome::Ok } else { Outcome::Failed }
    }

    fn word(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Failed => "FAILED",
            Outcome::DoesNotCompile => "DOES NOT COMPILE",
            Outcome::NotRun => "not run",
        }
    }
}

struct Finished {
    step: Step,
    outcome: Outcome,
    took: Duration,
}

/// Prints `0 failed` exactly when it returns true.
pub(crate) fn run(root: &Path, options: &Options) -> bool {
    let (mut tally, mut failures) = (Tally::default(), Failures::default());
    let steps: Vec<Step> =
        Step::value_variants().iter().copied().filter(|step| options.wants(*step)).collect();
    let ready = !steps.iter().any(|step| step.needs_packages()) || packages::ensure(options.allow_missing);
    if ready {
        let finished = run_steps(root, options, &steps, &mut tally, &mut failures);
        print_summary(&finished, &failures);
    } else {
        tally.failed += 1;
    }
    println!("{tally}");
    tally.failed == 0
}

fn run_steps(
    root: &Path,
    options: &Options,
    steps: &[Step],
    tally: &mut Tally,
    failures: &mut Failures,
) -> Vec<Finished> {
    let mut finished = Vec::new();
    let mut compiles = true;
    for &step in steps {
        if !compiles {
            finished.push(Finished { step, outcome: Outcome::NotRun, took: Duration::ZERO });
            continue;
        }
        println!("\n==> {}", step.name());
        let (started, failed_before) = (Instant::now(), tally.failed);
        let outcome = run_step(root, options, step, tally, failures);
        let took = started.elapsed();
        println!("<== {}: {} ({:.1}s)", step.name(), outcome.word(), took.as_secs_f64());
        // A lint, a crash or a compile error fails a step without a failed test.
        if outcome != Outcome::Ok && tally.failed == failed_before {
            tally.failed += 1;
        }
        compiles = outcome != Outcome::DoesNotCompile;
        finished.push(Finished { step, outcome, took });
    }
    finished
}

fn run_step(
    root: &Path,
    options: &Options,
    step: Step,
    tally: &mut Tally,
    failures: &mut Failures,
) -> Outcome {
    let cargo = |args: &[&str]| cargo::succeeds(&mut cargo::command(root, args));
    match step {
        Step::Fmt => Outcome::of(cargo(&["fmt", "--all", "--check"])),
        Step::Clippy => Outcome::of(cargo(&CLIPPY)),
        Step::Tidy => Outcome::of(tidy::run(root)),
        Step::Test => test(root, options, tally, failures),
        Step::DocTests => doc_tests(root, options, tally, failures),
        Step::Api => Outcome::of(api::check(root, false)),
        Step::Features => Outcome::of(manifests::features(root)),
        Step::Package => Outcome::of(manifests::package(root)),
        Step::BenchCheck => {
            let checked = instructions::check(root, false);
            tally.add(checked);
            Outcome::of(checked.failed == 0)
        }
    }
}

const CLIPPY: [&str; 7] =
    ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
/// All targets but benches, which take minutes and prove nothing.
const TEST: [&str; 7] = ["test", "--workspace", "--all-features", "--lib", "--bins", "--tests", "--examples"];
const DOC_TESTS: [&str; 4] = ["test", "--doc", "--workspace", "--all-features"];

/// Runs the test binaries side by side. Each prints as a whole when it has ended.
fn test(root: &Path, options: &Options, tally: &mut Tally, failures: &mut Failures) -> Outcome {
    let Some(binaries) = binaries::build(root, &TEST) else { return Outcome::DoesNotCompile };
    let (all, began) = (binaries.len(), Instant::now());
    let mut succeeded = true;
    let prepare = |command: &mut Command| options.prepare(command.arg("--show-output"));
    binaries::run(binaries, options.jobs, prepare, |ended, open| {
        let word = if ended.succeeded { "ok" } else { "FAILED" };
        let (done, time) = (all - open.len(), began.elapsed().as_secs());
        println!("[{done}/{all}, {time} s] {}: {word} ({:.1}s)", ended.name, ended.took.as_secs_f64());
        let mut reader = Reader { options, tally, failures, in_successes: false };
        ended.stdout.lines().for_each(|line| reader.read(line));
        if options.verbose || !ended.succeeded {
            print!("{}", ended.stderr);
        }
        succeeded &= ended.succeeded;
        if !ended.succeeded {
            failures.binary_failed(&ended.name);
        }
    });
    Outcome::of(succeeded)
}

fn doc_tests(root: &Path, options: &Options, tally: &mut Tally, failures: &mut Failures) -> Outcome {
    let mut command = cargo::command(root, &DOC_TESTS);
    options.prepare(command.args(["--no-fail-fast", "--", "--show-output"]));
    let mut reader = Reader { options, tally, failures, in_successes: false };
    Outcome::of(cargo::succeeds_reading(&mut command, |line| reader.read(line)))
}

/// Reads what tests print, and prints what people want to see of it.
struct Reader<'a> {
    options: &'a Options,
    tally: &'a mut Tally,
    failures: &'a mut Failures,
    in_successes: bool,
}

impl Reader<'_> {
    fn read(&mut self, line: &str) {
        self.in_successes = begins_successes(line) || self.in_successes && !ends_successes(line);
        // Skipped tests are always printed.
        if self.options.verbose || !self.in_successes || line.contains("conformance: ") {
            println!("{line}");
        }
        self.tally.read(line);
        // The suite also runs on broken engines, and prints their failures.
        if !self.in_successes {
            self.failures.read(line);
        }
    }
}

fn begins_successes(line: &str) -> bool {
    line == "successes:"
}

fn ends_successes(line: &str) -> bool {
    line == "failures:" || line.starts_with("test result: ")
}

impl Options {
    fn wants(&self, step: Step) -> bool {
        self.only.is_empty() || self.only.contains(&step)
    }

    fn prepare(&self, tests: &mut Command) {
        tests.env_remove(ALLOW_MISSING);
        if self.allow_missing {
            tests.env(ALLOW_MISSING, "1");
        }
    }
}

fn print_summary(finished: &[Finished], failures: &Failures) {
    println!();
    failures.lines().for_each(|line| println!("{line}"));
    for Finished { step, outcome, took } in finished {
        let line = format!("{:<11} {:>6.1}s  {}", step.name(), took.as_secs_f64(), outcome.word());
        match outcome {
            Outcome::Ok => println!("{line}"),
            _ => println!("{line}; again: cargo xtask test --only {}", step.name()),
        }
    }
}
