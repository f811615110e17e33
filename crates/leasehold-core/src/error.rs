//! What can go wrong, in one enum, with the same words in the library, the command line and JSON.

use std::{fmt, num::NonZeroU32, time::Duration};

use crate::{engine::EngineError, fence::Fence, name::Name, owner::Holder};

/// Short for a result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fault. Expected refusals, such as a lock that another holder has, are values.
///
/// Its text is one line: what happened, during which operation, to which name, and the cause. [`Error::is_retryable`] says
/// whether to retry. The source of a store's failure is an [`EngineError`]. No error carries a password
/// or an owner value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock was not acquired within the time or the attempts that the caller gave.
    #[error(
        "timed out waiting for \"{name}\" after {:.1}s and {attempts} attempt{}{}",
        waited.as_secs_f64(),
        if *attempts == 1 { "" } else { "s" },
        holder.as_ref().map(held_by).unwrap_or_default(),
    )]
    TimedOut {
        /// The lock.
        name: Name,
        /// How long the caller waited.
        waited: Duration,
        /// How often the store was asked.
        attempts: u32,
        /// Who holds it, if the store reported it.
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
    #[error("cannot reach the store {store} while {doing}: {source}")]
    StoreUnreachable {
        /// The store, without its password.
        store: String,
        /// The operation and its lock.
        doing: String,
        /// What failed.
        source: EngineError,
    },
    /// The store answered, and refused.
    #[error("the store {store} refused while {doing}: {refusal}: {source}")]
    StoreRefused {
        /// The store, without its password.
        store: String,
        /// The operation and its lock.
        doing: String,
        /// The reason, as a word.
        refusal: Refusal,
        /// The store's own words.
        source: EngineError,
    },
    /// An argument or a setting is out of range or malformed.
    #[error("invalid {what} \"{got}\": expected {expected}")]
    Invalid {
        /// What is wrong.
        what: String,
        /// What was given, shortened.
        got: String,
        /// What would be valid.
        expected: String,
    },
    /// The key of this name holds a value of another type.
    #[error("\"{name}\" holds a value of another type: {source}")]
    WrongType {
        /// The lock.
        name: Name,
        /// The store's own words.
        source: EngineError,
    },
    /// The name is in use as another kind of lock.
    #[error("\"{name}\" cannot be used like this: {source}")]
    OtherMode {
        /// The lock.
        name: Name,
        /// Both kinds.
        source: EngineError,
    },
    /// The semaphore has another limit in the store than the caller says.
    #[error("the semaphore \"{name}\" has {stored} permits in the store, not {asked}")]
    OtherLimit {
        /// The semaphore.
        name: Name,
        /// How many permits it has.
        stored: NonZeroU32,
        /// How many the caller says it has.
        asked: NonZeroU32,
    },
    /// The latch or barrier is armed for another number of parties than the caller says.
    #[error("\"{name}\" is armed for {stored} parties in the store, not {asked}")]
    OtherCount {
        /// The latch.
        name: Name,
        /// How many parties it has.
        stored: NonZeroU32,
        /// How many the caller says it has.
        asked: NonZeroU32,
    },
    /// What is stored under the key cannot be read. It was left as it is.
    #[error("\"{key}\" holds something that is not a record of this library: {source}")]
    Corrupt {
        /// The key.
        key: Name,
        /// What is wrong with it.
        source: EngineError,
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
    #[error("overloaded while {doing}: {source}")]
    Overloaded {
        /// The operation and its lock.
        doing: String,
        /// Which bound.
        source: EngineError,
    },
}

fn held_by(holder: &Holder) -> String {
    if holder.is_this_process() {
        return format!(", held by this process, {holder}; use an owner to re-enter it");
    }
    format!(", held by {holder}")
}

/// Declares why stores refuse: for each its text, and whether to retry.
macro_rules! refusals {
    ($($(#[$doc:meta])+ $refusal:ident: $text:literal, retry $retry:literal;)+) => {
        /// Why a store refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])+ $refusal,)+
        }

        impl Refusal {
            const fn row(self) -> (&'static str, bool) {
                match self { $(Self::$refusal => ($text, $retry)),+ }
            }
        }
    };
}

refusals! {
    /// User or password.
    Auth: "authentication failed", retry false;
    /// The user lacks a permission.
    Acl: "permission denied", retry false;
    /// A replica, or a store that cannot write at the moment.
    ReadOnly: "read-only", retry true;
    /// The store is out of memory or disk.
    OutOfMemory: "out of memory", retry true;
    /// The server's certificate did not verify, or the server wants another one from the client.
    Certificate: "certificate refused", retry false;
    /// Fewer replicas than asked for had the grant in time; it was given back.
    TooFewAcks: "too few acknowledgements", retry true;
    /// Too many nodes of a quorum abstain, because they may have lost votes.
    Abstention: "too many nodes abstain", retry true;
    /// Anything else; see the store's own message.
    Other: "refused", retry false;
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().0)
    }
}

/// Declares the kinds: for each its variant of [`Error`], its word, and whether to retry.
macro_rules! kinds {
    ($($kind:ident: $word:literal, retry $retry:literal;)+) => {
        /// The kind of an [`Error`], as one word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $(#[doc = concat!("[`Error::", stringify!($kind), "`]")] $kind,)+
        }

        impl ErrorKind {
            /// Every kind, for tables and tests.
            pub const ALL: &[ErrorKind] = &[$(Self::$kind),+];

            const fn row(self) -> (&'static str, bool) {
                match self { $(Self::$kind => ($word, $retry)),+ }
            }
        }

        impl Error {
            /// Its kind.
            pub fn kind(&self) -> ErrorKind {
                match self { $(Self::$kind { .. } => ErrorKind::$kind),+ }
            }
        }
    };
}

kinds! {
    TimedOut: "timed_out", retry true;
    // The work may have been done in part: whether to do it again is the caller's decision.
    Lost: "lost", retry false;
    StoreUnreachable: "store_unreachable", retry true;
    // That of the refusal counts.
    StoreRefused: "store_refused", retry false;
    Invalid: "invalid", retry false;
    WrongType: "wrong_type", retry false;
    OtherMode: "other_mode", retry false;
    OtherLimit: "other_limit", retry false;
    OtherCount: "other_count", retry false;
    Corrupt: "corrupt", retry false;
    Unsupported: "unsupported", retry false;
    Overloaded: "overloaded", retry true;
}

impl ErrorKind {
    /// The word for it in JSON, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Error {
    /// An [`Error::Invalid`].
    pub fn invalid(what: impl Into<String>, got: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), got: got.into(), expected: expected.into() }
    }

    /// The same about a certain lock or policy, if it is an [`Error::Invalid`].
    pub fn about(mut self, owner: impl fmt::Display) -> Self {
        if let Self::Invalid { what, .. } = &mut self {
            what.push_str(&format!(" of {owner}"));
        }
        self
    }

    /// An [`Error::Unsupported`].
    pub fn unsupported(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), why: why.into() }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::StoreRefused { refusal, .. } => refusal.row().1,
            _ => self.kind().row().1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_word() {
        let mut words: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), ErrorKind::ALL.len());
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
        assert!(error.is_retryable());
    }
}
