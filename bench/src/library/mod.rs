//! What takes part in a contest inside this program: leasehold, rslock, and the limits beside them, all behind one trait.

mod idempotency;
mod limits;
mod ours;
mod rslock;

use std::time::Duration;

pub(crate) use self::{
    idempotency::{BareKeys, OurKeys},
    limits::{Pings, Scripts},
    ours::{Kind, Ours},
    rslock::Rslock,
};
use crate::Failure;

/// How long a lock lasts, unless the workload says otherwise.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// A number that no other run has.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::Instant::now())
}

/// A connected client of one library.
pub(crate) trait Library: Clone + Send + Sync + 'static {
    type Lock: Lock;

    fn lock(&self, name: &str) -> Self::Lock;
}

/// The lock of one name, used by one task.
pub(crate) trait Lock: Send + 'static {
    type Guard: Send + 'static;

    /// Waits without limit.
    fn acquire(&mut self) -> impl Future<Output = Result<Self::Guard, Failure>> + Send;

    fn release(&mut self, guard: Self::Guard) -> impl Future<Output = Result<(), Failure>> + Send;

    /// As far as the library knows.
    fn is_held(_: &Self::Guard) -> bool {
        true
    }

    /// Acquire and release.
    fn cycle(&mut self) -> impl Future<Output = Result<(), Failure>> + Send {
        async {
            let guard = self.acquire().await?;
            self.release(guard).await
        }
    }
}
