//! Ordinary votes and withdrawals, many in one call.

use leasehold_testkit::{FaultProxy, eventually_async};

use super::*;
use leasehold_core::engine::voter::{Op, Outcome};

fn of(name: &str, random: u128) -> Claim {
    Claim { name: Name::new(name).unwrap(), ..claim(random) }
}

fn to_vote(claim: &Claim) -> Op {
    Op::Vote(ballot(claim.clone()))
}

fn to_withdraw(claim: &Claim) -> Op {
    Op::Withdraw(Arc::new((claim.name.clone(), claim.owner.clone())))
}

async fn done(voter: &RedisVoter, ops: &[Op]) -> Vec<Outcome> {
    voter.do_ordinary(ops, soon()).await.unwrap()
}

fn hint_of(op: &Op) -> Fence {
    let Op::Vote(ballot) = op else { panic!("a withdrawal") };
    ballot.hint
}

/// Everything that a node has, without the times at which it ends.
fn keys(server: &RedisServer) -> Vec<(String, String)> {
    let names = server.cli(&["KEYS", "*"]);
    let mut keys: Vec<_> = names.list().iter().map(|name| name.text().to_owned()).collect();
    keys.sort_unstable();
    let value = |key: &String| match server.cli(&["TYPE", key]).text() {
        "string" => server.cli(&["GET", key]).text().to_owned(),
        other => other.to_owned(),
    };
    keys.iter().map(|key| (key.clone(), value(key))).collect()
}

#[tokio::test]
async fn many_votes_and_withdrawals_are_one_call() {
    let Some((server, voter, _)) = admitted().await else { return };
    let claims: Vec<_> = (0..40).map(|number| of(&format!("x-{number}"), number)).collect();
    let votes: Vec<_> = claims.iter().map(to_vote).collect();
    done(&voter, &votes[..1]).await;
    let calls = || server.cli(&["INFO", "commandstats"]).text().matches("cmdstat_eval").count();
    assert_eq!(calls(), 2, "the script is known by now");
    server.cli(&["CONFIG", "RESETSTAT"]);
    let outcomes = done(&voter, &votes[1..]).await;
    let expected: Vec<_> = votes[1..].iter().map(|op| Outcome::Voted(hint_of(op))).collect();
    assert_eq!(outcomes, expected);
    let withdrawals: Vec<_> = claims.iter().map(to_withdraw).collect();
    assert_eq!(done(&voter, &withdrawals).await, [Outcome::Withdrawn; 40]);
    assert_eq!(done(&voter, &withdrawals).await, [Outcome::Absent; 40]);
    let stats = server.cli(&["INFO", "commandstats"]);
    assert!(stats.text().contains("cmdstat_evalsha:calls=3,"), "{stats:?}");
    assert_eq!(server.cli(&["KEYS", "lock:*"]).list().len(), 0);
    assert_eq!(voter.attempts.count(), 0);
}

#[tokio::test]
async fn each_is_done_on_its_own_whatever_the_others_are() {
    let Some((server, voter, _)) = admitted().await else { return };
    let (mine, other) = (of("mine", 1), of("other's", 2));
    yes(vote(&voter, mine.clone()).await);
    yes(vote(&voter, other.clone()).await);
    server.cli(&["HSET", "lock:odd", "a", "b"]);
    server.cli(&["ZADD", "leasehold:waiters:{lock:waited for}", "1", "3 of another version"]);
    server.cli(&["ZADD", "leasehold:waiters:{lock:ours and waited for}", "1", "3 of another version"]);
    let waited_for = of("ours and waited for", 6);
    server.cli(&["SET", "lock:ours and waited for", waited_for.owner.expose()]);
    let ended = of("ended", 5);
    server.cli(&["SET", &format!("leasehold:gone:{{lock:ended}}:{}", ended.owner.id_text()), "1"]);
    let too_long = Claim { ttl: Duration::from_millis(MAX_MS + 1), ..of("too long", 7) };
    let free = [of("free", 8), of("free too", 9)];
    let ops = [
        to_withdraw(&mine),
        to_vote(&free[0]),
        to_vote(&Claim { owner: claim(3).owner, ..other.clone() }),
        to_vote(&of("odd", 3)),
        to_vote(&of("waited for", 4)),
        to_vote(&ended),
        to_vote(&too_long),
        to_withdraw(&Claim { owner: claim(3).owner, ..other.clone() }),
        to_withdraw(&of("odd", 3)),
        to_withdraw(&waited_for),
        to_withdraw(&of("absent", 1)),
        to_vote(&free[1]),
    ];
    let no = Outcome::NotOrdinary;
    let [first, last] = [1, 11].map(|at: usize| Outcome::Voted(hint_of(&ops[at])));
    let expected = [Outcome::Withdrawn, first, no, no, no, no, no, no, no, no, Outcome::Absent, last];
    assert_eq!(done(&voter, &ops).await, expected);
    let left = server.cli(&["KEYS", "lock:*"]);
    let mut left: Vec<_> = left.list().iter().map(|key| key.text().to_owned()).collect();
    left.sort_unstable();
    assert_eq!(left, ["lock:free", "lock:free too", "lock:odd", "lock:other's", "lock:ours and waited for"]);
    assert_eq!(reply::owner_text(server.cli(&["GET", "lock:other's"]).text()), other.owner.expose());
}

