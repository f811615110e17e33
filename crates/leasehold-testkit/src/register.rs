//! A resource that checks fences, shared by the processes of one host.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::history::Event;

/// Longest line in the file, so that its end can be found by reading a little.
const LINE_BYTES_MAX: usize = 2048;

/// Which fences a [`Register`] admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Admission {
    /// The highest seen or a higher one: a holder may write many times.
    #[default]
    AtLeastHighest,
    /// Only a higher one: each tenure writes once.
    AboveHighest,
}

/// A file that accepts a write only with a fence that is not stale, and logs every verdict.
///
/// Each value may be used by many threads, and many processes may open the same path. A writer that is killed
/// leaves at most a torn last line, which the next one removes.
///
/// ```
/// use leasehold_testkit::{Admission, Register};
///
/// let dir = tempfile::tempdir()?;
/// let register = Register::open(&dir.path().join("register"), "job", Admission::AtLeastHighest)?;
/// assert!(register.write(7, "a")?);
/// assert!(register.write(7, "a")?);
/// assert!(!register.write(6, "late b")?);
/// assert_eq!(register.log()?.len(), 3);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Register {
    path: PathBuf,
    name: String,
    admission: Admission,
}

impl Register {
    /// Opens or creates the register that the lock `name` protects.
    pub fn open(path: &Path, name: &str, admission: Admission) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { path: path.to_owned(), name: name.to_owned(), admission })
    }

    /// Writes with `fence` as `who`; returns whether it was accepted.
    pub fn write(&self, fence: u64, who: &str) -> io::Result<bool> {
        let mut file = self.locked()?;
        let highest = repair_and_read_highest(&mut file)?;
        let accepted = highest.is_none_or(|highest| match self.admission {
            Admission::AtLeastHighest => fence >= highest,
            Admission::AboveHighest => fence > highest,
        });
        let highest = if accepted { fence } else { highest.unwrap_or_default() };
        let event = Event::Wrote { process: who.to_owned(), name: self.name.clone(), fence, accepted };
        // Highest fence and verdict in one line and one write: a kill cannot separate them.
        let line = format!("{highest} {}\n", event.to_line());
        if line.len() > LINE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "name or writer is too long for a register",
            ));
        }
        file.write_all(line.as_bytes())?;
        Ok(accepted)
    }

    /// The highest fence accepted so far.
    pub fn highest(&self) -> io::Result<Option<u64>> {
        repair_and_read_highest(&mut self.locked()?)
    }

    /// Every verdict, in order, as events for a [`History`](crate::history::History).
    pub fn log(&self) -> io::Result<Vec<Event>> {
        let mut file = self.locked()?;
        repair_and_read_highest(&mut file)?;
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut text)?;
        text.lines()
            .map(|line| {
                let (_, event) = line.split_once(' ').ok_or_else(|| corrupt(line))?;
                Event::from_line(event).map_err(|_| corrupt(line))
            })
            .collect()
    }

    /// Opened anew each time: the lock belongs to the open file, so threads exclude each other too.
    fn locked(&self) -> io::Result<File> {
        let file = OpenOptions::new().read(true).append(true).open(&self.path)?;
        file.lock()?;
        Ok(file)
    }
}

fn repair_and_read_highest(file: &mut File) -> io::Result<Option<u64>> {
    let length = file.metadata()?.len();
    // Room for a torn line and the whole one before it.
    let start = length.saturating_sub(2 * LINE_BYTES_MAX as u64);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < tail.len() {
        file.set_len(start + whole as u64)?;
    }
    let Some(last) = tail[..whole].split(|byte| *byte == b'\n').rev().nth(1) else { return Ok(None) };
    let last = String::from_utf8_lossy(last);
    let highest = last.split(' ').next().and_then(|highest| highest.parse().ok());
    highest.map(Some).ok_or_else(|| corrupt(&last))
}

fn corrupt(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a line of a register: {line:?}"))
}
