//! Records and marks of a lease file.
//!
//! One row per key, and one transaction per call: what is there is read, [`decide`](crate::engine::records::decide)
//! decides, and the outcome is written. A record that ran out keeps its row for a day, so that the last fence is known.

mod rows;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::{
    clock::Until,
    engine::{
        Cursor, Fut, Page,
        records::{Begin, Begun, Outcome, Record, Records, Settle, Settled},
    },
    name::Name,
};

use super::{Sqlite, worker::Purpose};

impl Records for Sqlite {
    fn begin<'a>(&'a self, begin: &'a Begin, until: Until) -> Fut<'a, Begun> {
        Box::pin(async move {
            if begin.wake {
                self.wakes.listen();
            }
            let (since, asked, wake) = (self.clock.now(), begin.clone(), self.wakes.id().to_owned());
            self.worker
                .write(until, Purpose::Ask, move |store| store.begin_record(&asked, since, &wake))
                .await
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle, until: Until) -> Fut<'a, Settled> {
        let settle = settle.clone();
        Box::pin(async move {
            if settle.outcome == Outcome::Retry {
                return self
                    .worker
                    .write(until, Purpose::End, move |store| store.settle_record(&settle))
                    .await;
            }
            self.worker.write_to_last(until, Purpose::End, move |store| store.settle_record(&settle)).await
        })
    }

    fn mark<'a>(
        &'a self,
        keys: &'a [Name],
        ttl: Duration,
        if_absent: bool,
        until: Until,
    ) -> Fut<'a, Vec<bool>> {
        let keys = keys.to_vec();
        Box::pin(self.worker.write_to_last(until, Purpose::Ask, move |store| {
            keys.iter().map(|key| store.mark(key, ttl, if_absent)).collect()
        }))
    }

    fn exist<'a>(&'a self, keys: &'a [Name], until: Until) -> Fut<'a, Vec<bool>> {
        let keys = keys.to_vec();
        Box::pin(self.worker.read(until, move |store| keys.iter().map(|key| store.has_record(key)).collect()))
    }

    fn clear<'a>(&'a self, keys: &'a [Name], until: Until) -> Fut<'a, Vec<bool>> {
        let keys = keys.to_vec();
        Box::pin(self.worker.write_to_last(until, Purpose::End, move |store| {
            keys.iter().map(|key| store.clear_mark(key)).collect()
        }))
    }

    fn read<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, Option<Record>> {
        let key = key.clone();
        Box::pin(self.worker.read(until, move |store| store.record(&key)))
    }

    fn remove<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, bool> {
        let key = key.clone();
        Box::pin(self.worker.write_to_last(until, Purpose::Ask, move |store| store.remove_record(&key)))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Record>> {
        let prefix = prefix.to_owned();
        Box::pin(self.worker.read(until, move |store| store.scan_records(&prefix, from.as_ref(), limit)))
    }
}
