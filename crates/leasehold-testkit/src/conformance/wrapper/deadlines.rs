//! Deadlines pass through, except for the methods of the tamper.

use std::time::Duration;

use leasehold::{
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

use super::{Tamper, Wrapped};

impl<T: Tamper> Wrapped<T> {
    fn pass_deadline<'a, O: Send + 'a>(
        &'a self,
        call: impl FnOnce(&'a dyn Deadlines) -> Fut<'a, O>,
    ) -> Fut<'a, O> {
        self.pass(|inner| call(inner.deadlines().expect("checked before")))
    }
}

impl<T: Tamper> Deadlines for Wrapped<T> {
    fn layout<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolLayout> {
        self.pass_deadline(|deadlines| deadlines.layout(pool, until))
    }

    fn known_layout<'a>(&'a self, pool: &'a Name, until: Until) -> Fut<'a, Option<PoolLayout>> {
        self.pass_deadline(|deadlines| deadlines.known_layout(pool, until))
    }

    fn set<'a>(&'a self, pool: &'a Pool, items: &'a [Deadline], until: Until) -> Fut<'a, ()> {
        self.pass_deadline(|deadlines| deadlines.set(pool, items, until))
    }

    fn claim_due<'a>(
        &'a self,
        pool: &'a Pool,
        limit: u32,
        visibility: Duration,
        until: Until,
    ) -> Fut<'a, Batch> {
        self.pass_deadline(|deadlines| deadlines.claim_due(pool, limit, visibility, until))
    }

    fn settle<'a>(
        &'a self,
        pool: &'a Pool,
        settlements: &'a [(Receipt, Settle)],
        until: Until,
    ) -> Fut<'a, Vec<bool>> {
        self.pass_deadline(|deadlines| self.tamper.settle_deadlines(deadlines, pool, settlements, until))
    }

    fn cancel<'a>(&'a self, pool: &'a Pool, ids: &'a [DeadlineId], until: Until) -> Fut<'a, Vec<bool>> {
        self.pass_deadline(|deadlines| deadlines.cancel(pool, ids, until))
    }

    fn peek<'a>(&'a self, pool: &'a Pool, limit: u32, until: Until) -> Fut<'a, Vec<Pending>> {
        self.pass_deadline(|deadlines| deadlines.peek(pool, limit, until))
    }

    fn dead<'a>(
        &'a self,
        pool: &'a Pool,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Dead>> {
        self.pass_deadline(|deadlines| deadlines.dead(pool, from, limit, until))
    }

    fn stats<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolStats> {
        self.pass_deadline(|deadlines| deadlines.stats(pool, until))
    }
}
