//! Checks the combined history of many processes.
//!
//! Each process writes [`Event`]s, one per line, with a [`Recorder`](crate::Recorder); a test merges the files into a
//! [`History`] and asks [`check`] for [`Violation`]s. The checker is pure and takes O(n log n).
//!
//! What is checked, per name:
//! - fences are unique;
//! - a grant asked for after another had returned has the larger fence;
//! - a fence-checking register never accepts a fence below one it accepted before;
//! - exclusive tenures, from the grant to the release or the end of validity, do not overlap.
//!
//! An acquisition whose outcome is unknown may have taken effect or not, so it constrains nothing. The last rule
//! depends on clocks; drop [`Violation::Overlap`] where a test leaves the timing model on purpose.
//!
//! ```
//! use leasehold_testkit::history::{History, check};
//!
//! let history = History::from_text(
//!     "invoked\ta\t1\tjob\t0\n\
//!      granted\ta\t1\t7\t10\t100\n\
//!      invoked\tb\t1\tjob\t20\n\
//!      granted\tb\t1\t8\t30\t130\n",
//! )?;
//! let found = check(&history);
//! assert_eq!(found.len(), 1);
//! assert!(found[0].to_string().contains("fence 7 of a#1 overlaps"));
//! # Ok::<(), leasehold_testkit::history::HistoryError>(())
//! ```

mod event;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::Path;

pub use event::{Event, ParseError};

/// A grant, and how long it was held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The holder, as `process#attempt`.
    pub holder: String,
    /// The fence.
    pub fence: u64,
    /// Before the acquire was sent.
    pub invoked_at: u64,
    /// After it returned.
    pub returned_at: u64,
    /// The latest validity that the holder got.
    pub valid_until: u64,
    /// When the holder stopped using it, if it did before the end of the test.
    pub released_at: Option<u64>,
}

impl Grant {
    /// When the holder stopped relying on it.
    fn ended_at(&self) -> u64 {
        self.released_at.map_or(self.valid_until, |released_at| released_at.min(self.valid_until))
    }
}

/// A decision of a fence-checking resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The writer.
    pub process: String,
    /// The fence shown.
    pub fence: u64,
    /// The verdict.
    pub accepted: bool,
}

/// All events of one test, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Grants, in no particular order.
    pub grants: BTreeMap<String, Vec<Grant>>,
    /// Writes, in the order the resource saw them.
    pub writes: BTreeMap<String, Vec<Write>>,
    /// Acquisitions that certainly failed.
    pub failed: usize,
    /// Acquisitions that may have taken effect or not.
    pub unknown: usize,
}

/// Events that do not make a history.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// A line is no event.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A result without its cause, or a second one of its kind.
    #[error("{kind} of {holder} does not follow from earlier events")]
    OutOfPlace {
        /// The kind of event.
        kind: &'static str,
        /// `process#attempt`.
        holder: String,
    },
}

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Two grants of one name have the same fence.
    DuplicateFence {
        /// The name.
        name: String,
        /// One of them.
        first: Grant,
        /// The other.
        second: Grant,
    },
    /// `later` was asked for after `earlier` had returned, and yet has the smaller fence.
    OutOfOrder {
        /// The name.
        name: String,
        /// The one with the larger fence.
        earlier: Grant,
        /// The one with the smaller fence.
        later: Grant,
    },
    /// The resource accepted a fence below one it had accepted before.
    RegisterWentDown {
        /// The name.
        name: String,
        /// The highest write accepted before.
        highest: Write,
        /// The write that should have been refused.
        accepted: Write,
    },
    /// Two holders relied on one exclusive name at the same time.
    Overlap {
        /// The name.
        name: String,
        /// The one granted first.
        first: Grant,
        /// The one granted while `first` held.
        second: Grant,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateFence { name, first, second } => {
                write!(
                    f,
                    "{name:?}: fence {} was granted to {} and to {}",
                    first.fence, first.holder, second.holder
                )
            }
            Self::OutOfOrder { name, earlier, later } => write!(
                f,
                "{name:?}: fence {} of {} was asked for at {} and is below fence {} of {}, granted before that at {}",
                later.fence,
                later.holder,
                later.invoked_at,
                earlier.fence,
                earlier.holder,
                earlier.returned_at
            ),
            Self::RegisterWentDown { name, highest, accepted } => write!(
                f,
                "{name:?}: the register accepted fence {} of {} after fence {} of {}",
                accepted.fence, accepted.process, highest.fence, highest.process
            ),
            Self::Overlap { name, first, second } => write!(
                f,
                "{name:?}: fence {} of {} overlaps fence {} of {}: [{}, {}] and [{}, {}]",
                first.fence,
                first.holder,
                second.fence,
                second.holder,
                first.returned_at,
                first.ended_at(),
                second.returned_at,
                second.ended_at()
            ),
        }
    }
}

