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

use super::pool::Deadlines;
#[cfg(feature = "json")]
use crate::engine::deadlines::Deadline;
use crate::{
    clock::BootInstant,
    engine::deadlines::{DeadlineId, Delivery, Receipt, Settle},
    error::Result,
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
    /// Acknowledges all of them, and says of each how that ended.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open which of them were removed. It may be sent again.
    ///
    /// # Errors
    /// When the store is at fault.
    pub async fn acknowledge(&self) -> Result<Vec<(DeadlineId, SettleOutcome)>> {
        let Some(first) = self.due.first() else { return Ok(Vec::new()) };
        self.due.iter().for_each(|due| due.settled.store(true, Ordering::Relaxed));
        let done: Vec<_> = self.due.iter().map(|due| (due.receipt().clone(), Settle::Done)).collect();
        first.deadlines.settle(&done).await
    }
}

impl IntoIterator for Claimed {
    type Item = Due;
    type IntoIter = std::vec::IntoIter<Due>;

    fn into_iter(self) -> Self::IntoIter {
        self.due.into_iter()
    }
}

/// How the end of a claim was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleOutcome {
    /// It counts.
    Settled,
    /// It came too late and changed nothing: the deadline was claimed, set or cancelled since.
    Stale,
}

impl SettleOutcome {
    pub(super) fn of(good: bool) -> Self {
        if good { Self::Settled } else { Self::Stale }
    }

    /// Whether it counts.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Settled)
    }
}

/// A deadline that was claimed: hidden from everybody else until its visibility is over, then due again.
///
/// Dropping it does nothing: unless it is settled, it comes back. Clone it, or keep its receipt, to settle it again after an
/// error of the store. Settling it too late changes nothing: [`SettleOutcome::Stale`].
///
/// # Cancel safety
/// Dropping the future of a method that settles it leaves open whether it is settled; if it is not, it comes back.
#[derive(Clone)]
#[must_use = "a deadline that is not acknowledged comes back"]
pub struct Due {
    deadlines: Deadlines,
    delivery: Delivery,
    pub(super) hidden_until: BootInstant,
    /// Whether it was settled: from then on the result of its handler does not matter.
    settled: Arc<AtomicBool>,
}

impl Due {
    pub(super) fn new(deadlines: Deadlines, delivery: Delivery, hidden_until: BootInstant) -> Self {
        Self { deadlines, delivery, hidden_until, settled: Arc::default() }
    }

    /// Its id in the pool.
    pub fn id(&self) -> &str {
        &self.delivery.receipt.id
    }

    /// Which delivery attempt this is, starting at 1.
    pub fn attempt(&self) -> u32 {
        self.delivery.attempt
    }

    /// How late it was claimed. For a later attempt it counts from when it became visible again.
    pub fn overdue(&self) -> Duration {
        self.delivery.overdue
    }

    /// How long nobody else can claim it. Counted from before it was claimed, so that the store never ends it earlier
    /// while clocks run at about the same rate.
    pub fn hidden_for(&self) -> Duration {
        self.hidden_until.since(self.deadlines.core().clock.now())
    }

    /// What was given with it.
    pub fn context(&self) -> Option<&Bytes> {
        self.delivery.context.as_ref()
    }

    /// What was given with it as JSON.
    ///
    /// # Errors
    /// `invalid` when it is not the JSON of such a value.
    #[cfg(feature = "json")]
    pub fn context_as<T: serde::de::DeserializeOwned>(&self) -> Result<Option<T>> {
        let value = self.context().map(|context| serde_json::from_slice(context)).transpose();
        value.map_err(|error| {
            let what = format!("context of the deadline \"{}\"", self.id());
            let expected = format!("the JSON of a {}", std::any::type_name::<T>());
            crate::Error::invalid(what, error.to_string(), expected)
        })
    }

    /// Proof of the claim, for settling many at once.
    pub fn receipt(&self) -> &Receipt {
        &self.delivery.receipt
    }

    /// Removes it: it was handled.
    pub async fn acknowledge(self) -> Result<SettleOutcome> {
        self.settle(Settle::Done).await
    }

    /// Makes it due again after a while, at most ten years; the attempt counts.
    pub async fn postpone(self, by: Duration) -> Result<SettleOutcome> {
        self.settle(Settle::Postpone(by)).await
    }

    /// Makes it due again at once, for somebody else to handle; the attempt does not count.
    pub async fn give_back(self) -> Result<SettleOutcome> {
        self.settle(Settle::GiveBack).await
    }

    /// Gives it up: it goes to the dead ones of the pool, with its context and this reason.
    pub async fn bury(self, why: impl Into<String>) -> Result<SettleOutcome> {
        self.settle(Settle::Bury(why.into())).await
    }

    async fn settle(self, settle: Settle) -> Result<SettleOutcome> {
        self.settled.store(true, Ordering::Relaxed);
        let settled = self.deadlines.settle(&[(self.receipt().clone(), settle)]).await?;
        Ok(settled[0].1)
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }
}

#[cfg(feature = "json")]
impl Deadline {
    /// The context that its claimer gets, as JSON, for [`Due::context_as`].
    ///
    /// # Errors
    /// `invalid` for a value that has no JSON.
    pub fn json(self, context: &impl serde::Serialize) -> Result<Self> {
        let what = || format!("context of the deadline \"{}\"", crate::text::quoted(&self.id));
        let json = serde_json::to_vec(context).map_err(|error| crate::text::no_json(what(), &error))?;
        Ok(self.context(json))
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
