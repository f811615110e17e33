//! A pool of deadlines, as callers use it.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::OnceCell;

use super::{
    bounds::{self, BUCKETS_DEFAULT, CONTEXT_BYTES_DEFAULT},
    due::{Claimed, Due},
    recovery::Recover,
};
use crate::{
    core::Core,
    engine::{
        Cursor, EngineError, Page,
        deadlines::{
            self as contract, Dead, Deadline, DeadlineId, DueTime, Pending, Placement, Pool, PoolLayout,
            PoolStats, Receipt,
        },
    },
    error::{Error, Result},
    lease::validity,
    name::Name,
    telemetry::Count,
};

/// Bytes of context after which a call with many deadlines is split: one answer must come within a command's time.
const CALL_BYTES: usize = 4 * 1024 * 1024;

/// A pool of deadlines; made by [`Leasehold::deadlines`](crate::Leasehold::deadlines). Cheap to clone.
///
/// Not the right tool for work that shall be done at a time or in an order (use a queue): deadlines are for what must be
/// looked at because it should have ended by then.
#[derive(Clone)]
pub struct Deadlines {
    parts: Arc<Parts>,
}

#[derive(Clone)]
struct Parts {
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
        let parts = Parts {
            core,
            name: bounds::pool_name(name),
            buckets: None,
            placement: None,
            context_max: CONTEXT_BYTES_DEFAULT,
            pool: OnceCell::new(),
        };
        Self { parts: Arc::new(parts) }
    }

    fn with(mut self, change: impl FnOnce(&mut Parts)) -> Self {
        let parts = Arc::make_mut(&mut self.parts);
        parts.pool = OnceCell::new();
        change(parts);
        self
    }

    /// How many buckets the pool has, 16 if it is new and nothing is said. A pool keeps for ever what it was made with;
    /// the first call says so if this is something else.
    #[must_use]
    pub fn buckets(self, buckets: u16) -> Self {
        self.with(|parts| parts.buckets = Some(buckets))
    }

    /// Where the buckets are on a sharded store: [`Placement::Spread`] if the pool is new and nothing is said. Kept as
    /// the number of buckets is.
    #[must_use]
    pub fn placement(self, placement: Placement) -> Self {
        self.with(|parts| parts.placement = Some(placement))
    }

    /// The largest context that may be set, in bytes. Default 64 KiB, at most 1 MiB.
    #[must_use]
    pub fn context_max(self, bytes: usize) -> Self {
        self.with(|parts| parts.context_max = bytes)
    }

    /// Sets a deadline without context: due after a [`Duration`] by the store's clock, or at a
    /// [`SystemTime`](std::time::SystemTime). One of that id, also a dead one, is replaced: a claim of it is void and
    /// its attempts begin anew.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it was set. It may be sent again.
    ///
    /// # Errors
    /// `invalid` for an id, a time or a context out of range and for a pool with another layout; `unsupported` on a
    /// store that keeps no deadlines; `store_unreachable` and `store_refused` when the store is at fault.
    pub async fn set(&self, id: impl Into<DeadlineId>, due: impl Into<DueTime>) -> Result<()> {
        self.set_many(&[Deadline::new(id, due)]).await
    }

    /// The same with something that whoever claims it shall know.
    ///
    /// # Cancel safety, errors
    /// As [`Deadlines::set`].
    pub async fn set_with(
        &self,
        id: impl Into<DeadlineId>,
        due: impl Into<DueTime>,
        context: impl Into<Bytes>,
    ) -> Result<()> {
        self.set_many(&[Deadline::new(id, due).context(context)]).await
    }

    /// The same with a context as JSON, for [`Due::context_as`].
    ///
    /// # Cancel safety, errors
    /// As [`Deadlines::set`].
    pub async fn set_json(
        &self,
        id: impl Into<DeadlineId>,
        due: impl Into<DueTime>,
        context: &impl Serialize,
    ) -> Result<()> {
        let deadline = Deadline::new(id, due).json(context)?;
        self.set_many(&[deadline]).await
    }

    /// Sets many deadlines, at most 10,000. Not all or nothing: after an error some may be set.
    ///
    /// # Cancel safety, errors
    /// As [`Deadlines::set`].
    pub async fn set_many(&self, deadlines: &[Deadline]) -> Result<()> {
        bounds::check_items(deadlines.len())?;
        for deadline in deadlines {
            bounds::check_deadline(deadline, self.parts.context_max)?;
        }
        let (engine, pool) = self.ready().await?;
        for call in calls(deadlines) {
            let answer = engine.set(pool, call, self.core().command_until()).await;
            answer.map_err(|error| self.failed(error, "setting deadlines of the pool"))?;
        }
        Ok(())
    }

    /// Removes a deadline, claimed or not, alive or dead. True if there was one.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it was removed. It may be sent again.
    ///
    /// # Errors
    /// As [`Deadlines::set`].
    pub async fn cancel(&self, id: impl Into<DeadlineId>) -> Result<bool> {
        let answers = self.cancel_many(&[id.into()]).await?;
        Ok(answers.first().is_some_and(|there| *there))
    }

    /// Removes many, at most 10,000, in one call.
    ///
    /// # Cancel safety, errors
    /// As [`Deadlines::cancel`].
    pub async fn cancel_many(&self, ids: &[DeadlineId]) -> Result<Vec<bool>> {
        bounds::check_items(ids.len())?;
        ids.iter().try_for_each(|id| bounds::check_id(id))?;
        let (engine, pool) = self.ready().await?;
        let answer = engine.cancel(pool, ids, self.core().command_until()).await;
        answer.map_err(|error| self.failed(error, "cancelling deadlines of the pool"))
    }

    /// Claims what is due, at most `limit` per bucket, oldest first within a bucket. Nobody else can claim any of it
    /// for `visibility`; what is not settled by then is due again, with one attempt more.
    ///
    /// # Cancel safety
    /// Dropping the future may leave deadlines claimed: they come back after their visibility.
    ///
    /// # Errors
    /// As [`Deadlines::set`]; `invalid` for a limit above 1,000 and a visibility that is not 100 ms to a day.
    pub async fn claim(&self, limit: u32, visibility: Duration) -> Result<Claimed> {
        bounds::check_limit(limit)?;
        bounds::check_visibility(visibility)?;
        let (_, pool) = self.ready().await?;
        let claimed = self.claim_quietly(limit, visibility).await;
        claimed.inspect_err(|error| self.core().report(error, &pool.name))
    }

    /// The same without a word in the log when the store is at fault.
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

    /// Removes what was handled, at most 10,000, in one call. False where the receipt was no longer good; then nothing
    /// was removed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open which were removed. It may be sent again.
    ///
    /// # Errors
    /// As [`Deadlines::set`].
    pub async fn acknowledge_many(&self, done: &[Receipt]) -> Result<Vec<bool>> {
        bounds::check_items(done.len())?;
        let (engine, pool) = self.ready().await?;
        let answer = engine.acknowledge(pool, done, self.core().command_until()).await;
        answer
            .map_err(|error| self.failed(error, "acknowledging deadlines of the pool"))
            .inspect(|good| self.count_good(Count::deadlines_done, good))
    }

    /// Makes claimed deadlines due again after a while, in one call; their attempts are kept. False as above.
    ///
    /// # Cancel safety, errors
    /// As [`Deadlines::acknowledge_many`].
    pub async fn postpone_many(&self, again: &[(Receipt, Duration)]) -> Result<Vec<bool>> {
        bounds::check_items(again.len())?;
        again.iter().try_for_each(|(_, by)| bounds::check_postponement(*by))?;
        let (engine, pool) = self.ready().await?;
        let answer = engine.postpone(pool, again, self.core().command_until()).await;
        answer.map_err(|error| self.failed(error, "postponing deadlines of the pool"))
    }

    /// Gives claimed deadlines up, in one call: each goes to the dead ones, with its context and a reason, of which at
    /// most 1,024 bytes are kept. False as above.
    ///
    /// # Cancel safety, errors
    /// As [`Deadlines::acknowledge_many`].
    pub async fn bury_many(&self, dead: &[(Receipt, String)]) -> Result<Vec<bool>> {
        bounds::check_items(dead.len())?;
        let dead: Vec<_> =
            dead.iter().map(|(receipt, why)| (receipt.clone(), bounds::shortened(why))).collect();
        let (engine, pool) = self.ready().await?;
        let answer = engine.bury(pool, &dead, self.core().command_until()).await;
        answer
            .map_err(|error| self.failed(error, "burying deadlines of the pool"))
            .inspect(|good| self.count_good(Count::deadlines_buried, good))
    }

    /// What is due, oldest first, without claiming it. Of a pool that nobody ever used, nothing.
    ///
    /// # Errors
    /// As [`Deadlines::set`].
    pub async fn peek(&self, limit: u32) -> Result<Vec<Pending>> {
        bounds::check_page(limit)?;
        let Some((engine, pool)) = self.known().await? else { return Ok(Vec::new()) };
        let answer = engine.peek(pool, limit, self.core().command_until()).await;
        answer.map_err(|error| self.failed(error, "looking at the pool"))
    }

    /// A page of what was given up. A page may be short or empty although more follow; the last one has no `next`. Set a
    /// dead deadline again to have it tried again, cancel it to forget it.
    ///
    /// # Errors
    /// As [`Deadlines::set`].
    pub async fn dead(&self, from: Option<Cursor>, limit: u32) -> Result<Page<Dead>> {
        bounds::check_page(limit)?;
        let Some((engine, pool)) = self.known().await? else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        let answer = engine.dead(pool, from, limit, self.core().command_until()).await;
        answer.map_err(|error| self.failed(error, "looking at the dead of the pool"))
    }

    /// How the pool stands; all zero for one that nobody ever used.
    ///
    /// # Errors
    /// As [`Deadlines::set`].
    pub async fn stats(&self) -> Result<PoolStats> {
        let Some((engine, pool)) = self.known().await? else { return Ok(PoolStats::default()) };
        let answer = engine.stats(pool, self.core().command_until()).await;
        answer.map_err(|error| self.failed(error, "counting the pool"))
    }

    /// How the pool is laid out; `None` if nobody ever used it. To look at a pool does not make it.
    ///
    /// # Errors
    /// As [`Deadlines::set`].
    pub async fn layout(&self) -> Result<Option<PoolLayout>> {
        Ok(self.known().await?.map(|(_, pool)| pool.layout))
    }

    /// A task that claims what is due again and again and gives it to `handler`; see [`Recover`].
    pub fn recover<H, F, E>(&self, handler: H) -> Recover
    where
        H: Fn(Due) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        Recover::new(self.clone(), handler)
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.parts.core
    }

    pub(super) fn name(&self) -> Result<&Name> {
        self.parts.name.as_ref().map_err(Clone::clone)
    }

    /// The store's deadlines, and the pool after its layout was checked once. Makes the pool if it is new.
    pub(super) async fn ready(&self) -> Result<(&dyn contract::Deadlines, &Pool)> {
        let engine = self.engine()?;
        let make = async || {
            let asked = self.asked()?;
            let answer = engine.layout(&asked, self.core().command_until()).await;
            self.agreed(&asked, answer.map_err(|error| self.not_opened(error, &asked.name))?)
        };
        Ok((engine, self.parts.pool.get_or_try_init(make).await?))
    }

    /// The same, but a pool that is new stays unknown: who only looks makes nothing.
    async fn known(&self) -> Result<Option<(&dyn contract::Deadlines, &Pool)>> {
        let engine = self.engine()?;
        if let Some(pool) = self.parts.pool.get() {
            return Ok(Some((engine, pool)));
        }
        let asked = self.asked()?;
        let answer = engine.known_layout(&asked.name, self.core().command_until()).await;
        let Some(stored) = answer.map_err(|error| self.not_opened(error, &asked.name))? else {
            return Ok(None);
        };
        let pool = self.agreed(&asked, stored)?;
        Ok(Some((engine, self.parts.pool.get_or_init(async || pool).await)))
    }

    fn engine(&self) -> Result<&dyn contract::Deadlines> {
        self.core().check_open()?;
        self.name()?;
        let engine = self.core().engine.deadlines();
        engine.map_err(|why| Error::unsupported("a pool of deadlines", why))
    }

    /// The pool as it was asked for.
    fn asked(&self) -> Result<Pool> {
        let Parts { buckets, placement, context_max, .. } = &*self.parts;
        buckets.map_or(Ok(()), bounds::check_buckets)?;
        bounds::check_context_max(*context_max)?;
        let layout = PoolLayout {
            buckets: buckets.unwrap_or(BUCKETS_DEFAULT),
            placement: placement.unwrap_or_default(),
        };
        Ok(Pool { name: self.name()?.clone(), layout })
    }

    /// The pool as it is stored, unless something else was asked for.
    fn agreed(&self, asked: &Pool, stored: PoolLayout) -> Result<Pool> {
        let Parts { buckets, placement, .. } = &*self.parts;
        let agrees = buckets.is_none_or(|buckets| buckets == stored.buckets)
            && placement.is_none_or(|placement| placement == stored.placement);
        if !agrees {
            return Err(Error::invalid(
                format!("layout of the pool \"{}\"", asked.name),
                asked.layout.to_string(),
                format!("{stored}, with which the pool was made"),
            ));
        }
        Ok(Pool { name: asked.name.clone(), layout: stored })
    }

    fn not_opened(&self, error: EngineError, name: &Name) -> Error {
        self.core().explain(error, "opening the pool", name)
    }

    pub(super) fn count_good(&self, count: Count, answers: &[bool]) {
        self.core().telemetry.count_many(count, answers.iter().filter(|good| **good).count());
    }

    fn failed(&self, error: EngineError, doing: &str) -> Error {
        match self.name() {
            Ok(name) => self.core().failed(error, doing, name),
            Err(bad_name) => bad_name,
        }
    }
}

/// The deadlines in calls of bounded size.
fn calls(deadlines: &[Deadline]) -> impl Iterator<Item = &[Deadline]> {
    let mut bytes = 0;
    deadlines.chunk_by(move |one, next| {
        let size = |deadline: &Deadline| deadline.context.as_ref().map_or(0, Bytes::len);
        bytes += size(one);
        let together = bytes + size(next) <= CALL_BYTES;
        if !together {
            bytes = 0;
        }
        together
    })
}

impl fmt::Display for PoolLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} buckets {}", self.buckets, self.placement)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spread => "spread",
            Self::Together => "together",
        })
    }
}

impl fmt::Debug for Deadlines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadlines").field("pool", &self.parts.name).finish_non_exhaustive()
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
        assert_eq!(split(&[0; 10_000]), [10_000]);
    }
}
