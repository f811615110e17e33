//! Barriers, through the public API.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use futures_util::future::join_all;
use leasehold::{
    Leasehold, Party,
    latch::{Arrived, Rearmed, Standing},
};

use super::{TestContext, label, ms, soon};
use crate::conformance::{
    Breakable, Wrapped,
    context::{poll_at_most, sleep},
    eventually,
};

cases! {
    eight_parties_pass_several_generations_together: Latches,
    a_party_that_dies_after_it_arrived_breaks_the_barrier: Latches Contract,
    a_dropped_party_breaks_the_barrier: Latches,
    an_arrival_that_is_dropped_is_repeated_and_counts_once: Latches,
    a_party_that_leaves_between_generations_is_replaced: Latches,
    a_broken_barrier_is_armed_again: Latches,
}

async fn join(client: &Leasehold, count: u32, name: &str) -> Party {
    let barrier = client.barrier("phase", count).ttl(ms(60_000)).label(name);
    barrier.join().await.unwrap().joined().expect("there is room")
}

async fn arrive(party: &Party) -> Arrived {
    soon("all arrive", party.arrive()).await.unwrap()
}

fn broken_by(arrived: &Arrived) -> &str {
    match arrived {
        Arrived::Broken { who, .. } => label(who.as_ref()),
        other => panic!("not broken: {other:?}"),
    }
}

async fn eight_parties_pass_several_generations_together(test: TestContext) {
    const PARTIES: u32 = 8;
    const PHASES: u32 = 5;
    let clients = [test.client().await, test.client().await];
    let arrived = Arc::new(AtomicU32::new(0));
    let tasks = (0..PARTIES).map(|number| {
        let (client, arrived) = (clients[number as usize % 2].clone(), arrived.clone());
        tokio::spawn(async move {
            let party = join(&client, PARTIES, &number.to_string()).await;
            let mut passed = Vec::new();
            for phase in 1..=PHASES {
                arrived.fetch_add(1, Ordering::SeqCst);
                let Arrived::Passed { generation, index } = arrive(&party).await else { panic!("broken") };
                let all = arrived.load(Ordering::SeqCst);
                assert!(all >= phase * PARTIES, "{all} arrived before phase {phase} was passed");
                passed.push((generation, index));
            }
            // Nobody leaves before all have passed: that would break the last generation for them.
            arrived.fetch_add(1, Ordering::SeqCst);
            (party, passed)
        })
    });
    let ended: Vec<_> = join_all(tasks).await.into_iter().map(|task| task.unwrap()).collect();
    for phase in 0..PHASES as usize {
        let mut indexes: Vec<_> = ended.iter().map(|(_, passed)| passed[phase].1).collect();
        indexes.sort_unstable();
        assert_eq!(indexes, (0..PARTIES).collect::<Vec<_>>());
        assert!(ended.iter().all(|(_, passed)| passed[phase].0 == ended[0].1[phase].0), "one generation");
    }
    assert!(ended[0].1.is_sorted_by(|(one, _), (next, _)| one < next));
    for (party, _) in ended {
        party.leave().await.unwrap();
    }
}

async fn a_party_that_dies_after_it_arrived_breaks_the_barrier(test: TestContext) {
    let (link, client) = (Breakable::default(), test.client().await);
    let engine = Arc::new(Wrapped::new(test.engine(), link.clone()));
    let dying = test.client_with(|builder| builder.engine(engine)).await;
    let dead = dying.barrier("phase", 2).ttl(ms(600)).label("the dead one").join().await.unwrap();
    let dead = dead.joined().unwrap();
    let arrived = dead.arrive_within(ms(0)).await.unwrap();
    assert!(matches!(arrived, Arrived::NotYet { missing: 1, .. }), "{arrived:?}");
    let other = join(&client, 2, "other").await;
    link.cut();
    soon("its lease is lost", dead.lost()).await;
    eventually("it is broken", async || {
        let state = client.barrier("phase", 2).state().await.unwrap().unwrap();
        matches!(state.standing, Standing::Broken { who } if label(who.as_ref()) == "the dead one")
    })
    .await;
    assert_eq!(broken_by(&arrive(&other).await), "the dead one");
    link.mend();
    assert_eq!(broken_by(&arrive(&dead).await), "the dead one");
}

async fn a_dropped_party_breaks_the_barrier(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let (party, dropped) = (join(&one, 2, "one").await, join(&two, 2, "the dropped one").await);
    let waiting = tokio::spawn(async move { arrive(&party).await });
    drop(dropped);
    assert_eq!(broken_by(&soon("it breaks", waiting).await.unwrap()), "the dropped one");
}

async fn an_arrival_that_is_dropped_is_repeated_and_counts_once(test: TestContext) {
    let client = test.client().await;
    let (one, other) = (join(&client, 2, "one").await, join(&client, 2, "other").await);
    let generation = one.generation();
    for polls in 1..8 {
        assert!(poll_at_most(polls, one.arrive()).await.is_none());
    }
    let (first, second) = tokio::join!(arrive(&one), async {
        sleep(ms(50)).await;
        arrive(&other).await
    });
    assert_eq!(first, Arrived::Passed { generation, index: 0 });
    assert_eq!(second, Arrived::Passed { generation, index: 1 });
    assert!(one.generation() > generation && one.generation() == other.generation());
    one.leave().await.unwrap();
    other.leave().await.unwrap();
}

async fn a_party_that_leaves_between_generations_is_replaced(test: TestContext) {
    let client = test.client().await;
    let (one, other) = (join(&client, 2, "one").await, join(&client, 2, "other").await);
    let (first, second) = tokio::join!(arrive(&one), arrive(&other));
    assert!(matches!((first, second), (Arrived::Passed { .. }, Arrived::Passed { .. })));
    other.leave().await.unwrap();
    let next = join(&client, 2, "next").await;
    let (first, second) = tokio::join!(arrive(&one), arrive(&next));
    assert!(matches!((first, second), (Arrived::Passed { .. }, Arrived::Passed { .. })));
    // One that has arrived is counted on.
    let arrived = next.arrive_within(ms(0)).await.unwrap();
    assert!(matches!(arrived, Arrived::NotYet { .. }), "{arrived:?}");
    next.leave().await.unwrap();
    assert_eq!(broken_by(&arrive(&one).await), "next");
}

async fn a_broken_barrier_is_armed_again(test: TestContext) {
    let client = test.client().await;
    let (one, other) = (join(&client, 2, "one").await, join(&client, 2, "other").await);
    let broken = one.generation();
    other.fail().await.unwrap();
    let Rearmed::Done { generation } = client.barrier("phase", 2).rearm(broken).await.unwrap() else {
        panic!("it is broken")
    };
    // A party of the broken generation takes no part in the next.
    assert_eq!(broken_by(&arrive(&one).await), "other");
    let (one, other) = (join(&client, 2, "one").await, join(&client, 2, "other").await);
    let (first, second) = tokio::join!(arrive(&one), arrive(&other));
    for arrived in [first, second] {
        assert!(matches!(arrived, Arrived::Passed { generation: passed, .. } if passed == generation));
    }
    one.leave().await.unwrap();
    other.leave().await.unwrap();
}
