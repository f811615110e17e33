//! What the scripts promise on their own: in any locale, with full queues, after steps of the clock, between versions.
#![cfg(feature = "redis")]

#[path = "every_server/mod.rs"]
mod every_server;

use std::time::Duration;

use every_server::{LONG, Servers, open, soon};
use leasehold::{
    Error, Fence, Guard, Leasehold, Retry,
    engine::{Acks, Answer, Claim, Engine, Hold, Mode, Released, Renewed},
    idempotency::Idempotent,
    name::Name,
    owner::{Holder, Owner},
};
use leasehold_testkit::{RedisServer, eventually_async};
use tokio::task::JoinSet;

async fn client(server: &RedisServer) -> Leasehold {
    Leasehold::connect(server.url()).await.unwrap()
}

async fn waiting(leases: &Leasehold, name: &str, count: u32) {
    let arrived = || async { leases.inspect(name).await.unwrap().waiting == count };
    eventually_async(LONG, "waiters", arrived).await;
}

fn claim(random: u128, name: &str) -> Claim {
    Claim {
        name: Name::new(name).unwrap(),
        owner: Owner::new(random, &Holder::this_process("tests", 1)),
        ttl: Duration::from_secs(3),
        format: leasehold::engine::Format::Plain,
        lock_delay: Duration::ZERO,
        mode: Mode::Exclusive,
        queue: None,
        acks: Acks::None,
    }
}

async fn granted(engine: &dyn Engine, claim: &Claim) -> Fence {
    match engine.leases().claim(claim, soon()).await.unwrap() {
        Answer::Granted(grant) => grant.fence,
        other => panic!("{other:?}"),
    }
}

async fn renewed(engine: &dyn Engine, hold: Hold) -> Renewed {
    engine.leases().renew(&[hold], soon()).await.unwrap().remove(0).unwrap()
}

/// The server's locale decides how Lua orders strings.
#[tokio::test(flavor = "multi_thread")]
async fn locks_and_records_work_beside_each_other_in_any_locale() {
    let Some(server) = RedisServer::builder().locale("en_US.UTF-8").start_or_skip() else { return };
    let collates = server.cli(&["EVAL", "return 'B' < 'a' and 1 or 0", "0"]).int();
    assert_eq!(collates, 0, "the server does not use the locale");
    let leases = client(&server).await;
    let mut tasks = JoinSet::new();
    for number in 0..20 {
        let (locks, records) = (leases.clone(), leases.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                let _ = locks.lock(format!("x:{number}")).acquire().await.unwrap().release().await.unwrap();
            }
        });
        tasks.spawn(async move {
            for round in 0..10 {
                let key = records.idempotency("payout").key(format!("{number}:{round}"));
                key.get().await.unwrap();
                let done = key.run(async |_| Ok::<_, Error>(1_u8)).await.unwrap();
                assert!(matches!(done, Idempotent::Executed(1)), "{done:?}");
            }
        });
    }
    tasks.join_all().await;
    assert!(server.cli(&["KEYS", "lock:*"]).list().is_empty(), "a lock is still held");
}

/// A renewal that waited for a connection arrives after the release that keeps the lock closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_renewal_or_claim_opens_no_lock_that_was_given_back_closed() {
    for servers in Servers::all() {
        let engine = open(servers.url());
        let first = claim(1, "x");
        let fence = granted(&*engine, &first).await;
        let hold = first.hold(fence);
        let closed = |remaining| hold.closed_for(remaining);
        for _sent_again in 0..2 {
            assert!(matches!(renewed(&*engine, closed(LONG)).await, Renewed::Kept { .. }));
        }
        assert_eq!(renewed(&*engine, hold.clone()).await, Renewed::Gone);
        assert!(matches!(engine.leases().claim(&first, soon()).await.unwrap(), Answer::Busy { .. }));
        let left = || servers.server("lock:x").cli(&["PTTL", "lock:x"]).int();
        assert!(left() > 30_000, "{}", left());
        // It can be shortened, and is shown with its fence until it opens.
        assert_eq!(
            engine.inspector().inspect(&first.name, soon()).await.unwrap().held().unwrap().fence,
            fence
        );
        assert!(matches!(renewed(&*engine, closed(Duration::from_millis(50))).await, Renewed::Kept { .. }));
        eventually_async(LONG, "it to open", || async { left() == -2 }).await;
        granted(&*engine, &claim(2, "x")).await;
    }
}

