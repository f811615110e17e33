//! A pool of deadlines, as callers use it.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use tokio::sync::OnceCell;

use super::{
    bounds::{self, BUCKETS_DEFAULT, CONTEXT_BYTES_DEFAULT, CONTEXT_BYTES_MAX, ITEMS_MAX},
    due::{Claimed, Due, SettleOutcome},
};
use crate::{
    client::PAGE,
    config::between,
    core::Core,
    engine::{
        Cursor, Listing, Page, all_items,
        deadlines::{
            self as engine, BUCKETS_MAX, Dead, Deadline, DeadlineId, DueTime, Pending, Placement, Pool,
            PoolLayout, PoolStats, Receipt, Settle,
        },
    },
    error::{Error, Result},
    lease::validity,
    name::Name,
    telemetry::Count,
};

/// Bytes of context after which a call with many deadlines is split: one answer must come within a command's time.
const CALL_BYTES: usize = 4 * 1024 * 1024;

/// A pool of deadlines; made by `Leasehold::deadlines`. Cheap to clone.
///
/// Not the right tool for work that shall be done at a time or in an order (use a queue): deadlines are for what must be
/// looked at because it should have ended by then.
///
/// # Errors
/// All methods: `invalid` for an id, a time, a context or a limit out of range and for a pool with another layout;
/// `unsupported` on a store that keeps no deadlines; `store_unreachable` and `store_refused` when the store is at fault.
#[derive(Clone)]
pub struct Deadlines {
    asked: Arc<Asked>,
}

/// A pool as it was asked for, and as it is once the store was asked.
#[derive(Clone)]
struct Asked {
    core: Arc<Core>,
    // A bad name is reported by the first call, so that the builder reads as one sentence.
    name: Result<Name>,
    buckets: Option<u16>,
    placement: Option<Placement>,
    context_max: usize,
    pool: OnceCell<Pool>,
}

impl Deadlines {
    pub(crate) fn new(core: Arc<Core>, name: &str) -> Self {
        let (name, pool) = (bounds::pool_name(name), OnceCell::new());
        let (buckets, placement, context_max) = (None, None, CONTEXT_BYTES_DEFAULT);
        Self { asked: Arc::new(Asked { core, name, buckets, placement, context_max, pool }) }
    }

    fn with(mut self, change: impl FnOnce(&mut Asked)) -> Self {
        let asked = Arc::make_mut(&mut self.asked);
        asked.pool = OnceCell::new();
        change(asked);
        self
    }

