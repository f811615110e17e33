//! Nodes forget what they voted for: nobody gets a second majority out of it, and they come back by themselves.

use std::time::{Duration, Instant};

use leasehold::{Attempt, Clock, Error, Leasehold, Refusal, engine::MemberState};
use leasehold_testkit::{
    QuorumSet, QuorumSetBuilder, RedisServer, eventually_async,
    load::{self, Load},
};

use crate::{
    fixture::{
        LONG, admit, all_vote, builder, calls, client, has, held, ms, nodes, nothing_is_left, quorum, states,
    },
    story::Story,
};

const MAX_TTL: Duration = Duration::from_secs(2);

fn load() -> Load {
    Load { ttl: MAX_TTL, wait: LONG, ..Load::default() }
}

/// When each node was first seen to abstain, and to vote again after that.
struct Sightings(tokio::task::JoinHandle<Vec<(Instant, Instant)>>);

impl Sightings {
    /// Looks until all of `watched` have abstained and vote again.
    fn begin(leases: &Leasehold, watched: Vec<usize>) -> Self {
        let leases = leases.clone();
        Self(tokio::spawn(async move {
            let (mut abstained, mut voted) = (vec![None; watched.len()], vec![None; watched.len()]);
            while voted.contains(&None) {
                let now = states(&leases).await;
                for (at, index) in watched.iter().enumerate() {
                    match now[*index] {
                        MemberState::Waits { .. } | MemberState::Abstains { .. } => {
                            abstained[at].get_or_insert_with(Instant::now);
                        }
                        MemberState::Votes if abstained[at].is_some() => {
                            voted[at].get_or_insert_with(Instant::now);
                        }
                        _ => {}
                    }
                }
                tokio::time::sleep(ms(20)).await;
            }
            abstained.into_iter().flatten().zip(voted.into_iter().flatten()).collect()
        }))
    }

