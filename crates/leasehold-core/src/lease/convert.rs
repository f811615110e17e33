//! A writer becomes a reader, or the only reader a writer, and nobody comes in between.

use super::{Guard, Lease};
use crate::{
    engine::{Converted, EngineError, Fault, Format, Grant, Mode},
    error::Result,
};

/// What asking for an upgrade led to.
#[derive(Debug)]
#[must_use = "the lock is given back when the guard is dropped"]
pub enum Upgrade<G = Guard> {
    /// The only reader has become the writer, under a new fence.
    Done(G),
    /// Others read too. The guard is as it was: release it and ask for the write lock, or go on reading.
    Busy(G),
}

impl Guard {
    /// How the lock is held.
    pub fn mode(&self) -> Mode {
        self.lease.state.hold.mode
    }

    /// Makes the writer a reader, without a moment in which another writer could come in. Readers that wait at the head of
    /// the queue come in. The fence stays. A reader stays one. A [`Lease`] that was taken from the guard before has ended.
    ///
    /// # Cancel safety
    /// Dropping the future gives the lock back in the background.
    ///
    /// # Errors
    /// `lost` when the lock is gone; `unsupported` where locks cannot be shared, and for permits; the store's faults. The
    /// lock is then given back in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let writer = leases.write_lock("config").acquire().await?;
    /// // Write, then read what was written while others may read it too.
    /// let reader = writer.downgrade().await?;
    /// let another = leases.read_lock("config").acquire().await?;
    /// assert!(reader.is_held() && another.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(self) -> Result<Self> {
        match self.convert(Mode::Shared).await? {
            Upgrade::Done(guard) | Upgrade::Busy(guard) => Ok(guard),
        }
    }

    /// Makes the only reader the writer. While others read too it is refused at once: two readers that both waited for it
    /// would wait for ever. Writers in the queue stay there. A [`Lease`] that was taken from the guard before has ended.
    ///
    /// # Cancel safety
    /// Dropping the future gives the lock back in the background.
    ///
    /// # Errors
    /// As [`Guard::downgrade`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::Upgrade;
    /// let reader = leases.read_lock("config").acquire().await?;
    /// match reader.try_upgrade().await? {
    ///     Upgrade::Done(writer) => println!("writing with fence {}", writer.fence()),
    ///     Upgrade::Busy(reader) => println!("others read too, under {}", reader.fence()),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_upgrade(self) -> Result<Upgrade> {
        self.convert(Mode::Exclusive).await
    }

    async fn convert(mut self, to: Mode) -> Result<Upgrade> {
        let Lease { state, core } = &self.lease;
        if state.hold.mode == to {
            return Ok(Upgrade::Done(self));
        }
        if !state.hold.mode.is_kind_of(to) {
            let error = EngineError::new(Fault::Unsupported, "permits are not those of a reader or a writer");
            return Err(core.failed(error, "changing the mode of", &state.hold.name));
        }
        if state.hold.format != Format::Plain {
            let error = EngineError::new(Fault::Unsupported, "in Redisson's format a lock stays exclusive");
            return Err(core.failed(error, "changing the mode of", &state.hold.name));
        }
        let until = core.command_until();
        let answer = core.engine.leases().convert(&state.hold, to, until).await;
        match answer.map_err(|error| core.failed(error, "changing the mode of", &state.hold.name))? {
            // Lost is final, whatever the store says afterwards.
            Converted::Done { .. } if !state.is_held() => Err(self.lease.lost_error()),
            Converted::Done { fence, since } => {
                let mut hold = state.hold.clone();
                (hold.mode, hold.fence) = (to, fence);
                let grant = Grant { fence, since, ttl: hold.ttl, acks: state.acks };
                self.lease = self.lease.replaced(hold, &grant);
                Ok(Upgrade::Done(self))
            }
            Converted::Busy => Ok(Upgrade::Busy(self)),
            Converted::Gone => {
                state.lose();
                Err(self.lease.lost_error())
            }
        }
    }
}
