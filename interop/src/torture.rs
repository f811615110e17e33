//! All libraries at once, with leasehold as a library and as `leasehold run`: one key protects one counter.
//!
//! A step reads the number in a file, waits a moment, and writes the next one. Two that believe in the lock at the same time
//! lose a step, and the counter is too low in the end.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use leasehold::Format;
use leasehold_peers::{Process, Program};
use leasehold_testkit::poll;
use rand::RngExt;

use crate::{Failure, library::Library, pair, report::Report, servers::Servers};

/// What python-redis-lock and redis-semaphore put before a name, one after the other: the only key that both can reach.
const PREFIX: &str = "lock:";
const NAME: &str = "mutex:counter";
/// Far longer than a step takes on the busiest machine.
const LEASE: Duration = Duration::from_secs(10);
/// For all steps of a process, while others are faster.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// What one process has done.
#[derive(Debug)]
pub(crate) struct Score {
    pub(crate) name: String,
    pub(crate) increments: u32,
    /// How often the one before was another one's.
    pub(crate) changes: u32,
    pub(crate) longest: Duration,
}

impl Score {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), increments: 0, changes: 0, longest: Duration::ZERO }
    }
}

struct Torture<'a> {
    servers: &'a Servers,
    format: Format,
    report: &'a Report,
    counter: PathBuf,
}

/// How a process that answers lines is started, and what it calls the lock.
struct Answerer<'a> {
    name: &'a str,
    told: &'a str,
    start: Box<dyn Fn() -> Result<Process, Failure> + Send + Sync + 'a>,
}

/// Returns what each has done, if the counter is exact.
pub(crate) fn run(
    servers: &Servers,
    libraries: &[&(&Library, Program)],
    format: Format,
    increments: u32,
    report: &mut Report,
) -> Result<Vec<Score>, Failure> {
    let folder = tempfile::tempdir()?;
    let torture = Torture { servers, format, report, counter: folder.path().join("counter") };
    fs::write(&torture.counter, "0 nobody")?;
    let key = format!("{PREFIX}{NAME}");
    let mut answerers: Vec<_> =
        libraries.iter().map(|(library, program)| foreign(library, program, servers, &key)).collect();
    answerers.push(ours(servers, format));
    // `leasehold run` is one more.
    let contenders = u32::try_from(answerers.len())? + 1;
    let (share, rest) = (increments / contenders, increments % contenders);
    report.line(&format!(
        "\nall at once on {key}, {}: {contenders} processes raise a counter {increments} times, leases of {LEASE:?}; \
         {} and `leasehold run` are killed while they hold it",
        servers.topology().words(),
        answerers[0].name
    ));
    let scores = thread::scope(|scope| {
        let torture = &torture;
        let mut running: Vec<_> = answerers
            .iter()
            .enumerate()
            .map(|(place, one)| scope.spawn(move || torture.count_with(one, share, place == 0)))
            .collect();
        running.push(scope.spawn(move || torture.count_with_run(share + rest)));
        let ended = running.into_iter().map(|one| one.join().map_err(|_| "a thread panicked")?);
        ended.collect::<Result<Vec<_>, Failure>>()
    })?;
    let text = fs::read_to_string(&torture.counter)?;
    let number = text.split(' ').next().unwrap_or_default();
    pair::same("the counter", number, increments.to_string().as_str())?;
    match scores.iter().find(|score| score.changes == 0 && score.increments > 0) {
        Some(alone) => Err(format!("{} never took turns with the others", alone.name).into()),
        None => Ok(scores),
    }
}

fn foreign<'a>(
    library: &'a Library,
    program: &'a Program,
    servers: &'a Servers,
    key: &'a str,
) -> Answerer<'a> {
    let (key_prefix, told) = library.told(key);
    let start = Box::new(move || pair::start(program, servers, key_prefix));
    Answerer { name: library.name(), told, start }
}

fn ours(servers: &Servers, format: Format) -> Answerer<'_> {
    let start = move || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["contender", &servers.url()]).args(flag(format));
        let mut process = Process::start(command, "leasehold", PATIENCE)?;
        process.answer("it was ready")?;
        Ok(process)
    };
    Answerer { name: "leasehold", told: NAME, start: Box::new(start) }
}

