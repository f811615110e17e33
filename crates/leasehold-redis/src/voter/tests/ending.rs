//! Withdrawals: whom they wake, and what can no longer happen after them.

use futures_util::FutureExt;
use leasehold_testkit::{FaultProxy, eventually, eventually_async};

use super::*;

async fn withdraw(voter: &RedisVoter, claim: &Claim) -> Withdrawn {
    voter.withdraw(&claim.name, &claim.owner, soon()).await.unwrap()
}

/// `arrival` is in milliseconds after some time that is not long ago.
async fn refused(voter: &RedisVoter, claim: &Claim, arrival: u64) {
    let ballot = ballot(claim.clone());
    let ballot = Ballot { arrival: ballot.arrival - 10_000_000 + arrival * 1000, ..(*ballot).clone() };
    assert!(matches!(voter.vote(&Arc::new(ballot), soon()).await, Ok(Vote::No { .. })));
}

fn waiters(server: &RedisServer) -> Vec<String> {
    let entries = server.cli(&["ZRANGE", "leasehold:waiters:{lock:x}", "0", "-1"]);
    entries.list().iter().map(|entry| entry.text().to_owned()).collect()
}

fn is_entry_of(entry: &str, claim: &Claim) -> bool {
    entry.starts_with("2 30000 30000 15000 leasehold:wake:") && entry.ends_with(claim.owner.expose())
}

#[tokio::test]
async fn a_withdrawal_takes_back_only_what_is_ours_and_says_what_it_found() {
    let Some((server, voter, _)) = admitted().await else { return };
    let fence = yes(vote(&voter, claim(1)).await);
    let other = withdraw(&voter, &claim(2)).await;
    assert_eq!(other, Withdrawn { was_ours: false, woke: 0, by: Some(fence), by_readers: false });
    assert!(holds(&server, &claim(1)));
    let ours = withdraw(&voter, &claim(1)).await;
    assert_eq!(ours, Withdrawn { was_ours: true, woke: 0, by: None, by_readers: false });
    assert_eq!(server.cli(&["EXISTS", "lock:x"]).int(), 0);
    let again = withdraw(&voter, &claim(1)).await;
    assert_eq!(again, Withdrawn { was_ours: false, woke: 0, by: None, by_readers: false });
    assert_eq!(fence_of(&server), fence.get(), "the fence stays");
    server.cli(&["SET", "lock:x", "of another library"]);
    assert_eq!(withdraw(&voter, &claim(1)).await.by, Some(Fence::new(0)));
}

#[tokio::test]
async fn a_withdrawal_wakes_who_came_first_and_leaves_it_in_its_place() {
    let Some((server, voter, record)) = admitted().await else { return };
    let another = voter_at(server.addr());
    another.vote_under(Some(record));
    let (heard, heard_by_another) = (listen_to(&voter), listen_to(&another));
    let (first, second) = (waiting(2), waiting(3));
    yes(vote(&voter, claim(1)).await);
    // The order is that of the clients' arrivals, not of the node's.
    refused(&voter, &second, 2_000).await;
    refused(&another, &first, 1_000).await;
    refused(&voter, &second, 2_000).await;
    assert_eq!(waiters(&server).len(), 2, "a resend waits once");
    assert!(is_entry_of(&waiters(&server)[0], &first), "{:?}", waiters(&server)[0].len());
    assert!(server.cli(&["PTTL", "leasehold:waiters:{lock:x}"]).int() > 0);

    assert_eq!(withdraw(&voter, &claim(1)).await.woke, 1);
    eventually_async(PATIENCE, "the first to be woken", || async {
        heard_by_another.hints() == [first.owner.id()]
    })
    .await;
    assert!(heard.hints().is_empty() && !holds(&server, &first), "a hint grants nothing");
    assert_eq!(waiters(&server).len(), 2);

    yes(vote(&another, first.clone()).await);
    assert_eq!(waiters(&server).len(), 1, "who has it waits no longer");
    assert_eq!(withdraw(&another, &first).await.woke, 1);
    eventually_async(PATIENCE, "the second to be woken", || async { heard.hints() == [second.owner.id()] })
        .await;
    assert_eq!(withdraw(&voter, &second).await.woke, 0);
    assert!(waiters(&server).is_empty(), "an attempt that ended waits no longer");
    assert_eq!(server.cli(&["EXISTS", "leasehold:seen:{lock:x}"]).int(), 0);
    assert_eq!((voter.attempts.count(), another.attempts.count()), (0, 0));
}