#[tokio::test]
async fn a_foreign_lock_with_an_empty_value_is_not_taken_back() {
    let Some((server, voter, _)) = admitted().await else { return };
    server.cli(&["SET", "lock:x", ""]);
    assert_eq!(done(&voter, &[to_withdraw(&of("x", 1))]).await, [Outcome::NotOrdinary]);
    assert_eq!(server.cli(&["EXISTS", "lock:x"]).int(), 1);
}

#[tokio::test]
async fn withdrawals_go_on_when_too_many_attempts_are_under_way() {
    let Some((_server, voter, _)) = admitted().await else { return };
    let mine = of("mine", 1);
    yes(vote(&voter, mine.clone()).await);
    let mut others = Vec::new();
    for random in 2.. {
        match voter.attempts.enter(claim(random).owner.id(), Clock::system().now()) {
            Ok(call) => others.push(call),
            Err(_) => break,
        }
    }
    let ops = [to_vote(&of("one more", 0)), to_withdraw(&mine)];
    assert_eq!(done(&voter, &ops).await, [Outcome::NotOrdinary, Outcome::Withdrawn]);
    let one_more = voter.vote(&ballot(of("one more", 0)), soon()).await;
    assert_eq!(one_more.unwrap_err().fault, Fault::Overloaded);
}

#[tokio::test]
async fn two_votes_for_one_name_and_two_withdrawals_of_one_vote_in_a_call() {
    let Some((server, voter, _)) = admitted().await else { return };
    let (mine, other) = (of("x", 1), of("x", 2));
    let votes = [to_vote(&mine), to_vote(&other)];
    assert_eq!(done(&voter, &votes).await, [Outcome::Voted(hint_of(&votes[0])), Outcome::NotOrdinary]);
    let fence = server.cli(&["GET", "leasehold:fence:{lock:x}"]);
    assert_eq!(fence.text(), hint_of(&votes[0]).to_string());
    voter.contended.note("lock:x", crate::script::Crowd::Nobody);
    assert_eq!(done(&voter, &[to_withdraw(&mine), to_withdraw(&mine)]).await, [Outcome::Withdrawn; 2]);
    assert_eq!(server.cli(&["EXISTS", "lock:x"]).int(), 0);
}

