//! Single scenarios, each with its own question.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use leasehold::{
    Error, ErrorKind, Fence, Leasehold, Refusal,
    engine::{
        Members, Released,
        quorum::Quorum,
        voter::{Record, State},
    },
};

use crate::{
    fleet::{COMMAND, client, options},
    memory::Memory,
    network::{Network, Weather, set_id},
    plan::TTL_MAX,
    run::virtually,
};

const MS: Duration = Duration::from_millis(1);

/// Nodes a millisecond away, and a client of them.
fn quiet(nodes: usize) -> (Arc<Network>, Leasehold) {
    let network = Network::new(1, nodes, TTL_MAX, None);
    network.set_weather(Weather::STILL);
    let leases = client(&network, Arc::new(Quorum::over(network.voters(0), options(&network))), 1);
    (network, leases)
}

async fn took<T>(network: &Network, future: impl Future<Output = T>) -> (T, Duration) {
    let began = network.clock.now();
    (future.await, network.clock.now().since(began))
}

/// A client that has much to give back at once is busy; its nodes are not unreachable.
#[test]
fn releases_of_a_busy_client_wait_for_their_turn() {
    virtually(async {
        let (network, leases) = quiet(3);
        let locks = (0..500).map(|number| leases.lock(format!("x-{number}")).ttl(TTL_MAX).acquire());
        let guards = join_all(locks).await.into_iter().map(Result::unwrap);
        // Those that go first take longer than a command may.
        network.set_weather(Weather { usual_ms: 100, slow_ms: 100, ..Weather::STILL });
        let (outcomes, took) = took(&network, join_all(guards.map(|guard| guard.release()))).await;
        for outcome in outcomes {
            let _ = outcome.unwrap();
        }
        assert!(took > COMMAND, "{took:?}");
    });
}

/// Its nodes hang for a moment when a claim's turn has come: it had no time to ask again before.
#[test]
fn claims_of_a_busy_client_outlast_a_pause_of_the_nodes() {
    virtually(async {
        let (network, leases) = quiet(3);
        let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
        network.set_weather(Weather { usual_ms: 100, slow_ms: 100, ..Weather::STILL });
        let locks = (0..300).map(|number| leases.lock(format!("x-{number}")).wait(20_000 * MS).acquire());
        let locks = tokio::spawn(join_all(locks));
        tokio::time::sleep(2 * COMMAND).await;
        (0..3).for_each(|node| network.hang(node, COMMAND));
        let outcomes = locks.await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok), "{:?}", outcomes.iter().find(|outcome| outcome.is_err()));
    });
}

/// A vote that is still in line when its lock is given back never leaves. That node has nothing to give back, and must not
/// look as if the lock had been lost there.
#[test]
fn a_release_counts_a_node_whose_vote_never_left() {
    virtually(async {
        let (network, leases) = quiet(3);
        let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
        tokio::time::sleep(1000 * MS).await;
        network.hang(2, COMMAND / 4);
        let mut guards = Vec::new();
        // Each time so many that they share calls; those to the third node are used up after a few.
        for round in 0..8 {
            let locks = (0..6).map(|number| leases.lock(format!("{round}-{number}")).ttl(TTL_MAX).acquire());
            guards.extend(join_all(locks).await.into_iter().map(Result::unwrap));
        }
        network.hang(1, 60_000 * MS);
        for outcome in join_all(guards.split_off(42).into_iter().map(|guard| guard.release())).await {
            assert_eq!(outcome.unwrap(), Released::Free);
        }
    });
}

/// One node says yes, one no, and the third hangs: nobody has a majority, and the yes must not stay in others' way for as
/// long as a node may take.
#[test]
fn a_divided_round_does_not_wait_for_a_node_that_hangs() {
    virtually(async {
        let (network, holder) = quiet(3);
        let other = client(&network, Arc::new(Quorum::over(network.voters(0), options(&network))), 2);
        let _ = other.lock("y").acquire().await.unwrap().release().await.unwrap();
        let held = holder.lock("x").ttl(TTL_MAX).without_keep_alive().acquire().await.unwrap();
        tokio::time::sleep(100 * MS).await;
        network.touch(1, |node, _| node.lose_key(held.name()));
        network.hang(2, 60_000 * MS);
        let (attempt, tried_in) = took(&network, other.lock("x").ttl(TTL_MAX).try_acquire()).await;
        assert!(attempt.unwrap().held().is_none());
        assert!(tried_in < COMMAND / 4, "{tried_in:?}");
    });
}

