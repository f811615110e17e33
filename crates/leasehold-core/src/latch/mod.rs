//! Latches and barriers: waiting until others have done their part, on any number of hosts.
//!
//! A [`Latch`] opens when as many participants have counted down as it has parties, and stays open until somebody arms it again.
//! A [`Barrier`] is for parties that meet again and again: it opens when all have arrived, and the next generation begins at
//! once.
//!
//! | you want | use |
//! |---|---|
//! | to go on when N others have done their part | [`Latch::wait`] |
//! | to be one of them | [`Latch::join`], then [`Participant::count_down`] |
//! | N workers that begin each phase together | [`Barrier::join`], then [`Party::arrive`] for each phase |
//! | to use a latch once more | [`Latch::rearm`] |
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! use std::time::Duration;
//! use leasehold::latch::{Awaited, CountedDown};
//!
//! let leases = leasehold::Leasehold::connect("memory:").await?;
//! for shard in ["a", "b"] {
//!     let participant = leases.latch("migration", 2).label(shard).join().await?.joined().expect("one of two");
//!     // The work; the lease is renewed meanwhile.
//!     println!("{:?}", participant.count_down().await?);
//! }
//! assert!(matches!(leases.latch("migration", 2).wait(Duration::ZERO).await?, Awaited::Opened { .. }));
//! # leases.close().await
//! # }
//! ```
//!
//! # What if one of them dies?
//!
//! Each participant has a lease, which is renewed like that of a lock. If it ends before the participant has counted down or
//! left, the latch is *broken*: everybody who waits is told who did not come, instead of waiting for ever. A participant that is
//! dropped without having counted down breaks the latch at once, because its part was not done; [`Participant::leave`] does not.
//! Once counted down, a participant may end: it needs no lease any more. A party of a barrier has its lease in all generations.
//!
//! # Generations
//!
//! Each time a latch is armed it is a new generation, under a number that grows like a fence. Whoever waits or counts down does so
//! in one generation, and is told what became of that one, however late it asks. Nothing of an earlier generation counts in a later
//! one, also if the store forgot the latch in between. Then an old generation is reported as broken, never as open.
//!
//! A latch is armed by its first use. The store forgets it two days after its last one.
//!
//! # When not to use it
//!
//! A latch protects nothing: after it has opened, everybody goes on at the same time. It does not order what was written before
//! it. On a quorum there is none.

mod barrier;
mod membership;
mod outcome;
mod participant;
mod wait;

use std::{sync::Arc, time::Duration};

pub use barrier::{Barrier, Party};
use membership::Spec;
pub use outcome::{Arrived, Awaited, CountedDown, Join, Rearmed};
pub use participant::Participant;
use wait::Waited;

pub use crate::engine::latches::{ParticipantInfo, Snapshot, Standing};
use crate::{
    core::Core,
    engine::latches::{Kind, Op, Said},
    error::Result,
    name::Name,
};

/// Builder of a latch; made by [`Client::latch`](crate::Client::latch).
///
/// Not the right tool to keep others out: that is a [`Lock`](crate::Lock). Within one process `tokio::sync::Barrier` or a
/// `JoinSet` is enough.
#[derive(Clone)]
#[must_use = "a latch does nothing until somebody joins or waits"]
pub struct Latch {
    spec: Spec,
}

