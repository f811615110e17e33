mod native;

use std::time::Duration;

use leasehold_testkit::RedisServer;

use super::*;
use crate::{Redis, script::Step, tests::open, wake::Attempts};
use leasehold_core::{
    clock::Clock,
    engine::{Acks, Claim, Mode, Queue},
    name::Name,
    owner::{Holder, Owner},
};

fn until() -> Until {
    Clock::system().now() + Duration::from_secs(20)
}

fn claim(random: u128, name: &str, wait: bool) -> Claim {
    Claim {
        name: Name::new(name).unwrap(),
        owner: Owner::new(random, &Holder::this_process("", 1)),
        ttl: Duration::from_secs(30),
        format: leasehold_core::engine::Format::Plain,
        lock_delay: Duration::ZERO,
        mode: Mode::Exclusive,
        queue: wait.then(|| Queue { wait: Duration::from_secs(30), poll_every: Duration::from_secs(5) }),
        acks: Acks::None,
    }
}

fn claiming(redis: &Redis, claim: &Claim) -> Op {
    let copy = redis.attempts.leaves(claim.owner.id(), Clock::system().now()).unwrap();
    let channel = redis.topology.channel(&claim.name, || 0);
    let step = Step::Claim { claim: claim.clone(), channel, arrival: None, copy };
    Op::new(redis.keys(&claim.name), step)
}

fn ending(redis: &Redis, claim: &Claim) -> Op {
    let (owner, entry, attempts): (_, _, Arc<Attempts>) =
        (claim.owner.clone(), String::new(), redis.attempts.clone());
    Op::new(
        redis.keys(&claim.name),
        Step::End { owner, mode: claim.mode, format: claim.format, fence: None, entry, attempts },
    )
}

/// One call of all of them, over the only connection.
async fn call(redis: &Redis, ops: Vec<Op>) -> Vec<Result<Value>> {
    let shard = redis.topology.shard(0, until()).await.unwrap();
    shard.lane(&Name::new("x").unwrap()).call(&ops, until()).await.0
}

fn calls_of_scripts(server: &RedisServer) -> i64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = |command: &str| {
        let of = format!("cmdstat_{command}:calls=");
        let (_, rest) = stats.text().split_once(&of)?;
        rest.split(',').next()?.parse::<i64>().ok()
    };
    calls("evalsha").unwrap_or(0)
}

fn fence(value: &Result<Value>) -> Option<u64> {
    match value {
        Ok(Value::BulkString(text)) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

#[tokio::test]
async fn claims_and_releases_of_one_call_are_independent_of_each_other() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let redis = open(&server.url());
    server.cli(&["HSET", "lock:foreign", "a", "b"]);
    server.cli(&["SET", "lock:held", "of another library"]);
    let claims = [(1, "a"), (2, "b"), (3, "a"), (4, "held"), (5, "foreign"), (6, "c")]
        .map(|(random, name)| claim(random, name, false));
    let answers = call(&redis, claims.iter().map(|claim| claiming(&redis, claim)).collect()).await;
    let fences: Vec<_> = answers.iter().map(fence).collect();
    let [Some(a), Some(b), None, None, None, Some(c)] = fences[..] else { panic!("{answers:?}") };
    assert!(a < b && b < c, "{fences:?}");
    for (claim, fence) in claims.iter().zip(&fences) {
        if let Some(fence) = fence {
            let text = server.cli(&["GET", &format!("lock:{}", claim.name)]).text().to_owned();
            assert!(text.starts_with(&format!("{} {fence} ", claim.owner.id_text())), "another holds it");
            assert!(server.cli(&["PTTL", &format!("lock:{}", claim.name)]).int() > 29_000);
        }
    }
    // The second holder of "a" was told who has it, the other two what is wrong.
    assert!(matches!(&answers[2], Ok(Value::Array(busy)) if busy[0] == Value::Int(3)), "{:?}", answers[2]);
    assert!(
        matches!(&answers[4], Ok(Value::Array(failed)) if failed[0] == Value::Int(9)),
        "{:?}",
        answers[4]
    );

    let ends = call(&redis, claims.iter().map(|claim| ending(&redis, claim)).collect()).await;
    for (at, is_ours) in [true, true, false, false, false, true].into_iter().enumerate() {
        assert_eq!(matches!(ends[at], Ok(Value::Int(1))), is_ours, "{at}: {:?}", ends[at]);
    }
    assert_eq!(server.cli(&["EXISTS", "lock:a", "lock:b", "lock:c"]).int(), 0);
    assert_eq!(server.cli(&["EXISTS", "lock:held", "lock:foreign"]).int(), 2);
}

#[tokio::test]
async fn ordinary_claims_and_releases_take_one_call_each() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let redis = open(&server.url());
    for round in 0..3 {
        let claims: Vec<_> = (0..20).map(|n| claim(100 * round + n, &format!("x{n}"), true)).collect();
        let before = calls_of_scripts(&server);
        let answers = call(&redis, claims.iter().map(|claim| claiming(&redis, claim)).collect()).await;
        let fences: Vec<_> = answers.iter().filter_map(fence).collect();
        assert!(fences.len() == 20 && fences.is_sorted(), "{answers:?}");
        let ends = call(&redis, claims.iter().map(|claim| ending(&redis, claim)).collect()).await;
        assert!(ends.iter().all(|end| matches!(end, Ok(Value::Int(1)))), "{ends:?}");
        // The first call brings the scripts.
        assert!(round == 0 || calls_of_scripts(&server) == before + 2);
    }
}

