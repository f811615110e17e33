//! What joining, counting down and waiting lead to.

use crate::owner::Holder;

/// What asking to take part led to. `T` is a [`Participant`](super::Participant) of a latch, or a [`Party`](super::Party) of
/// a barrier.
#[must_use = "a participant that is dropped breaks the latch"]
#[derive(Debug)]
#[non_exhaustive]
pub enum Join<T> {
    /// It takes part.
    Joined(T),
    /// The latch is open already: there is nothing to wait for. Never the case for a barrier.
    Opened {
        /// Of which generation it was.
        generation: u64,
    },
    /// The latch is broken, until somebody arms it again.
    Broken {
        /// Of which generation it was.
        generation: u64,
        /// Who broke it.
        who: Option<Holder>,
    },
    /// As many take part as there are parties.
    Full {
        /// In which generation.
        generation: u64,
    },
}

impl<T> Join<T> {
    /// The participant, if it takes part.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let participant = leases.latch("migration", 2).join().await?.joined().expect("one of two");
    /// # participant.leave().await
    /// # }
    /// ```
    pub fn joined(self) -> Option<T> {
        if let Self::Joined(it) = self { Some(it) } else { None }
    }

    /// The same with another kind of participant.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let joined = leases.latch("migration", 2).label("shard 7").join().await?;
    /// let named = joined.map(|participant| ("shard 7", participant)).joined().unwrap();
    /// # named.1.leave().await
    /// # }
    /// ```
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Join<U> {
        match self {
            Self::Joined(it) => Join::Joined(make(it)),
            Self::Opened { generation } => Join::Opened { generation },
            Self::Broken { generation, who } => Join::Broken { generation, who },
            Self::Full { generation } => Join::Full { generation },
        }
    }
}

/// What counting down led to.
#[must_use = "a latch may be broken"]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountedDown {
    /// It is counted.
    Counted {
        /// How many are missing.
        missing: u32,
    },
    /// It was counted before, and counts once.
    Again {
        /// How many are missing.
        missing: u32,
    },
    /// It is counted, and its generation is open: it was the last one, or the call was repeated.
    Opened {
        /// The generation.
        generation: u64,
    },
    /// Its generation never opens.
    Broken {
        /// The generation.
        generation: u64,
        /// Who broke it; unknown if the store has forgotten the latch.
        who: Option<Holder>,
    },
    /// The store does not know this participant: it has left, or the store has lost data.
    Stranger,
}

/// What waiting led to.
#[must_use = "a latch may be broken, or not open yet"]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// All have counted down.
    Opened {
        /// The generation.
        generation: u64,
    },
    /// It never opens.
    Broken {
        /// The generation.
        generation: u64,
        /// Who broke it; unknown if the store has forgotten the latch.
        who: Option<Holder>,
    },
    /// It was not open when the time was over.
    NotYet {
        /// The generation.
        generation: u64,
        /// How many had not counted down.
        missing: u32,
    },
}

impl Awaited {
    /// Whether all have counted down.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let latch = leases.latch("migration", 2);
    /// assert!(!latch.wait(std::time::Duration::ZERO).await?.is_open());
    /// # Ok(()) }
    /// ```
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Opened { .. })
    }
}

/// What arming a latch again led to.
#[must_use = "the latch may not be armed for the caller"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rearmed {
    /// It is armed, as asked.
    Done {
        /// The new generation.
        generation: u64,
    },
    /// It was neither open nor broken: nothing was changed.
    Armed {
        /// The generation.
        generation: u64,
        /// How many have not counted down.
        missing: u32,
    },
    /// Its generation is another one than the caller has seen: nothing was changed.
    Other {
        /// The present generation; `None` if there is no latch of that name.
        generation: Option<u64>,
    },
}

/// What arriving at a barrier led to.
#[must_use = "a barrier may be broken"]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arrived {
    /// All have arrived.
    Passed {
        /// The generation that opened.
        generation: u64,
        /// How many had arrived before this party: one of them has 0, and the last one has all others before it.
        index: u32,
    },
    /// The generation never opens.
    Broken {
        /// The generation.
        generation: u64,
        /// Who broke it; unknown if the store has forgotten the barrier.
        who: Option<Holder>,
    },
    /// The others had not arrived when the time was over. This party has: arriving again goes on to wait.
    NotYet {
        /// The generation.
        generation: u64,
        /// How many had not arrived.
        missing: u32,
    },
    /// The store does not know this party: it has left, or the store has lost data.
    Stranger,
}
