//! Waiting for a lock: shows the holder, and leaves the queue on a signal.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use leasehold::{
    Attempt, Election, Error, Guard, GuardSet, Holder, Leadership, Leasehold, Lock, Mode, Name, OnOutage,
    Protection, lock::Waited,
};
use rustix::process::{Pid, Signal};
use tokio::sync::watch;

use crate::{
    command::{MODE, NAME, NAMES, PERMITS, kernel},
    exit::Failure,
    output::{self, clean, spoken},
    signals::{Signals, asks_to_end},
    view::ModeView,
};

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Ask once.
    Once,
    /// At most this long.
    For(Duration),
    /// As long as it takes.
    Forever,
}

impl Wait {
    /// From `-n` and `-w`; `-n` is the same as `-w 0`.
    pub(crate) fn from_flags(nonblock: bool, wait: Option<Duration>) -> Option<Self> {
        match (nonblock, wait) {
            (true, _) | (_, Some(Duration::ZERO)) => Some(Self::Once),
            (false, Some(wait)) => Some(Self::For(wait)),
            (false, None) => None,
        }
    }
}

/// How a wait ended.
pub(crate) enum Wanted<T = Guard> {
    /// It was acquired.
    Held(T),
    /// The wait is over and another holder still has the lock.
    NotAcquired(Failure),
    /// The store is out of reach, and the lock's policy is to go on without it.
    Unprotected(Error),
    /// A signal came first. The attempt ends in the background until the client is closed.
    Interrupted(Signal),
}

impl<T> Wanted<T> {
    pub(crate) fn map<U>(self, held: impl FnOnce(T) -> U) -> Wanted<U> {
        match self {
            Self::Held(it) => Wanted::Held(held(it)),
            Self::NotAcquired(failure) => Wanted::NotAcquired(failure),
            Self::Unprotected(cause) => Wanted::Unprotected(cause),
            Self::Interrupted(signal) => Wanted::Interrupted(signal),
        }
    }

    /// What asking for something led to that has its wait set.
    fn from_answer(answer: leasehold::Result<T>, wait: Wait, mode: Mode) -> Result<Self, Failure> {
        match answer {
            Ok(held) => Ok(Self::Held(held)),
            Err(Error::TimedOut { name, holder, .. }) if wait == Wait::Once => {
                Ok(Self::NotAcquired(busy(name, holder, mode)))
            }
            Err(error @ Error::TimedOut { .. }) => Ok(Self::NotAcquired(error.into())),
            Err(error) => Err(error.into()),
        }
    }
}

/// Acquires the lock, or returns why not.
pub(crate) async fn acquire(
    lock: Lock,
    (name, mode): (&str, Mode),
    wait: Wait,
    on_outage: OnOutage,
    signals: &mut Signals,
    verbose: bool,
) -> Result<Wanted, Failure> {
    let waiting = Waiting::new(verbose);
    let acquired = async {
        let lock = match wait {
            Wait::Once => return ask_once(lock, (name, mode), on_outage).await,
            Wait::For(most) => lock.wait(most),
            Wait::Forever => lock.wait_forever(),
        };
        let lock = lock.on_outage(on_outage).on_wait(waiting.progress(name, mode));
        match lock.acquire_or_proceed().await {
            Ok(Protection::Unprotected { cause }) => Ok(Wanted::Unprotected(cause)),
            Ok(Protection::Held(guard)) => Ok(Wanted::Held(guard)),
            Err(error) => Wanted::from_answer(Err(error), wait, mode),
        }
    };
    waiting.unless_ended(signals, acquired).await
}

/// Acquires several locks at once, or returns why not.
pub(crate) async fn acquire_all<'a>(
    leases: &Leasehold,
    locks: impl Iterator<Item = (&'a str, Lock)>,
    mode: Mode,
    wait: Wait,
    signals: &mut Signals,
    verbose: bool,
) -> Result<Wanted<GuardSet>, Failure> {
    let waiting = Waiting::new(verbose);
    let locks = leases.lock_all(locks.map(|(name, lock)| lock.on_wait(waiting.progress(name, mode))));
    let locks = match wait {
        Wait::Once => locks.wait(Duration::ZERO),
        Wait::For(most) => locks.wait(most),
        Wait::Forever => locks.wait_forever(),
    };
    let acquired = async { Wanted::from_answer(locks.acquire().await, wait, mode) };
    waiting.unless_ended(signals, acquired).await
}

