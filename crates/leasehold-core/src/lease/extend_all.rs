//! Many detached locks extended in few calls, for a process that keeps them for others.

use super::Handle;
use crate::{
    client::Client,
    engine::{Hold, Renewed},
    error::{Error, Result},
};

/// Locks sent to the store at a time.
const TOGETHER: usize = 500;

impl Client {
    /// Extends many detached locks, each by its own ttl: [`Handle::extend`] in as few calls as the store needs. One result per
    /// handle, in their order: `lost` when it is gone, or the store's fault.
    ///
    /// # Cancel safety
    /// Dropping the future may leave some of them extended.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let one = leases.lock("deal:1").acquire().await?.detach();
    /// let other = leases.lock("deal:2").acquire().await?.detach();
    /// let _released = other.release(&leases).await?;
    /// let extended = leases.extend_all(&[one, other]).await;
    /// assert!(extended[0].is_ok() && extended[1].is_err());
    /// # leases.close().await
    /// # }
    /// ```
    pub async fn extend_all(&self, handles: &[Handle]) -> Vec<Result<()>> {
        let mut extended = Vec::with_capacity(handles.len());
        for some in handles.chunks(TOGETHER) {
            let holds: Vec<Hold> = some.iter().map(|handle| handle.hold.clone()).collect();
            let until = self.core.command_until();
            let answers = match self.core.check_open() {
                Ok(()) => self.core.engine.leases().renew(&holds, until).await,
                Err(closed) => {
                    extended.extend(some.iter().map(|_| Err(closed.clone())));
                    continue;
                }
            };
            let answers = answers.unwrap_or_else(|error| vec![Err(error); some.len()]);
            extended.extend(holds.into_iter().zip(answers).map(|(hold, answer)| match answer {
                Ok(Renewed::Kept { .. }) => Ok(()),
                Ok(Renewed::Gone) => Err(Error::Lost { name: hold.name, fence: hold.fence }),
                Err(error) => Err(self.core.failed(error, "extending", &hold.name)),
            }));
        }
        extended
    }
}
