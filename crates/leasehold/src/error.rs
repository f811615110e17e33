//! What can go wrong, in one enum, with the same words in the library, the command line and JSON.

use std::{fmt, time::Duration};

use crate::{fence::Fence, name::Name, owner::Holder};

/// Short for a result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fault. Expected refusals (somebody else holds the lock and you did not want to wait) are values.
///
/// Every error says what happened, to which name, whether to retry ([`Error::retry`]) and what to do
/// ([`Error::hint`]); none carries a password or an owner value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock did not become ours within the time or the attempts the caller gave.
    #[error("{}", timed_out_text(name, *waited, *attempts, holder.as_ref()))]
    TimedOut {
        /// The lock.
        name: Name,
        /// How long the caller waited.
        waited: Duration,
        /// How often the store was asked.
        attempts: u32,
        /// Who holds it, as far as the store said.
        holder: Option<Holder>,
    },
    /// The lease ended before the work did.
    #[error("lost the lock \"{name}\" (fence {fence}) before the work was done")]
    Lost {
        /// The lock.
        name: Name,
        /// The fence under which it was held.
        fence: Fence,
    },
    /// The store did not answer.
    #[error("cannot reach the store {store} while {doing}: {why}")]
    StoreUnreachable {
        /// The store, without its password.
        store: String,
        /// The operation and its lock.
        doing: String,
        /// What failed.
        why: String,
    },
    /// The store answered, and refused.
    #[error("the store {store} refused while {doing}: {refusal}: {why}")]
    StoreRefused {
        /// The store, without its password.
        store: String,
        /// The operation and its lock.
        doing: String,
        /// The reason, as a word.
        refusal: Refusal,
        /// The store's own words.
        why: String,
    },
    /// The caller asked for something outside the allowed range.
    #[error("invalid {what} \"{got}\": allowed is {allowed}")]
    Invalid {
        /// What is wrong.
        what: String,
        /// What was given, shortened.
        got: String,
        /// What is allowed.
        allowed: String,
    },
    /// The name is in use for another kind of thing in this store.
    #[error("\"{name}\" is in use as another kind of key: {found}")]
    WrongKind {
        /// The lock.
        name: Name,
        /// What the store said about it.
        found: String,
    },
    /// What is stored under the key cannot be read. It was left as it is.
    #[error("\"{key}\" holds something that is not a record of this library: {why}")]
    Corrupt {
        /// The key.
        key: Name,
        /// What is wrong with it.
        why: String,
    },
    /// This store or this build cannot do it.
    #[error("{what} is not supported: {why}")]
    Unsupported {
        /// What was asked.
        what: String,
        /// Why it cannot be.
        why: String,
    },
    /// A bound on load was reached.
    #[error("overloaded while {doing}: {why}")]
    Overloaded {
        /// The operation and its lock.
        doing: String,
        /// Which bound.
        why: String,
    },
}

/// Why a store refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// User or password.
    Auth,
    /// The user lacks a right.
    Acl,
    /// A replica, or a store that cannot write at the moment.
    ReadOnly,
    /// The store is out of memory or disk.
    OutOfMemory,
    /// The server's certificate did not verify, or the server wants another one from the client.
    Certificate,
    /// Fewer replicas than asked for had the grant in time; it was given back.
    TooFewAcks,
    /// Too many nodes of a quorum do not vote, because it is not known what they have forgotten.
    Abstention,
    /// Anything else; the store's own words say it.
    Other,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auth => "authentication failed",
            Self::Acl => "a right is missing",
            Self::ReadOnly => "read-only",
            Self::OutOfMemory => "out of memory",
            Self::Certificate => "certificate refused",
            Self::TooFewAcks => "too few acknowledgements",
            Self::Abstention => "too many nodes abstain",
            Self::Other => "refused",
        })
    }
}

/// The kind of an [`Error`], as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::TimedOut`]
    TimedOut,
    /// [`Error::Lost`]
    Lost,
    /// [`Error::StoreUnreachable`]
    StoreUnreachable,
    /// [`Error::StoreRefused`]
    StoreRefused,
    /// [`Error::Invalid`]
    Invalid,
    /// [`Error::WrongKind`]
    WrongKind,
    /// [`Error::Corrupt`]
    Corrupt,
    /// [`Error::Unsupported`]
    Unsupported,
    /// [`Error::Overloaded`]
    Overloaded,
}

impl ErrorKind {
    /// Every kind, for tables and tests.
    pub const ALL: [ErrorKind; 9] = [
        Self::TimedOut,
        Self::Lost,
        Self::StoreUnreachable,
        Self::StoreRefused,
        Self::Invalid,
        Self::WrongKind,
        Self::Corrupt,
        Self::Unsupported,
        Self::Overloaded,
    ];

