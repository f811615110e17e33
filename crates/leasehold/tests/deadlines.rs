//! Pools of deadlines as callers use them, on `memory:` with tokio's time.
#![cfg(feature = "memory")]

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use leasehold::{
    Clock, Deadline, Error, ErrorKind, Leasehold,
    clock::Until,
    deadlines::{Placement, PoolStats, Receipt, Settle, SettleOutcome},
    engine::{Fut, deadlines as contract},
};
use leasehold_testkit::conformance::{Tamper, Wrapped};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

async fn client(store: &str) -> Leasehold {
    Leasehold::builder(format!("memory:{store}")).clock(Clock::tokio()).connect().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_claimed_when_it_is_due_with_its_context_and_not_before() {
    let leases = client("").await;
    let pool = leases.deadlines("payments");
    pool.set_json("tx:42", 30 * SECOND, &("EUR", 100)).await.unwrap();
    pool.set_with("tx:43", 40 * SECOND, vec![0, 255]).await.unwrap();
    tokio::time::advance(29 * SECOND).await;
    assert!(pool.claim().limit(100).visibility(MINUTE).await.unwrap().due.is_empty());
    tokio::time::advance(11 * SECOND).await;
    assert_eq!(pool.peek(10).await.unwrap().len(), 2);
    let mut claimed = pool.claim().limit(100).visibility(MINUTE).await.unwrap();
    assert!(!claimed.more && pool.peek(10).await.unwrap().is_empty());
    claimed.due.sort_by(|a, b| a.id().cmp(b.id()));
    let [first, second] = &claimed.due[..] else { panic!("{claimed:?}") };
    assert_eq!((first.id(), first.attempt(), first.overdue()), ("tx:42", 1, 10 * SECOND));
    assert_eq!(first.context_as::<(String, u64)>().unwrap(), Some(("EUR".into(), 100)));
    assert_eq!(second.context().map(|context| &context[..]), Some(&[0, 255][..]));
    let error = second.context_as::<u64>().unwrap_err().to_string();
    assert!(error.contains("tx:43") && error.contains("u64"), "{error}");
    assert_eq!(first.hidden_for(), MINUTE - Duration::from_millis(602));
    let settled = claimed.acknowledge().await.unwrap();
    assert_eq!(
        settled,
        claimed.due.iter().map(|due| (due.id().into(), SettleOutcome::Settled)).collect::<Vec<_>>()
    );
    assert_eq!(settled.len(), 2);
    assert_eq!(pool.stats().await.unwrap(), PoolStats::default());
    let stats = leases.stats();
    assert_eq!((stats.deadlines_claimed, stats.deadlines_done), (2, 2));
    assert!(stats.prometheus().contains("\nleasehold_deadlines_done_total 2\n"));
}

#[tokio::test(start_paused = true)]
async fn a_late_word_about_an_old_claim_changes_nothing() {
    let leases = client("").await;
    let pool = leases.deadlines("payments");
    pool.set("tx:42", Duration::ZERO).await.unwrap();
    let slow = pool.claim().limit(1).visibility(SECOND).await.unwrap().due.remove(0);
    tokio::time::advance(SECOND).await;
    let quick = pool.claim().limit(1).visibility(SECOND).await.unwrap().due.remove(0);
    assert_eq!((slow.attempt(), quick.attempt()), (1, 2));
    assert_eq!(slow.clone().acknowledge().await.unwrap(), SettleOutcome::Stale);
    assert_eq!(slow.clone().postpone(MINUTE).await.unwrap(), SettleOutcome::Stale);
    assert_eq!(slow.bury("too late").await.unwrap(), SettleOutcome::Stale);
    pool.set("tx:42", MINUTE).await.unwrap();
    assert_eq!(quick.acknowledge().await.unwrap(), SettleOutcome::Stale, "it was set again since");
    assert_eq!(pool.stats().await.unwrap(), PoolStats { pending: 1, ..PoolStats::default() });
    assert!(pool.cancel("tx:42").await.unwrap() && !pool.cancel("tx:42").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_was_postponed_comes_back_and_what_was_buried_does_not() {
    let leases = client("").await;
    let pool = leases.deadlines("payments");
    pool.set_many(&[
        Deadline::new("again", SystemTime::UNIX_EPOCH),
        Deadline::new("dead", SystemTime::UNIX_EPOCH).context("why it mattered"),
    ])
    .await
    .unwrap();
    for due in pool.claim().limit(100).visibility(MINUTE).await.unwrap() {
        let settled = match due.id() {
            "again" => due.postpone(2 * MINUTE).await.unwrap(),
            _ => due.bury("no such account").await.unwrap(),
        };
        assert!(settled.is_settled());
    }
    tokio::time::advance(2 * MINUTE - SECOND).await;
    assert!(pool.claim().limit(100).visibility(MINUTE).await.unwrap().due.is_empty());
    tokio::time::advance(SECOND).await;
    let back = pool.claim().limit(100).visibility(MINUTE).await.unwrap();
    assert_eq!(back.due.iter().map(|due| (due.id(), due.attempt())).collect::<Vec<_>>(), [("again", 2)]);
    let dead = pool.dead_page(None, 10).await.unwrap();
    assert!(dead.next.is_none());
    assert_eq!((&*dead.items[0].id, &*dead.items[0].why), ("dead", "no such account"));
    assert_eq!(dead.items[0].context.as_deref(), Some(b"why it mattered".as_slice()));
    pool.set("dead", Duration::ZERO).await.unwrap();
    let revived = pool.claim().limit(100).visibility(MINUTE).await.unwrap();
    assert_eq!((revived.due[0].attempt(), pool.stats().await.unwrap().dead), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn everything_that_one_claim_got_can_be_acknowledged_at_once() {
    let leases = client("").await;
    let pool = leases.deadlines("payments");
    let many: Vec<_> = (0..16_000).map(|n| Deadline::new(format!("tx:{n}"), Duration::ZERO)).collect();
    pool.set_many(&many).await.unwrap();
    let claimed = pool.claim().limit(1_000).visibility(MINUTE).await.unwrap();
    assert!(claimed.due.len() > 10_000, "{}", claimed.due.len());
    assert!(claimed.acknowledge().await.unwrap().iter().all(|(_, outcome)| outcome.is_settled()));
    let left = 16_000 - claimed.due.len();
    assert_eq!(pool.stats().await.unwrap().pending, left as u64);
    let ids: Vec<_> = many.iter().map(|deadline| deadline.id.clone()).collect();
    let cancelled = pool.cancel_many(&ids).await.unwrap();
    assert_eq!(cancelled.iter().filter(|there| **there).count(), left);
}

/// Notes how many deadlines each call settles.
#[derive(Clone, Default)]
struct CountSettled(Arc<Mutex<Vec<usize>>>);

impl Tamper for CountSettled {
    fn settle_deadlines<'a>(
        &'a self,
        inner: &'a dyn contract::Deadlines,
        pool: &'a contract::Pool,
        settlements: &'a [(Receipt, Settle)],
        until: Until,
    ) -> Fut<'a, Vec<bool>> {
        self.0.lock().unwrap().push(settlements.len());
        inner.settle(pool, settlements, until)
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_to_the_store_settles_more_than_ten_thousand() {
    let (settled, clock) = (CountSettled::default(), Clock::tokio());
    let builder = || Leasehold::builder("memory:").clock(clock.clone());
    let engine = Wrapped::new(builder().into_engine().unwrap(), settled.clone());
    let leases = builder().engine(Arc::new(engine)).connect().await.unwrap();
    let number = |n| (Receipt { id: format!("tx:{n}").into(), number: 1 }, Settle::Done);
    let many: Vec<_> = (0..25_000).map(number).collect();
    let outcomes = leases.deadlines("payments").settle(&many).await.unwrap();
    assert_eq!(outcomes.len(), 25_000);
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == SettleOutcome::Stale));
    assert_eq!(*settled.0.lock().unwrap(), [10_000, 10_000, 5_000]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_keeps_the_layout_it_was_made_with() {
    let leases = client("").await;
    let made = leases.deadlines("payments").buckets(8).placement(Placement::Together);
    made.set("tx:42", Duration::ZERO).await.unwrap();
    let error = leases.deadlines("payments").buckets(16).stats().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("8 buckets together") && text.contains("16 buckets spread"), "{text}");
    let unasked = leases.deadlines("payments");
    assert_eq!(unasked.layout().await.unwrap().map(|layout| layout.buckets), Some(8));
    assert_eq!(unasked.stats().await.unwrap().pending, 1);
    let error = made.placement(Placement::Spread).stats().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn what_is_out_of_range_is_refused_before_anything_is_sent() {
    let leases = client("").await;
    let pool = leases.deadlines("payments").context_max(10);
    let errors: [Error; 8] = [
        leases.deadlines("").stats().await.unwrap_err(),
        leases.deadlines("{a}").set("x", SECOND).await.unwrap_err(),
        leases.deadlines("other").buckets(0).stats().await.unwrap_err(),
        pool.set("", SECOND).await.unwrap_err(),
        pool.set_with("x", SECOND, "eleven bytes").await.unwrap_err(),
        pool.claim().limit(0).visibility(MINUTE).await.unwrap_err(),
        pool.claim().limit(1).visibility(Duration::from_millis(99)).await.unwrap_err(),
        pool.settle(&[(Receipt { id: "x".into(), number: 1 }, Settle::Postpone(Duration::MAX))])
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    leases.close().await.unwrap();
    assert_eq!(pool.stats().await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
#[cfg(feature = "redis")]
async fn a_quorum_keeps_no_deadlines_and_says_why() {
    let url = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    let leases = Leasehold::connect_lazy(url).unwrap();
    let error = leases.deadlines("payments").set("x", SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().starts_with("a pool of deadlines is not supported: "), "{error}");
    leases.close().await.unwrap();
}