#[test]
fn a_hanging_minority_slows_nobody() {
    virtually(async {
        for (nodes, hanging) in [(3, 1), (4, 1), (5, 2)] {
            let (network, _) = quiet(nodes);
            (0..hanging).for_each(|node| network.hang(node, 60_000 * MS));
            let leases = client(&network, Arc::new(Quorum::over(network.voters(0), options(&network))), 2);
            let (guard, acquired_in) = took(&network, leases.lock("x").acquire()).await;
            let (outcome, released_in) = took(&network, guard.unwrap().release()).await;
            let _ = outcome.unwrap();
            // Each node is asked where it stands, with a little patience for the last ones, then for its vote.
            assert!(acquired_in <= 11 * MS, "{nodes} nodes: {acquired_in:?}");
            assert!(released_in <= 4 * MS, "{nodes} nodes: {released_in:?}");
            let (again, acquired_in) = took(&network, leases.lock("x").acquire()).await;
            let _ = again.unwrap().release().await.unwrap();
            assert!(acquired_in <= 4 * MS, "{nodes} nodes: {acquired_in:?}");
        }
    });
}

#[test]
fn nodes_that_begin_to_hang_slow_nobody() {
    virtually(async {
        for (nodes, hanging) in [(3, 1), (4, 1), (5, 2)] {
            let (network, leases) = quiet(nodes);
            let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
            // Until the client knows that all of them vote.
            tokio::time::sleep(1000 * MS).await;
            (0..hanging).for_each(|node| network.hang(node, 60_000 * MS));
            let (guard, acquired_in) = took(&network, leases.lock("x").acquire()).await;
            let guard = guard.unwrap();
            let (extended, extended_in) = took(&network, guard.extend()).await;
            extended.unwrap();
            let (outcome, released_in) = took(&network, guard.release()).await;
            let _ = outcome.unwrap();
            let slowest = acquired_in.max(extended_in).max(released_in);
            assert!(slowest <= 4 * MS, "{nodes} nodes: {acquired_in:?} {extended_in:?} {released_in:?}");
        }
    });
}

#[test]
fn a_node_that_comes_back_knows_the_fences_of_the_others() {
    virtually(async {
        let (network, _) = quiet(3);
        let by = |skew_us| Arc::new(Quorum::over(network.voters(skew_us), options(&network)));
        let ahead = client(&network, by(20_000_000), 2);
        network.hang(2, 1000 * MS);
        let guard = ahead.lock("x").acquire().await.unwrap();
        let first = guard.fence();
        let _ = guard.release().await.unwrap();
        network.touch(1, |node, _| node.restart(Memory::default()));
        let behind = client(&network, by(-5_000_000), 3);
        tokio::time::sleep(1000 * MS).await;
        let _ = behind.lock("y").acquire().await.unwrap().release().await.unwrap();
        tokio::time::sleep(2 * TTL_MAX).await;
        assert_eq!(network.admitted(), 3);
        // Only the one that forgot has ever heard of the first fence.
        network.hang(0, 60_000 * MS);
        let guard = behind.lock("x").acquire().await.unwrap();
        assert!(guard.fence() > first, "{} after {first}", guard.fence());
        let _ = guard.release().await.unwrap();
    });
}

