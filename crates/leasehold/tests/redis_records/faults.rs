//! What goes wrong between a client, its records and one server.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold::{
    Clock,
    engine::{
        Fault, Renewed,
        records::{Begin, Begun, MarkOp, Outcome, Settled},
    },
    error::Refusal,
};
use leasehold_testkit::{FaultProxy, RedisServer, eventually, redis_or_skip};

use crate::fixture::{Client, LONG, attempt, end, name, paid, soon};

fn calls(server: &RedisServer) -> i64 {
    let info = server.cli(&["INFO", "commandstats"]).text().to_owned();
    let calls = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:")));
        line.and_then(|line| line.split(['=', ',']).nth(1)?.parse::<i64>().ok()).unwrap_or(0)
    };
    calls("evalsha") + calls("eval")
}

#[tokio::test]
async fn a_thousand_marks_take_one_call() {
    let Some(server) = redis_or_skip() else { return };
    let client = Client::open(server.url());
    let keys: Vec<_> = (0..1000).map(|n| name(&format!("mark:{n}"))).collect();
    client.records().on_marks(&keys, MarkOp::Test, soon()).await.unwrap();
    for _ in 0..3 {
        let before = calls(&server);
        client.records().on_marks(&keys, MarkOp::Set(LONG), soon()).await.unwrap();
        assert_eq!(calls(&server) - before, 1);
        client.records().on_marks(&keys, MarkOp::Test, soon()).await.unwrap();
        client.records().on_marks(&keys, MarkOp::Clear, soon()).await.unwrap();
        assert_eq!(calls(&server) - before, 3);
    }
}

#[tokio::test]
async fn scripts_that_the_server_lost_are_sent_again_unnoticed() {
    let Some(server) = redis_or_skip() else { return };
    let client = Client::open(server.url());
    let one = attempt("x", None);
    let grant = client.begun(&one).await;
    // More than one call, of which the first brings the script.
    let keys: Vec<_> = (0..2500).map(|n| name(&format!("mark:{n}"))).collect();
    for _ in 0..2 {
        server.cli(&["SCRIPT", "FLUSH"]);
        assert!(
            client.records().on_marks(&keys, MarkOp::Set(LONG), soon()).await.unwrap().iter().all(|set| *set)
        );
    }
    server.cli(&["SCRIPT", "FLUSH"]);
    let settled = client.records().settle(&end(&one, grant.fence, paid()), soon()).await.unwrap();
    assert_eq!(settled, Settled::Stored);
}

#[tokio::test]
async fn a_attempt_that_got_no_answer_can_be_repeated() {
    let Some(server) = redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let client = Client::open(proxy.url());
    client.begun(&attempt("warm", None)).await;
    proxy.drop_replies();
    let one = attempt("x", Some("a"));
    let shortly = Clock::system().now() + Duration::from_millis(300);
    assert_eq!(client.records().begin(&one, shortly).await.unwrap_err().fault, Fault::NoAnswer);
    eventually(LONG, "the record", || server.cli(&["EXISTS", "x"]).int() == 1);
    proxy.cut();
    proxy.pass();
    let fence = server.cli(&["GET", "x"]).text().split(' ').nth(2).unwrap().to_owned();
    let direct = Client::open(server.url());
    assert!(matches!(direct.begin(&attempt("x", None)).await, Begun::Running { .. }));
    assert_eq!(direct.begun(&one).await.fence.to_string(), fence);
}

#[tokio::test]
async fn a_attempt_that_arrives_after_its_end_begins_nothing() {
    let Some(server) = redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let (late, client) = (Client::open(proxy.url()), Client::open(server.url()));
    late.begun(&attempt("warm", None)).await;
    client.begun(&attempt("warm too", None)).await;
    proxy.hold();
    let one = attempt("x", None);
    let shortly = Clock::system().now() + Duration::from_millis(300);
    assert_eq!(late.records().begin(&one, shortly).await.unwrap_err().fault, Fault::NoAnswer);
    // Its caller gave up, with another copy unanswered; the end overtakes the first on another connection.
    let _unanswered = client.records().begin(&one, soon()).now_or_never();
    let retry = end(&one, leasehold::fence::Fence::new(0), Outcome::Retry);
    assert_eq!(client.records().settle(&retry, soon()).await.unwrap(), Settled::Stored);
    let before = calls(&server);
    proxy.pass();
    eventually(LONG, "the late attempt", || calls(&server) > before);
    assert_eq!(server.cli(&["EXISTS", "x"]).int(), 0);
    assert_eq!(client.try_begin(&one).await.unwrap_err().fault, Fault::Ended);
    client.begun(&attempt("x", None)).await;
}