/// A crowd that died must not keep newcomers out while somebody holds the lock.
#[tokio::test]
async fn a_queue_full_of_dead_waiters_takes_a_live_one() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(&server).await;
    let guard = leases.lock("x").acquire().await.unwrap();
    let fill = "for i = 1, 10000 do redis.call('ZADD', KEYS[1], i, \
                ('2 1000 9000000000 15000 nobody-listens %032x 1 1 host dead'):format(i)) end";
    server.cli(&["EVAL", fill, "1", "leasehold:waiters:{lock:x}"]);
    let waiter = tokio::spawn(leases.lock("x").wait(LONG).into_future());
    let last = || server.cli(&["ZRANGE", "leasehold:waiters:{lock:x}", "-1", "-1"]);
    let arrived = || async { last().list()[0].text().contains("leasehold:wake:") };
    eventually_async(LONG, "the waiter in the queue", arrived).await;
    let _ = guard.release().await.unwrap();
    let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// A crowd and its holder are gone at once: nobody is left to release, and the lock is free.
#[tokio::test]
async fn a_free_lock_is_not_kept_from_a_newcomer_by_a_crowd_of_dead_waiters() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = Leasehold::builder(server.url()).command_timeout(LONG).connect().await.unwrap();
    let crowd = |name: &str| {
        for number in 0..1050 {
            let entry = format!("2 1000 9000000000000 15000 nobody-listens {number:032x} 1 1 host dead");
            server.cli(&["ZADD", &format!("leasehold:waiters:{{lock:{name}}}"), &number.to_string(), &entry]);
        }
    };
    crowd("x");
    assert!(matches!(leases.lock("x").try_acquire().await.unwrap(), leasehold::Attempt::Held(_)));
    crowd("y");
    let _ = leases.lock("y").wait(LONG).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_queue_full_of_live_waiters_refuses_one_more() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(&server).await;
    let guard = leases.lock("x").acquire().await.unwrap();
    let first = tokio::spawn(leases.lock("x").wait(LONG).into_future());
    waiting(&leases, "x", 1).await;
    // As many others of the same client, which listens.
    let fill = "local entry = redis.call('ZRANGE', KEYS[1], 0, 0)[1] \
                local now = redis.call('TIME')[1] .. '000000' \
                for i = 1, 9999 do redis.call('ZADD', KEYS[1], now, entry .. i) end";
    server.cli(&["EVAL", fill, "1", "leasehold:waiters:{lock:x}"]);
    let error = leases.lock("x").wait(LONG).acquire().await.unwrap_err();
    assert!(error.to_string().contains("10000 attempts wait"), "{error}");
    first.abort();
    drop(guard);
}

