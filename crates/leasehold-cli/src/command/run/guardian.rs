//! The guardian of a job: a process between the wrapper and the command that keeps the lease's clock.
//!
//! The wrapper may be stopped, killed or swapped out. The guardian needs nothing of it: it knows until when the lease is
//! valid, hears of renewals, and ends the job in time when it hears nothing. It is this binary again, executed afresh: a
//! fork of a process with threads could do little more than system calls.

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::{net::UnixStream, process::CommandExt},
    process::{self, ExitCode},
    time::Duration,
};

use leasehold::{Clock, clock::BootInstant};
use rustix::{
    io::Errno,
    process::{Pid, Signal},
};

use super::{
    job::{Change, Family, Job},
    kernel,
    link::{Link, Order, Report},
    plan,
    terminal::{ForChild, Placement},
};
use crate::{
    exit::Exit,
    output,
    signals::{FORWARDED, Signals},
};

/// The name it runs under, by which the binary knows what it is.
const ARG0: &str = "leasehold-guardian";
/// How it ends if it cannot begin.
pub(super) const FAILED: Exit = Exit(70);

/// What the guardian is told at its start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Until when the lease is valid; the end of time if there is none.
    pub(super) valid_until: BootInstant,
    /// Time between TERM and KILL.
    pub(super) grace: Duration,
    /// How long before the end of validity everything has to be over.
    pub(super) margin: Duration,
    pub(super) terminal: Placement,
}

impl Terms {
    /// When the job must get TERM so that it has ended before the lease does.
    fn last_call(&self) -> BootInstant {
        self.valid_until - (self.grace + self.margin)
    }

    /// When TERM was not enough.
    fn kill_at(&self, clock: &Clock) -> BootInstant {
        (clock.now() + self.grace).min(self.valid_until - self.margin)
    }

    fn words(&self) -> [String; 4] {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).to_string();
        let valid_until = self.valid_until.as_nanos().to_string();
        [valid_until, nanos(self.grace), nanos(self.margin), self.terminal.as_word().to_owned()]
    }

    fn read([valid_until, grace, margin, terminal]: [&str; 4]) -> Option<Self> {
        let nanos = |word: &str| word.parse().ok().map(Duration::from_nanos);
        Some(Self {
            valid_until: BootInstant::from_nanos(valid_until.parse().ok()?),
            grace: nanos(grace)?,
            margin: nanos(margin)?,
            terminal: Placement::from_word(terminal)?,
        })
    }
}

/// Starts a guardian that will start the command, with the environment that `set` gives it.
pub(super) fn start(
    command: &plan::Command,
    terms: &Terms,
    set: impl FnOnce(&mut process::Command),
) -> io::Result<(Pid, Link)> {
    let (ours, theirs) = UnixStream::pair()?;
    // A binary that was replaced since has no path any more. It is not always run by the kernel's link: under valgrind that
    // is valgrind.
    let binary = env::current_exe()?;
    let binary = if binary.exists() { binary } else { "/proc/self/exe".into() };
    let mut guardian = process::Command::new(binary);
    guardian.arg0(ARG0).arg(kernel::number_of(&theirs).to_string()).args(terms.words());
    // In a group of its own no key of the terminal reaches it.
    guardian.arg(&command.program).args(&command.arguments).process_group(0);
    set(&mut guardian);
    kernel::pass_on(&mut guardian, theirs);
    let child = guardian.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the system gave no process id"))?;
    Ok((pid, Link::new(ours)?))
}

/// Runs the guardian if this process was started as one.
pub(crate) fn run() -> Option<ExitCode> {
    let mut words = env::args_os();
    if words.next()? != ARG0 {
        return None;
    }
    let code = read(words.collect()).and_then(|(socket, terms, command)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(guard(socket, terms, &command))
    });
    Some(code.map_or(ExitCode::from(FAILED.0), |()| ExitCode::SUCCESS))
}

