//! From just before a record is completed until a waiter has the result, compared with the hand-over of a lock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::engine::{
    LinkChange, Wake, WakeSink,
    records::{Begin, Begun, Outcome, Settle},
};
use tokio::sync::Notify;

use super::{Bench, LIMIT, Store, random};
use crate::{
    Failure,
    pair::{Pair, REST},
    report::Figures,
    spread::p50_us,
};

/// Samples of one contestant before the other has its turn.
const PER_TURN: usize = 25;

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let mut pair = Pair::connect(&bench.server.url(), "bench:handover").await?;
    let (executor, waiter) = (Store::open(&bench.server.url())?, Waiter::open(bench)?);
    let [mut handovers, mut results] = [const { Vec::new() }; 2];
    for now in 0..bench.count(60, 2) {
        for contestant in 0..2 {
            if (contestant + now + turn).is_multiple_of(2) {
                for _ in 0..PER_TURN {
                    handovers.push(pair.hand_over().await?);
                }
            } else {
                for _ in 0..PER_TURN {
                    results.push(waiter.gets_result_of(&executor).await?);
                }
            }
        }
    }
    pair.close().await?;
    Ok(vec![("lock_handover_us", p50_us(&handovers)), ("result_wake_us", p50_us(&results))])
}

/// A client that waits for the results of another.
struct Waiter {
    store: Arc<Store>,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told(Notify);

impl WakeSink for Told {
    fn wake(&self, _: Wake) {
        self.0.notify_one();
    }

    fn link(&self, _: LinkChange) {}
}

impl Waiter {
    fn open(bench: &Bench) -> Result<Self, Failure> {
        let (store, told) = (Store::open(&bench.server.url())?, Arc::new(Told::default()));
        let sink: Arc<dyn WakeSink> = told.clone();
        store.engine.set_wake_sink(Arc::downgrade(&sink));
        Ok(Self { store: Arc::new(store), told })
    }

    async fn gets_result_of(&self, executor: &Store) -> Result<Duration, Failure> {
        let random = random(1);
        let key = format!("bench:wake:{random:032x}");
        let begin = executor.attempt(&key, random)?;
        let Begun::Yours(grant) = executor.records()?.begin(&begin, executor.until()).await? else {
            return Err("a new record is not ours".into());
        };
        let waits = Begin { wake: true, ..self.store.attempt(&key, random + 1)? };
        if !matches!(self.begin(&waits).await?, Begun::Running { .. }) {
            return Err("the record is not running".into());
        }
        let (store, told) = (self.store.clone(), self.told.clone());
        let waiter = tokio::spawn(async move {
            told.0.notified().await;
            let begun = store.records()?.begin(&waits, store.until()).await?;
            Ok::<_, Failure>((begun, Instant::now()))
        });
        tokio::time::sleep(REST).await;
        let outcome = Outcome::Completed(b"done".as_slice().into());
        let settle = Settle { hold: begin.hold(grant.fence), fingerprint: None, outcome, keep: LIMIT };
        let began = Instant::now();
        executor.records()?.settle(&settle, executor.until()).await?;
        match waiter.await?? {
            (Begun::Completed(_), arrived) => Ok(arrived - began),
            _ => Err("woken before there was a result".into()),
        }
    }

    async fn begin(&self, begin: &Begin) -> Result<Begun, Failure> {
        Ok(self.store.records()?.begin(begin, self.store.until()).await?)
    }
}