/// The two scripts that vote agree, whatever the node has given so far.
#[tokio::test]
async fn an_ordinary_vote_is_the_vote() {
    let (Some((one, by_vote, _)), Some((two, by_call, _))) = (admitted().await, admitted().await) else {
        return;
    };
    let now = Clock::system().wall_us();
    let ahead = |seconds: u64| (now + seconds * 1_000_000).to_string();
    let minute_ago = (now - 50_000_000).to_string();
    // What the name's fence, the floor and the highest fence are.
    let states = [
        ["", "", ""],
        ["", "", &minute_ago],
        [&minute_ago, "", &minute_ago],
        ["", &ahead(120), &ahead(120)],
        [&ahead(20), "", &ahead(20)],
        [&ahead(20), &ahead(40), &ahead(60)],
        [&ahead(40), &ahead(20), &ahead(40)],
        ["9007199254740990", "", "9007199254740990"],
        ["9007199254740991", "", "9007199254740991"],
    ];
    for (number, state) in states.iter().enumerate() {
        let asked = ballot(of(&format!("x-{number}"), number as u128));
        for server in [&one, &two] {
            let fence = format!("leasehold:fence:{{lock:x-{number}}}");
            let names = [&*fence, "leasehold:quorum:floor", "leasehold:quorum:highest"];
            for (key, value) in names.iter().zip(state) {
                let words = if value.is_empty() { vec!["DEL", key] } else { vec!["SET", key, value] };
                server.cli(&words);
            }
        }
        let expected = by_vote.vote(&asked, soon()).await.ok();
        let outcomes = done(&by_call, &[Op::Vote(asked.clone())]).await;
        let vote = match outcomes[0] {
            Outcome::Voted(fence) => Some(Vote::Yes(fence)),
            _ => by_call.vote(&asked, soon()).await.ok(),
        };
        assert_eq!(vote, expected, "{state:?}");
        let without_record = |server| {
            let mut keys = keys(server);
            keys.retain(|(key, _)| key != RECORD);
            keys
        };
        assert_eq!(without_record(&two), without_record(&one), "{state:?}");
        let fence = format!("leasehold:fence:{{lock:x-{number}}}");
        let [a, b] = [&one, &two].map(|server| server.cli(&["PTTL", &fence]).int());
        assert!(a.abs_diff(b) <= 120_000, "{a} {b}");
    }
}

/// Another client's votes came first, so each fence depends on the last one of its own name.
#[tokio::test]
async fn each_vote_of_a_call_has_the_fence_and_the_ttl_of_its_own() {
    let Some((server, voter, _)) = admitted().await else { return };
    let now = Clock::system().wall_us();
    let ahead = |seconds: u64| now + seconds * 1_000_000;
    server.cli(&["SET", HIGHEST, &ahead(40).to_string()]);
    let given = [("a", None), ("b", Some(ahead(30))), ("c", None), ("d", Some(ahead(40)))];
    let mut votes = Vec::new();
    for (number, (name, fence)) in given.into_iter().enumerate() {
        if let Some(fence) = fence {
            server.cli(&["SET", &format!("leasehold:fence:{{lock:{name}}}"), &fence.to_string()]);
        }
        let ttl = Duration::from_secs(if number < 2 { 20 } else { 50 });
        votes.push(to_vote(&Claim { ttl, ..of(name, number as u128) }));
    }
    // One that is above all of them does not need to know.
    let beyond = Ballot { hint: Fence::new(ahead(50)), ..(*ballot(of("e", 9))).clone() };
    votes.push(Op::Vote(Arc::new(beyond)));
    let later = |fence: u64| Outcome::Voted(Fence::new(fence + 1));
    let expected = [
        Outcome::Voted(hint_of(&votes[0])),
        later(ahead(30)),
        Outcome::Voted(hint_of(&votes[2])),
        later(ahead(40)),
        Outcome::Voted(hint_of(&votes[4])),
    ];
    assert_eq!(done(&voter, &votes).await, expected);
    for (name, most_ms) in [("a", 20_000), ("b", 20_000), ("c", 50_000), ("d", 50_000), ("e", 30_000)] {
        let left = server.cli(&["PTTL", &format!("lock:{name}")]).int();
        assert!(left <= most_ms && left > most_ms - 10_000, "{name}: {left}");
    }
}

#[tokio::test]
async fn a_hint_far_from_the_nodes_time_is_not_ordinary() {
    let Some((server, voter, _)) = admitted().await else { return };
    // The highest fence is known.
    done(&voter, &[to_vote(&of("x", 1))]).await;
    let before = keys(&server);
    let now = Clock::system().wall_us();
    for hint in [now - 90_000_000, now + 90_000_000] {
        let ballot = Ballot { hint: Fence::new(hint), ..(*ballot(of("y", 2))).clone() };
        assert_eq!(done(&voter, &[Op::Vote(Arc::new(ballot))]).await, [Outcome::NotOrdinary]);
        assert_eq!(keys(&server), before);
    }
}