/// Waits to become the leader, or returns why it did not.
pub(crate) async fn campaign(
    election: Election,
    name: &str,
    wait: Wait,
    signals: &mut Signals,
    verbose: bool,
) -> Result<Wanted<Leadership>, Failure> {
    let (waiting, mode) = (Waiting::new(verbose), Mode::Exclusive);
    let election = match wait {
        Wait::Once => election.wait(Duration::ZERO),
        Wait::For(most) => election.wait(most).on_wait(waiting.progress(name, mode)),
        // An election waits like this by itself.
        Wait::Forever => election.on_wait(waiting.progress(name, mode)),
    };
    let acquired = async { Wanted::from_answer(election.campaign().await, wait, mode) };
    waiting.unless_ended(signals, acquired).await
}

async fn ask_once(lock: Lock, (name, mode): (&str, Mode), on_outage: OnOutage) -> Result<Wanted, Failure> {
    let name = Name::new(name)?;
    Ok(match lock.try_acquire().await {
        Ok(Attempt::Held(guard)) => Wanted::Held(guard),
        // As `acquire_or_proceed` does it.
        Err(cause @ (Error::StoreUnreachable { .. } | Error::StoreRefused { .. }))
            if on_outage == OnOutage::Proceed && cause.is_retryable() =>
        {
            Wanted::Unprotected(cause)
        }
        Err(error) => return Err(error.into()),
        Ok(Attempt::Busy { holder, .. }) => Wanted::NotAcquired(busy(name, holder, mode)),
    })
}

/// Why a lock was not acquired that was asked for once.
fn busy(name: Name, holder: Option<Holder>, mode: Mode) -> Failure {
    let by = holder.as_ref().map_or_else(|| "somebody else".to_owned(), held_by);
    let message = match mode {
        Mode::Permits { .. } => {
            format!("\"{name}\" does not have {} free; one holder is {by}", ModeView::from(mode))
        }
        _ => format!("\"{name}\" is held by {by}"),
    };
    let timed_out = Error::TimedOut { name, waited: Duration::ZERO, attempts: 1, holder };
    Failure::from(timed_out).message(message)
}

/// An attempt that waits.
struct Waiting {
    verbose: bool,
    /// The name that it waits for in vain.
    in_vain: watch::Sender<Option<String>>,
}

impl Waiting {
    fn new(verbose: bool) -> Self {
        Self { verbose, in_vain: watch::Sender::default() }
    }

    /// Shows who holds the lock of this name, and finds out whether it will ever be released.
    fn progress(&self, name: &str, mode: Mode) -> impl Fn(&Waited<'_>) + Send + Sync + 'static {
        let (name, in_vain) = (name.to_owned(), self.in_vain.clone());
        let line = StatusLine::new(&name, self.verbose);
        move |waited| {
            line.show(waited);
            if waited.holder.is_some_and(|holder| waits_for_us(holder, &name, mode)) {
                in_vain.send_replace(Some(name.clone()));
            }
        }
    }

    /// What the attempt leads to, unless a signal comes first or it is in vain.
    async fn unless_ended<T>(
        &self,
        signals: &mut Signals,
        acquired: impl Future<Output = Result<Wanted<T>, Failure>>,
    ) -> Result<Wanted<T>, Failure> {
        let mut in_vain = self.in_vain.subscribe();
        let in_vain = async {
            let name = in_vain.wait_for(Option::is_some).await.ok().and_then(|name| name.clone());
            name.expect("the sender is our own")
        };
        tokio::select! {
            biased;
            signal = ending(signals) => Ok(Wanted::Interrupted(signal)),
            name = in_vain => Err(Failure::usage(
                format!("\"{}\" is held by the leasehold that started this command, and ends after it", clean(&name)),
                "take the lock once: leave out the inner leasehold, or give it a name of its own",
            )),
            result = acquired => result,
        }
    }
}

/// Whether it is the leasehold that this process is a part of the job of, which does not release before we end, and
/// beside which we do not fit.
fn waits_for_us(holder: &Holder, name: &str, mode: Mode) -> bool {
    let Holder::Leasehold { host, pid, .. } = holder else { return false };
    let has = |variable| std::env::var(variable).unwrap_or_default();
    let is_of_job = has(NAME) == name || has(NAMES).split(',').any(|of_job| of_job == name);
    let is_here =
        matches!(Holder::this_process("", 0), Holder::Leasehold { host: here, .. } if here == *host);
    let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
    let is_in_the_way = excludes(&has(MODE), &has(PERMITS), mode);
    is_of_job && is_in_the_way && is_here && pid.is_some_and(kernel::is_below)
}

/// Whether a job that holds a lock like this keeps out who wants it like that, whoever else comes or goes.
fn excludes(held: &str, permits: &str, wanted: Mode) -> bool {
    match wanted {
        Mode::Permits { take, of } => {
            let held = permits.parse::<u32>().unwrap_or(0);
            held.saturating_add(take.get()) > of.get()
        }
        Mode::Shared => held != Mode::Shared.as_str(),
        _ => true,
    }
}

/// The next signal that asks us to end.
pub(crate) async fn ending(signals: &mut Signals) -> Signal {
    loop {
        let signal = signals.next().await;
        if asks_to_end(signal) {
            return signal;
        }
    }
}

/// A holder, and how long it has held the lock by its own clock.
pub(crate) fn held_by(holder: &Holder) -> String {
    let age = holder.age().map_or_else(String::new, |age| format!(" for {}", spoken(age)));
    clean(&format!("{holder}{age}"))
}

/// On a terminal, one line that is overwritten as things change; otherwise one lasting line, if asked for.
struct StatusLine {
    name: String,
    terminal: bool,
    verbose: bool,
    said: std::sync::atomic::AtomicBool,
}

impl StatusLine {
    fn new(name: &str, verbose: bool) -> Self {
        Self { name: clean(name), terminal: io::stderr().is_terminal(), verbose, said: false.into() }
    }