#[test]
fn without_a_majority_every_call_fails_in_time() {
    virtually(async {
        for (nodes, hanging) in [(3, 2), (4, 2), (5, 3)] {
            let (network, leases) = quiet(nodes);
            let held = leases.lock("held").ttl(1000 * MS).keep_alive().acquire().await.unwrap();
            (0..hanging).for_each(|node| network.hang(node, 60_000 * MS));
            let (tried, tried_in) = took(&network, leases.lock("x").try_acquire()).await;
            assert_eq!(tried.unwrap_err().kind(), ErrorKind::StoreUnreachable, "{nodes} nodes");
            assert!(tried_in <= COMMAND + 10 * MS, "{nodes} nodes: {tried_in:?}");
            let (waited, waited_in) = took(&network, leases.lock("x").wait(1000 * MS).acquire()).await;
            assert_eq!(waited.unwrap_err().kind(), ErrorKind::StoreUnreachable, "{nodes} nodes");
            assert!(waited_in <= 1010 * MS, "{nodes} nodes: {waited_in:?}");
            let lost = tokio::time::timeout(1000 * MS, held.lost()).await;
            assert!(lost.is_ok(), "{nodes} nodes: it is still believed to be held");
        }
    });
}

#[test]
fn a_waiter_is_woken_by_the_release() {
    virtually(async {
        let (network, leases) = quiet(5);
        let first = leases.lock("x").ttl(TTL_MAX).acquire().await.unwrap();
        let other = client(&network, Arc::new(Quorum::over(network.voters(0), options(&network))), 2);
        let next = tokio::spawn(async move { other.lock("x").wait(3000 * MS).acquire().await });
        // Between two questions of the waiter.
        tokio::time::sleep(1500 * MS).await;
        let asked = network.clock.now();
        let _ = first.release().await.unwrap();
        let guard = next.await.unwrap().unwrap();
        let handed_over_in = network.clock.now().since(asked);
        let _ = guard.release().await.unwrap();
        assert!(handed_over_in <= 20 * MS, "{handed_over_in:?}");
    });
}

#[test]
fn two_addresses_of_one_node_are_one_vote() {
    virtually(async {
        let (network, _) = quiet(3);
        // The second name led to another server once.
        let list = [0, 0, 1];
        for node in list {
            network.touch(node, |node, _| node.memory.record.as_mut().unwrap().set = set_id(&list));
        }
        let quorum = Quorum::over(network.voters_of(&list, 0), options(&network));
        let leases = client(&network, Arc::new(quorum), 2);
        network.hang(1, 60_000 * MS);
        for _ in 0..5 {
            leases.lock("x").try_acquire().await.unwrap_err();
            tokio::time::sleep(1000 * MS).await;
        }
    });
}

#[test]
fn a_client_with_another_list_finds_no_second_majority() {
    virtually(async {
        let (network, leases) = quiet(4);
        let lists = [[0, 1, 2], [0, 1, 3], [1, 0, 2]];
        for (index, node) in lists[0].into_iter().enumerate() {
            network.touch(node, |node, _| {
                let record = node.memory.record.as_mut().unwrap();
                (record.set, record.n, record.index) = (set_id(&lists[0]), 3, index as u32);
            });
        }
        network.touch(3, |node, _| node.memory = Memory::default());
        drop(leases);
        let [ours, other, turned] = lists
            .map(|list| Arc::new(Quorum::over(network.voters_of(&list, 0), options(&network))))
            .map(|quorum| client(&network, quorum, 2));
        let guard = ours.lock("x").keep_alive().acquire().await.unwrap();
        for _ in 0..8 {
            for stranger in [&other, &turned] {
                let refused = stranger.lock("x").try_acquire().await.unwrap_err().to_string();
                assert!(refused.contains("all clients must use the same list"), "{refused}");
            }
            tokio::time::sleep(TTL_MAX / 2).await;
        }
        assert!(guard.is_held());
        assert!(network.touch(3, |node, _| node.memory.record.is_none()), "it was brought in");
        // At the same address a node comes back by itself.
        network.touch(2, |node, _| node.restart(Memory::default()));
        for _ in 0..50 {
            let _ = ours.lock("y").acquire().await.unwrap().release().await.unwrap();
            tokio::time::sleep(TTL_MAX / 10).await;
        }
        assert_eq!(network.admitted(), 3);
    });
}

