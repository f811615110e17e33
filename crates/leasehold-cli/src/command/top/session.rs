//! The loop: keys, signals, one poll at a time, and what is done to locks.

use std::{
    future::{Future, pending},
    io,
    pin::Pin,
    time::{Duration, Instant, SystemTime},
};

use leasehold::{
    Leasehold, Released,
    audit::{self, Action, Entry},
};
use ratatui::crossterm::event::{Event, KeyEventKind};
use rustix::process::Signal;
use tokio::{sync::mpsc, time::sleep_until};

use super::{
    dialog::Release,
    model::{About, Answered, Effect, Top},
    poll,
    screen::{self, Screen},
};
use crate::{
    command::force_release,
    exit::Failure,
    output::clean,
    signals::{Signals, asks_to_end},
};

/// A poll may take this part of the time.
const POLLED_PART: u32 = 5;

type Task<'a, T> = Option<Pin<Box<dyn Future<Output = leasehold::Result<T>> + 'a>>>;

pub(super) struct Session<'a> {
    leases: &'a Leasehold,
    top: Top,
    interval: Duration,
    started: Instant,
    polling: Task<'a, Answered>,
    poll_began: Instant,
    next_poll: Instant,
    /// Somebody waits for what the poll under way does not ask.
    poll_again: bool,
    releasing: Task<'a, Released>,
    release: Option<Release>,
    /// What was done to locks, for the end.
    done: Vec<String>,
}

impl<'a> Session<'a> {
    pub(super) fn new(leases: &'a Leasehold, about: About, interval: Duration) -> Self {
        let started = Instant::now();
        Self {
            leases,
            top: Top::new(about),
            interval,
            started,
            polling: None,
            poll_began: started,
            next_poll: started,
            poll_again: false,
            releasing: None,
            release: None,
            done: Vec::new(),
        }
    }

    /// Until the user has seen enough. Returns what was done to locks, also after a failure.
    pub(super) async fn run(mut self) -> (Result<(), Failure>, Vec<String>) {
        let ended = self.show().await;
        // The terminal is the user's again. What was sent has an outcome.
        if self.releasing.is_some() {
            let outcome = end_of(&mut self.releasing).await;
            self.released(outcome);
        }
        (ended, self.done)
    }

    async fn show(&mut self) -> Result<(), Failure> {
        let watched = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::TSTP, Signal::CONT];
        let mut signals = Signals::listen(&watched)?;
        let mut screen = Screen::open().map_err(terminal_failed)?;
        let mut events = screen::events()?;
        let mut step = Step::Go;
        loop {
            let done = match step {
                Step::Go => Ok(()),
                Step::Quit => return Ok(()),
                Step::Suspend => screen.suspend(),
                Step::Resume => screen.resume(),
            };
            match done.and_then(|()| screen.draw(&mut self.top)) {
                Ok(()) => step = self.step(&mut signals, &mut events).await,
                // The terminal has hung up, and its signal is on the way.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => return Ok(()),
                Err(error) => return Err(terminal_failed(error)),
            }
        }
    }

    /// Waits for the next thing that happens.
    async fn step(&mut self, signals: &mut Signals, events: &mut mpsc::Receiver<io::Result<Event>>) -> Step {
        let may_poll = self.polling.is_none() && !self.top.paused;
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::TSTP => Step::Suspend,
                Signal::CONT => Step::Resume,
                signal if asks_to_end(signal) => Step::Quit,
                _ => Step::Go,
            },
            event = events.recv() => self.event(event),
            outcome = end_of(&mut self.releasing) => {
                self.released(outcome);
                self.poll_soon();
                Step::Go
            }
            answered = end_of(&mut self.polling) => {
                self.polled(answered);
                Step::Go
            }
            () = sleep_until(self.next_poll.into()), if may_poll => {
                self.poll();
                Step::Go
            }
        }
    }

    fn event(&mut self, event: Option<io::Result<Event>>) -> Step {
        let effect = match event {
            Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => self.top.key(key),
            Some(Ok(_)) => Effect::None,
            // The terminal is gone.
            Some(Err(_)) | None => Effect::Quit,
        };
        match effect {
            Effect::None => {}
            Effect::Quit => return Step::Quit,
            Effect::Suspend => return Step::Suspend,
            Effect::Poll => self.poll_soon(),
            Effect::Release(release) => {
                self.releasing = Some(Box::pin(force(self.leases, release.clone())));
                self.release = Some(release);
            }
        }
        Step::Go
    }

    fn poll_soon(&mut self) {
        self.next_poll = Instant::now();
        self.poll_again = self.polling.is_some();
    }

    fn poll(&mut self) {
        let (leases, started) = (self.leases, self.started);
        let question = self.top.question(started.elapsed());
        let prefix = self.top.about.prefix.clone();
        self.poll_began = Instant::now();
        self.polling = Some(Box::pin(async move { poll::ask(leases, &prefix, question, started).await }));
    }

    fn polled(&mut self, answered: leasehold::Result<Answered>) {
        match answered {
            // Paused meanwhile: the picture stays.
            Ok(_) if self.top.paused => {}
            Ok(answered) => self.top.answered(answered, wall_clock()),
            Err(error) => self.top.unanswered(error.to_string(), wall_clock()),
        }
        let now = Instant::now();
        let rest = (now - self.poll_began) * (POLLED_PART - 1);
        if !std::mem::take(&mut self.poll_again) {
            self.next_poll = now + self.interval.max(rest);
        }
    }

    fn released(&mut self, outcome: leasehold::Result<Released>) {
        let Some(Release { name, fence, reason }) = self.release.take() else { return };
        let what = match outcome {
            Ok(outcome) => force_release::text(&name, fence, outcome).trim_end().to_owned(),
            Err(error) => format!("error: {error}"),
        };
        self.done.push(clean(&format!("{} {what}; reason: {reason}", wall_clock())));
        self.top.released(what);
    }
}

/// Takes a lock from its holder. The audit of the store has it before it is done, if the store keeps one.
async fn force(leases: &Leasehold, release: Release) -> leasehold::Result<Released> {
    let Release { name, fence, reason } = release;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let by =
        std::env::var("USER").ok().filter(|user| !user.is_empty()).unwrap_or_else(|| "leasehold top".into());
    let mut entry = Entry::new(Action::ForceRelease, name.as_str(), by, host);
    (entry.fence, entry.reason) = (Some(fence.get()), Some(reason));
    audit::begin(leases, &mut entry).await?;
    let released = leases.force_release(&name, fence).await;
    let outcome = match &released {
        Ok(Released::Taken { .. } | Released::Expired) => "failed: the holder is another one, or gone".into(),
        Ok(Released::HandedOver { .. }) => "handed_over".into(),
        Ok(_) => "free".into(),
        Err(error) => format!("failed: {error}"),
    };
    if let Err(error) = audit::end(leases, &mut entry, outcome).await {
        tracing::error!(id = %entry.id, %error, "the outcome is not in the audit");
    }
    released
}

/// What follows from what happened.
enum Step {
    Go,
    Quit,
    Suspend,
    Resume,
}

/// Ends with the task, and never if there is none.
///
/// # Cancel safety
/// Safe: the task stays.
async fn end_of<T>(task: &mut Task<'_, T>) -> leasehold::Result<T> {
    let Some(running) = task else { return pending().await };
    let ended = running.await;
    *task = None;
    ended
}

fn wall_clock() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let time = now.split_once('T').map_or("", |(_, time)| time.trim_end_matches('Z'));
    format!("{time} UTC")
}

fn terminal_failed(error: io::Error) -> Failure {
    Failure::file("the terminal failed", &error)
}
