//! What the tasks of a load compete for.

use std::{fmt, num::NonZeroU32, str::FromStr};

use leasehold::{Mode, engine::Capabilities};

/// Permits of every semaphore of a load.
pub(super) const LIMIT: NonZeroU32 = NonZeroU32::new(5).unwrap();
/// What the limit is lowered to for a while; nobody asks for more at once.
pub(super) const LOWERED: u32 = 3;

/// What the tasks of a load compete for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Exclusive locks.
    #[default]
    Exclusive,
    /// Read-write locks: one of three attempts writes.
    ReadWrite,
    /// Semaphores of 5 permits, of which an attempt takes 1 to 3.
    Permits,
    /// The lead of elections. Some leaders are asked to resign.
    Election,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Exclusive, Self::ReadWrite, Self::Permits, Self::Election];

    /// The word for it on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::ReadWrite => "readwrite",
            Self::Permits => "permits",
            Self::Election => "election",
        }
    }

    /// Why a store does not have it; `None` if it does.
    pub fn lack(self, store: &Capabilities) -> Option<&'static str> {
        match self {
            Self::Exclusive | Self::Election => None,
            Self::ReadWrite => store.no_shared,
            Self::Permits => store.no_permits,
        }
    }

    /// How the attempt of this number holds the lock.
    pub fn mode(self, attempt: u64) -> Mode {
        match self {
            Self::ReadWrite if !attempt.is_multiple_of(3) => Mode::Shared,
            Self::Exclusive | Self::ReadWrite | Self::Election => Mode::Exclusive,
            Self::Permits => {
                Mode::Permits { take: NonZeroU32::MIN.saturating_add((attempt % 3) as u32), of: LIMIT }
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The inverse of [`Kind::name`].
impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            format!("no kind of lock {text:?}: expected {}", names.join(", "))
        })
    }
}
