//! Latches whose slot moves to another node of a cluster, and latches after a promotion.

use leasehold::{
    engine::{
        Fault, Renewed,
        latches::{Op, Said},
    },
    error::Refusal,
};
use leasehold_testkit::{ClusterSet, SentinelSet};

use super::every_server::{LONG, open, soon};
use super::{JOIN, ask, join, request};

/// The slot may be on its way for longer than a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_participant_is_renewed_while_its_keys_are_on_two_nodes_and_counts_when_they_have_arrived() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let [from, to, ..] = set.primaries()[..] else { panic!("at least two primaries") };
    let name = set.name_on(from, "migration");
    let slot = ClusterSet::slot(&format!("lock:{name}"));
    let engine = open(set.url());
    for moves in ["latch", "latch_ends"] {
        let generation = join(&engine, 1, &name).await;
        let key = format!("leasehold:{moves}:{{lock:{name}}}");
        assert_eq!(from.cli(&["EXISTS", &key]).int(), 1, "{key}");
        set.begin_move(slot, from, to);
        set.migrate_keys(from, to, &[&key]);
        let hold = request(1, &name, JOIN).hold(generation, LONG);
        let renewed = engine.leases().renew(&[hold], soon()).await.unwrap().remove(0).unwrap();
        assert!(matches!(renewed, Renewed::Kept { .. }), "{moves}");
        let counted = tokio::spawn({
            let (engine, request) = (engine.clone(), request(1, &name, Op::CountDown { generation }));
            async move { ask(&engine, &request).await }
        });
        set.migrate_slot(slot, from, to);
        set.end_move(slot, to);
        assert!(matches!(counted.await.unwrap().said, Said::Counted { missing: 1, .. }));
        ask(&engine, &request(2, &name, JOIN)).await;
        ask(&engine, &request(2, &name, Op::Leave { breaks: true })).await;
        assert_eq!(ask(&engine, &request(9, &name, Op::Rearm { generation })).await.said, Said::Rearmed);
        set.move_slot(slot, from);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_grace_no_latch_is_armed_and_one_that_is_there_goes_on() {
    let Some(set) = SentinelSet::builder().down_after(LONG * 10).start_or_skip() else { return };
    let before = open(set.url());
    let generation = join(&before, 1, "x").await;
    let engine = open(format!("{}?grace=on", set.url()));
    let error = engine.latches().unwrap().ask(&request(2, "new", JOIN), soon()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Refused(Refusal::ReadOnly), "{error}");
    assert!(error.why.contains("the primary is new"), "{error}");
    let counted = ask(&engine, &request(1, "x", Op::CountDown { generation })).await;
    assert!(matches!(counted.said, Said::Counted { missing: 1, .. }), "{counted:?}");
}