    async fn end(self) -> Vec<(Instant, Instant)> {
        tokio::time::timeout(LONG, self.0).await.expect("they abstain, and vote again").unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_nodes_restarted_empty_under_load_never_make_two_holders() {
    let Some(set) = quorum(5, MAX_TTL).await else { return };
    let clients = [client(&set, MAX_TTL), client(&set, MAX_TTL)];
    all_vote(&clients[0]).await;
    let story = Story::begin(load(), &clients);
    let grants = load::grants(1200) / 3;
    story.goes_on(grants).await;
    let sightings = Sightings::begin(&clients[0], vec![0, 1]);
    set.nodes()[..2].iter().for_each(|node| node.kill());
    let killed = Instant::now();
    set.nodes()[..2].iter().for_each(|node| node.restart());
    story.goes_on(grants).await;
    for (abstained, voted) in sightings.end().await {
        assert!(voted - killed >= MAX_TTL, "it votes before everything it forgot has run out");
        assert!(abstained < voted);
    }
    // They are needed now, and have forgotten their fences.
    set.nodes()[3..].iter().for_each(|node| node.kill());
    story.goes_on(grants).await;
    story.end(|_| false).await;
    nothing_is_left(&set).await;
}

/// A load on three nodes while `breaks` breaks one of them, or all a little; afterwards all vote.
async fn survives(builder: QuorumSetBuilder, breaks: impl AsyncFnOnce(&QuorumSet, &Story)) {
    let Some(set) = builder.start_or_skip() else { return };
    admit(&set, MAX_TTL).await;
    let clients = [client(&set, MAX_TTL), client(&set, MAX_TTL)];
    all_vote(&clients[0]).await;
    let story = Story::begin(load(), &clients);
    let grants = load::grants(1000) / 2;
    story.goes_on(grants / 2).await;
    breaks(&set, &story).await;
    story.goes_on(grants / 2).await;
    all_vote(&clients[0]).await;
    // Another node is gone: the one that forgot decides.
    set.nodes()[2].kill();
    story.goes_on(grants).await;
    story.end(|_| false).await;
    nothing_is_left(&set).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_node_never_makes_two_holders() {
    survives(nodes(3), async |set, _| {
        set.nodes()[0].cli(&["FLUSHALL"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_rolled_back_to_an_old_dump_never_makes_two_holders() {
    survives(nodes(3).arg("appendonly", "no"), async |set, story| {
        set.nodes()[0].cli(&["SAVE"]);
        story.goes_on(100).await;
        set.nodes()[0].restart_with_dump();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_lost_their_scripts_and_connections_go_on() {
    survives(nodes(3), async |set, story| {
        for round in 0..6 {
            for node in set.nodes() {
                node.cli(&["SCRIPT", "FLUSH"]);
            }
            story.goes_on(20).await;
            // One after the other, and then all at once.
            let some = if round < 3 { &set.nodes()[round..=round] } else { set.nodes() };
            for node in some {
                for kind in ["normal", "pubsub"] {
                    node.cli(&["CLIENT", "KILL", "TYPE", kind]);
                }
            }
            story.goes_on(20).await;
        }
    })
    .await;
}

/// A lock that only the first two nodes have, the first of which forgets it: the others are no majority before the lease
/// is over, however often they are asked.
async fn is_not_granted_twice(builder: QuorumSetBuilder, forgets: impl Fn(&RedisServer)) {
    let max_ttl = MAX_TTL * 2;
    let Some(set) = builder.start_or_skip() else { return };
    admit(&set, max_ttl).await;
    let (leases, other) = (client(&set, max_ttl), client(&set, max_ttl));
    let _ = held(&other, "warm up").await.release().await.unwrap();
    set.nodes()[0].cli(&["SAVE"]);
    let guard = leases.lock("x").wait(LONG).acquire().await.unwrap();
    eventually_async(LONG, "the first node to have it", || async {
        guard.extend().await.unwrap();
        has(&set.nodes()[0], "x") && has(&set.nodes()[1], "x")
    })
    .await;
    // As if the vote had never reached it.
    set.nodes()[2].cli(&["DEL", "lock:x"]);
    forgets(&set.nodes()[0]);
    let granted = async {
        loop {
            if let Ok(Attempt::Held(next)) = other.lock("x").try_acquire().await {
                assert!(!guard.is_held(), "two hold it");
                return next;
            }
            tokio::time::sleep(ms(10)).await;
        }
    };
    let next = tokio::time::timeout(LONG, granted).await.expect("a grant once the lease is over");
    assert!(next.fence() > guard.fence(), "{} after {}", next.fence(), guard.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_not_granted_twice_when_a_node_is_wiped() {
    is_not_granted_twice(nodes(3), |node| drop(node.cli(&["FLUSHALL"]))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_not_granted_twice_when_a_node_starts_empty() {
    is_not_granted_twice(nodes(3), RedisServer::restart).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_not_granted_twice_when_a_node_is_rolled_back() {
    is_not_granted_twice(nodes(3).arg("appendonly", "no"), RedisServer::restart_with_dump).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_keeps_its_lock_while_all_nodes_restart_with_their_data() {
    let Some(set) = quorum(3, LONG).await else { return };
    let (leases, other) = (client(&set, LONG), client(&set, LONG));
    let guard = held(&leases, "x").await;
    set.nodes().iter().for_each(|node| node.restart_with_data());
    eventually_async(LONG / 2, "a renewal", || async { guard.extend().await.is_ok() }).await;
    assert!(guard.is_held());
    assert!(other.lock("x").try_acquire().await.is_err(), "nobody votes");
    let _ = guard.release().await.unwrap();
}

/// Nobody is granted anything, and the error says that it is because of what was forgotten.
async fn is_refused(leases: &Leasehold) -> String {
    match leases.lock("x").wait(ms(100)).acquire().await {
        Err(error @ Error::StoreRefused { refusal: Refusal::Abstention, .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_majority_forgot_nobody_is_granted_until_an_operator_says_so() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    let guard = held(&leases, "x").await;
    let old = guard.fence();
    let _ = guard.release().await.unwrap();
    set.nodes().iter().for_each(|node| node.kill());
    let killed = Instant::now();
    set.nodes().iter().for_each(|node| node.restart_with_data());
    eventually_async(LONG, "nobody to be granted anything", || async {
        leases.lock("x").try_acquire().await.is_err()
    })
    .await;
    eventually_async(LONG, "their time to be over", || async {
        states(&leases).await.iter().all(|state| matches!(state, MemberState::Waits { left_ms: 0, .. }))
    })
    .await;
    let why = is_refused(&leases).await;
    assert!(
        why.contains("only 0 of 3 nodes can vote; 2 are required") && why.contains("quorum admit"),
        "{why}"
    );

    leases.quorum().unwrap().admit().await.unwrap();
    all_vote(&leases).await;
    assert!(killed.elapsed() >= MAX_TTL);
    let next = held(&leases, "x").await;
    assert!(next.fence() > old, "{} after {old}", next.fence());
    let _ = next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admitted_majority_still_waits_for_what_it_forgot() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    let _ = held(&leases, "x").await.release().await.unwrap();
    set.nodes().iter().for_each(|node| node.kill());
    let killed = Instant::now();
    set.nodes().iter().for_each(|node| node.restart_with_data());
    let operator = client(&set, MAX_TTL);
    operator.quorum().unwrap().admit().await.unwrap();
    eventually_async(LONG, "a grant", || async { leases.lock("x").try_acquire().await.is_ok() }).await;
    assert!(killed.elapsed() >= MAX_TTL, "{:?}", killed.elapsed());
}

/// All nodes lose everything at once: one that is back before the others are gone would learn from them what they were.
fn lose_everything(set: &QuorumSet) {
    set.nodes().iter().for_each(|node| node.kill());
    set.nodes().iter().for_each(|node| node.restart());
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_forgot_even_that_they_were_a_quorum_only_a_new_one_helps() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    // Clients that go on asking notice the new quorum while it is being made.
    let clients: Vec<_> = (0..8).map(|_| client(&set, MAX_TTL)).collect();
    let mut last = held(&clients[0], "x").await.fence();
    let busy: Vec<_> = clients
        .iter()
        .map(|leases| {
            let leases = leases.clone();
            tokio::spawn(async move {
                loop {
                    let _refused_or_granted = leases.lock("y").try_acquire().await;
                    tokio::time::sleep(ms(5)).await;
                }
            })
        })
        .collect();
    for _ in 0..10 {
        lose_everything(&set);
        // Servers that have just started on a busy machine may take a while to answer.
        let operator = builder(set.url(), MAX_TTL).command_timeout(LONG / 2).connect_lazy().unwrap();
        let error = operator.quorum().unwrap().admit().await.unwrap_err();
        assert!(error.to_string().contains("`leasehold quorum admit --new`"), "{error}");
        operator.quorum().unwrap().admit_new().await.unwrap();
        let next = operator.lock("x").wait(LONG).acquire().await.unwrap();
        assert!(next.fence() > last, "{} after {last}", next.fence());
        last = next.fence();
        all_vote(&operator).await;
        operator.close().await.unwrap();
    }
    busy.iter().for_each(|task| task.abort());
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_go_on_when_all_is_lost_and_the_admitting_clients_clock_is_behind() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let old = held(&client(&set, MAX_TTL), "x").await.fence();
    lose_everything(&set);
    // It begins years ago.
    let operator = builder(set.url(), MAX_TTL).clock(Clock::tokio()).connect_lazy().unwrap();
    operator.quorum().unwrap().admit_new().await.unwrap();
    let next = client(&set, MAX_TTL).lock("x").wait(LONG).acquire().await.unwrap();
    assert!(next.fence() > old, "{} after {old}", next.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_only_renews_notices_a_restarted_node() {
    let Some(set) = quorum(3, LONG).await else { return };
    let leases = client(&set, LONG);
    let guard = held(&leases, "x").await;
    // The admission asked for its status and wrote its record; the first claim asked, and so did the two inspections that
    // come with it. On a busy machine they may come after the restart, and notice it too.
    let asked = async || calls(&set.nodes()[2], "persist") >= 5;
    let _late = tokio::time::timeout(ms(5_000), eventually_async(LONG, "the inspections", asked)).await;
    set.nodes()[2].restart();
    // Long before it looks at nodes that seem to vote.
    eventually_async(LONG / 3, "the node to be watched", || async {
        let record = set.nodes()[2].cli(&["GET", "leasehold:quorum"]);
        !record.is_nil() && record.text().contains(" waits ")
    })
    .await;
    assert!(guard.is_held());
}