impl History {
    /// Builds a history from events. Only events of one acquisition, and writes of one name, have to be in order.
    pub fn from_events(events: impl IntoIterator<Item = Event>) -> Result<Self, HistoryError> {
        let mut history = Self::default();
        let mut open: HashMap<(String, u64), Acquisition> = HashMap::new();
        for event in events {
            let (key, step) = match event {
                Event::Wrote { process, name, fence, accepted } => {
                    history.writes.entry(name).or_default().push(Write { process, fence, accepted });
                    continue;
                }
                Event::Invoked { process, attempt, name, at } => {
                    ((process, attempt), Step::Invoked { name, at })
                }
                Event::Granted { process, attempt, fence, at, valid_until } => {
                    ((process, attempt), Step::Granted { fence, at, valid_until })
                }
                Event::Failed { process, attempt } => ((process, attempt), Step::Failed),
                Event::Renewed { process, attempt, valid_until } => {
                    ((process, attempt), Step::Renewed { valid_until })
                }
                Event::Released { process, attempt, at } => ((process, attempt), Step::Released { at }),
            };
            let holder = format!("{}#{}", key.0, key.1);
            let kind = step.kind();
            let next =
                step.apply(open.remove(&key), &holder).ok_or(HistoryError::OutOfPlace { kind, holder })?;
            open.insert(key, next);
        }
        for acquisition in open.into_values() {
            match acquisition {
                Acquisition::Pending { .. } => history.unknown += 1,
                Acquisition::Failed => history.failed += 1,
                Acquisition::Granted { name, grant } => history.grants.entry(name).or_default().push(grant),
            }
        }
        Ok(history)
    }

    /// Reads lines. One that lacks its end is ignored: its writer was killed while writing.
    pub fn from_text(text: &str) -> Result<Self, HistoryError> {
        Self::from_events(parse(text)?)
    }

    /// Merges files that several processes wrote.
    pub fn from_files<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, HistoryError> {
        let mut events = Vec::new();
        for path in paths {
            let path = path.as_ref();
            let bytes = std::fs::read(path)
                .map_err(|source| HistoryError::Read { path: path.display().to_string(), source })?;
            events.extend(parse(&String::from_utf8_lossy(&bytes))?);
        }
        Self::from_events(events)
    }

    /// How many acquisitions were granted: a check of nothing proves nothing.
    pub fn granted(&self) -> usize {
        self.grants.values().map(Vec::len).sum()
    }
}

fn parse(text: &str) -> Result<Vec<Event>, ParseError> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().filter(|line| !line.is_empty()).map(Event::from_line).collect()
}

enum Acquisition {
    Pending { name: String, invoked_at: u64 },
    Failed,
    Granted { name: String, grant: Grant },
}

enum Step {
    Invoked { name: String, at: u64 },
    Granted { fence: u64, at: u64, valid_until: u64 },
    Failed,
    Renewed { valid_until: u64 },
    Released { at: u64 },
}