    /// How many buckets the pool has; 16 by default. Fixed when the pool is created: another number is an error later.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments").buckets(4);
    /// payments.set("tx:42", Duration::ZERO).await?;
    /// assert_eq!(payments.layout().await?.unwrap().buckets, 4);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn buckets(self, buckets: u16) -> Self {
        self.with(|asked| asked.buckets = Some(buckets))
    }

    /// Where the buckets are on a sharded store; [`Placement::Spread`] by default. Kept as the number of buckets is.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::deadlines::Placement;
    /// let payments = leases.deadlines("payments").placement(Placement::Together);
    /// payments.set("tx:42", Duration::ZERO).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn placement(self, placement: Placement) -> Self {
        self.with(|asked| asked.placement = Some(placement))
    }

    /// The largest context that may be set, in bytes. Default 64 KiB, at most 1 MiB.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments").context_max(16);
    /// assert!(payments.set_with("tx:42", Duration::ZERO, "more than sixteen bytes").await.is_err());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn context_max(self, bytes: usize) -> Self {
        self.with(|asked| asked.context_max = bytes)
    }

    /// Sets a deadline without context: due after a [`Duration`] by the store's clock, or at a
    /// [`SystemTime`](std::time::SystemTime). One of that id, also a dead one, is replaced: a claim of it is void and
    /// its attempts begin anew.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it was set. It may be sent again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments");
    /// payments.set("tx:42", Duration::from_secs(1800)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set(&self, id: impl Into<DeadlineId>, due: impl Into<DueTime>) -> Result<()> {
        self.set_many(&[Deadline::new(id, due)]).await
    }

    /// [`Deadlines::set`] with a context for whoever claims it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments");
    /// payments.set_with("tx:42", Duration::ZERO, "order 7").await?;
    /// assert_eq!(payments.claim().await?.due[0].context().unwrap(), "order 7");
    /// # Ok(()) }
    /// ```
    pub async fn set_with(
        &self,
        id: impl Into<DeadlineId>,
        due: impl Into<DueTime>,
        context: impl Into<Bytes>,
    ) -> Result<()> {
        self.set_many(&[Deadline::new(id, due).context(context)]).await
    }

    /// [`Deadlines::set`] with a context as JSON, for [`Due::context_as`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments");
    /// payments.set_json("tx:42", Duration::ZERO, &("EUR", 100)).await?;
    /// let (currency, amount): (String, u64) = payments.claim().await?.due[0].context_as()?.unwrap();
    /// assert_eq!((currency.as_str(), amount), ("EUR", 100));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "json")]
    pub async fn set_json(
        &self,
        id: impl Into<DeadlineId>,
        due: impl Into<DueTime>,
        context: &impl serde::Serialize,
    ) -> Result<()> {
        self.set_many(&[Deadline::new(id, due).json(context)?]).await
    }

    /// [`Deadlines::set`] for many. Not all or nothing: after an error some may be set.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::Deadline;
    /// let payments = leases.deadlines("payments");
    /// let soon = Duration::from_secs(60);
    /// payments.set_many(&[Deadline::new("tx:1", soon), Deadline::new("tx:2", soon).context("order 7")]).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_many(&self, deadlines: &[Deadline]) -> Result<()> {
        for deadline in deadlines {
            bounds::check_deadline(deadline, self.asked.context_max)?;
        }
        let (engine, pool) = self.ready().await?;
        for call in calls(deadlines) {
            let answer = engine.set(pool, call, self.core().command_until()).await;
            answer.map_err(|error| self.core().failed(error, "setting deadlines of the pool", &pool.name))?;
        }
        Ok(())
    }

    /// Removes a deadline, claimed or not, alive or dead. True if there was one.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it was removed. It may be sent again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments");
    /// payments.set("tx:42", Duration::from_secs(1800)).await?;
    /// assert!(payments.cancel("tx:42").await?);
    /// # Ok(()) }
    /// ```
    pub async fn cancel(&self, id: impl Into<DeadlineId>) -> Result<bool> {
        Ok(self.cancel_many(&[id.into()]).await? == [true])
    }

    /// [`Deadlines::cancel`] for many. True where there was one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments");
    /// payments.set("tx:1", Duration::from_secs(1800)).await?;
    /// assert_eq!(payments.cancel_many(&["tx:1".into(), "tx:2".into()]).await?, [true, false]);
    /// # Ok(()) }
    /// ```
    pub async fn cancel_many(&self, ids: &[DeadlineId]) -> Result<Vec<bool>> {
        ids.iter().try_for_each(|id| bounds::check_id(id))?;
        let (engine, pool) = self.ready().await?;
        let failed = |error| self.core().failed(error, "cancelling deadlines of the pool", &pool.name);
        let mut cancelled = Vec::with_capacity(ids.len());
        for some in ids.chunks(ITEMS_MAX) {
            let answer = engine.cancel(pool, some, self.core().command_until()).await;
            cancelled.extend(answer.map_err(failed)?);
        }
        Ok(cancelled)
    }

    /// [`Deadlines::claim`] without a log line when the store is at fault.
    pub(super) async fn claim_quietly(&self, limit: u32, visibility: Duration) -> Result<Claimed> {
        let (engine, pool) = self.ready().await?;
        let hidden_until = validity::valid_until(self.core().clock.now(), visibility);
        let answer = engine.claim_due(pool, limit, visibility, self.core().command_until()).await;
        let claimed = answer
            .map_err(|error| self.core().explain(error, "claiming deadlines of the pool", &pool.name))?;
        self.core().telemetry.count_many(Count::deadlines_claimed, claimed.due.len());
        Ok(Claimed {
            due: claimed.due.into_iter().map(|due| Due::new(self.clone(), due, hidden_until)).collect(),
            more: claimed.more,
        })
    }

    /// Settles claimed deadlines, and says of each how that ended, in order. Not all or nothing: after an error some may be
    /// settled. Of a reason at most 1,024 bytes are kept.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open which were settled. It may be sent again.
    ///
    /// # Errors
    /// `invalid` for a postponement of more than ten years; see [`Deadlines`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::deadlines::{Settle, SettleOutcome};
    /// let payments = leases.deadlines("payments");
    /// payments.set("tx:42", Duration::ZERO).await?;
    /// let claimed = payments.claim().await?;
    /// let settlements: Vec<_> = claimed.due.iter().map(|due| (due.receipt().clone(), Settle::Done)).collect();
    /// for (id, outcome) in payments.settle(&settlements).await? {
    ///     assert_eq!((&*id, outcome), ("tx:42", SettleOutcome::Settled));
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn settle(
        &self,
        settlements: &[(Receipt, Settle)],
    ) -> Result<Vec<(DeadlineId, SettleOutcome)>> {
        let checked = |(receipt, settle): &_| Ok((Receipt::clone(receipt), bounds::checked(settle)?));
        let settlements = settlements.iter().map(checked).collect::<Result<Vec<_>>>()?;
        let (_, pool) = self.ready().await?;
        let mut settled = Vec::with_capacity(settlements.len());
        for some in settlements.chunks(ITEMS_MAX) {
            let answer = self.settle_quietly(some).await;
            let good = answer.inspect_err(|error| self.core().report(error, &pool.name))?;
            let outcomes = some.iter().zip(good);
            settled
                .extend(outcomes.map(|((receipt, _), good)| (receipt.id.clone(), SettleOutcome::of(good))));
        }
        Ok(settled)
    }

    /// [`Deadlines::settle`] for at most [`ITEMS_MAX`] that were checked, without a log line when the store is at fault.
    pub(super) async fn settle_quietly(&self, settlements: &[(Receipt, Settle)]) -> Result<Vec<bool>> {
        let (engine, pool) = self.ready().await?;
        let answer = engine.settle(pool, settlements, self.core().command_until()).await;
        let good = answer
            .map_err(|error| self.core().explain(error, "settling deadlines of the pool", &pool.name))?;
        for ((_, settle), _) in settlements.iter().zip(&good).filter(|(_, good)| **good) {
            match settle {
                Settle::Done => self.core().telemetry.count(Count::deadlines_done),
                Settle::Bury(_) => self.core().telemetry.count(Count::deadlines_buried),
                Settle::Postpone(_) | Settle::GiveBack => {}
            }
        }
        Ok(good)
    }

    /// What is due, oldest first, without claiming it; nothing for a pool that nobody ever used.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments");
    /// payments.set("tx:42", Duration::ZERO).await?;
    /// assert_eq!(&*payments.peek(10).await?[0].id, "tx:42");
    /// # Ok(()) }
    /// ```
    pub async fn peek(&self, limit: u32) -> Result<Vec<Pending>> {
        bounds::check_page(limit)?;
        let Some((engine, pool)) = self.existing().await? else { return Ok(Vec::new()) };
        let answer = engine.peek(pool, limit, self.core().command_until()).await;
        answer.map_err(|error| self.core().failed(error, "looking at the pool", &pool.name))
    }

    /// What was given up; set a dead deadline again to have it tried again, cancel it to forget it. An error is the last item.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// use futures_util::TryStreamExt;
    ///
    /// let payments = leases.deadlines("payments");
    /// payments.set("tx:42", Duration::ZERO).await?;
    /// for due in payments.claim().await? {
    ///     due.bury("no such account").await?;
    /// }
    /// let dead: Vec<_> = payments.dead().try_collect().await?;
    /// assert_eq!(&*dead[0].id, "tx:42");
    /// # Ok(()) }
    /// ```
    pub fn dead(&self) -> BoxStream<'static, Result<Dead>> {
        let pool = self.clone();
        all_items(move |from| {
            let pool = pool.clone();
            async move { pool.dead_page(from, PAGE).await }
        })
    }

    /// One page of [`Deadlines::dead`], for callers that keep their own place. A page may be short or empty although more follow;
    /// the last one has no `next`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments");
    /// assert!(payments.dead_page(None, 100).await?.items.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn dead_page(&self, from: Option<Cursor>, limit: u32) -> Result<Page<Dead>> {
        bounds::check_page(limit)?;
        let Some((engine, pool)) = self.existing().await? else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        let listing = Listing::at(from);
        let answer = engine.dead(pool, listing.from(), limit, self.core().command_until()).await;
        let failed = |error| self.core().failed(error, "looking at the dead of the pool", &pool.name);
        Ok(listing.page(answer.map_err(failed)?, limit, |dead| &dead.id))
    }

    /// How the pool stands; all zero for one that nobody ever used.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments");
    /// payments.set("tx:42", Duration::ZERO).await?;
    /// println!("{:?}", payments.stats().await?);
    /// # Ok(()) }
    /// ```
    pub async fn stats(&self) -> Result<PoolStats> {
        let Some((engine, pool)) = self.existing().await? else { return Ok(PoolStats::default()) };
        let answer = engine.stats(pool, self.core().command_until()).await;
        answer.map_err(|error| self.core().failed(error, "counting the pool", &pool.name))
    }

    /// How the pool is laid out; `None` if nobody ever used it. Inspecting a pool does not create it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments");
    /// assert!(payments.layout().await?.is_none(), "nobody used it yet");
    /// # Ok(()) }
    /// ```
    pub async fn layout(&self) -> Result<Option<PoolLayout>> {
        Ok(self.existing().await?.map(|(_, pool)| pool.layout))
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.asked.core
    }

    /// The store's deadlines, and the pool after its layout was checked once. Creates the pool if it is new.
    pub(super) async fn ready(&self) -> Result<(&dyn engine::Deadlines, &Pool)> {
        Ok(self.open(true).await?.expect("a pool that is new is created"))
    }

    /// The same, but does not create a pool that is new.
    async fn existing(&self) -> Result<Option<(&dyn engine::Deadlines, &Pool)>> {
        self.open(false).await
    }

    async fn open(&self, create: bool) -> Result<Option<(&dyn engine::Deadlines, &Pool)>> {
        let Asked { core, buckets, placement, context_max, pool, .. } = &*self.asked;
        core.check_open()?;
        let name = self.name()?;
        let engine = core.engine.deadlines();
        let engine = engine.map_err(|why| Error::unsupported("a pool of deadlines", why))?;
        if let Some(pool) = pool.get() {
            return Ok(Some((engine, pool)));
        }
        let (buckets, placement) = (buckets.unwrap_or(BUCKETS_DEFAULT), placement.unwrap_or_default());
        between("number of buckets", buckets, 1, BUCKETS_MAX)?;
        between("largest context in bytes", *context_max, 1, CONTEXT_BYTES_MAX)?;
        let wanted = Pool { name: name.clone(), layout: PoolLayout { buckets, placement } };
        let answer = match create {
            true => engine.layout(&wanted, core.command_until()).await.map(Some),
            false => engine.known_layout(name, core.command_until()).await,
        };
        let answer = answer.map_err(|error| core.explain(error, "opening the pool", name));
        let Some(layout) = answer? else { return Ok(None) };
        let agrees = self.asked.buckets.is_none_or(|buckets| buckets == layout.buckets)
            && self.asked.placement.is_none_or(|placement| placement == layout.placement);
        if !agrees {
            let what = format!("layout of the pool \"{name}\"");
            let expected = format!("{layout}, with which the pool was made");
            return Err(Error::invalid(what, wanted.layout.to_string(), expected));
        }
        Ok(Some((engine, pool.get_or_init(async || Pool { layout, ..wanted }).await)))
    }

    pub(super) fn name(&self) -> Result<&Name> {
        self.asked.name.as_ref().map_err(Clone::clone)
    }
}