    fn show(&self, waited: &Waited<'_>) {
        if !output::takes_at_once(io::stderr()) {
            return;
        }
        let first = !self.said.swap(true, std::sync::atomic::Ordering::Relaxed);
        if self.terminal {
            let line = cut(&self.text(waited), columns());
            let _unheard = write!(io::stderr().lock(), "\r\x1b[2K{line}");
        } else if first && self.verbose {
            output::say(&self.text(waited));
        }
    }

    fn text(&self, waited: &Waited<'_>) -> String {
        let holder = waited.holder.map_or_else(|| "nobody".to_owned(), held_by);
        let ahead = match waited.ahead {
            0 => "next in line".to_owned(),
            ahead => format!("{ahead} ahead"),
        };
        format!("waiting for \"{}\" ({}, {ahead}): held by {holder}", self.name, spoken(waited.waited))
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if self.terminal && *self.said.get_mut() && output::takes_at_once(io::stderr()) {
            let _unheard = write!(io::stderr().lock(), "\r\x1b[2K");
        }
    }
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    let known = size.map_or(0, |size| usize::from(size.ws_col));
    if known == 0 { 80 } else { known.max(20) }
}

/// A line that wraps cannot be overwritten.
fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() < columns {
        return line.to_owned();
    }
    line.chars().take(columns - 2).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_of_zero_asks_once() {
        let second = Duration::from_secs(1);
        assert_eq!(Wait::from_flags(true, None), Some(Wait::Once));
        assert_eq!(Wait::from_flags(false, Some(Duration::ZERO)), Some(Wait::Once));
        assert_eq!(Wait::from_flags(false, Some(second)), Some(Wait::For(second)));
        assert_eq!(Wait::from_flags(false, None), None);
    }

    #[test]
    fn a_job_keeps_out_who_does_not_fit_beside_it() {
        let permits = |take, of| {
            let number = |number| std::num::NonZeroU32::new(number).unwrap();
            Mode::Permits { take: number(take), of: number(of) }
        };
        assert!(excludes("exclusive", "", Mode::Exclusive) && excludes("shared", "", Mode::Exclusive));
        assert!(excludes("exclusive", "", Mode::Shared) && !excludes("shared", "", Mode::Shared));
        assert!(excludes("permits", "2", permits(2, 3)), "there will never be two others");
        assert!(!excludes("permits", "1", permits(2, 3)), "another holder may release");
    }

    #[test]
    fn a_long_line_is_cut_below_the_width() {
        assert_eq!(cut("short", 20), "short");
        assert_eq!(cut(&"x".repeat(40), 20).chars().count(), 19);
    }
}