    /// The word for it in JSON, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::Lost => "lost",
            Self::StoreUnreachable => "store_unreachable",
            Self::StoreRefused => "store_refused",
            Self::Invalid => "invalid",
            Self::WrongKind => "wrong_kind",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
            Self::Overloaded => "overloaded",
        }
    }

    /// The exit code of the command line (`sysexits.h` where it has one; 76 for a lost lock).
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::TimedOut => 1,
            Self::Invalid => 64,
            Self::WrongKind => 65,
            Self::StoreUnreachable => 69,
            Self::Unsupported => 70,
            Self::Corrupt => 78,
            Self::Overloaded => 75,
            Self::Lost => 76,
            Self::StoreRefused => 77,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error {
    /// An [`Error::Invalid`].
    pub fn invalid(what: impl Into<String>, got: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), got: got.into(), allowed: allowed.into() }
    }

    /// The same about a certain lock, if it is an [`Error::Invalid`].
    pub(crate) fn about(self, name: &Name) -> Self {
        match self {
            Self::Invalid { what, got, allowed } => {
                Self::Invalid { what: format!("{what} of the lock \"{name}\""), got, allowed }
            }
            other => other,
        }
    }

    /// An [`Error::Unsupported`].
    pub fn unsupported(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), why: why.into() }
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::Lost { .. } => ErrorKind::Lost,
            Self::StoreUnreachable { .. } => ErrorKind::StoreUnreachable,
            Self::StoreRefused { .. } => ErrorKind::StoreRefused,
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::WrongKind { .. } => ErrorKind::WrongKind,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Overloaded { .. } => ErrorKind::Overloaded,
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn retry(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::StoreUnreachable { .. } | Self::Overloaded { .. } => true,
            Self::StoreRefused { refusal, .. } => matches!(
                refusal,
                Refusal::ReadOnly | Refusal::OutOfMemory | Refusal::TooFewAcks | Refusal::Abstention
            ),
            // The work may have been done in part: whether to do it again is the caller's decision.
            Self::Lost { .. }
            | Self::Invalid { .. }
            | Self::WrongKind { .. }
            | Self::Corrupt { .. }
            | Self::Unsupported { .. } => false,
        }
    }

    /// What to do about it, as one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TimedOut { .. } => "wait longer, or see who holds it with `leasehold inspect NAME`",
            Self::Lost { .. } => {
                "check what the work has done; use a longer ttl or keep-alive, and pass the fence to the resource"
            }
            Self::StoreUnreachable { .. } => {
                "check the address, the network and that the store is running; `leasehold doctor` looks at it"
            }
            Self::StoreRefused { refusal, .. } => match refusal {
                Refusal::Auth => "check user and password in the store URL or its password file",
                Refusal::Acl => "give the user the rights listed in SECURITY.md",
                Refusal::ReadOnly => {
                    "connect to the primary, or wait for the fail-over; a primary says what keeps it from writing"
                }
                Refusal::OutOfMemory => "raise the store's memory limit; locks need a few hundred bytes each",
                Refusal::Certificate => {
                    "give the authority with ?ca=FILE and a client certificate with ?cert=FILE&key=FILE; check the host name"
                }
                Refusal::TooFewAcks => "bring the replicas back, or ask for fewer acknowledgements",
                Refusal::Abstention => {
                    "`leasehold quorum status` shows each node and when it votes again; where too many forgot, `leasehold quorum admit` brings them back after the longest ttl"
                }
                Refusal::Other => "the store's own words say why",
            },
            Self::Invalid { .. } => "change the value",
            Self::WrongKind { .. } => "choose another name or prefix, or remove the foreign key",
            Self::Corrupt { key, .. } if key.as_str().starts_with("idempotency:") => {
                "find out who wrote it; `leasehold idem rm OP KEY` removes it, and the next call executes again"
            }
            Self::Corrupt { .. } => "find out who wrote it, and remove the key if nobody needs it",
            Self::Unsupported { .. } => "the reason says what it would take",
            Self::Overloaded { .. } => "slow down, or raise the limit",
        }
    }
}

fn timed_out_text(name: &Name, waited: Duration, attempts: u32, holder: Option<&Holder>) -> String {
    let times = if attempts == 1 { "attempt" } else { "attempts" };
    let mut text =
        format!("timed out waiting for \"{name}\" after {:.1}s and {attempts} {times}", waited.as_secs_f64());
    if let Some(holder) = holder {
        text.push_str(&format!(", held by {holder}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_word_and_exit_code() {
        let mut words: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.exit_code()).collect();
        words.sort_unstable();
        words.dedup();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!((words.len(), codes.len()), (ErrorKind::ALL.len(), ErrorKind::ALL.len()));
        assert!(!codes.contains(&0));
    }

    #[test]
    fn a_timeout_names_the_lock_and_its_holder() {
        let error = Error::TimedOut {
            name: Name::new("deal:42").unwrap(),
            waited: Duration::from_millis(5020),
            attempts: 3,
            holder: Some(Holder::Foreign),
        };
        assert_eq!(
            error.to_string(),
            "timed out waiting for \"deal:42\" after 5.0s and 3 attempts, held by a client of another library"
        );
        assert!(error.retry());
    }
}