fn read(words: Vec<OsString>) -> io::Result<(UnixStream, Terms, plan::Command)> {
    let told = |nth: usize| words.get(nth).and_then(|word| word.to_str()).unwrap_or_default();
    let terms = Terms::read([told(1), told(2), told(3), told(4)]);
    let (Some(terms), Some(program)) = (terms, words.get(5)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let command = plan::Command { program: program.clone(), arguments: words[6..].to_vec() };
    Ok((kernel::passed_on(told(0))?, terms, command))
}

/// Starts the command and stays until nothing of the job is left.
async fn guard(socket: UnixStream, terms: Terms, command: &plan::Command) -> io::Result<()> {
    kernel::name_process(c"leasehold-guard");
    // What ends or stops others leaves the guardian alone; each of these has its default for the command again.
    let _survived = Signals::listen(&FORWARDED)?;
    let _survived = Signals::listen(&[Signal::TSTP, Signal::TTIN, Signal::TTOU, Signal::ALARM])?;
    let clock = Clock::system();
    let mut link = Link::new(socket)?;
    let family = Family::adopt()?;
    if terms.last_call() <= clock.now() {
        link.deliver(Report::Overdue).await;
        return Ok(());
    }
    let mut job = match spawn(command, terms.terminal) {
        Ok(leader) => family.job(leader),
        Err(error) => {
            let number = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            link.deliver(Report::NotStarted(number)).await;
            return Ok(());
        }
    };
    link.send(Report::Started(job.leader()));
    let leftovers = watch(&mut job, &mut link, terms, &clock).await;
    link.deliver(Report::Ended { exit: job.exit(), leftovers }).await;
    Ok(())
}

fn spawn(command: &plan::Command, terminal: Placement) -> io::Result<Pid> {
    let mut ready = process::Command::new(&command.program);
    ready.args(&command.arguments).process_group(0);
    kernel::before_exec(&mut ready, ForChild::open(terminal)?);
    let child = ready.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("the system gave no process id"))
}

/// Watches the job to its end. Returns whether the command left processes behind that had to be ended.
async fn watch(job: &mut Job, link: &mut Link, mut terms: Terms, clock: &Clock) -> bool {
    // Set when the command has ended. What it left behind may need a moment: a `tee` that writes the last lines.
    let mut linger_until = None;
    loop {
        let frame = tokio::select! {
            biased;
            () = clock.sleep_until(terms.last_call()) => match link.waiting() {
                // We were stopped, and renewals came meanwhile.
                Some(frame) => Some(frame),
                None => {
                    link.send(Report::Overdue);
                    job.stop(clock, terms.kill_at(clock)).await;
                    return false;
                }
            },
            frame = link.next() => frame,
            () = clock.sleep_until(linger_until.unwrap_or(NEVER)), if linger_until.is_some() => {
                job.stop(clock, terms.kill_at(clock)).await;
                return true;
            }
            change = job.change() => {
                match change {
                    Change::Stopped(signal) => link.send(Report::Stopped(signal)),
                    Change::Ended => linger_until = Some(clock.now() + terms.grace),
                    Change::Gone => return false,
                }
                continue;
            }
        };
        match frame.map(Order::read) {
            Some(Some(Order::ValidUntil(until))) => terms.valid_until = until,
            Some(Some(Order::Signal(signal))) => job.signal(signal),
            Some(Some(Order::Stop { kill_at })) => {
                job.stop(clock, kill_at).await;
                return false;
            }
            Some(None) => {}
            None => {
                job.stop(clock, terms.kill_at(clock)).await;
                // Not earlier: where nobody reads stderr, to write to it may take for ever.
                output::say("error: leasehold was killed, so its command was stopped");
                return false;
            }
        }
    }
}

const NEVER: BootInstant = BootInstant::from_nanos(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_as_they_were_told() {
        let (grace, margin) = (Duration::from_millis(1500), Duration::from_nanos(7));
        for terminal in [Placement::None, Placement::Behind, Placement::Front] {
            let terms = Terms { valid_until: BootInstant::from_nanos(9), grace, margin, terminal };
            let words = terms.words();
            assert_eq!(Terms::read(words.each_ref().map(String::as_str)), Some(terms));
        }
        assert_eq!(Terms::read(["1", "2", "3", "elsewhere"]), None);
    }

    #[test]
    fn a_job_without_a_lease_has_no_last_call() {
        let (grace, margin) = (Duration::from_secs(5), Duration::from_secs(1));
        let terms = Terms { valid_until: NEVER, grace, margin, terminal: Placement::None };
        assert!(terms.last_call() > Clock::system().now() + Duration::from_secs(1 << 32));
    }
}
