//! An event of a process, as one line of text.

use std::str::FromStr;

use leasehold::Mode;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

const SEPARATOR: char = '\t';
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// One event of a process; times are nanoseconds of one clock that all processes of the test share.
///
/// `process` and `attempt` together name an acquisition; a process that works with several tasks gives each a
/// `process` text of its own, or numbers attempts across them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An acquire is about to be sent. Without a later result its outcome is unknown.
    Invoked {
        /// The process.
        process: String,
        /// Which of its acquisitions.
        attempt: u64,
        /// The name to be locked.
        name: String,
        /// Read before the call.
        at: u64,
    },
    /// How it is to be held, unless exclusively. Comes before its result.
    Asked {
        /// The process.
        process: String,
        /// Which of its acquisitions.
        attempt: u64,
        /// The mode.
        mode: Mode,
    },
    /// It was granted.
    Granted {
        /// The process.
        process: String,
        /// Which of its acquisitions.
        attempt: u64,
        /// The fence.
        fence: u64,
        /// Read after the call.
        at: u64,
        /// Until when the holder may rely on it.
        valid_until: u64,
    },
    /// It was certainly not granted.
    Failed {
        /// The process.
        process: String,
        /// Which of its acquisitions.
        attempt: u64,
    },
    /// A renewal moved the validity.
    Renewed {
        /// The process.
        process: String,
        /// Which of its acquisitions.
        attempt: u64,
        /// Until when the holder may rely on it.
        valid_until: u64,
    },
    /// The holder stopped using it: of a leader, its body ended.
    Released {
        /// The process.
        process: String,
        /// Which of its acquisitions.
        attempt: u64,
        /// Read **before** the release was sent.
        at: u64,
    },
    /// It was given back. Comes after `Released`, unless it was taken from a holder at work.
    GivenBack {
        /// The process.
        process: String,
        /// Which of its acquisitions.
        attempt: u64,
        /// Read **after** the call that gave it back.
        at: u64,
    },
    /// The limit of a semaphore is about to be set. Without a later result its outcome is unknown.
    Limiting {
        /// The process.
        process: String,
        /// Which of its calls, numbered together with its acquisitions.
        attempt: u64,
        /// The semaphore.
        name: String,
        /// The number of permits.
        limit: u32,
        /// Read before the call.
        at: u64,
    },
    /// The limit was set.
    Limited {
        /// The process.
        process: String,
        /// Which of its calls.
        attempt: u64,
        /// Read after the call.
        at: u64,
    },
    /// A fence-checking resource accepted or refused a write.
    Wrote {
        /// The process.
        process: String,
        /// The name the fence belongs to.
        name: String,
        /// The fence shown.
        fence: u64,
        /// The verdict.
        accepted: bool,
    },
}

/// A line that is no event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an event: {line:?}")]
pub struct ParseError {
    line: String,
}

impl Event {
    /// One line, without its end; any text is escaped so that it stays one.
    pub fn to_line(&self) -> String {
        match self {
            Self::Invoked { process, attempt, name, at } => {
                join("invoked", &[text(process), attempt.to_string(), text(name), at.to_string()])
            }
            Self::Asked { process, attempt, mode } => {
                join("asked", &[text(process), attempt.to_string(), mode.to_string()])
            }
            Self::Granted { process, attempt, fence, at, valid_until } => join(
                "granted",
                &[
                    text(process),
                    attempt.to_string(),
                    fence.to_string(),
                    at.to_string(),
                    valid_until.to_string(),
                ],
            ),
            Self::Failed { process, attempt } => join("failed", &[text(process), attempt.to_string()]),
            Self::Renewed { process, attempt, valid_until } => {
                join("renewed", &[text(process), attempt.to_string(), valid_until.to_string()])
            }
            Self::Released { process, attempt, at } => {
                join("released", &[text(process), attempt.to_string(), at.to_string()])
            }
            Self::GivenBack { process, attempt, at } => {
                join("given-back", &[text(process), attempt.to_string(), at.to_string()])
            }
            Self::Limiting { process, attempt, name, limit, at } => join(
                "limiting",
                &[text(process), attempt.to_string(), text(name), limit.to_string(), at.to_string()],
            ),
            Self::Limited { process, attempt, at } => {
                join("limited", &[text(process), attempt.to_string(), at.to_string()])
            }
            Self::Wrote { process, name, fence, accepted } => {
                let verdict = if *accepted { "accepted" } else { "refused" };
                join("wrote", &[text(process), text(name), fence.to_string(), verdict.to_owned()])
            }
        }
    }

    /// The inverse of [`to_line`](Self::to_line).
    pub fn from_line(line: &str) -> Result<Self, ParseError> {
        Self::parse(line).ok_or_else(|| ParseError { line: line.to_owned() })
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(SEPARATOR);
        let kind = fields.next()?;
        let process = untext(fields.next()?)?;
        let event = match kind {
            "invoked" => Self::Invoked {
                process,
                attempt: number(fields.next())?,
                name: untext(fields.next()?)?,
                at: number(fields.next())?,
            },
            "asked" => {
                Self::Asked { process, attempt: number(fields.next())?, mode: fields.next()?.parse().ok()? }
            }
            "granted" => Self::Granted {
                process,
                attempt: number(fields.next())?,
                fence: number(fields.next())?,
                at: number(fields.next())?,
                valid_until: number(fields.next())?,
            },
            "failed" => Self::Failed { process, attempt: number(fields.next())? },
            "renewed" => Self::Renewed {
                process,
                attempt: number(fields.next())?,
                valid_until: number(fields.next())?,
            },
            "released" => {
                Self::Released { process, attempt: number(fields.next())?, at: number(fields.next())? }
            }
            "given-back" => {
                Self::GivenBack { process, attempt: number(fields.next())?, at: number(fields.next())? }
            }
            "limiting" => Self::Limiting {
                process,
                attempt: number(fields.next())?,
                name: untext(fields.next()?)?,
                limit: number(fields.next())?.try_into().ok()?,
                at: number(fields.next())?,
            },
            "limited" => {
                Self::Limited { process, attempt: number(fields.next())?, at: number(fields.next())? }
            }
            "wrote" => Self::Wrote {
                process,
                name: untext(fields.next()?)?,
                fence: number(fields.next())?,
                accepted: match fields.next()? {
                    "accepted" => true,
                    "refused" => false,
                    _ => return None,
                },
            },
            _ => return None,
        };
        fields.next().is_none().then_some(event)
    }
}

impl FromStr for Event {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Self, ParseError> {
        Self::from_line(line)
    }
}

fn join(kind: &str, fields: &[String]) -> String {
    fields.iter().fold(kind.to_owned(), |line, field| line + SEPARATOR.encode_utf8(&mut [0; 4]) + field)
}

fn text(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

fn untext(field: &str) -> Option<String> {
    Some(percent_decode_str(field).decode_utf8().ok()?.into_owned())
}

fn number(field: Option<&str>) -> Option<u64> {
    field?.parse().ok()
}
