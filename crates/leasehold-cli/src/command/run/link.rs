//! What the wrapper and the guardian of its job tell each other: frames of one byte and one number.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream as StdStream,
};

use leasehold::clock::BootInstant;
use rustix::process::{Pid, Signal};
use tokio::net::UnixStream;

use crate::exit::Exit;

/// From the wrapper to the guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The lease was renewed.
    ValidUntil(BootInstant),
    /// Send this signal to the job.
    Signal(Signal),
    /// End the job: TERM now, KILL then.
    Stop { kill_at: BootInstant },
}

/// From the guardian to the wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The command runs as this process.
    Started(Pid),
    /// The command could not be started, with the system's error number.
    NotStarted(i32),
    /// A signal stopped the command.
    Stopped(Signal),
    /// No renewal was heard of in time: the guardian ends the job.
    Overdue,
    /// The command ended, and nothing of the job is left.
    Ended {
        exit: Exit,
        /// Processes that the command had left running were ended.
        leftovers: bool,
    },
}

const FRAME_BYTES: usize = 9;
pub(super) type Frame = [u8; FRAME_BYTES];

fn frame(tag: u8, value: u64) -> Frame {
    let mut frame = [tag; FRAME_BYTES];
    frame[1..].copy_from_slice(&value.to_le_bytes());
    frame
}

fn parts(frame: Frame) -> (u8, u64) {
    let [tag, value @ ..] = frame;
    (tag, u64::from_le_bytes(value))
}

fn signal(value: u64) -> Option<Signal> {
    Signal::from_named_raw(i32::try_from(value).ok()?)
}

impl From<Order> for Frame {
    fn from(order: Order) -> Self {
        match order {
            Order::ValidUntil(until) => frame(b'v', until.as_nanos()),
            Order::Signal(signal) => frame(b's', signal.as_raw() as u64),
            Order::Stop { kill_at } => frame(b'k', kill_at.as_nanos()),
        }
    }
}

impl Order {
    pub(super) fn read(frame: Frame) -> Option<Self> {
        match parts(frame) {
            (b'v', nanos) => Some(Self::ValidUntil(BootInstant::from_nanos(nanos))),
            (b's', number) => signal(number).map(Self::Signal),
            (b'k', nanos) => Some(Self::Stop { kill_at: BootInstant::from_nanos(nanos) }),
            _ => None,
        }
    }
}

impl From<Report> for Frame {
    fn from(report: Report) -> Self {
        match report {
            Report::Started(pid) => frame(b'r', pid.as_raw_nonzero().get() as u64),
            Report::NotStarted(error) => frame(b'n', error as u64),
            Report::Stopped(signal) => frame(b't', signal.as_raw() as u64),
            Report::Overdue => frame(b'o', 0),
            Report::Ended { exit, leftovers } => frame(b'e', u64::from(exit.0) | u64::from(leftovers) << 8),
        }
    }
}

impl Report {
    pub(super) fn read(frame: Frame) -> Option<Self> {
        match parts(frame) {
            (b'r', pid) => i32::try_from(pid).ok().and_then(Pid::from_raw).map(Self::Started),
            (b'n', error) => i32::try_from(error).ok().map(Self::NotStarted),
            (b't', number) => signal(number).map(Self::Stopped),
            (b'o', _) => Some(Self::Overdue),
            (b'e', value) => Some(Self::Ended { exit: Exit(value as u8), leftovers: value >> 8 != 0 }),
            _ => None,
        }
    }
}

/// One end of the pair of sockets. It closes when the process on the other end dies, however that happens.
pub(super) struct Link {
    stream: UnixStream,
    /// The same, to write at once: the runtime's refuses to until it has waited for it once.
    out: StdStream,
    partial: Frame,
    filled: usize,
}

impl Link {
    pub(super) fn new(stream: StdStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let out = stream.try_clone()?;
        Ok(Self { stream: UnixStream::from_std(stream)?, out, partial: [0; FRAME_BYTES], filled: 0 })
    }

    /// The next frame; `None` when the other end is gone.
    ///
    /// # Cancel safety
    /// Safe: a part of a frame is kept.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        while self.filled < FRAME_BYTES {
            self.stream.readable().await.ok()?;
            match self.stream.try_read(&mut self.partial[self.filled..]) {
                Ok(0) => return None,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        self.filled = 0;
        Some(self.partial)
    }

    /// A frame that has arrived, whether or not the runtime has noticed.
    pub(super) fn waiting(&mut self) -> Option<Frame> {
        while self.filled < FRAME_BYTES {
            match (&self.out).read(&mut self.partial[self.filled..]) {
                Ok(read) if read > 0 => self.filled += read,
                _ => return None,
            }
        }
        self.filled = 0;
        Some(self.partial)
    }

    /// Sends a frame unless the other end is gone, or stopped for so long that nothing more fits.
    pub(super) fn send(&self, frame: impl Into<Frame>) {
        let _unheard = (&self.out).write(&frame.into());
    }

    /// Sends a frame that must arrive, if there is anybody left to read it.
    pub(super) async fn deliver(&self, frame: impl Into<Frame>) {
        let frame = frame.into();
        while self.stream.writable().await.is_ok() {
            match self.stream.try_write(&frame) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_arrive_as_they_were_sent_until_the_other_end_is_gone() {
        let (here, there) = StdStream::pair().unwrap();
        let (here, mut there) = (Link::new(here).unwrap(), Link::new(there).unwrap());
        let at = BootInstant::from_nanos(u64::MAX - 1);
        for order in [Order::ValidUntil(at), Order::Signal(Signal::USR1), Order::Stop { kill_at: at }] {
            here.send(order);
            assert_eq!(there.next().await.and_then(Order::read), Some(order));
        }
        let pid = Pid::from_raw(i32::MAX).unwrap();
        for report in [
            Report::Started(pid),
            Report::NotStarted(2),
            Report::Stopped(Signal::TSTP),
            Report::Overdue,
            Report::Ended { exit: Exit(255), leftovers: true },
        ] {
            here.deliver(report).await;
            assert_eq!(there.next().await.and_then(Report::read), Some(report));
            here.deliver(report).await;
            assert_eq!(there.waiting().and_then(Report::read), Some(report));
            assert_eq!(there.waiting(), None);
        }
        drop(here);
        assert_eq!(there.next().await, None);
    }
}
