//! Faults of a cluster while many tasks lock, and the verdict on what they saw.
#![cfg(feature = "redis")]

mod story;

use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testkit::{
    ClusterSet,
    history::Violation,
    load::{self, Kind, Load},
};
use story::Story;

/// What the death of a primary may cost where nobody waits for replicas: a grant that was not copied.
fn follows_lost_lease(violation: &Violation) -> bool {
    violation.lost_lease_at().is_some()
}

async fn client(set: &ClusterSet) -> Leasehold {
    Leasehold::builder(set.url()).command_timeout(Duration::from_secs(2)).connect().await.unwrap()
}

fn slots_of(load: &Load) -> Vec<u16> {
    (0..load.names).map(|number| ClusterSet::slot(&format!("lock:{}", load.name(number)))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_that_move_under_load_never_make_two_holders() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let load = Load { names: 3, ..Load::default() };
    let slots: Vec<_> = Kind::ALL.into_iter().flat_map(|kind| slots_of(&load.of_kind(kind))).collect();
    let story = Story::begin(load, &[client(&set).await, client(&set).await]);
    let (rounds, primaries) = (6, set.primaries());
    for round in 0..rounds {
        story.goes_on(load::grants(800) / rounds).await;
        for (n, slot) in slots.iter().enumerate() {
            let to = primaries[(n + round as usize) % primaries.len()];
            tokio::task::block_in_place(|| set.move_slot(*slot, to));
        }
    }
    story.goes_on(20).await;
    story.end(|_| false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn primaries_that_change_under_load_cost_no_fence() {
    let Some(set) = ClusterSet::builder().start_or_skip() else { return };
    let load = Load { names: 6, ..Load::default() };
    let key = format!("lock:{}", load.of_kind(Kind::Permits).name(0));
    let story = Story::begin(load, &[client(&set).await, client(&set).await]);
    let grants = load::grants(800) / 4;
    story.goes_on(grants).await;
    // By plan.
    let promoted = tokio::task::block_in_place(|| set.failover_of(set.primary_of(&key)));
    promoted.cli(&["SCRIPT", "FLUSH"]);
    story.goes_on(grants).await;
    // By a crash.
    tokio::task::block_in_place(|| set.await_ok());
    promoted.kill();
    let next = tokio::task::block_in_place(|| set.await_new_primary_of(&key, promoted));
    next.cli(&["SCRIPT", "FLUSH"]);
    story.goes_on(grants).await;
    promoted.restart();
    tokio::task::block_in_place(|| set.await_ok());
    story.goes_on(grants).await;
    story.end(follows_lost_lease).await;
}