#[tokio::test]
async fn a_replica_refuses_instead_of_answering_from_old_data() {
    let (Some(primary), Some(replica)) = (redis_or_skip(), redis_or_skip()) else { return };
    let client = Client::open(primary.url());
    let (one, done) = (attempt("x", None), attempt("done", None));
    let grant = client.begun(&one).await;
    let fence = client.begun(&done).await.fence;
    client.records().settle(&end(&done, fence, paid()), soon()).await.unwrap();
    replica.cli(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually(LONG, "the copy", || replica.cli(&["EXISTS", "done"]).int() == 1);
    let stale = Client::open(replica.url());
    let (records, key) = (stale.records(), [one.key.clone()]);
    let errors = [
        records.begin(&attempt("x", None), soon()).await.unwrap_err(),
        records.begin(&attempt("done", None), soon()).await.unwrap_err(),
        records.settle(&end(&one, grant.fence, paid()), soon()).await.unwrap_err(),
        records.settle(&end(&attempt("x", None), grant.fence, paid()), soon()).await.unwrap_err(),
        stale.leases().renew(&[one.hold(grant.fence)], soon()).await.unwrap()[0].clone().unwrap_err(),
        stale.leases().renew(&[attempt("x", None).hold(grant.fence)], soon()).await.unwrap()[0]
            .clone()
            .unwrap_err(),
        records.on_marks(&key, MarkOp::Test, soon()).await.unwrap_err(),
        records.on_marks(&key, MarkOp::SetIfAbsent(LONG), soon()).await.unwrap_err(),
        records.on_marks(&key, MarkOp::Set(LONG), soon()).await.unwrap_err(),
        records.on_marks(&key, MarkOp::Clear, soon()).await.unwrap_err(),
        records.remove(&one.key, soon()).await.unwrap_err(),
    ];
    for (n, error) in errors.iter().enumerate() {
        // The connection leads to the wrong server; the next one may not.
        assert!(error.fault == Fault::Unreachable && error.why.starts_with("READONLY"), "{n}: {error}");
    }
}

#[tokio::test]
async fn what_was_begun_can_be_kept_and_ended_when_memory_is_full() {
    let Some(server) = redis_or_skip() else { return };
    let client = Client::open(server.url());
    let (one, other) = (attempt("x", None), attempt("y", None));
    let (first, second) = (client.begun(&one).await.fence, client.begun(&other).await.fence);
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]).error(), None);
    let error = client.try_begin(&attempt("z", None)).await.unwrap_err();
    assert_eq!(error.fault, Fault::Refused(Refusal::OutOfMemory), "{error}");
    let error =
        client.records().on_marks(&[name("mark")], MarkOp::SetIfAbsent(LONG), soon()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Refused(Refusal::OutOfMemory), "{error}");
    assert_eq!(client.begun(&one).await.fence, first);
    let watching = Begin { wake: true, ..attempt("x", None) };
    assert!(matches!(client.begin(&watching).await, Begun::Running { .. }));
    let renewed = client.leases().renew(&[one.hold(first)], soon()).await.unwrap();
    assert!(matches!(renewed[..], [Ok(Renewed::Kept { .. })]), "{renewed:?}");
    for settle in [end(&one, first, paid()), end(&other, second, Outcome::Retry)] {
        assert_eq!(client.records().settle(&settle, soon()).await.unwrap(), Settled::Stored);
    }
    eventually(LONG, "the wake-up", || client.told(&watching) == 1);
    assert!(matches!(client.begin(&watching).await, Begun::Completed(_)));
}

#[tokio::test]
async fn those_who_watch_are_bounded_and_forgotten() {
    let Some(server) = redis_or_skip() else { return };
    let client = Client::open(server.url());
    let one = attempt("x", None);
    let fence = client.begun(&one).await.fence;
    let watchers = "leasehold:watchers:{x}";
    let watching = Begin { wake: true, ..attempt("x", None) };
    assert!(matches!(client.begin(&watching).await, Begun::Running { .. }));
    let lapses_in = server.cli(&["PTTL", watchers]).int();
    assert!((1..=2 * LONG.as_millis() as i64).contains(&lapses_in), "{lapses_in}");
    let fill = "for i = 2, 10000 do redis.call('SADD', KEYS[1], 'nobody:' .. i .. ' ' .. i) end";
    server.cli(&["EVAL", fill, "1", watchers]);
    server.cli(&["SREM", watchers, "nobody:2 2"]);
    server.cli(&["SADD", watchers, "noise"]);
    let too_many = Begin { wake: true, ..attempt("x", None) };
    assert!(matches!(client.begin(&too_many).await, Begun::Running { .. }));
    assert_eq!(server.cli(&["SCARD", watchers]).int(), 10_000);
    // Whoever is in it is told all the same.
    client.records().settle(&end(&one, fence, paid()), soon()).await.unwrap();
    eventually(LONG, "the wake-up", || client.told(&watching) == 1);
    assert_eq!(client.told(&too_many), 0);
}
