//! Nodes that forgot, and the record by which they know it.

use leasehold_testkit::eventually;

use super::*;

async fn abstains(voter: &RedisVoter) -> Abstention {
    match vote(voter, claim(9)).await {
        Vote::Abstains(why) => why,
        other => panic!("it votes: {other:?}"),
    }
}

/// The first answer of a server that was away.
async fn vote_again(voter: &RedisVoter) -> Vote {
    let started = std::time::Instant::now();
    loop {
        match voter.vote(&ballot(claim(9)), soon()).await {
            Ok(vote) => return vote,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn without_a_record_a_node_does_not_vote() {
    let Some((server, voter, record)) = admitted().await else { return };
    voter.vote_under(None);
    assert_eq!(abstains(&voter).await, Abstention::NotAdmitted);
    let waits = State::Waits { nonce: "n".into(), watched_ms: 0 };
    let waits = Record { state: waits, ..record.clone() };
    assert!(voter.write_record(Some(&record), &waits, Fence::new(0), soon()).await.unwrap());
    voter.vote_under(Some(waits));
    assert_eq!(abstains(&voter).await, Abstention::Forgot);
    assert!(!voter.repair(&hold(&claim(9), 1), soon()).await.unwrap());
    voter.vote_under(Some(record));
    let connection = voter.connection.link(soon()).await.unwrap().number;
    assert_eq!(abstains(&voter).await, Abstention::Forgot, "the node itself knows that it waits");
    assert_eq!(voter.connection.link(soon()).await.unwrap().number, connection, "it stays connected");
    assert!(!voter.repair(&hold(&claim(9), 1), soon()).await.unwrap());
    assert_eq!(server.cli(&["EXISTS", "lock:x"]).int(), 0);
}

#[tokio::test]
async fn a_node_of_another_quorum_does_not_vote() {
    let Some((_server, voter, record)) = admitted().await else { return };
    for other in [
        Record { set: "0".into(), ..record.clone() },
        Record { epoch: 2, ..record.clone() },
        Record { n: 5, ..record.clone() },
        Record { index: 1, ..record },
    ] {
        voter.vote_under(Some(other));
        assert_eq!(abstains(&voter).await, Abstention::OtherSet);
    }
}

#[tokio::test]
async fn a_restarted_node_does_not_vote() {
    let Some((server, voter, record)) = admitted().await else { return };
    yes(vote(&voter, claim(1)).await);
    server.restart();
    assert_eq!(vote_again(&voter).await, Vote::Abstains(Abstention::Forgot));
    let status = voter.status(soon()).await.unwrap();
    assert_ne!(status.identity, record.identity);
    assert_eq!((status.record, status.highest.get()), (None, 0));
    // Even if its record came back.
    server.cli(&["SET", "leasehold:quorum", &record.to_string()]);
    assert_eq!(abstains(&voter).await, Abstention::Forgot);
    assert!(!voter.repair(&hold(&claim(1), 1), soon()).await.unwrap());
    assert!(
        !voter.write_record(Some(&record), &record, Fence::new(0), soon()).await.unwrap(),
        "of another run"
    );
}

#[tokio::test]
async fn a_flushed_node_does_not_vote() {
    let Some((server, voter, _)) = admitted().await else { return };
    yes(vote(&voter, claim(1)).await);
    server.cli(&["FLUSHALL"]);
    assert_eq!(abstains(&voter).await, Abstention::NotAdmitted);
    assert!(!voter.repair(&hold(&claim(1), 1), soon()).await.unwrap());
    assert_eq!(server.cli(&["DBSIZE"]).int(), 0);
}

#[tokio::test]
async fn a_node_rolled_back_to_an_old_dump_does_not_vote() {
    let Some((server, voter, record)) = admitted().await else { return };
    server.cli(&["SAVE"]);
    yes(vote(&voter, claim(1)).await);
    server.restart_with_dump();
    assert_eq!(server.cli(&["GET", "leasehold:quorum"]).text(), record.to_string());
    assert_eq!(vote_again(&voter).await, Vote::Abstains(Abstention::Forgot));
    assert_eq!(server.cli(&["EXISTS", "lock:x"]).int(), 0);
}

#[tokio::test]
async fn a_node_that_was_a_replica_for_a_while_does_not_vote() {
    let (Some(server), Some(replica)) = (redis_or_skip(), redis_or_skip()) else { return };
    let follow = |who: &RedisServer, whom: &RedisServer| {
        who.cli(&["REPLICAOF", "127.0.0.1", &whom.port().to_string()]);
        eventually(PATIENCE, "the copy to be complete", || {
            who.cli(&["INFO", "replication"]).text().contains("master_link_status:up")
        });
    };
    follow(&replica, &server);
    let (voter, another) = (voter_at(server.addr()), voter_at(server.addr()));
    let record = admit(&voter).await;
    assert_eq!(another.status(soon()).await.unwrap().identity, record.identity);
    eventually(PATIENCE, "the record to be copied", || !replica.cli(&["GET", "leasehold:quorum"]).is_nil());
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    yes(vote(&voter, claim(1)).await);
    // The record comes back from the replica, the vote does not, and the connection lives on.
    follow(&server, &replica);
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(server.cli(&["GET", "leasehold:quorum"]).text(), record.to_string());
    assert_eq!(server.cli(&["EXISTS", "lock:x"]).int(), 0);

    assert!(!voter.repair(&hold(&claim(1), u64::MAX >> 12), soon()).await.unwrap());
    assert_eq!(abstains(&voter).await, Abstention::Forgot);
    assert_ne!(another.status(soon()).await.unwrap().identity, record.identity);
    admit(&voter).await;
    yes(vote(&voter, claim(2)).await);
}

#[tokio::test]
async fn of_two_that_write_a_record_one_succeeds() {
    let Some(server) = redis_or_skip() else { return };
    let (one, another) = (voter_at(server.addr()), voter_at(server.addr()));
    let identity = one.status(soon()).await.unwrap().identity;
    let of = |set: &str| Record {
        state: State::Votes,
        set: set.into(),
        epoch: 1,
        n: 3,
        index: 0,
        identity: identity.clone(),
        max_ms: MAX_MS,
    };
    let (first, second) = (of("1"), of("2"));
    let (a, b) = tokio::join!(
        one.write_record(None, &first, Fence::new(5), soon()),
        another.write_record(None, &second, Fence::new(6), soon())
    );
    let (a, b) = (a.unwrap(), b.unwrap());
    assert!(a != b, "{a} {b}");
    let (won, floor) = if a { (&first, 5) } else { (&second, 6) };
    let status = another.status(soon()).await.unwrap();
    assert_eq!((status.record.as_ref(), status.highest.get()), (Some(won), floor));
    assert_eq!(server.cli(&["GET", "leasehold:quorum:floor"]).int() as u64, floor, "who lost raises nothing");

    let third = of("3");
    let lost = if a { &second } else { &first };
    assert!(!one.write_record(Some(lost), &third, Fence::new(9), soon()).await.unwrap());
    assert!(!one.write_record(None, &third, Fence::new(9), soon()).await.unwrap());
    assert!(one.write_record(Some(won), &third, Fence::new(9), soon()).await.unwrap());
    assert!(one.write_record(Some(&third), &third, Fence::new(u64::MAX), soon()).await.is_err(), "no fence");
}

#[tokio::test]
async fn a_record_of_an_unknown_layout_is_never_overwritten() {
    let Some((server, voter, record)) = admitted().await else { return };
    for unknown in ["2 of another version", ""] {
        server.cli(&["SET", "leasehold:quorum", unknown]);
        let status = voter.status(soon()).await.unwrap();
        assert!(status.unknown_layout && status.record.is_none());
        assert_eq!(abstains(&voter).await, Abstention::UnknownLayout);
        for seen in [None, Some(&record)] {
            assert!(!voter.write_record(seen, &record, Fence::new(1), soon()).await.unwrap());
        }
        assert_eq!(server.cli(&["GET", "leasehold:quorum"]).text(), unknown);
    }
}

#[tokio::test]
async fn a_floor_of_a_wrong_clock_is_refused() {
    let Some((server, voter, record)) = admitted().await else { return };
    let ahead = |seconds: u64| Fence::new(Clock::system().wall_us() + seconds * 1_000_000);
    let error = voter.write_record(Some(&record), &record, ahead(400), soon()).await.unwrap_err();
    assert!(error.to_string().contains("clock of this node is too far behind"), "{error}");
    assert_eq!(voter.status(soon()).await.unwrap().highest, Fence::new(0), "nothing was raised");
    let highest = ahead(120);
    assert!(voter.write_record(Some(&record), &record, highest, soon()).await.unwrap());
    assert_eq!(voter.status(soon()).await.unwrap().highest, highest);
    // What it gave already is no news.
    let far = ahead(100_000).to_string();
    server.cli(&["SET", "leasehold:quorum:highest", &far]);
    let far = Fence::new(far.parse().unwrap());
    assert!(voter.write_record(Some(&record), &record, far, soon()).await.unwrap());
}
