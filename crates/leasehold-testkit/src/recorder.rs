//! The file a process writes its events into.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};

use crate::history::Event;

/// Nanoseconds of the boot clock: all processes of this host share it, it counts suspend, and it cannot be set.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).expect("the boot clock starts at zero");
    let nanos = u64::try_from(time.tv_nsec).expect("nanoseconds are not negative");
    seconds * 1_000_000_000 + nanos
}

/// Appends [`Event`]s to a file, unbuffered: a killed process loses at most the line it was writing.
///
/// ```
/// use leasehold_testkit::history::{Event, History};
/// use leasehold_testkit::{Recorder, now};
///
/// let file = tempfile::NamedTempFile::new()?;
/// let recorder = Recorder::open(file.path())?;
/// recorder.record(&Event::Invoked { process: "a".into(), attempt: 1, name: "job".into(), at: now() });
/// assert_eq!(History::from_files([file.path()]).unwrap().unknown, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    file: Mutex<File>,
}

impl Recorder {
    /// Opens or creates the file; one per process.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Appends one line.
    ///
    /// # Panics
    /// When it cannot be written: a history with gaps must not be checked.
    #[track_caller]
    pub fn record(&self, event: &Event) {
        let line = event.to_line() + "\n";
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).expect("cannot record an event");
    }
}