#[tokio::test]
async fn nobody_is_woken_while_somebody_else_holds() {
    let Some((server, voter, _)) = admitted().await else { return };
    yes(vote(&voter, claim(1)).await);
    refused(&voter, &waiting(2), 1_000).await;
    assert_eq!(withdraw(&voter, &claim(3)).await.woke, 0);
    assert_eq!(waiters(&server).len(), 1);
}

#[tokio::test]
async fn waiters_that_are_silent_or_gone_are_passed_over_and_forgotten() {
    let Some((server, voter, record)) = admitted().await else { return };
    let gone = voter_at(server.addr());
    gone.vote_under(Some(record));
    let heard = listen_to(&voter);
    let (silent, live) = (waiting(3), waiting(4));
    yes(vote(&voter, claim(1)).await);
    server.cli(&["ZADD", "leasehold:waiters:{lock:x}", "1", "3 of another version"]);
    refused(&gone, &waiting(2), 1_000).await;
    refused(&voter, &silent, 2_000).await;
    refused(&voter, &live, 3_000).await;
    let overdue = (Clock::system().wall_us() - 16_000_000).to_string();
    server.cli(&["HSET", "leasehold:seen:{lock:x}", silent.owner.id_text(), &overdue]);
    gone.close();
    eventually_async(PATIENCE, "the connection to close", || async {
        server.cli(&["PUBSUB", "CHANNELS", "leasehold:wake:*"]).list().len() == 1
    })
    .await;

    assert_eq!(withdraw(&voter, &claim(1)).await.woke, 1);
    eventually_async(PATIENCE, "the live one to be woken", || async { heard.hints() == [live.owner.id()] })
        .await;
    let left = waiters(&server);
    assert!(left.len() == 2 && is_entry_of(&left[1], &live), "{} wait", left.len());
    assert_eq!(left[0], "3 of another version", "what is not understood is left alone");
}

#[tokio::test]
async fn too_many_waiters_are_a_clear_error() {
    let Some((server, voter, _)) = admitted().await else { return };
    yes(vote(&voter, claim(1)).await);
    let fill = "for i = 1, 10000 do redis.call('ZADD', KEYS[1], i, i) end";
    server.cli(&["EVAL", fill, "1", "leasehold:waiters:{lock:x}"]);
    let error = voter.vote(&ballot(waiting(2)), soon()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Overloaded);
    assert!(matches!(vote(&voter, claim(2)).await, Vote::No { .. }));
}

#[tokio::test]
async fn a_broken_connection_tells_everybody_to_look_again() {
    let Some((server, voter, _)) = admitted().await else { return };
    let heard = listen_to(&voter);
    server.kill();
    eventually_async(PATIENCE, "the loss to be noticed", || async { heard.heard_all() }).await;
    let error = voter.vote(&ballot(claim(1)), soon()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Unreachable);
    assert_eq!(voter.attempts.count(), 0);
}