/// By the server's clock everybody came long ago.
#[tokio::test]
async fn a_waiter_is_not_forgotten_when_the_clock_of_the_server_goes_forward() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(&server).await;
    let guard = leases.lock("x").acquire().await.unwrap();
    let waiter = tokio::spawn(leases.lock("x").wait(LONG).into_future());
    waiting(&leases, "x", 1).await;
    let queue = "leasehold:waiters:{lock:x}";
    server.cli(&["ZINCRBY", queue, "-3600000000", server.cli(&["ZRANGE", queue, "0", "0"]).list()[0].text()]);
    let polled = || async { server.cli(&["HLEN", "leasehold:seen:{lock:x}"]).int() == 1 };
    eventually_async(LONG, "its next poll", polled).await;
    assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
    let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_that_went_silent_is_passed_over() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(&server).await;
    let guard = leases.lock("x").acquire().await.unwrap();
    let waiter = tokio::spawn(leases.lock("x").wait(LONG).into_future());
    waiting(&leases, "x", 1).await;
    let (queue, seen) = ("leasehold:waiters:{lock:x}", "leasehold:seen:{lock:x}");
    let entry = server.cli(&["ZRANGE", queue, "0", "0"]).list()[0].text().to_owned();
    // One that listens, came an hour ago and was last heard of as long ago.
    let id = "0".repeat(31) + "1 ";
    let silent =
        format!("{} {id}1 1 host silent", entry.splitn(6, ' ').take(5).collect::<Vec<_>>().join(" "));
    server.cli(&["ZADD", queue, "1", &silent]);
    server.cli(&["HSET", seen, &id, "1"]);
    assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
    let guard = waiter.await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Free);
    assert_eq!(server.cli(&["EXISTS", queue, seen]).int(), 0);
}

/// A lock and a queue of the layout before this one.
#[tokio::test]
async fn an_earlier_version_is_respected_or_named_and_never_overtaken_silently() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(&server).await;
    let held = format!("{} 1700000000000 7 host label", "a".repeat(32));
    server.cli(&["SET", "lock:x", &held, "PX", "60000"]);
    assert!(leases.lock("x").try_acquire().await.unwrap().held().is_none());
    assert_eq!(leases.inspect("x").await.unwrap().held().unwrap().holder, Holder::Foreign);
    server.cli(&["ZADD", "leasehold:waiters:{lock:y}", "1", &format!("1 1000 1000 15000 channel {held}")]);
    let error = leases.lock("y").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("version"), "{error}");
    assert_eq!(server.cli(&["EXISTS", "lock:y"]).int(), 0);
    assert_eq!(server.cli(&["ZCARD", "leasehold:waiters:{lock:y}"]).int(), 1);
}

/// The ordinary case is a script of its own; what it cannot decide takes the other one, from then on at once.
#[tokio::test]
async fn a_contended_lock_is_handed_over_in_one_call() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(&server).await;
    let calls = || -> i64 {
        let stats = server.cli(&["INFO", "commandstats"]).text().to_owned();
        let line =
            stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=").map(str::to_owned));
        line.and_then(|line| line.split(',').next().and_then(|calls| calls.parse().ok())).unwrap_or(0)
    };
    // Nobody polls and nobody renews while calls are counted, but for the new holder, once.
    let lock = || leases.lock("x").ttl(LONG * 4).retry(Retry::fixed(LONG)).wait(LONG);
    let mut guard: Guard = lock().acquire().await.unwrap();
    for round in 0..4 {
        let waiter = tokio::spawn(lock().into_future());
        waiting(&leases, "x", 1).await;
        let before = calls();
        assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
        let needed = calls() - before;
        guard = waiter.await.unwrap().unwrap();
        assert!(round == 0 || needed <= 2, "{needed} calls in round {round}");
    }
}

#[tokio::test]
async fn cancelled_claims_leave_no_tombstone_if_their_ends_leave_over_the_same_connection() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = Leasehold::builder(server.url()).command_timeout(LONG).connect().await.unwrap();
    let _ = leases.lock("warm").acquire().await.unwrap().release().await.unwrap();
    // It answers nothing, but gets what is sent.
    server.stop();
    let claims: Vec<_> =
        (0..20).map(|n| tokio::spawn(leases.lock(format!("x:{n}")).wait(LONG).into_future())).collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    claims.iter().for_each(tokio::task::JoinHandle::abort);
    for claim in claims {
        assert!(claim.await.unwrap_err().is_cancelled());
    }
    server.cont();
    leases.close().await.unwrap();
    for left in ["lock:*", "leasehold:waiters:*", "leasehold:gone:*"] {
        assert_eq!(server.cli(&["KEYS", left]).list().len(), 0, "{left}");
    }
}
