//! Parties that meet again and again.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    Arrived, Join, Rearmed, Snapshot, inspect,
    membership::{Membership, Spec},
    of_both, rearm,
};
use crate::{
    config::WAIT_MAX,
    core::Core,
    engine::latches::{Kind, Said, Standing},
    error::Result,
    name::Name,
};

/// Builder of a barrier; made by [`Client::barrier`](crate::Client::barrier).
///
/// Not the right tool if the parties come only once: that is a [`Latch`](super::Latch), whose participants may end once they have
/// counted down.
#[derive(Clone)]
#[must_use = "a barrier does nothing until somebody joins"]
pub struct Barrier {
    spec: Spec,
}

impl Barrier {
    pub(crate) fn new(core: Arc<Core>, name: &str, count: u32) -> Self {
        Self { spec: Spec::new(core, Kind::Barrier, name, count) }
    }

    of_both!("barrier");

    /// Takes part, in this generation and all that follow. A barrier opens when all parties have joined and arrived.
    ///
    /// # Cancel safety
    /// Dropping the future leaves again in the background, as if it had never joined.
    ///
    /// # Errors
    /// `invalid` for a bad name, count, ttl or label; `other_count` if the barrier is armed for another number of parties;
    /// `other_mode` if the name is a latch; `unsupported` where there are no barriers; the store's faults.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let party = leases.barrier("phase", 2).join().await?.joined().unwrap();
    /// assert_eq!(leases.latch("phase", 2).join().await.unwrap_err().kind(), leasehold::ErrorKind::OtherMode);
    /// # party.leave().await
    /// # }
    /// ```
    pub async fn join(&self) -> Result<Join<Party>> {
        Ok(self.spec.join().await?.map(Party::new))
    }
}

/// A party of a barrier, kept alive until it leaves.
///
/// Dropped without [`Party::leave`], it breaks the barrier in the background: the others would wait for it for ever. If the
/// program ends first, or is cut off, the barrier breaks when the ttl is over, also if the party has arrived.
#[must_use = "a party that is dropped breaks the barrier"]
pub struct Party {
    member: Membership,
    /// That of its next arrival.
    generation: AtomicU64,
}

impl Party {
    pub(super) fn new(member: Membership) -> Self {
        let generation = AtomicU64::new(member.joined());
        Self { member, generation }
    }

    /// The barrier.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let party = leases.barrier("phase", 2).join().await?.joined().unwrap();
    /// assert_eq!(party.name().as_str(), "phase");
    /// # party.leave().await
    /// # }
    /// ```
    pub fn name(&self) -> &Name {
        self.member.name()
    }

    /// The generation in which it arrives next.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let party = leases.barrier("phase", 1).join().await?.joined().unwrap();
    /// let first = party.generation();
    /// let _ = party.arrive().await?;
    /// assert!(party.generation() > first);
    /// # party.leave().await
    /// # }
    /// ```
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether its lease can be trusted.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let party = leases.barrier("phase", 2).join().await?.joined().unwrap();
    /// assert!(party.is_held());
    /// # party.leave().await
    /// # }
    /// ```
    pub fn is_held(&self) -> bool {
        self.member.lease.is_held()
    }

    /// As [`Participant::lost`](super::Participant::lost).
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let party = leases.barrier("phase", 2).join().await?.joined().unwrap();
    /// tokio::select! {
    ///     () = party.lost() => println!("stop: the others have been told"),
    ///     () = async { /* the work of a phase */ } => {}
    /// }
    /// # party.leave().await
    /// # }
    /// ```
    pub async fn lost(&self) {
        self.member.lease.lost().await;
    }

    /// Arrives, and waits until all have, however long that takes.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the party as one that may have arrived. Call it again to go on waiting.
    ///
    /// # Errors
    /// The store's faults. It may be called again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::latch::Arrived;
    ///
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let barrier = leases.barrier("phase", 2);
    /// let (one, other) = (barrier.join().await?.joined().unwrap(), barrier.join().await?.joined().unwrap());
    /// for _phase in 0..3 {
    ///     let (one, other) = tokio::join!(one.arrive(), other.arrive());
    ///     assert!(matches!(one?, Arrived::Passed { index: 0, .. }));
    ///     assert!(matches!(other?, Arrived::Passed { index: 1, .. }));
    /// }
    /// one.leave().await?;
    /// other.leave().await
    /// # }
    /// ```
    pub async fn arrive(&self) -> Result<Arrived> {
        self.arrive_within(WAIT_MAX).await
    }

    /// The same, at most for `timeout`. The party has arrived then: arriving again goes on to wait.
    ///
    /// # Cancel safety
    /// As [`Party::arrive`].
    ///
    /// # Errors
    /// `invalid` for a bad timeout; the store's faults.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::latch::Arrived;
    ///
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let party = leases.barrier("phase", 2).join().await?.joined().unwrap();
    /// let arrived = party.arrive_within(std::time::Duration::from_millis(1)).await?;
    /// assert!(matches!(arrived, Arrived::NotYet { missing: 1, .. }));
    /// # Ok(()) }
    /// ```
    pub async fn arrive_within(&self, timeout: Duration) -> Result<Arrived> {
        let generation = self.generation();
        let answer = self.member.count_down(generation).await?;
        let index = match answer.said {
            Said::Counted { index, missing: 0, .. } => {
                self.generation.store(answer.generation, Ordering::Release);
                return Ok(Arrived::Passed { generation, index });
            }
            Said::Counted { index, .. } => index,
            Said::Stands(Standing::Broken { who }) => {
                self.member.end();
                return Ok(Arrived::Broken { generation, who });
            }
            _ => {
                self.member.end();
                return Ok(Arrived::Stranger);
            }
        };
        let waited = Box::pin(self.member.wait(generation, timeout)).await?;
        Ok(match waited.standing {
            Standing::Opened => {
                self.generation.store(waited.present, Ordering::Release);
                Arrived::Passed { generation, index }
            }
            Standing::Armed { missing } => Arrived::NotYet { generation, missing },
            Standing::Broken { who } => {
                self.member.end();
                Arrived::Broken { generation, who }
            }
        })
    }

    /// Takes part no longer: another may come in its place. A party that has arrived, and has not passed, breaks the barrier by
    /// it.
    ///
    /// # Cancel safety
    /// Dropping the future after it was polled still leaves, in the background.
    ///
    /// # Errors
    /// The store's faults. It is then repeated in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let party = leases.barrier("phase", 1).join().await?.joined().unwrap();
    /// party.leave().await?;
    /// let another = leases.barrier("phase", 1).join().await?.joined().expect("there is room again");
    /// # another.leave().await
    /// # }
    /// ```
    pub async fn leave(self) -> Result<()> {
        self.member.leave(false).await
    }

    /// Breaks the barrier for everybody: this party will not arrive. Those who wait are told who it was.
    ///
    /// # Cancel safety
    /// Dropping the future after it was polled still breaks the barrier, in the background.
    ///
    /// # Errors
    /// The store's faults. It is then repeated in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// use leasehold::latch::Join;
    ///
    /// let party = leases.barrier("phase", 2).join().await?.joined().unwrap();
    /// party.fail().await?;
    /// assert!(matches!(leases.barrier("phase", 2).join().await?, Join::Broken { .. }));
    /// # Ok(()) }
    /// ```
    pub async fn fail(self) -> Result<()> {
        self.member.leave(true).await
    }
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Party");
        shown.field("name", self.name()).field("generation", &self.generation()).finish_non_exhaustive()
    }
}