#[tokio::test]
async fn a_node_that_forgot_or_serves_another_data_set_does_not_vote() {
    let Some((server, voter, record)) = admitted().await else { return };
    let mut number = 0;
    let mut asked = || {
        number += 1;
        [to_vote(&of(&format!("x-{number}"), number))]
    };
    assert!(matches!(done(&voter, &asked()).await[..], [Outcome::Voted(_)]));
    for other in ["", "1 what", &Record { epoch: 2, ..record.clone() }.to_string()] {
        server.cli(&["SET", RECORD, other]);
        assert_eq!(done(&voter, &asked()).await, [Outcome::Abstained], "{other}");
    }
    server.cli(&["SET", RECORD, &record.to_string()]);
    assert!(matches!(done(&voter, &asked()).await[..], [Outcome::Voted(_)]));
    voter.vote_under(None);
    assert_eq!(done(&voter, &asked()).await, [Outcome::NotOrdinary]);
    voter.vote_under(Some(record));
    // A replica for a moment: the data set is another one, and the connection lives on.
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(done(&voter, &asked()).await, [Outcome::Abstained]);
    server.cli(&["FLUSHALL"]);
    assert_eq!(done(&voter, &asked()).await, [Outcome::Abstained]);
    assert_eq!(server.cli(&["DBSIZE"]).int(), 0);
}

#[tokio::test]
async fn a_replica_does_nothing() {
    let Some((server, voter, _)) = admitted().await else { return };
    let mine = of("mine", 1);
    yes(vote(&voter, mine.clone()).await);
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let ops = [to_withdraw(&mine), to_withdraw(&of("absent", 2)), to_vote(&of("free", 3))];
    let outcomes = done(&voter, &ops).await;
    assert_eq!(outcomes[..2], [Outcome::NotOrdinary; 2]);
    assert!(!matches!(outcomes[2], Outcome::Voted(_)));
}

#[tokio::test]
async fn without_memory_withdrawals_go_on() {
    let Some((server, voter, _)) = admitted().await else { return };
    let mine = of("mine", 1);
    yes(vote(&voter, mine.clone()).await);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(done(&voter, &[to_vote(&of("free", 2))]).await, [Outcome::NotOrdinary]);
    assert_eq!(done(&voter, &[to_withdraw(&mine)]).await, [Outcome::Withdrawn]);
}

#[tokio::test]
async fn a_vote_does_not_leave_beside_or_after_its_withdrawal() {
    let Some((server, voter, _)) = admitted().await else { return };
    let mine = of("x", 1);
    let ops = [to_vote(&mine), to_withdraw(&mine)];
    assert_eq!(done(&voter, &ops).await, [Outcome::NotOrdinary, Outcome::Absent]);
    assert_eq!(done(&voter, &ops[..1]).await, [Outcome::NotOrdinary]);
    assert_eq!(server.cli(&["KEYS", "lock:*"]).list().len(), 0);
    assert_eq!(voter.attempts.count(), 0);
}

#[tokio::test]
async fn an_unanswered_vote_makes_its_withdrawal_leave_a_tombstone() {
    let Some(server) = redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let voter = voter_at(proxy.addr());
    admit(&voter).await;
    done(&voter, &[to_vote(&of("warm up", 1))]).await;
    proxy.hold();
    let mine = of("x", 2);
    let short = Clock::system().now() + Duration::from_millis(300);
    let unanswered = voter.do_ordinary(&[to_vote(&mine)], short).await.unwrap_err();
    assert_eq!(unanswered.fault, Fault::NoAnswer);
    proxy.cut();
    proxy.pass();
    eventually_async(PATIENCE, "a new connection", || async {
        voter.do_ordinary(&[to_withdraw(&of("absent", 3))], soon()).await.is_ok()
    })
    .await;
    assert_eq!(done(&voter, &[to_withdraw(&mine)]).await, [Outcome::NotOrdinary]);
    voter.withdraw(&mine.name, &mine.owner, soon()).await.unwrap();
    assert_eq!(server.cli(&["KEYS", "leasehold:gone:*"]).list().len(), 1);
    assert_eq!(voter.attempts.count(), 0);
}

#[tokio::test]
async fn a_lost_script_is_sent_again_unnoticed() {
    let Some((server, voter, _)) = admitted().await else { return };
    for number in 0..2 {
        let mine = of("x", number);
        server.cli(&["SCRIPT", "FLUSH"]);
        assert!(matches!(done(&voter, &[to_vote(&mine)]).await[..], [Outcome::Voted(_)]));
        server.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(done(&voter, &[to_withdraw(&mine)]).await, [Outcome::Withdrawn]);
    }
    assert_eq!(server.cli(&["KEYS", "leasehold:gone:*"]).list().len(), 0);
}
