//! Fences come from votes: one round trip when they agree, a second one when they do not, and they grow in any case.

use std::{sync::Arc, time::Duration};

use leasehold::{Leasehold, engine::Engine};
use leasehold_testkit::{QuorumSet, eventually_async};

use crate::fixture::{LONG, all_vote, builder, client, held, quorum};

const MAX_TTL: Duration = Duration::from_secs(60);

/// A client, and its engine, which counts.
fn counted(set: &QuorumSet) -> (Leasehold, Arc<dyn Engine>) {
    let engine = builder(set.url(), MAX_TTL).into_engine().unwrap();
    (builder(set.url(), MAX_TTL).engine(engine.clone()).connect_lazy().unwrap(), engine)
}

fn confirmed_of_granted(engine: &Arc<dyn Engine>) -> (u64, u64) {
    let rounds = engine.members().unwrap().rounds();
    (rounds.confirmed, rounds.granted)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fight_one_round_trip_decides() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let (leases, engine) = counted(&set);
    all_vote(&leases).await;
    for number in 0..1000 {
        let guard = leases.lock(format!("x-{}", number % 100)).acquire().await.unwrap();
        let _ = guard.release().await.unwrap();
    }
    let (confirmed, granted) = confirmed_of_granted(&engine);
    assert_eq!(granted, 1000);
    // None on a quiet machine. On a busy one a node that lags behind divides a round, and those after it until the clock has
    // caught up with the fence.
    assert!(confirmed * 20 <= granted, "{confirmed} of {granted} needed a second round trip");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_whose_fences_differ_are_brought_together_before_a_grant() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let (leases, engine) = counted(&set);
    all_vote(&leases).await;
    let [first, ahead, last] = set.nodes() else { panic!("three nodes") };
    // As if a client whose clock is ahead had asked this one only; ahead of what a new quorum begins with, too.
    let fence = held(&leases, "first").await.fence().get() + 1_000_000;
    let names: Vec<_> = (0..10).map(|number| format!("x-{number}")).collect();
    for name in &names {
        ahead.cli(&["SET", &format!("leasehold:fence:{{lock:{name}}}"), &fence.to_string()]);
    }
    last.stop();
    let mut fences = Vec::new();
    for name in &names {
        let guard = held(&leases, name).await;
        assert_eq!(guard.fence().get(), fence + 1);
        fences.push(guard.fence());
        let _ = guard.release().await.unwrap();
    }
    assert_eq!(confirmed_of_granted(&engine), (10, 11));
    // Another majority, and a client that has seen none of it: only what was confirmed on the first node can tell.
    last.cont();
    ahead.stop();
    let other = client(&set, MAX_TTL);
    for (name, before) in names.iter().zip(fences) {
        let guard = held(&other, name).await;
        assert!(guard.fence() > before, "{} after {before}", guard.fence());
        let _ = guard.release().await.unwrap();
    }
    ahead.cont();
    eventually_async(LONG, "the first node to answer", || async { first.is_up() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_forgot_learns_the_fences_before_it_votes() {
    let max_ttl = Duration::from_secs(1);
    let Some(set) = quorum(3, max_ttl).await else { return };
    let leases = client(&set, max_ttl);
    all_vote(&leases).await;
    // Fences of a new quorum are further ahead of the time than the test takes; one more, above what each begins with.
    let _ = held(&leases, "x").await.release().await.unwrap();
    let guard = held(&leases, "x").await;
    let before = guard.fence();
    let _ = guard.release().await.unwrap();
    let [first, second, third] = set.nodes() else { panic!("three nodes") };
    // One after the other, each learns from the others.
    for node in [first, second] {
        node.restart();
        // Votes find out that it was restarted.
        eventually_async(LONG, "the node to be watched", || async {
            let _granted_by_the_others = leases.lock("y").try_acquire().await;
            node.cli(&["EXISTS", "leasehold:quorum"]).int() == 1
        })
        .await;
        all_vote(&leases).await;
    }
    // Nobody who remembers the fence itself is asked.
    third.stop();
    let guard = held(&client(&set, max_ttl), "x").await;
    assert!(guard.fence() > before, "{} after {before}", guard.fence());
}
