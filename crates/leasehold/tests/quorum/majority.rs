//! No majority votes: everybody is told so in time, and what it takes.

use std::time::{Duration, Instant};

use leasehold::{Attempt, Error, Leasehold, Refusal, engine::MemberState};
use leasehold_testkit::eventually_async;

use crate::fixture::{LONG, all_vote, client, held, ms, quorum, states};

const MAX_TTL: Duration = Duration::from_secs(3);

/// What an attempt that may wait for a second is told; it does not take much longer.
async fn told(leases: &Leasehold) -> Error {
    let began = Instant::now();
    let error = leases.lock("other").wait(ms(1000)).acquire().await.unwrap_err();
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    error
}

/// What it is told once those that live have answered in time, which a busy machine may prevent for a while.
async fn told_that(leases: &Leasehold, words: &str) -> Error {
    let mut error = told(leases).await;
    for _ in 0..20 {
        if error.to_string().contains(words) {
            return error;
        }
        error = told(leases).await;
    }
    panic!("not told that {words}: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_two_of_three_nodes_dead_everybody_is_told_in_time() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    all_vote(&leases).await;
    let guard = held(&leases, "x").await;
    set.nodes()[..2].iter().for_each(|node| node.kill());
    let error = told_that(&leases, "only 1 of 3 nodes can vote; 2 are required").await;
    assert!(matches!(error, Error::StoreUnreachable { .. }), "{error:?}");
    let text = error.to_string();
    for node in &set.nodes()[..2] {
        assert!(text.contains(&node.addr().to_string()), "{text}");
    }
    tokio::time::timeout(LONG, guard.lost()).await.expect("the holder is told");
    assert!(!guard.is_held());
    let asks_once = leases.lock("x").try_acquire().await;
    assert!(matches!(asks_once, Err(Error::StoreUnreachable { .. })), "{asks_once:?}");

    // One comes back with its data, but in another run: what it did in between cannot be known.
    let node = &set.nodes()[0];
    node.restart_with_data();
    let forgot = || async {
        matches!(states(&leases).await[0], MemberState::Waits { .. } | MemberState::Abstains { .. })
    };
    eventually_async(LONG, "the node to abstain", forgot).await;
    eventually_async(LONG, "the error to say how long", || async {
        let text = leases.lock("other").try_acquire().await.unwrap_err().to_string();
        text.contains(&format!("{} waits, ", node.addr())) && text.contains(" s left")
    })
    .await;
    // With the other one back there are still too few that could teach it.
    set.nodes()[1].restart_with_data();
    let over = |state: &MemberState| matches!(state, MemberState::Waits { left_ms: 0, .. });
    eventually_async(LONG, "their time to be over", || async { states(&leases).await[..2].iter().all(over) })
        .await;
    let error = told_that(&leases, "too few others vote").await;
    assert!(matches!(error, Error::StoreRefused { refusal: Refusal::Abstention, .. }), "{error:?}");
    assert!(error.to_string().contains("`leasehold quorum admit`"), "{error}");
    leases.quorum().unwrap().admit().await.unwrap();
    all_vote(&leases).await;
    let _ = held(&leases, "x").await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_two_of_three_nodes_standing_still_everybody_is_told_in_time() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    all_vote(&leases).await;
    let guard = held(&leases, "x").await;
    set.nodes()[..2].iter().for_each(|node| node.stop());
    let error = told_that(&leases, "only 1 of 3 nodes can vote; 2 are required").await;
    assert!(matches!(error, Error::StoreUnreachable { .. }), "{error:?}");
    tokio::time::timeout(LONG, guard.lost()).await.expect("the holder is told");
    // They did not restart, so they have forgotten nothing.
    set.nodes()[..2].iter().for_each(|node| node.cont());
    eventually_async(LONG, "locks as before", || async {
        matches!(leases.lock("x").try_acquire().await, Ok(Attempt::Held(_)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_of_an_even_number_of_nodes_is_no_majority_and_nobody_hangs() {
    let Some(set) = quorum(4, MAX_TTL).await else { return };
    let clients = [client(&set, MAX_TTL), client(&set, MAX_TTL)];
    all_vote(&clients[0]).await;
    // Two that fight for one name get two votes each, now and then.
    let (mut fences, mut tasks) = (Vec::new(), tokio::task::JoinSet::new());
    for leases in clients.iter().cycle().take(8) {
        let leases = leases.clone();
        tasks.spawn(async move {
            let mut fences = Vec::new();
            for _ in 0..10 {
                let guard = held(&leases, "fight").await;
                fences.push(guard.fence());
                let _ = guard.release().await.unwrap();
            }
            fences
        });
    }
    while let Some(some) = tasks.join_next().await {
        fences.extend(some.unwrap());
    }
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 80);

    set.nodes()[..2].iter().for_each(|node| node.kill());
    for leases in &clients {
        told_that(leases, "only 2 of 4 nodes can vote; 3 are required").await;
    }
}
