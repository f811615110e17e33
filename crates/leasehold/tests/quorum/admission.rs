//! Which nodes may vote: those that were admitted, in one quorum, once each.

use std::time::{Duration, Instant};

use leasehold::{
    Attempt, Error, ErrorKind, Leasehold, Refusal,
    engine::{MemberState, quorum::list_of, voter::Abstention},
};
use leasehold_testkit::{QuorumSet, RedisServer, eventually_async};

use crate::fixture::{LONG, all_vote, builder, client, held, ms, nodes, quorum, states};

const MAX_TTL: Duration = Duration::from_secs(1);

/// The words of a node's record: layout, set, epoch, n, index, identity, longest ttl, state.
fn record(node: &RedisServer) -> Vec<String> {
    node.cli(&["GET", "leasehold:quorum"]).text().split(' ').map(str::to_owned).collect()
}

async fn is_granted(leases: &Leasehold) -> bool {
    matches!(leases.lock("x").try_acquire().await, Ok(Attempt::Held(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_were_not_admitted_say_how_to_do_it() {
    let Some(set) = nodes(3).start_or_skip() else { return };
    let leases = client(&set, MAX_TTL);
    let error = leases.lock("x").wait(ms(500)).acquire().await.unwrap_err();
    assert!(matches!(error, Error::StoreRefused { refusal: Refusal::Abstention, .. }), "{error:?}");
    assert!(error.to_string().contains("only 0 of 3 nodes can vote; 2 are required"), "{error}");
    assert!(error.to_string().contains("abstains: not admitted yet"), "{error}");
    assert!(error.to_string().contains("`leasehold quorum admit --new`"), "{error}");
    assert!(builder(set.url(), MAX_TTL).connect().await.is_err());
    // Nobody admits them by asking.
    assert!(states(&leases).await.iter().all(|state| matches!(state, MemberState::Abstains { .. })));
    assert!(set.nodes().iter().all(|node| node.cli(&["EXISTS", "leasehold:quorum"]).int() == 0));
    leases.quorum().unwrap().admit_new().await.unwrap();
    assert!(is_granted(&leases).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_quorum_takes_all_of_its_nodes() {
    let Some(set) = nodes(3).start_or_skip() else { return };
    set.nodes()[1].kill();
    let leases = client(&set, MAX_TTL);
    let error = leases.quorum().unwrap().admit_new().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&set.nodes()[1].addr().to_string()) && text.contains("must answer"), "{text}");
    assert!([0, 2].iter().all(|at| set.nodes()[*at].cli(&["EXISTS", "leasehold:quorum"]).int() == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_a_quorum_are_made_a_new_one_only_on_purpose() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    // Also when only one of them remembers it.
    set.nodes()[..2].iter().for_each(|node| drop(node.cli(&["FLUSHALL"])));
    let before = record(&set.nodes()[2]);
    let error = leases.quorum().unwrap().admit_new().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("is part of a quorum already"), "{error}");
    assert_eq!(record(&set.nodes()[2]), before);
    leases.quorum().unwrap().replace().await.unwrap();
    all_vote(&leases).await;
    assert_ne!(record(&set.nodes()[2])[1], before[1]);
}

fn url_of<const N: usize>(nodes: [&RedisServer; N]) -> String {
    format!("redlock://{}", nodes.map(|node| node.addr().to_string()).join(","))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_quorum_does_not_count() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let Some(other) = nodes(3).start_or_skip() else { return };
    let [first, second, _] = set.nodes() else { panic!("three nodes") };
    // It was one of ours, until somebody made it part of another quorum.
    let mixed = builder(url_of([first, second, &other.nodes()[0]]), MAX_TTL).connect_lazy().unwrap();
    mixed.quorum().unwrap().replace().await.unwrap();
    client(&other, MAX_TTL).quorum().unwrap().replace().await.unwrap();
    let before = record(&other.nodes()[0]);
    let url = url_of([first, second, &other.nodes()[0]]);
    let leases = builder(url, MAX_TTL).connect_lazy().unwrap();
    assert_eq!(states(&leases).await[2], MemberState::Abstains { why: Abstention::OtherSet });
    let _ = held(&leases, "x").await.release().await.unwrap();
    assert!(other.nodes()[0].cli(&["KEYS", "lock:*"]).list().is_empty());
    // One of each is no majority, whichever of them is heard first, last, or for a while not at all.
    second.kill();
    let mixed = builder(url_of([first, second, &other.nodes()[0]]), MAX_TTL).command_timeout(ms(500));
    let leases = mixed.connect_lazy().unwrap();
    for silent in [first, &other.nodes()[0], first] {
        let error = leases.lock("x").try_acquire().await.unwrap_err();
        silent.stop();
        assert!(leases.lock("x").wait(ms(1000)).acquire().await.is_err(), "{error}");
        silent.cont();
        for _ in 0..10 {
            assert!(leases.lock("x").try_acquire().await.is_err(), "{error}");
        }
    }
    eventually_async(LONG, "the reason", || async {
        let error = leases.lock("x").try_acquire().await.unwrap_err();
        error.to_string().contains("belongs to another quorum")
    })
    .await;
    assert_eq!(record(&other.nodes()[0]), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_another_list_is_refused_and_brings_nobody_in() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let Some(stranger) = RedisServer::builder().start_or_skip() else { return };
    let [a, b, c] = set.nodes() else { panic!("three nodes") };
    let ours = client(&set, MAX_TTL);
    for (url, refused) in [(url_of([a, b, &stranger]), 2), (url_of([b, a, c]), 3)] {
        let other = builder(&url, MAX_TTL).connect_lazy().unwrap();
        let began = Instant::now();
        while began.elapsed() < MAX_TTL * 2 {
            let error = other.lock("x").try_acquire().await.unwrap_err();
            assert!(matches!(error, Error::StoreRefused { refusal: Refusal::Abstention, .. }), "{error:?}");
            let words =
                "this quorum was admitted with other addresses or in another order; all clients must use";
            assert_eq!(error.to_string().matches(words).count(), refused, "{error}");
            tokio::time::sleep(ms(50)).await;
        }
        assert!(states(&other).await.iter().all(|state| matches!(state, MemberState::Abstains { .. })));
        assert_eq!(stranger.cli(&["DBSIZE"]).int(), 0, "it was brought in");
        other.close().await.unwrap();
        let _ = held(&ours, "x").await.release().await.unwrap();
    }
    // A server that starts empty at an address of the list comes back by itself.
    c.restart();
    eventually_async(LONG, "it to vote again", || async {
        let _ = held(&ours, "y").await.release().await.unwrap();
        !c.cli(&["GET", "leasehold:quorum"]).is_nil() && record(c)[7] == "votes"
    })
    .await;
}

/// A URL in which the first node has two names.
fn with_a_twin(set: &QuorumSet) -> String {
    let [first, second, _] = set.nodes() else { panic!("three nodes") };
    format!("redlock://{},localhost:{},{}", first.addr(), first.port(), second.addr())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_under_two_names_is_refused() {
    let Some(set) = nodes(3).start_or_skip() else { return };
    let url = with_a_twin(&set);
    let leases = builder(&url, MAX_TTL).connect_lazy().unwrap();
    let error = leases.quorum().unwrap().admit_new().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("are one server"), "{error}");
    assert_eq!(set.nodes()[0].cli(&["EXISTS", "leasehold:quorum"]).int(), 0);
    let error = leases.lock("x").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("are one server"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_under_two_names_never_votes_twice() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let url = with_a_twin(&set);
    // The second name led to another server when the quorum was admitted.
    let list = list_of(url.trim_start_matches("redlock://").split(','));
    for node in set.nodes() {
        let mut words = record(node);
        words[1] = format!("0f.{list}");
        node.cli(&["SET", "leasehold:quorum", &words.join(" ")]);
    }
    for _ in 0..20 {
        let leases = builder(&url, MAX_TTL).connect_lazy().unwrap();
        // Either it is found out at once, or the others were faster, and it does not vote.
        let _refused_or_granted_by_two_servers = leases.lock("warm up").try_acquire().await;
        set.nodes()[1].stop();
        let attempt = leases.lock("x").wait(ms(100)).acquire().await;
        set.nodes()[1].cont();
        assert!(attempt.is_err(), "one server is no majority of three");
        leases.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_longer_than_the_quorum_allows_is_refused_with_the_limit() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, LONG);
    for error in [
        leases.lock("x").try_acquire().await.map(drop).unwrap_err(),
        leases.lock("x").wait(LONG * 10).acquire().await.map(drop).unwrap_err(),
        leases.lock("x").ttl(ms(600)).lock_delay(ms(600)).acquire().await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::StoreRefused { .. }) && !error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains("this quorum allows 1000 ms"), "{error}");
    }
    let _ = leases.lock("x").ttl(MAX_TTL).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_became_a_replica_does_not_count() {
    let Some(set) = quorum(3, LONG).await else { return };
    let leases = client(&set, LONG);
    all_vote(&leases).await;
    let guard = held(&leases, "kept").await;
    let [first, second, third] = set.nodes() else { panic!("three nodes") };
    first.cli(&["REPLICAOF", "127.0.0.1", &third.port().to_string()]);
    eventually_async(LONG, "the copy", || async {
        first.info("master_link_status").as_deref() == Some("up")
    })
    .await;
    // The first one has all the votes of the third by now, and counts for none of them. The third, whose data set got
    // another name when it was copied, may have been somebody else's copy: it waits too.
    eventually_async(LONG, "nobody to be granted anything", || async {
        leases.lock("x").wait(ms(100)).acquire().await.is_err()
    })
    .await;
    let error = leases.lock("x").wait(ms(100)).acquire().await.unwrap_err();
    assert!(error.to_string().contains("only 1 of 3 nodes can vote"), "{error}");
    assert_eq!(states(&leases).await[1], MemberState::Votes);
    assert!(guard.is_held() && second.is_up());
}
