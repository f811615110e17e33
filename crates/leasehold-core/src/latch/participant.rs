//! One that has to count down before a latch opens.

use std::{fmt, time::Duration};

use super::{Awaited, CountedDown, membership::Membership};
use crate::{
    engine::latches::{Said, Standing},
    error::Result,
    name::Name,
};

/// One that has to count down before the latch opens, kept alive until it has.
///
/// Dropped before it has counted down or left, it breaks the latch in the background: its part was not done. If the program ends
/// first, or is cut off, the latch breaks when the ttl is over.
#[must_use = "a participant that is dropped breaks the latch"]
pub struct Participant {
    member: Membership,
}

impl Participant {
    pub(super) fn new(member: Membership) -> Self {
        Self { member }
    }

    /// The latch.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let participant = leases.latch("migration", 2).join().await?.joined().unwrap();
    /// assert_eq!(participant.name().as_str(), "migration");
    /// # participant.leave().await
    /// # }
    /// ```
    pub fn name(&self) -> &Name {
        self.member.name()
    }

    /// The generation that it takes part in.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let participant = leases.latch("migration", 2).join().await?.joined().unwrap();
    /// let state = leases.latch("migration", 2).state().await?.expect("it is armed");
    /// assert_eq!(participant.generation(), state.generation);
    /// # participant.leave().await
    /// # }
    /// ```
    pub fn generation(&self) -> u64 {
        self.member.joined()
    }

    /// Whether its lease can be trusted. Once it has counted down it needs none, and this is false.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let participant = leases.latch("migration", 2).join().await?.joined().unwrap();
    /// assert!(participant.is_held());
    /// let _ = participant.count_down().await?;
    /// assert!(!participant.is_held());
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        self.member.lease.is_held()
    }

    /// Completes when its lease is lost, or another participant has broken the latch: there is no use in going on. The latter is
    /// noticed by the next renewal, a third of the ttl later. Never completes once it has counted down.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let participant = leases.latch("migration", 2).join().await?.joined().unwrap();
    /// tokio::select! {
    ///     () = participant.lost() => println!("the migration has failed elsewhere"),
    ///     () = async { /* the work */ } => println!("{:?}", participant.count_down().await?),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) {
        self.member.lease.lost().await;
    }

    /// Counts down: its part is done. Called again it counts once. From here on it needs no lease, and dropping it changes
    /// nothing.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether it is counted. Call it again; dropping the participant breaks the latch if it
    /// is not.
    ///
    /// # Errors
    /// The store's faults: whether it is counted is unknown, and it may be called again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::latch::CountedDown;
    ///
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let latch = leases.latch("migration", 2);
    /// let (one, other) = (latch.join().await?.joined().unwrap(), latch.join().await?.joined().unwrap());
    /// assert_eq!(one.count_down().await?, CountedDown::Counted { missing: 1 });
    /// assert_eq!(one.count_down().await?, CountedDown::Again { missing: 1 });
    /// assert_eq!(other.count_down().await?, CountedDown::Opened { generation: one.generation() });
    /// # Ok(()) }
    /// ```
    pub async fn count_down(&self) -> Result<CountedDown> {
        let generation = self.generation();
        let answer = self.member.count_down(generation).await?;
        self.member.end();
        Ok(match answer.said {
            Said::Counted { missing: 0, .. } | Said::Stands(Standing::Opened) => {
                CountedDown::Opened { generation }
            }
            Said::Counted { missing, again: true, .. } => CountedDown::Again { missing },
            Said::Counted { missing, .. } => CountedDown::Counted { missing },
            Said::Stands(Standing::Broken { who }) => CountedDown::Broken { generation, who },
            _ => CountedDown::Stranger,
        })
    }

    /// Waits until the generation of this participant is open or broken, at most for `timeout`.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// # Errors
    /// `invalid` for a bad timeout; the store's faults.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let participant = leases.latch("migration", 1).join().await?.joined().unwrap();
    /// let _ = participant.count_down().await?;
    /// assert!(participant.wait(std::time::Duration::from_secs(1)).await?.is_open());
    /// # Ok(()) }
    /// ```
    pub async fn wait(&self, timeout: Duration) -> Result<Awaited> {
        Ok(Box::pin(self.member.wait(self.generation(), timeout)).await?.into())
    }

    /// Takes part no longer, as if it had never joined: another may come in its place. If it has counted down, it stays counted.
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
    /// let participant = leases.latch("migration", 1).join().await?.joined().unwrap();
    /// participant.leave().await?;
    /// let another = leases.latch("migration", 1).join().await?.joined().expect("there is room again");
    /// # another.leave().await
    /// # }
    /// ```
    pub async fn leave(self) -> Result<()> {
        self.member.leave(false).await
    }

    /// Breaks the latch for everybody of its generation: its part cannot be done. Those who wait are told who it was.
    ///
    /// # Cancel safety
    /// Dropping the future after it was polled still breaks the latch, in the background.
    ///
    /// # Errors
    /// The store's faults. It is then repeated in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::latch::Awaited;
    ///
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let latch = leases.latch("migration", 2).label("shard 7");
    /// latch.join().await?.joined().unwrap().fail().await?;
    /// let Awaited::Broken { who: Some(who), .. } = latch.wait(std::time::Duration::ZERO).await? else { panic!() };
    /// println!("{who} did not come");
    /// # Ok(()) }
    /// ```
    pub async fn fail(self) -> Result<()> {
        self.member.leave(true).await
    }
}

impl fmt::Debug for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Participant");
        shown.field("name", self.name()).field("generation", &self.generation()).finish_non_exhaustive()
    }
}