#[test]
fn a_node_that_cannot_be_marked_is_left_in_peace() {
    virtually(async {
        let (network, leases) = quiet(3);
        let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
        network.touch(0, |node, _| {
            node.memory = Default::default();
            node.is_full = true;
        });
        for _ in 0..100 {
            let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
            tokio::time::sleep(100 * MS).await;
        }
        let marks = network.touch(0, |node, _| node.marks);
        assert!((2..=110).contains(&marks), "{marks} in ten seconds");
        network.touch(0, |node, _| node.is_full = false);
        tokio::time::sleep(2 * TTL_MAX).await;
        assert_eq!(network.admitted(), 3);
    });
}

/// Every node comes back as it was in the beginning, and a person says that it shall go on.
#[test]
fn a_quorum_that_forgot_everything_waits_for_a_person_and_repeats_no_fence() {
    virtually(async {
        let (network, leases) = quiet(3);
        (0..3).for_each(|node| network.touch(node, |node, _| node.dump = Some(node.memory.clone())));
        let mut last = Fence::default();
        for round in 0..4 {
            let guard = leases.lock("x").ttl(200 * MS).acquire().await.unwrap();
            assert!(guard.fence() > last, "round {round}: {} after {last}", guard.fence());
            last = guard.fence();
            let _ = guard.release().await.unwrap();
            (0..3).for_each(|node| {
                network.touch(node, |node, _| node.restart(node.dump.clone().unwrap_or_default()));
            });
            tokio::time::sleep(3 * TTL_MAX).await;
            let refused = leases.lock("x").try_acquire().await.unwrap_err();
            let why = matches!(refused, Error::StoreRefused { refusal: Refusal::Abstention, .. });
            assert!(why, "round {round}: {refused}");
            let person = Quorum::over(network.voters(0), options(&network));
            person.admit(network.clock.now() + COMMAND).await.unwrap();
            tokio::time::sleep(2 * TTL_MAX).await;
            assert_eq!(network.admitted(), 3, "round {round}");
        }
    });
}

/// A client of nodes a millisecond away.
fn another(network: &Arc<Network>, seed: u64) -> (Leasehold, Arc<Quorum>) {
    let quorum = Arc::new(Quorum::over(network.voters(0), options(network)));
    (client(network, quorum.clone(), seed), quorum)
}

/// A job of a few looks, or of less than one: it takes a lock, and ends.
async fn job(network: Arc<Network>, seed: u64, lasts: Duration) {
    let (leases, _) = another(&network, seed);
    let _ = leases.lock(format!("job-{seed}")).acquire().await.unwrap().release().await.unwrap();
    tokio::time::sleep(lasts).await;
    leases.close().await.unwrap();
}

#[test]
fn a_node_comes_back_in_time_while_clients_come_and_go() {
    virtually(async {
        for (steady, every) in [(true, 50 * MS), (false, 50 * MS), (false, 8 * MS)] {
            let (network, leases) = quiet(3);
            let steady = Some(leases).filter(|_| steady);
            if let Some(leases) = &steady {
                let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
            }
            network.touch(2, |node, _| node.restart(Memory::default()));
            let began = network.clock.now();
            for number in 0.. {
                if network.admitted() == 3 {
                    break;
                }
                let watched = network.clock.now().since(began);
                assert!(watched < 2 * TTL_MAX, "{number} jobs, one every {every:?}: it still waits");
                tokio::spawn(job(network.clone(), number, 60 * MS));
                tokio::time::sleep(every).await;
            }
            assert!(network.clock.now().since(began) >= TTL_MAX);
        }
    });
}

#[test]
fn jobs_one_after_the_other_bring_a_node_back() {
    virtually(async {
        let (network, _) = quiet(3);
        network.touch(2, |node, _| node.restart(Memory::default()));
        let began = network.clock.now();
        for number in 0.. {
            if network.admitted() == 3 {
                break;
            }
            assert!(network.clock.now().since(began) < 2 * TTL_MAX, "{number} jobs: it still waits");
            job(network.clone(), number, 30 * MS).await;
        }
        assert!(network.clock.now().since(began) >= TTL_MAX);
    });
}