impl Step {
    fn kind(&self) -> &'static str {
        match self {
            Self::Invoked { .. } => "invoked",
            Self::Granted { .. } => "granted",
            Self::Failed => "failed",
            Self::Renewed { .. } => "renewed",
            Self::Released { .. } => "released",
        }
    }

    fn apply(self, before: Option<Acquisition>, holder: &str) -> Option<Acquisition> {
        match (before, self) {
            (None, Self::Invoked { name, at }) => Some(Acquisition::Pending { name, invoked_at: at }),
            (Some(Acquisition::Pending { .. }), Self::Failed) => Some(Acquisition::Failed),
            (Some(Acquisition::Pending { name, invoked_at }), Self::Granted { fence, at, valid_until }) => {
                let holder = holder.to_owned();
                let grant =
                    Grant { holder, fence, invoked_at, returned_at: at, valid_until, released_at: None };
                (invoked_at <= at).then_some(Acquisition::Granted { name, grant })
            }
            (Some(Acquisition::Granted { name, mut grant }), step) if grant.released_at.is_none() => {
                match step {
                    Self::Renewed { valid_until } => grant.valid_until = valid_until.max(grant.valid_until),
                    Self::Released { at } => grant.released_at = Some(at),
                    _ => return None,
                }
                Some(Acquisition::Granted { name, grant })
            }
            _ => None,
        }
    }
}

/// Every promise that `history` shows broken; of a longer series of equal faults, one per later grant or write.
pub fn check(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (name, grants) in &history.grants {
        let grants: Vec<&Grant> = grants.iter().collect();
        duplicates(name, grants.clone(), &mut violations);
        real_time_order(name, &grants, &mut violations);
        overlaps(name, grants, &mut violations);
    }
    for (name, writes) in &history.writes {
        register(name, writes, &mut violations);
    }
    violations
}

fn duplicates(name: &str, mut grants: Vec<&Grant>, violations: &mut Vec<Violation>) {
    grants.sort_by_key(|grant| (grant.fence, grant.returned_at));
    for pair in grants.windows(2).filter(|pair| pair[0].fence == pair[1].fence) {
        let (first, second) = (pair[0].clone(), pair[1].clone());
        violations.push(Violation::DuplicateFence { name: name.to_owned(), first, second });
    }
}

fn real_time_order(name: &str, grants: &[&Grant], violations: &mut Vec<Violation>) {
    let mut by_return = grants.to_vec();
    by_return.sort_by_key(|grant| grant.returned_at);
    let mut by_invocation = grants.to_vec();
    by_invocation.sort_by_key(|grant| grant.invoked_at);
    let mut returned = by_return.into_iter().peekable();
    let mut highest: Option<&Grant> = None;
    for later in by_invocation {
        while let Some(earlier) = returned.next_if(|grant| grant.returned_at < later.invoked_at) {
            highest = highest.filter(|highest| highest.fence >= earlier.fence).or(Some(earlier));
        }
        if let Some(earlier) = highest.filter(|earlier| earlier.fence > later.fence) {
            let (earlier, later) = (earlier.clone(), later.clone());
            violations.push(Violation::OutOfOrder { name: name.to_owned(), earlier, later });
        }
    }
}

fn overlaps(name: &str, mut grants: Vec<&Grant>, violations: &mut Vec<Violation>) {
    // A grant that returned after its validity was never relied on.
    grants.retain(|grant| grant.returned_at < grant.ended_at());
    grants.sort_by_key(|grant| (grant.returned_at, grant.ended_at()));
    let mut longest: Option<&Grant> = None;
    for second in grants {
        if let Some(first) = longest.filter(|first| second.returned_at < first.ended_at()) {
            let (first, second) = (first.clone(), second.clone());
            violations.push(Violation::Overlap { name: name.to_owned(), first, second });
        }
        longest = longest.filter(|longest| longest.ended_at() >= second.ended_at()).or(Some(second));
    }
}

fn register(name: &str, writes: &[Write], violations: &mut Vec<Violation>) {
    let mut highest: Option<&Write> = None;
    for accepted in writes.iter().filter(|write| write.accepted) {
        match highest {
            Some(highest) if accepted.fence < highest.fence => {
                let (highest, accepted) = (highest.clone(), accepted.clone());
                violations.push(Violation::RegisterWentDown { name: name.to_owned(), highest, accepted });
            }
            _ => highest = Some(accepted),
        }
    }
}
