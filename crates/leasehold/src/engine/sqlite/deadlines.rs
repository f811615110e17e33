//! Deadlines of a lease file.
//!
//! Due times are those of the wall clock: they were given as such, or have to outlive a restart of the host. How long a
//! claim hides its deadline is counted by the boot clock too, so that a step of the wall clock shows it to nobody too
//! early; a step back makes deadlines late.

mod rows;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::{
    clock::Until,
    engine::{
        Cursor, Fut, Page,
        deadlines::{
            Batch, Dead, Deadline, DeadlineId, Deadlines, Pending, Pool, PoolLayout, PoolStats, Receipt,
            Settle,
        },
    },
    name::Name,
};

use super::{Sqlite, worker::Purpose};

impl Deadlines for Sqlite {
    fn layout<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolLayout> {
        let pool = pool.clone();
        Box::pin(self.worker.write_to_last(until, Purpose::Ask, move |store| store.pool_layout(&pool)))
    }

    fn known_layout<'a>(&'a self, pool: &'a Name, until: Until) -> Fut<'a, Option<PoolLayout>> {
        let pool = pool.clone();
        Box::pin(self.worker.read(until, move |store| store.known_layout(&pool)))
    }

    fn set<'a>(&'a self, pool: &'a Pool, deadlines: &'a [Deadline], until: Until) -> Fut<'a, ()> {
        let (pool, deadlines) = (pool.clone(), deadlines.to_vec());
        Box::pin(
            self.worker
                .write_to_last(until, Purpose::Ask, move |store| store.set_deadlines(&pool, &deadlines)),
        )
    }

    fn claim_due<'a>(
        &'a self,
        pool: &'a Pool,
        limit: u32,
        visibility: Duration,
        until: Until,
    ) -> Fut<'a, Batch> {
        let pool = pool.clone();
        // Not synced: a power loss ends the claimer, and only shows its deadlines earlier.
        Box::pin(
            self.worker.write(until, Purpose::Ask, move |store| store.claim_due(&pool, limit, visibility)),
        )
    }

    fn settle<'a>(
        &'a self,
        pool: &'a Pool,
        settlements: &'a [(Receipt, Settle)],
        until: Until,
    ) -> Fut<'a, Vec<bool>> {
        let (pool, settlements) = (pool.clone(), settlements.to_vec());
        Box::pin(
            self.worker
                .write_to_last(until, Purpose::End, move |store| store.settle_deadlines(&pool, &settlements)),
        )
    }

    fn cancel<'a>(&'a self, pool: &'a Pool, ids: &'a [DeadlineId], until: Until) -> Fut<'a, Vec<bool>> {
        let (pool, ids) = (pool.clone(), ids.to_vec());
        Box::pin(
            self.worker.write_to_last(until, Purpose::End, move |store| store.cancel_deadlines(&pool, &ids)),
        )
    }

    fn peek<'a>(&'a self, pool: &'a Pool, limit: u32, until: Until) -> Fut<'a, Vec<Pending>> {
        let pool = pool.clone();
        Box::pin(self.worker.read(until, move |store| store.peek(&pool, limit)))
    }

    fn dead<'a>(
        &'a self,
        pool: &'a Pool,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Dead>> {
        let pool = pool.clone();
        Box::pin(self.worker.read(until, move |store| store.dead(&pool, from.as_ref(), limit)))
    }

    fn stats<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolStats> {
        let pool = pool.clone();
        Box::pin(self.worker.read(until, move |store| store.pool_stats(&pool)))
    }
}