#[test]
fn a_new_quorum_is_admitted_whatever_running_clients_do_meanwhile() {
    virtually(async {
        for seed in 0..30 {
            let network = Network::new(seed, 3, TTL_MAX, None);
            let clients: Vec<_> = (0..8).map(|number| another(&network, number).0).collect();
            for leases in &clients {
                let _ = leases.lock("x").wait(1000 * MS).acquire().await.unwrap().release().await.unwrap();
            }
            (0..3).for_each(|node| network.touch(node, |node, _| node.restart(Memory::default())));
            let mut busy = tokio::task::JoinSet::new();
            for leases in clients {
                busy.spawn(async move {
                    loop {
                        let _refused = leases.lock("y").try_acquire().await;
                        tokio::time::sleep(5 * MS).await;
                    }
                });
            }
            tokio::time::sleep(100 * MS).await;
            let operator = another(&network, 9).1;
            operator.admit_new(false, network.clock.now() + COMMAND).await.unwrap();
            busy.shutdown().await;
            assert_eq!(network.admitted(), 3, "seed {seed}");
        }
    });
}

/// Another client reads the new quorum from its first node, and begins to watch the second before that is admitted.
#[test]
fn an_admission_goes_on_over_a_node_that_is_watched_already() {
    virtually(async {
        let (network, _) = quiet(3);
        (0..3).for_each(|node| network.touch(node, |node, _| node.restart(Memory::default())));
        let (nodes, operator) = (network.clone(), another(&network, 2).1);
        let watches = tokio::spawn(async move {
            let first = loop {
                if let Some(first) = nodes.touch(0, |node, _| node.memory.record.clone()) {
                    break first;
                }
                tokio::time::sleep(MS / 2).await;
            };
            nodes.touch(1, |node, _| {
                let state = State::Waits { nonce: "n".into(), watched_ms: 0 };
                let record = Record { state, index: 1, identity: node.identity(), ..first };
                assert_eq!(node.memory.record.replace(record), None);
            });
        });
        operator.admit_new(false, network.clock.now() + COMMAND).await.unwrap();
        watches.await.unwrap();
        assert_eq!(network.admitted(), 3);
    });
}

#[test]
fn what_an_operator_allowed_once_is_not_allowed_the_next_time() {
    virtually(async {
        let (network, leases) = quiet(3);
        let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
        let operator = another(&network, 2).1;
        for allowed in [true, false] {
            (0..3).for_each(|node| network.touch(node, |node, _| node.restart(node.memory.clone())));
            if allowed {
                operator.admit(network.clock.now() + COMMAND).await.unwrap();
            }
            // Long enough for a look at nodes that all seemed to vote.
            tokio::time::sleep(30 * TTL_MAX).await;
            assert_eq!(network.admitted() == 3, allowed);
        }
    });
}

#[test]
fn a_node_whose_clock_is_wrong_says_why_it_does_not_come_back() {
    virtually(async {
        let (network, leases) = quiet(3);
        let (_, quorum) = another(&network, 2);
        network.touch(2, |node, _| {
            node.restart(Memory::default());
            node.wall_ahead_us = -600_000_000;
        });
        for leases in [leases, client(&network, quorum.clone(), 3)] {
            let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
        }
        tokio::time::sleep(3 * TTL_MAX).await;
        let state = quorum.list(network.clock.now() + COMMAND).await.remove(2).state.to_string();
        assert!(state.starts_with("waits: ") && state.contains("clock"), "{state}");
        let stranger = another(&network, 4).1;
        let state = stranger.list(network.clock.now() + COMMAND).await.remove(2).state.to_string();
        assert!(state.starts_with("waits: ") && state.contains("clock"), "{state}");
        // In time again, it comes back.
        network.touch(2, |node, _| node.wall_ahead_us = 0);
        tokio::time::sleep(TTL_MAX).await;
        assert_eq!(network.admitted(), 3);
    });
}