impl Torture<'_> {
    fn count_with(&self, one: &Answerer<'_>, share: u32, is_killed: bool) -> Result<Score, Failure> {
        let mut score = Score::new(one.name);
        let mut process = (one.start)()?;
        if is_killed {
            process = self.count(one, process, share / 2, &mut score)?;
            self.take(one, &mut process)?;
            self.outlive(one.name, || {
                process.kill9();
                Ok(())
            })?;
            process = (one.start)()?;
        }
        let rest = share - score.increments;
        self.count(one, process, rest, &mut score)?.quit()?;
        Ok(score)
    }

    /// One process, and another one whenever it stops because its lease was over.
    fn count(
        &self,
        one: &Answerer<'_>,
        mut process: Process,
        times: u32,
        score: &mut Score,
    ) -> Result<Process, Failure> {
        let goal = score.increments + times;
        while score.increments < goal {
            let (ttl, left) = (LEASE.as_millis(), goal - score.increments);
            process.wait_at_most(PATIENCE);
            let answer =
                process.ask(&format!("count {} {ttl} {left} {}", one.told, self.counter.display()))?;
            let mut words = answer.split(' ');
            match words.next() {
                Some("counted") => {
                    score.increments = goal;
                    score.changes += number(&answer, "changes=")?;
                    let longest = number(&answer, "longest_ms=")?;
                    score.longest = score.longest.max(Duration::from_millis(longest.into()));
                }
                Some("stopped") => {
                    let done: u32 = words.next().ok_or("stopped, but when?")?.parse()?;
                    let why = words.collect::<Vec<_>>().join(" ");
                    self.report.line(&format!(
                        "stopped {} after {done} of {left}: {why}; another goes on",
                        one.name
                    ));
                    score.increments += done;
                    process = (one.start)()?;
                }
                _ => return Err(format!("{}: {answer}", one.name).into()),
            }
        }
        Ok(process)
    }

    /// Takes the lock among all the others.
    fn take(&self, one: &Answerer<'_>, process: &mut Process) -> Result<(), Failure> {
        loop {
            match process.ask(&format!("take {} {}", one.told, LEASE.as_millis()))?.as_str() {
                "granted" => return Ok(()),
                "busy" => thread::sleep(Duration::from_millis(rand::rng().random_range(2..12))),
                other => return Err(format!("{}: {other}", one.name).into()),
            }
        }
    }

    /// Kills the holder; returns when its lease is over. Nobody may count before.
    fn outlive(&self, name: &str, kill: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let key = format!("{PREFIX}{NAME}");
        let server = self.servers.of(&key);
        let value = || pair::value_of(server, &key);
        let theirs = value();
        pair::same("whether the holder is there", theirs.is_some(), true)?;
        let counter = fs::read_to_string(&self.counter)?;
        let begin = Instant::now();
        kill()?;
        pair::same("whether the killed holder's lock is there", value() == theirs, true)?;
        let over = poll(LEASE + pair::PATIENCE, || {
            let seen = fs::read_to_string(&self.counter);
            if value() != theirs {
                return Some(Ok(()));
            }
            // It was still held after the counter was read.
            (seen.ok() != Some(counter.clone()))
                .then_some(Err("somebody counted while a killed process had the lock"))
        });
        over.ok_or("the lease of a killed process does not end")??;
        let after = begin.elapsed().as_secs_f64();
        self.report.line(&format!("killed {name} while it held the lock; it was free {after:.1} s later"));
        Ok(())
    }

    fn count_with_run(&self, share: u32) -> Result<Score, Failure> {
        let mut score = Score::new("leasehold-run");
        while score.increments < share / 2 {
            self.run_once(&mut score)?;
        }
        self.kill_run()?;
        while score.increments < share {
            self.run_once(&mut score)?;
        }
        Ok(score)
    }

    fn run_once(&self, score: &mut Score) -> Result<(), Failure> {
        // A number without a line break is read too, although `read` then fails.
        const STEP: &str = r#"read number last < "$1"; sleep 0.001; printf '%s leasehold-run' $((number + 1)) > "$1"; echo "$last""#;
        let begin = Instant::now();
        let output = self.leasehold_run(STEP)?.output()?;
        score.longest = score.longest.max(begin.elapsed());
        let last = String::from_utf8_lossy(&output.stdout);
        // It says whose step was before only after its own.
        if !last.is_empty() {
            score.increments += 1;
            score.changes += u32::from(last.trim_end() != "leasehold-run");
        }
        match output.status.code() {
            Some(0) => Ok(()),
            Some(76) => {
                self.report
                    .line("stopped the command of `leasehold run`: the lock was lost; another goes on");
                Ok(())
            }
            _ => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                Err(format!("`leasehold run` failed ({}): {}", output.status, stderr.trim_end()).into())
            }
        }
    }

    fn kill_run(&self) -> Result<(), Failure> {
        let mut command = self.leasehold_run(r#"read number last < "$1"; echo $$; exec sleep 1000"#)?;
        let mut wrapper = Killed(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?);
        let mut job = String::new();
        let stdout = wrapper.0.stdout.take().ok_or("stdout is piped")?;
        BufReader::new(stdout).read_line(&mut job)?;
        let job = Path::new("/proc").join(job.trim_end());
        pair::same("whether the command runs", job.exists(), true)?;
        self.outlive("`leasehold run`", || {
            wrapper.0.kill()?;
            wrapper.0.wait()?;
            Ok(())
        })?;
        // The second process of `leasehold run` sees to it.
        pair::same("whether the command of a killed `leasehold run` outlived its lock", job.exists(), false)
    }

    fn leasehold_run(&self, script: &str) -> Result<Command, Failure> {
        let program = std::env::current_exe()?.with_file_name("leasehold");
        if !program.exists() {
            return Err(
                format!("no {}: build it with `cargo build -p leasehold-cli`", program.display()).into()
            );
        }
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        let ttl = format!("{}s", LEASE.as_secs());
        command.args(["run", "--store", &self.servers.url(), "--ttl", &ttl]).args(flag(self.format));
        command.args([NAME, "--", "sh", "-c", script, "sh"]);
        command.arg(&self.counter);
        Ok(command)
    }
}

/// What `leasehold run` is told of the format.
fn flag(format: Format) -> Option<&'static str> {
    (format == Format::Redisson).then_some("--redisson")
}

/// Killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn number(answer: &str, key: &str) -> Result<u32, Failure> {
    let found = answer.split(' ').find_map(|word| word.strip_prefix(key));
    Ok(found.ok_or_else(|| format!("no {key} in {answer:?}"))?.parse()?)
}