/// The deadlines in calls of bounded size.
fn calls(deadlines: &[Deadline]) -> impl Iterator<Item = &[Deadline]> {
    let (mut items, mut bytes) = (0, 0);
    deadlines.chunk_by(move |one, next| {
        let size = |deadline: &Deadline| deadline.context.as_ref().map_or(0, Bytes::len);
        (items, bytes) = (items + 1, bytes + size(one));
        let together = items < ITEMS_MAX && bytes + size(next) <= CALL_BYTES;
        if !together {
            (items, bytes) = (0, 0);
        }
        together
    })
}

impl fmt::Debug for Deadlines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadlines").field("pool", &self.asked.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_contexts_are_sent_in_several_calls() {
        let sized = |bytes| Deadline::new("x", Duration::ZERO).context(vec![0; bytes]);
        let half = CALL_BYTES / 2;
        let split = |sizes: &[usize]| -> Vec<_> {
            calls(&sizes.iter().copied().map(sized).collect::<Vec<_>>()).map(<[_]>::len).collect()
        };
        assert_eq!(split(&[half, half, 1, half]), [2, 2]);
        assert_eq!(split(&[CALL_BYTES + 1, 1]), [1, 1]);
        assert!(split(&[]).is_empty());
        assert_eq!(split(&[0; 20_001]), [10_000, 10_000, 1]);
    }
}
