//! Signals that reach this process.

use std::{
    io,
    task::{Context, Poll},
};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Signals that end a wait and are forwarded to a child.
pub(crate) const FORWARDED: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Whether a signal asks a program to end.
pub(crate) fn asks_to_end(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT)
}

/// A stream of signals, by default of none. Listening lasts until the process ends: their default action is gone for good.
#[derive(Default)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    asked_to_end: bool,
}

impl Signals {
    /// Listens to those signals that our parent does not want ignored (`nohup`, `&` in a script): those stay
    /// ignored, for a child too.
    pub(crate) fn listen(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored_since_start();
        let wanted = signals.iter().filter(|signal| ignored & (1 << (signal.as_raw() - 1)) == 0);
        let streams =
            wanted.map(|&signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)));
        Ok(Self { streams: streams.collect::<io::Result<_>>()?, asked_to_end: false })
    }

    /// Whether one of the signals so far asked to end.
    pub(crate) fn asked_to_end(&self) -> bool {
        self.asked_to_end
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// Safe: a signal stays until it is taken.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        for (signal, stream) in &mut self.streams {
            if stream.poll_recv(context).is_ready() {
                self.asked_to_end |= asks_to_end(*signal);
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    }
}

/// Signals that are ignored now, one bit each; none where the system does not report them.
fn ignored_since_start() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
