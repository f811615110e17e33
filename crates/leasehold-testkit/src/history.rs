//! Checks the combined history of many processes.
//!
//! Each process writes [`Event`]s, one per line, with a [`Recorder`](crate::Recorder); a test merges the files into a
//! [`History`] and asks [`check`] for [`Violation`]s. The checker is pure and takes O(n log n).
//!
//! What is checked, per name:
//! - fences are unique, but for readers that ask at the same time;
//! - a grant asked for after another had returned has the larger fence;
//! - a fence-checking register never accepts a fence below one it accepted before;
//! - what a holder still uses is not given back: a leader resigns after its body has ended.
//!
//! And of tenures, from the grant to the release or the end of validity:
//! - an exclusive one, of a writer or a leader, overlaps no other;
//! - where two exclude each other, the later one has the larger fence: a reader's is above that of each writer that ended before
//!   it, and below that of each writer that began after it;
//! - permits are never granted beyond the limit then in force.
//!
//! An acquisition whose outcome is unknown may have taken effect or not, so it constrains nothing. The rules about tenures
//! depend on clocks, and on a store that loses no lease: [`Violation::lost_lease_at`] tells their violations from the others,
//! where a test leaves the timing model on purpose.
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
mod fences;
mod permits;
mod tenures;
mod violation;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use leasehold::Mode;

pub use event::{Event, ParseError};
pub use violation::Violation;

/// A grant, and how long it was held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// The holder, as `process#attempt`.
    pub holder: String,
    /// How it was held.
    pub mode: Mode,
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
    /// When it was given back, if that was recorded.
    pub given_back_at: Option<u64>,
}

impl Grant {
    /// When the holder stopped relying on it.
    fn ended_at(&self) -> u64 {
        self.released_at.map_or(self.valid_until, |released_at| released_at.min(self.valid_until))
    }
}

/// A limit that was set for a semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The number of permits.
    pub limit: u32,
    /// Before the call.
    pub asked_at: u64,
    /// After it returned. Without it, it may have taken effect at any time since, or not at all.
    pub set_at: Option<u64>,
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
    /// Limits of semaphores, in no particular order. Before the first one, the limit is that which the first holder named.
    pub limits: BTreeMap<String, Vec<Limit>>,
    /// Acquisitions, and changes of a limit, that certainly failed.
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
                Event::Asked { process, attempt, mode } => ((process, attempt), Step::Asked { mode }),
                Event::Granted { process, attempt, fence, at, valid_until } => {
                    ((process, attempt), Step::Granted { fence, at, valid_until })
                }
                Event::Failed { process, attempt } => ((process, attempt), Step::Failed),
                Event::Renewed { process, attempt, valid_until } => {
                    ((process, attempt), Step::Renewed { valid_until })
                }
                Event::Released { process, attempt, at } => ((process, attempt), Step::Released { at }),
                Event::GivenBack { process, attempt, at } => ((process, attempt), Step::GivenBack { at }),
                Event::Limiting { process, attempt, name, limit, at } => {
                    ((process, attempt), Step::Limiting { name, limit, at })
                }
                Event::Limited { process, attempt, at } => ((process, attempt), Step::Limited { at }),
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
                Acquisition::Limit { name, limit } => history.limits.entry(name).or_default().push(limit),
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

/// What became of a call so far.
enum Acquisition {
    Pending { name: String, mode: Mode, invoked_at: u64 },
    Failed,
    Granted { name: String, grant: Grant },
    Limit { name: String, limit: Limit },
}

enum Step {
    Invoked { name: String, at: u64 },
    Asked { mode: Mode },
    Granted { fence: u64, at: u64, valid_until: u64 },
    Failed,
    Renewed { valid_until: u64 },
    Released { at: u64 },
    GivenBack { at: u64 },
    Limiting { name: String, limit: u32, at: u64 },
    Limited { at: u64 },
}

impl Step {
    fn kind(&self) -> &'static str {
        match self {
            Self::Invoked { .. } => "invoked",
            Self::Asked { .. } => "asked",
            Self::Granted { .. } => "granted",
            Self::Failed => "failed",
            Self::Renewed { .. } => "renewed",
            Self::Released { .. } => "released",
            Self::GivenBack { .. } => "given-back",
            Self::Limiting { .. } => "limiting",
            Self::Limited { .. } => "limited",
        }
    }

    fn apply(self, before: Option<Acquisition>, holder: &str) -> Option<Acquisition> {
        match (before, self) {
            (None, Self::Invoked { name, at }) => {
                Some(Acquisition::Pending { name, mode: Mode::Exclusive, invoked_at: at })
            }
            (Some(Acquisition::Pending { name, invoked_at, .. }), Self::Asked { mode }) => {
                Some(Acquisition::Pending { name, mode, invoked_at })
            }
            (Some(Acquisition::Pending { .. } | Acquisition::Limit { .. }), Self::Failed) => {
                Some(Acquisition::Failed)
            }
            (
                Some(Acquisition::Pending { name, mode, invoked_at }),
                Self::Granted { fence, at, valid_until },
            ) => {
                let (holder, returned_at) = (holder.to_owned(), at);
                let grant =
                    Grant { holder, mode, fence, invoked_at, returned_at, valid_until, ..Grant::default() };
                (invoked_at <= at).then_some(Acquisition::Granted { name, grant })
            }
            (Some(Acquisition::Granted { name, mut grant }), step) => {
                match step {
                    Self::GivenBack { at } if grant.given_back_at.is_none() => grant.given_back_at = Some(at),
                    _ if grant.released_at.is_some() => return None,
                    Self::Renewed { valid_until } => grant.valid_until = valid_until.max(grant.valid_until),
                    Self::Released { at } => grant.released_at = Some(at),
                    _ => return None,
                }
                Some(Acquisition::Granted { name, grant })
            }
            (None, Self::Limiting { name, limit, at }) => {
                Some(Acquisition::Limit { name, limit: Limit { limit, asked_at: at, set_at: None } })
            }
            (Some(Acquisition::Limit { name, limit }), Self::Limited { at }) => {
                let is_next = limit.set_at.is_none() && limit.asked_at <= at;
                is_next.then_some(Acquisition::Limit { name, limit: Limit { set_at: Some(at), ..limit } })
            }
            _ => None,
        }
    }
}

/// Every promise that `history` shows broken; of a longer series of equal faults, one per later grant or write.
pub fn check(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (name, grants) in &history.grants {
        let all: Vec<&Grant> = grants.iter().collect();
        fences::duplicates(name, all.clone(), &mut violations);
        fences::real_time_order(name, &all, &mut violations);
        tenures::given_back_early(name, grants, &mut violations);
        let tenures = tenures::relied_on(all);
        tenures::overlaps(name, &tenures, &mut violations);
        tenures::phases(name, &tenures, &mut violations);
        let limits = history.limits.get(name).map_or(&[][..], Vec::as_slice);
        permits::within_limit(name, &tenures, limits, &mut violations);
    }
    for (name, writes) in &history.writes {
        fences::register(name, writes, &mut violations);
    }
    violations
}