#[tokio::test]
async fn a_block_of_fences_is_above_the_last_one_and_has_no_gap() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let redis = open(&server.url());
    // Ahead of the clock, so that the counter counts.
    for (nth, last) in (0..100).step_by(9).map(|digits| 3_000_000_000_000_000_u64 + digits).enumerate() {
        server.cli(&["SET", "leasehold:fence", &last.to_string()]);
        let claims: Vec<_> =
            (0..12).map(|n| claim(100 * nth as u128 + n, &format!("x{nth}:{n}"), false)).collect();
        let answers = call(&redis, claims.iter().map(|claim| claiming(&redis, claim)).collect()).await;
        let fences: Vec<_> = answers.iter().filter_map(fence).collect();
        assert!(fences.len() == 12 && fences[0] > last, "{last}: {fences:?}");
        assert!(fences.windows(2).all(|two| two[1] == two[0] + 1), "{fences:?}");
        assert_eq!(server.cli(&["GET", "leasehold:fence"]).text(), fences[11].to_string());
        for (claim, fence) in claims.iter().zip(&fences) {
            let text = server.cli(&["GET", &format!("lock:{}", claim.name)]).text().to_owned();
            assert_eq!(text.split(' ').nth(1), Some(&*fence.to_string()));
        }
    }
}

#[tokio::test]
async fn a_release_among_others_hands_its_lock_over() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let redis = open(&server.url());
    let shard = redis.topology.shard(0, until()).await.unwrap();
    shard.connection().link(until()).await.unwrap().subscribe(until()).await.unwrap();
    let [first, second, third] =
        [(1, "a"), (2, "b"), (3, "b")].map(|(random, name)| claim(random, name, true));
    let answers = call(&redis, [&first, &second, &third].map(|claim| claiming(&redis, claim)).into()).await;
    assert!(matches!(&answers[2], Ok(Value::Array(queued)) if queued[0] == Value::Int(2)), "{answers:?}");
    let ends = call(&redis, [&first, &second].map(|claim| ending(&redis, claim)).into()).await;
    assert!(matches!(&ends[0], Ok(Value::Int(1))), "{ends:?}");
    assert!(matches!(&ends[1], Ok(Value::Array(given)) if given[0] == Value::Int(2)), "{ends:?}");
    assert!(server.cli(&["GET", "lock:b"]).text().starts_with(third.owner.id_text()));
}

/// The client that releases has not met the one that waits: only the mark of K says so.
#[tokio::test]
async fn a_release_sees_who_waits_for_it_at_another_client() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let [holder, other] = [(), ()].map(|()| open(&server.url()));
    let shard = other.topology.shard(0, until()).await.unwrap();
    shard.connection().link(until()).await.unwrap().subscribe(until()).await.unwrap();
    for (random, beside) in [(1, None), (2, Some("b"))] {
        let held: Vec<_> =
            [Some("a"), beside].into_iter().flatten().map(|name| claim(random, name, false)).collect();
        let answers = call(&holder, held.iter().map(|claim| claiming(&holder, claim)).collect()).await;
        assert!(answers.iter().all(|answer| fence(answer).is_some()), "{answers:?}");
        let waiter = claim(random + 10, "a", true);
        let queued = call(&other, vec![claiming(&other, &waiter)]).await;
        assert!(matches!(&queued[0], Ok(Value::Array(queued)) if queued[0] == Value::Int(2)), "{queued:?}");
        let ends = call(&holder, held.iter().map(|claim| ending(&holder, claim)).collect()).await;
        assert!(matches!(&ends[0], Ok(Value::Array(given)) if given[0] == Value::Int(2)), "{ends:?}");
        assert!(ends[1..].iter().all(|end| matches!(end, Ok(Value::Int(1)))), "{ends:?}");
        assert!(server.cli(&["GET", "lock:a"]).text().starts_with(waiter.owner.id_text()));
        call(&other, vec![ending(&other, &waiter)]).await.remove(0).unwrap();
        holder
            .topology
            .shard(0, until())
            .await
            .unwrap()
            .lane(&waiter.name)
            .contended
            .note("lock:a", crate::script::Crowd::Nobody);
    }
}

#[tokio::test]
async fn the_last_fences_are_given_one_by_one_and_none_of_them_twice() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let redis = open(&server.url());
    let last = (1_u64 << 53) - 1;
    server.cli(&["SET", "leasehold:fence", &(last - 2).to_string()]);
    let claims: Vec<_> = (0..4).map(|n| claim(n, &format!("x{n}"), false)).collect();
    let answers = call(&redis, claims.iter().map(|claim| claiming(&redis, claim)).collect()).await;
    let fences: Vec<_> = answers.iter().map(fence).collect();
    assert_eq!(fences, [Some(last - 1), Some(last), None, None], "{answers:?}");
    assert_eq!(server.cli(&["GET", "leasehold:fence"]).text(), last.to_string());
}
