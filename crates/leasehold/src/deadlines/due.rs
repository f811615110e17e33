//! Deadlines that were claimed.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::pool::Deadlines;
use crate::{
    clock::BootInstant,
    engine::deadlines as contract,
    error::{Error, Result},
};

/// What a claim got. Iterate over it, or settle all of it at once.
#[derive(Clone, Debug)]
#[must_use = "what was claimed is hidden from everybody else until its visibility is over"]
pub struct Claimed {
    /// The deadlines, oldest first within each bucket.
    pub due: Vec<Due>,
    /// Whether more was due than the limit let through: claim again soon.
    pub more: bool,
}

impl Claimed {
    /// Acknowledges all of them in one call. False where the receipt was no longer good.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open which of them were removed. It may be sent again.
    ///
    /// # Errors
    /// When the store is at fault.
    pub async fn acknowledge(&self) -> Result<Vec<bool>> {
        let Some(first) = self.due.first() else { return Ok(Vec::new()) };
        let receipts: Vec<_> = self.due.iter().map(|due| due.receipt().clone()).collect();
        self.due.iter().for_each(Due::settle);
        first.deadlines.acknowledge_many(&receipts).await
    }
}

impl IntoIterator for Claimed {
    type Item = Due;
    type IntoIter = std::vec::IntoIter<Due>;

    fn into_iter(self) -> Self::IntoIter {
        self.due.into_iter()
    }
}

/// A deadline that was claimed: hidden from everybody else until its visibility is over, then due again.
///
/// Dropping it does nothing: unless it is settled, it comes back.
#[derive(Clone)]
#[must_use = "a deadline that is not acknowledged comes back"]
pub struct Due {
    deadlines: Deadlines,
    due: contract::Due,
    hidden_until: BootInstant,
    settled: Arc<AtomicBool>,
}

impl Due {
    pub(super) fn new(deadlines: Deadlines, due: contract::Due, hidden_until: BootInstant) -> Self {
        Self { deadlines, due, hidden_until, settled: Arc::default() }
    }

    /// Its id in the pool.
    pub fn id(&self) -> &str {
        &self.due.receipt.id
    }

    /// The how-manieth claim of this deadline it is; the first is 1.
    pub fn attempt(&self) -> u32 {
        self.due.attempt
    }

    /// How late it was claimed. For a later attempt it counts from when it became visible again.
    pub fn overdue(&self) -> Duration {
        self.due.overdue
    }

    /// How long nobody else can claim it. Counted from before it was claimed, so that the store never ends it earlier
    /// while clocks run at about the same rate.
    pub fn hidden_for(&self) -> Duration {
        self.hidden_until.since(self.deadlines.core().clock.now())
    }

    /// What was given with it.
    pub fn context(&self) -> Option<&Bytes> {
        self.due.context.as_ref()
    }

    /// What was given with it as JSON.
    ///
    /// # Errors
    /// `invalid` when it is not the JSON of such a value.
    pub fn context_as<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let Some(context) = self.context() else { return Ok(None) };
        serde_json::from_slice(context).map(Some).map_err(|error| {
            Error::invalid(
                format!("context of the deadline \"{}\"", self.id()),
                error.to_string(),
                format!("the JSON of a {}", std::any::type_name::<T>()),
            )
        })
    }

    /// Proof of the claim, for settling many at once.
    pub fn receipt(&self) -> &contract::Receipt {
        &self.due.receipt
    }

    /// Removes it: it was handled. False if the receipt was no longer good, because it was claimed, set or cancelled
    /// since; then nothing was removed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it was removed; otherwise it comes back.
    ///
    /// # Errors
    /// When the store is at fault. Clone it first, or keep the receipt, to try again.
    pub async fn acknowledge(self) -> Result<bool> {
        self.settle();
        let answers = self.deadlines.acknowledge_many(std::slice::from_ref(self.receipt())).await?;
        Ok(answers.first().is_some_and(|good| *good))
    }

    /// Makes it due again after a while; its attempts are kept. False as in [`Due::acknowledge`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves open when it is due again.
    ///
    /// # Errors
    /// When the store is at fault; `invalid` for more than ten years.
    pub async fn postpone(self, by: Duration) -> Result<bool> {
        self.settle();
        let answers = self.deadlines.postpone_many(&[(self.receipt().clone(), by)]).await?;
        Ok(answers.first().is_some_and(|good| *good))
    }

    /// Gives it up: it goes to the dead ones of the pool, with its context and this reason. False as in
    /// [`Due::acknowledge`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it was buried; otherwise it comes back.
    ///
    /// # Errors
    /// When the store is at fault.
    pub async fn bury(self, why: impl Into<String>) -> Result<bool> {
        self.settle();
        let answers = self.deadlines.bury_many(&[(self.receipt().clone(), why.into())]).await?;
        Ok(answers.first().is_some_and(|good| *good))
    }

    /// From here on its handler's result does not matter any more: it has been said what shall become of it.
    fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    pub(super) fn hidden_until(&self) -> BootInstant {
        self.hidden_until
    }

    pub(super) fn hide_until(&mut self, until: BootInstant) {
        self.hidden_until = until;
    }
}

impl fmt::Debug for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Due")
            .field("id", &self.id())
            .field("attempt", &self.attempt())
            .field("overdue", &self.overdue())
            .finish_non_exhaustive()
    }
}