/// Methods that a latch and a barrier have in common.
macro_rules! of_both {
    ($what:literal) => {
        /// How long a participant may be silent before it counts as dead, within the range of locks. Default: the ttl of locks.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        #[doc = concat!("let one = leases.", $what, "(\"phase\", 2).ttl(Duration::from_secs(10)).join().await?;")]
        /// # let _ = one.joined().unwrap().leave().await;
        /// # Ok(()) }
        /// ```
        pub fn ttl(self, ttl: Duration) -> Self {
            Self { spec: self.spec.with_ttl(ttl) }
        }

        /// What people see of a participant besides host and process, also as the one that broke it. At most 128 bytes.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        #[doc = concat!("let one = leases.", $what, "(\"phase\", 2).label(\"shard 7\").join().await?;")]
        /// # let _ = one.joined().unwrap().leave().await;
        /// # Ok(()) }
        /// ```
        pub fn label(self, label: impl Into<String>) -> Self {
            Self { spec: self.spec.with_label(label.into()) }
        }

        /// Arms it again, as a new generation and for as many parties as this one says: only if it is open or broken, and of the
        /// generation that the caller has seen. Repeated it is the same answer.
        ///
        /// # Cancel safety
        /// Dropping the future may leave it armed. Ask again with the same generation.
        ///
        /// # Errors
        /// `invalid` for a bad name or count; `unsupported` where there are none; the store's faults.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// use leasehold::latch::Rearmed;
        ///
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        #[doc = concat!("let it = leases.", $what, "(\"phase\", 1);")]
        /// // Nobody counts down for it: it is broken.
        /// it.join().await?.joined().unwrap().fail().await?;
        /// let broken = it.state().await?.expect("it was used");
        /// let Rearmed::Done { generation } = it.rearm(broken.generation).await? else { panic!("it is not broken") };
        /// assert!(generation > broken.generation);
        /// assert!(matches!(it.rearm(generation).await?, Rearmed::Armed { missing: 1, .. }));
        /// # Ok(()) }
        /// ```
        pub async fn rearm(&self, generation: u64) -> Result<Rearmed> {
            rearm(&self.spec, generation).await
        }

        /// What people may see of it: its generation, how that stands, and who takes part. `None` if there is none.
        ///
        /// # Errors
        /// `invalid` for a bad name; `unsupported` where there are none; the store's faults.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        #[doc = concat!("let it = leases.", $what, "(\"phase\", 2);")]
        /// assert!(it.state().await?.is_none());
        /// let one = it.join().await?.joined().unwrap();
        /// assert_eq!(it.state().await?.unwrap().joined, 1);
        /// # one.leave().await
        /// # }
        /// ```
        pub async fn state(&self) -> Result<Option<Snapshot>> {
            inspect(&self.spec.core, &self.spec.name()?).await
        }
    };
}

use of_both;

impl Latch {
    pub(crate) fn new(core: Arc<Core>, name: &str, count: u32) -> Self {
        Self { spec: Spec::new(core, Kind::Latch, name, count) }
    }

    of_both!("latch");

    /// Takes part: as one that has to count down before the latch opens.
    ///
    /// # Cancel safety
    /// Dropping the future leaves again in the background, as if it had never joined.
    ///
    /// # Errors
    /// `invalid` for a bad name, count, ttl or label; `other_count` if the latch is armed for another number of parties;
    /// `other_mode` if the name is a barrier; `unsupported` where there are no latches; the store's faults.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::latch::Join;
    ///
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let Join::Joined(one) = leases.latch("migration", 1).join().await? else { panic!("nobody else is there") };
    /// assert!(matches!(leases.latch("migration", 1).join().await?, Join::Full { .. }));
    /// let _ = one.count_down().await?;
    /// // Late, and there is nothing to wait for.
    /// assert!(matches!(leases.latch("migration", 1).join().await?, Join::Opened { .. }));
    /// # Ok(()) }
    /// ```
    pub async fn join(&self) -> Result<Join<Participant>> {
        Ok(self.spec.join().await?.map(Participant::new))
    }

    /// Waits until the latch is open or broken, at most for `timeout`; zero asks once. It waits for the generation that it
    /// finds, whatever comes after that.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// # Errors
    /// `invalid` for a bad name, count or timeout; `other_count` if the latch is armed for another number of parties;
    /// `other_mode` if the name is a barrier; `unsupported` where there are no latches; the store's faults.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use std::time::Duration;
    /// use leasehold::latch::Awaited;
    ///
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let awaited = leases.latch("migration", 3).wait(Duration::from_millis(1)).await?;
    /// assert!(matches!(awaited, Awaited::NotYet { missing: 3, .. }));
    /// # Ok(()) }
    /// ```
    pub async fn wait(&self, timeout: Duration) -> Result<Awaited> {
        let request = self.spec.request(Op::Look { generation: None, wake: true })?;
        Ok(Box::pin(wait::wait(&self.spec.core, request, timeout)).await?.into())
    }
}

impl From<Waited> for Awaited {
    fn from(Waited { generation, standing, .. }: Waited) -> Self {
        match standing {
            Standing::Armed { missing } => Self::NotYet { generation, missing },
            Standing::Opened => Self::Opened { generation },
            Standing::Broken { who } => Self::Broken { generation, who },
        }
    }
}

async fn rearm(spec: &Spec, seen: u64) -> Result<Rearmed> {
    let answer = spec.ask(Op::Rearm { generation: seen }, "arming").await?;
    let generation = answer.generation;
    Ok(match answer.said {
        Said::Rearmed => Rearmed::Done { generation },
        Said::Stands(Standing::Armed { missing }) => Rearmed::Armed { generation, missing },
        _ => Rearmed::Other { generation: Some(generation).filter(|generation| *generation > 0) },
    })
}

async fn inspect(core: &Core, name: &Name) -> Result<Option<Snapshot>> {
    let answer = core.latches()?.state(name, core.command_until()).await;
    answer.map_err(|error| core.failed(error, "inspecting", name))
}