fn evalsha_calls(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let of_evalsha = stats.text().lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    of_evalsha.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

fn tombstones(server: &RedisServer) -> usize {
    server.cli(&["KEYS", "leasehold:gone:*"]).list().len()
}

#[tokio::test]
async fn a_vote_that_arrives_after_its_withdrawal_locks_for_nobody() {
    let Some(server) = redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let voter = voter_at(proxy.addr());
    admit(&voter).await;
    // The node knows the scripts: a delayed vote is not refused for want of them.
    yes(vote(&voter, claim(1)).await);
    assert!(voter.repair(&hold(&claim(1), 1), soon()).await.unwrap());
    withdraw(&voter, &claim(1)).await;
    let before = evalsha_calls(&server);

    // What is under way now takes its time, also when the way is free again; what comes later does not.
    proxy.delay(Duration::from_secs(3));
    let (mine, short) = (claim(2), || Clock::system().now() + Duration::from_millis(300));
    let unanswered = voter.vote(&ballot(mine.clone()), short()).await.unwrap_err();
    assert_eq!(unanswered.fault, Fault::NoAnswer);
    let unanswered = voter.repair(&hold(&mine, u64::MAX >> 12), short()).await.unwrap_err();
    assert_eq!(unanswered.fault, Fault::NoAnswer);
    proxy.delay(Duration::ZERO);

    assert!(!withdraw(&voter, &mine).await.was_ours);
    eventually(PATIENCE, "the vote and the repair to arrive", || evalsha_calls(&server) == before + 3);
    assert_eq!((server.cli(&["EXISTS", "lock:x"]).int(), tombstones(&server)), (0, 1));
    assert_eq!(voter.attempts.count(), 0);
}

#[tokio::test]
async fn over_one_connection_the_order_protects_and_no_tombstone_is_left() {
    let Some(server) = redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let voter = voter_at(proxy.addr());
    admit(&voter).await;
    yes(vote(&voter, claim(1)).await);
    withdraw(&voter, &claim(1)).await;
    let before = proxy.requests_bytes();

    proxy.hold();
    let mine = claim(2);
    let voting = tokio::spawn(voting(&voter, mine.clone()));
    eventually_async(PATIENCE, "the vote to leave", || async { proxy.requests_bytes() > before }).await;
    let ending = tokio::spawn({
        let voter = voter.clone();
        async move { withdraw(&voter, &mine).await }
    });
    let sent = proxy.requests_bytes();
    eventually_async(PATIENCE, "the withdrawal to leave", || async { proxy.requests_bytes() > sent }).await;
    proxy.pass();
    yes(voting.await.unwrap().unwrap());
    assert!(ending.await.unwrap().was_ours);
    assert_eq!((tombstones(&server), server.cli(&["EXISTS", "lock:x"]).int()), (0, 0));
    assert_eq!(voter.attempts.count(), 0);
}

#[tokio::test]
async fn what_was_asked_first_arrives_first_however_much_the_connection_has_to_send() {
    let Some((server, voter, _)) = admitted().await else { return };
    // The node knows the scripts.
    assert!(voter.repair(&hold(&claim(3), 1), soon()).await.unwrap());
    withdraw(&voter, &claim(3)).await;
    let mine = claim(1);
    // Nothing of this is sent before this task gives way, and the driver takes only so many at a time.
    let mut busy: Vec<_> = (0..90)
        .map(|number| {
            let name = Name::new(format!("busy-{number}")).unwrap();
            Box::pin(voting(&voter, Claim { name, ..claim(2) }))
        })
        .collect();
    busy.iter_mut().for_each(|vote| assert!(vote.now_or_never().is_none()));
    let (mine, later) = (hold(&mine, u64::MAX >> 12), claim(1));
    let mut repair = voter.repair(&mine, soon());
    assert!((&mut repair).now_or_never().is_none());
    let mut withdrawal = voter.withdraw(&later.name, &later.owner, soon());
    assert!((&mut withdrawal).now_or_never().is_none());
    for vote in busy {
        yes(vote.await.unwrap());
    }
    // As two threads may: the later one goes on first.
    assert!(withdrawal.await.unwrap().was_ours);
    assert!(repair.await.unwrap());
    assert_eq!((tombstones(&server), server.cli(&["EXISTS", "lock:x"]).int()), (0, 0));
}

#[tokio::test]
async fn a_vote_that_has_not_left_when_its_attempt_ends_never_leaves() {
    let Some(server) = redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let voter = voter_at(proxy.addr());
    admit(&voter).await;
    // Its connection is gone and the next one takes a while.
    proxy.hold();
    proxy.cut();
    eventually_async(PATIENCE, "the loss to be noticed", || async {
        voter.connection.link(Clock::system().now() + Duration::from_millis(50)).await.is_err()
    })
    .await;
    let mine = claim(2);
    let voting = tokio::spawn(voting(&voter, mine.clone()));
    eventually_async(PATIENCE, "the vote to wait", || async { voter.attempts.count() == 1 }).await;
    let ending = voter.withdraw(&mine.name, &mine.owner, soon());
    proxy.pass();
    assert_eq!(voting.await.unwrap().unwrap_err().fault, Fault::Ended);
    assert!(!ending.await.unwrap().was_ours);
    assert_eq!((tombstones(&server), server.cli(&["EXISTS", "lock:x"]).int()), (0, 0));
}

#[tokio::test]
async fn a_retraction_takes_no_place_in_a_queue_that_is_full() {
    let Some((server, voter, _)) = admitted().await else { return };
    let fill =
        "for i = 1, tonumber(ARGV[1]) do redis.call('ZADD', KEYS[1], i, 'of another version ' .. i) end";
    let (key, most) = ("leasehold:waiters:{lock:x}", leasehold_core::engine::WAITERS_MAX);
    for (waits, joins) in [(most, false), (most - 1, true)] {
        server.cli(&["DEL", key]);
        server.cli(&["EVAL", fill, "1", key, &waits.to_string()]);
        let claim = waiting(u128::from(waits));
        yes(vote(&voter, claim.clone()).await);
        voter.retract(&ballot(claim.clone()), soon()).await.unwrap();
        assert!(!holds(&server, &claim));
        assert_eq!(server.cli(&["ZCARD", key]).int(), i64::from(most));
        assert_eq!(waiters(&server).iter().any(|entry| is_entry_of(entry, &claim)), joins, "{waits}");
    }
}
