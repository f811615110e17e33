//! Records whose slot moves to another node of a cluster, and records after a promotion.

use leasehold::{
    engine::{
        Fault, Renewed,
        records::{Begin, Begun, MarkOp, Outcome, Settled},
    },
    error::Refusal,
};
use leasehold_testkit::{ClusterSet, RedisServer, SentinelSet, eventually};

use crate::fixture::{Client, LONG, attempt, end, name, paid, soon};

fn start() -> Option<ClusterSet> {
    ClusterSet::builder().replicas(0).start_or_skip()
}

/// A key, its slot, the primary that has it and one that has not.
fn place(set: &ClusterSet) -> (String, u16, &RedisServer, &RedisServer) {
    let [from, to, ..] = set.primaries()[..] else { panic!("at least two primaries") };
    let key = set.key_on(from, "x");
    let slot = ClusterSet::slot(&key);
    (key, slot, from, to)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_record_is_followed_and_who_waits_is_woken_there() {
    let Some(set) = start() else { return };
    let (key, slot, from, to) = place(&set);
    let (a, b) = (Client::open(set.url()), Client::open(set.url()));
    let one = attempt(&key, None);
    let fence = a.begun(&one).await.fence;
    let watching = Begin { wake: true, ..attempt(&key, None) };
    assert!(matches!(b.begin(&watching).await, Begun::Running { .. }));
    set.move_slot(slot, to);
    // The server ended its subscription: it asks again, and is heard of at the other node.
    assert!(matches!(b.begin(&watching).await, Begun::Running { .. }));
    eventually(LONG, "the watcher", || {
        to.cli(&["SCARD", &format!("leasehold:watchers:{{{key}}}")]).int() == 1
    });
    assert_eq!(a.records().settle(&end(&one, fence, paid()), soon()).await.unwrap(), Settled::Stored);
    eventually(LONG, "the wake-up", || b.told(&watching) > 0);
    assert!(matches!(b.begin(&watching).await, Begun::Completed(_)));
    set.move_slot(slot, from);
    assert!(matches!(b.begin(&watching).await, Begun::Completed(_)));
    assert!(a.records().remove(&one.key, soon()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_renewed_while_its_keys_are_on_two_nodes_and_settled_when_they_have_arrived() {
    let Some(set) = start() else { return };
    let (key, slot, from, to) = place(&set);
    let client = std::sync::Arc::new(Client::open(set.url()));
    let begun_key = format!("leasehold:begun:{{{key}}}");
    for record_moves in [true, false] {
        for outcome in [paid(), Outcome::Retry] {
            let one = attempt(&key, None);
            let fence = client.begun(&one).await.fence;
            set.begin_move(slot, from, to);
            set.migrate_keys(from, to, &[if record_moves { &key } else { &begun_key }]);
            let renewed = client.leases().renew(&[one.hold(fence)], soon()).await.unwrap();
            assert!(matches!(renewed[..], [Ok(Renewed::Kept { .. })]), "{renewed:?}");
            assert!(client.records().read(&one.key, soon()).await.unwrap().is_some());
            let settled = tokio::spawn({
                let (client, settle) = (client.clone(), end(&one, fence, outcome.clone()));
                async move { client.records().settle(&settle, soon()).await }
            });
            set.migrate_slot(slot, from, to);
            set.end_move(slot, to);
            assert_eq!(settled.await.unwrap().unwrap(), Settled::Stored);
            match client.begin(&attempt(&key, None)).await {
                Begun::Completed(_) => assert_eq!(outcome, paid()),
                Begun::Yours(grant) => assert!(outcome == Outcome::Retry && grant.fence > fence),
                other => panic!("{other:?}"),
            }
            client.records().remove(&one.key, soon()).await.unwrap();
            set.move_slot(slot, from);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_are_found_while_those_of_one_slot_are_on_two_nodes() {
    let Some(set) = start() else { return };
    let (key, slot, from, to) = place(&set);
    let client = Client::open(set.url());
    let (here, there) = (format!("{{{key}}}:here"), format!("{{{key}}}:there"));
    let keys = [&here, &there, &format!("{{{key}}}:nowhere"), &"elsewhere".to_owned()].map(|key| name(key));
    client.records().on_marks(&keys[..2], MarkOp::Set(LONG), soon()).await.unwrap();
    set.begin_move(slot, from, to);
    set.migrate_keys(from, to, &[&there]);
    assert_eq!(
        client.records().on_marks(&keys, MarkOp::Test, soon()).await.unwrap(),
        [true, true, false, false]
    );
    assert_eq!(
        client.records().on_marks(&keys, MarkOp::Clear, soon()).await.unwrap(),
        [true, true, false, false]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_begun_in_a_grace_and_what_is_there_is_told() {
    let Some(set) = SentinelSet::builder().replicas(1).down_after(LONG * 10).start_or_skip() else { return };
    let client = Client::open(format!("{}?grace=on", set.url()));
    let (one, known) = (attempt("x", None), attempt("known", None));
    let error = client.try_begin(&one).await.unwrap_err();
    assert_eq!(error.fault, Fault::Refused(Refusal::ReadOnly), "{error}");
    assert!(error.why.contains("GRACE"), "{error}");
    assert_eq!(set.primary().cli(&["DEL", "leasehold:grace"]).int(), 1);
    let fence = client.begun(&known).await.fence;
    set.primary().cli(&["SET", "leasehold:grace", "x", "PX", "60000"]);
    assert!(matches!(client.begin(&attempt("known", None)).await, Begun::Running { .. }));
    assert_eq!(client.begun(&known).await.fence, fence);
    assert_eq!(client.records().settle(&end(&known, fence, paid()), soon()).await.unwrap(), Settled::Stored);
    assert!(matches!(client.begin(&attempt("known", None)).await, Begun::Completed(_)));
    assert!(client.try_begin(&one).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_found_at_the_primary_that_the_sentinels_name_after_a_promotion() {
    let Some(set) = SentinelSet::builder().start_or_skip() else { return };
    let client = Client::open(set.url());
    let (one, done) = (attempt("x", None), attempt("done", None));
    let fence = client.begun(&done).await.fence;
    client.records().settle(&end(&done, fence, paid()), soon()).await.unwrap();
    let fence = client.begun(&one).await.fence;
    eventually(LONG, "copies", || set.replicas().iter().all(|node| node.cli(&["EXISTS", "x"]).int() == 1));
    set.failover();
    // Until the client has noticed, nothing is answered from the old one's data.
    let began = std::time::Instant::now();
    loop {
        match client.records().settle(&end(&one, fence, paid()), soon()).await {
            Ok(settled) => break assert_eq!(settled, Settled::Stored),
            Err(error) => assert!(began.elapsed() < LONG, "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(matches!(client.begin(&attempt("done", None)).await, Begun::Completed(_)));
}
