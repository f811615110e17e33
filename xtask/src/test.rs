//! `cargo xtask test`: every check in order, then which failed, then the count of tests.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::binaries::{self, Ended, Event};
use crate::durations::Durations;
use crate::failures::Failures;
use crate::progress::Progress;
use crate::tally::Tally;
use crate::{api, cargo, deny, instructions, manifests, packages, quick, tidy, web};

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
    /// Run in about two minutes after the build: formatting, house rules, unit tests, the command line's basics, examples,
    /// and the conformance of memory, SQLite and one Redis; the end says what was left out
    #[arg(long, conflicts_with = "only")]
    quick: bool,
    /// Show also what passing tests print
    #[arg(short, long)]
    verbose: bool,
    /// Test binaries that run side by side
    #[arg(short, long, default_value_t = processors())]
    jobs: usize,
}

/// Most tests wait for servers and leases most of the time, and each binary runs several. With one binary more than there
/// are processors, leases of tests ran out.
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
    /// Licences, bans and sources of all dependencies: deny.toml
    Deny,
    /// The crates that get published can be packaged
    Package,
    /// The committed dashboard is what web/ builds: cargo xtask web --check
    Web,
    /// The dashboard in a real browser: cargo xtask browser
    Browser,
    /// The hot paths take no more instructions than before: cargo xtask bench --check
    BenchCheck,
}

impl Step {
    fn name(self) -> String {
        self.to_possible_value().expect("no step is hidden").get_name().to_owned()
    }

    fn is_quick(self) -> bool {
        matches!(self, Step::Fmt | Step::Tidy | Step::Test)
    }

    fn needs_packages(self) -> bool {
        matches!(self, Step::Test | Step::DocTests | Step::Web | Step::Browser | Step::BenchCheck)
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
    let (steps, others): (Vec<Step>, Vec<Step>) =
        Step::value_variants().iter().copied().partition(|step| options.wants(*step));
    let ready = !steps.iter().any(|step| step.needs_packages()) || packages::ensure(options.allow_missing);
    if ready {
        let finished = run_steps(root, options, &steps, &mut tally, &mut failures);
        print_summary(&finished, &failures);
    } else {
        tally.failed += 1;
    }
    if options.quick {
        let others: Vec<_> = others.into_iter().map(Step::name).collect();
        println!("{}", quick::left_out(root, &others));
    }
    tally.conclude()
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
    for (number, &step) in steps.iter().enumerate() {
        if !compiles {
            finished.push(Finished { step, outcome: Outcome::NotRun, took: Duration::ZERO });
            continue;
        }
        println!("\n==> [{}/{}] {}", number + 1, steps.len(), step.name());
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
        Step::Api => Outcome::of(api::check(root, false, tally)),
        Step::Features => Outcome::of(manifests::features(root)),
        Step::Deny => Outcome::of(deny::check(root, tally)),
        Step::Package => Outcome::of(manifests::package(root)),
        Step::Web => Outcome::of(web::build(root, true, tally)),
        Step::Browser => Outcome::of(web::browser(root, false, tally)),
        Step::BenchCheck => {
            let checked = instructions::check(root, false);
            let succeeded = checked.failed == 0;
            tally.add(checked);
            Outcome::of(succeeded)
        }
    }
}

const CLIPPY: [&str; 7] =
    ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
/// All targets but benches, which take minutes and prove nothing.
const TEST: [&str; 7] = ["test", "--workspace", "--all-features", "--lib", "--bins", "--tests", "--examples"];
const DOC_TESTS: [&str; 4] = ["test", "--doc", "--workspace", "--all-features"];

/// Runs the test binaries side by side, the long ones first: the last of them would run alone at the end.
fn test(root: &Path, options: &Options, tally: &mut Tally, failures: &mut Failures) -> Outcome {
    let built = match options.quick {
        true => binaries::build(root, &quick::build_args()).map(quick::choose),
        false => binaries::build(root, &TEST),
    };
    let Some(mut binaries) = built else { return Outcome::DoesNotCompile };
    let durations = Durations::load(&cargo::target_folder(root));
    binaries.sort_by_key(|binary| durations.turn(&binary.name));
    let mut progress = Progress::new(durations, &binaries, Instant::now());
    let mut succeeded = true;
    let prepare = |command: &mut Command| options.prepare(command.arg("--show-output"));
    binaries::run(binaries, options.jobs, prepare, |event| {
        match event {
            Event::Began(name) => progress.began(&name, Instant::now()),
            Event::Ended(ended) => {
                progress.ended(&ended);
                progress.hide();
                report(&ended, &progress.line(Instant::now()), options, tally, failures);
                succeeded &= ended.succeeded;
            }
            Event::Tick => {}
        }
        progress.show(Instant::now());
    });
    progress.hide();
    progress.store_durations();
    Outcome::of(succeeded)
}

/// One line for a binary that passed, and everything that it printed for one that failed.
fn report(ended: &Ended, progress: &str, options: &Options, tally: &mut Tally, failures: &mut Failures) {
    let word = if ended.succeeded { "ok" } else { "FAILED" };
    println!("{progress} {}: {word} ({:.1}s)", ended.name, ended.took.as_secs_f64());
    if options.verbose || !ended.succeeded {
        print!("{}{}", ended.stdout, ended.stderr);
    }
    let mut reader = Reader { tally, failures, in_successes: false };
    ended.stdout.lines().for_each(|line| reader.read(line));
    ended.stderr.lines().for_each(|line| tally.read_error(line));
    if !ended.succeeded {
        failures.binary_failed(&ended.name);
    }
}

fn doc_tests(root: &Path, options: &Options, tally: &mut Tally, failures: &mut Failures) -> Outcome {
    let mut command = cargo::command(root, &DOC_TESTS);
    options.prepare(command.args(["--no-fail-fast", "--", "--show-output"]));
    let mut reader = Reader { tally, failures, in_successes: false };
    Outcome::of(cargo::succeeds_reading(&mut command, |line| {
        reader.read(line);
        if options.verbose || !reader.in_successes {
            println!("{line}");
        }
    }))
}

/// Reads what tests print.
struct Reader<'a> {
    tally: &'a mut Tally,
    failures: &'a mut Failures,
    in_successes: bool,
}

impl Reader<'_> {
    fn read(&mut self, line: &str) {
        self.in_successes = begins_successes(line) || self.in_successes && !ends_successes(line);
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
        let is_named = self.only.is_empty() || self.only.contains(&step);
        is_named && (!self.quick || step.is_quick())
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
