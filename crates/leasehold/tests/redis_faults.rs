//! What goes wrong between a client and a real Redis, and what its users are told.
#![cfg(feature = "redis")]

use std::{sync::Arc, time::Duration};

use leasehold::{Attempt, Error, Guard, Leasehold, engine::Released};
use leasehold_testkit::{FaultProxy, RedisServer, eventually_async};

const LONG: Duration = Duration::from_secs(20);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn client(url: impl AsRef<str>) -> Leasehold {
    Leasehold::builder(url).command_timeout(ms(500)).connect().await.unwrap()
}

async fn held(leases: &Leasehold, name: &str) -> Guard {
    leases.lock(name).acquire().await.unwrap()
}

/// Waits until so many attempts wait for a lock.
async fn waiting(leases: &Leasehold, name: &str, count: u32) {
    eventually_async(LONG, "waiters", || async { leases.inspect(name).await.unwrap().waiting == count })
        .await;
}

fn commands(server: &RedisServer) -> i64 {
    let info = server.cli(&["INFO", "commandstats"]).text().to_owned();
    let calls = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:")));
        line.and_then(|line| line.split(['=', ',']).nth(1)?.parse::<i64>().ok()).unwrap_or(0)
    };
    calls("evalsha") + calls("eval")
}

#[tokio::test]
async fn asking_once_is_one_command_and_leaves_no_trace() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let (a, b) = (client(server.url()).await, client(server.url()).await);
    let guard = held(&a, "x").await;
    assert!(matches!(b.lock("x").try_acquire().await.unwrap(), Attempt::Busy { .. }));
    let before = commands(&server);
    assert!(matches!(b.lock("x").try_acquire().await.unwrap(), Attempt::Busy { .. }));
    assert_eq!(commands(&server) - before, 1);
    assert_eq!(server.cli(&["EXISTS", "leasehold:waiters:{lock:x}"]).int(), 0);
    // Only `a`, whose acquire might have had to wait, listens for wake-ups.
    assert_eq!(server.cli(&["PUBSUB", "CHANNELS", "leasehold:wake:*"]).list().len(), 1);
    let alone = client(server.url()).await;
    let channels = server.cli(&["PUBSUB", "CHANNELS"]).list().len();
    let _ = alone.lock("y").try_acquire().await.unwrap();
    assert_eq!(server.cli(&["PUBSUB", "CHANNELS"]).list().len(), channels);
    let _ = guard.release().await.unwrap();
}

#[tokio::test]
async fn a_hand_over_reaches_a_waiter_that_sent_nothing_since_its_claim() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let (a, b) = (client(server.url()).await, client(proxy.url()).await);
    for _ in 0..20 {
        let guard = held(&a, "x").await;
        // Two others come first, so that the one we watch is far back and polls rarely.
        let others: Vec<_> = (0..2).map(|_| tokio::spawn(a.lock("x").wait(LONG).into_future())).collect();
        waiting(&a, "x", 2).await;
        let waiter = tokio::spawn(b.lock("x").wait(LONG).into_future());
        waiting(&a, "x", 3).await;
        let sent = proxy.requests_bytes();
        let _ = guard.release().await.unwrap();
        for other in others {
            let _ = other.await.unwrap().unwrap().release().await.unwrap();
        }
        let got = waiter.await.unwrap().unwrap();
        let sent = proxy.requests_bytes() - sent;
        assert!(got.is_held());
        let _ = got.release().await.unwrap();
        // The poll of a far waiter is seconds away; on a busy machine it may come first.
        if b.stats().handed_over == 1 {
            // At most the one renewal that makes the start of the lease exact, off the caller's path.
            assert!(sent < 500, "{sent} bytes were sent");
            return;
        }
    }
    panic!("a poll came first each time");
}

#[tokio::test]
async fn a_holder_behind_a_black_hole_is_told_before_the_server_gives_its_lock_away() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases = client(proxy.url()).await;
    let guard = leases.lock("x").ttl(ms(2000)).keep_alive().acquire().await.unwrap();
    proxy.hold();
    loop {
        // In this order: on a busy machine much may happen between the two.
        let left = server.cli(&["PTTL", "lock:x"]).int();
        if !guard.is_held() {
            break;
        }
        assert!(left > 0, "held {left} ms after the end");
        tokio::task::yield_now().await;
    }
    guard.lost().await;
    assert!(leases.stats().lost == 1 && leases.stats().renew_miss >= 1);
    // Back again, nothing revives it.
    proxy.pass();
    assert!(matches!(guard.extend().await.unwrap_err(), Error::Lost { .. }));
}

#[tokio::test]
async fn a_client_recovers_from_a_black_hole_and_its_waiters_keep_their_place() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let (a, b) = (client(server.url()).await, client(proxy.url()).await);
    let guard = held(&a, "x").await;
    let early = tokio::spawn(b.lock("x").wait(LONG).into_future());
    waiting(&a, "x", 1).await;
    let late = tokio::spawn(a.lock("x").wait(LONG).into_future());
    waiting(&a, "x", 2).await;
    proxy.hold();
    eventually_async(LONG, "the break to be noticed", || async { b.stats().disconnected > 0 }).await;
    proxy.cut();
    proxy.pass();
    eventually_async(LONG, "both to hear wake-ups", || async {
        server.cli(&["PUBSUB", "CHANNELS", "leasehold:wake:*"]).list().len() == 2
    })
    .await;
    assert_eq!(a.inspect("x").await.unwrap().waiting, 2);
    let _ = guard.release().await.unwrap();
    let early = early.await.unwrap().unwrap();
    assert!(!late.is_finished());
    let _ = early.release().await.unwrap();
    let _ = late.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_killed_connection_is_not_noticed_by_waiters_and_holders() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let (a, b) = (client(server.url()).await, client(server.url()).await);
    let guard = a.lock("x").ttl(ms(3000)).keep_alive().acquire().await.unwrap();
    let waiter = tokio::spawn(b.lock("x").wait(LONG).into_future());
    waiting(&a, "x", 1).await;
    for _ in 0..3 {
        server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        eventually_async(LONG, "a new subscription", || async {
            !server.cli(&["PUBSUB", "CHANNELS", "leasehold:wake:*"]).list().is_empty()
        })
        .await;
    }
    assert!(guard.is_held());
    let _ = guard.release().await.unwrap();
    let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// A far waiter asks every five seconds; a break makes it ask at once, or it would be passed over as dead.
#[tokio::test]
async fn a_far_waiter_listens_again_long_before_its_next_poll() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let (a, b) = (client(server.url()).await, client(server.url()).await);
    let guard = held(&a, "x").await;
    let mut others = Vec::new();
    for number in 1..=3 {
        others.push(tokio::spawn(a.lock("x").wait(LONG).into_future()));
        waiting(&a, "x", number).await;
    }
    let far = tokio::spawn(b.lock("x").wait(LONG).into_future());
    waiting(&a, "x", 4).await;
    server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually_async(Duration::from_secs(3), "both to listen again", || async {
        server.cli(&["PUBSUB", "CHANNELS", "leasehold:wake:*"]).list().len() == 2
    })
    .await;
    let _ = guard.release().await.unwrap();
    for other in others {
        let _ = other.await.unwrap().unwrap().release().await.unwrap();
    }
    let _ = far.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn validity_counts_from_before_the_request_left() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases =
        Leasehold::builder(proxy.url()).command_timeout(Duration::from_secs(10)).connect().await.unwrap();
    let _ = leases.lock("warm").acquire().await.unwrap().release().await.unwrap();
    proxy.delay(ms(400));
    let guard = leases.lock("x").ttl(ms(5000)).acquire().await.unwrap();
    let (believed, real) = (guard.remaining(), server.cli(&["PTTL", "lock:x"]).int() as u64);
    assert!(believed <= ms(5000 - 800), "{believed:?}");
    assert!(believed < ms(real), "believed {believed:?}, the server says {real} ms");
    guard.extend().await.unwrap();
    assert!(guard.remaining() <= ms(5000 - 800), "{:?}", guard.remaining());
    // An answer that took most of the lease is no use to anybody.
    let error = leases.lock("y").ttl(ms(900)).try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("too little of the lease"), "{error}");
    eventually_async(LONG, "it to be given back", || async { server.cli(&["EXISTS", "lock:y"]).int() == 0 })
        .await;
}

#[tokio::test]
async fn a_lock_deleted_or_swapped_by_hand_is_lost_at_the_next_renewal_and_a_waiter_gets_it() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    for spoil in [&["DEL", "lock:x"][..], &["SET", "lock:x", "somebody", "PX", "200"]] {
        let guard = leases.lock("x").ttl(ms(900)).keep_alive().acquire().await.unwrap();
        let waiter = tokio::spawn(leases.lock("x").wait(LONG).into_future());
        waiting(&leases, "x", 1).await;
        server.cli(spoil);
        guard.lost().await;
        let next = waiter.await.unwrap().unwrap();
        assert!(next.fence() > guard.fence());
        assert!(matches!(guard.release().await.unwrap(), Released::Taken { by: Some(_) }));
        assert!(next.is_held());
        let _ = next.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_restarts_empty_loses_locks_and_says_so() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let guard = leases.lock("x").ttl(ms(3000)).keep_alive().acquire().await.unwrap();
    server.restart();
    guard.lost().await;
    let next = leases.lock("x").acquire().await.unwrap();
    assert!(next.fence() > guard.fence());
    let _ = next.release().await.unwrap();
}

#[tokio::test]
async fn an_abandon_that_overtakes_its_own_claim_leaves_no_lock_behind() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases = Arc::new(client(proxy.url()).await);
    let _ = leases.lock("warm").acquire().await.unwrap().release().await.unwrap();
    proxy.hold();
    // The claim is sent and stays on its way, on a connection that is then given up.
    let first = leases.lock("x").wait(ms(300)).acquire().await.unwrap_err();
    assert!(matches!(first, Error::StoreUnreachable { .. }), "{first}");
    let second = leases.lock("y").wait(ms(300)).acquire().await.unwrap_err();
    assert!(matches!(second, Error::StoreUnreachable { .. }), "{second}");
    eventually_async(LONG, "the connection to be given up", || async { leases.stats().disconnected > 0 })
        .await;
    proxy.pass();
    // The second abandon arrives over a new connection, the old claims over the old one, in whatever order. The first one
    // left over the old connection, behind its claim, unless it had to be sent again.
    eventually_async(LONG, "both ends", || async {
        let gone = server.cli(&["KEYS", "leasehold:gone:{lock:y}:*"]).list().len();
        gone == 1 && server.cli(&["EXISTS", "lock:x", "lock:y"]).int() == 0
    })
    .await;
    leases.close().await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "lock:x", "lock:y"]).int(), 0);
}

#[tokio::test]
async fn a_release_without_an_answer_is_repeated_until_the_lock_is_free() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases = client(proxy.url()).await;
    let guard = held(&leases, "x").await;
    proxy.hold();
    let error = guard.release().await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("\"x\""), "{error}");
    proxy.cut();
    proxy.pass();
    eventually_async(LONG, "the lock to be free", || async { server.cli(&["EXISTS", "lock:x"]).int() == 0 })
        .await;
    assert_eq!(leases.stats().release_failed, 1);
}

#[tokio::test]
async fn with_the_server_down_calls_fail_fast_and_a_restart_is_survived() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let _ = held(&leases, "x").await.release().await.unwrap();
    server.kill();
    eventually_async(LONG, "the break to be noticed", || async { leases.stats().disconnected > 0 }).await;
    for _ in 0..50 {
        assert!(matches!(leases.lock("x").try_acquire().await.unwrap_err(), Error::StoreUnreachable { .. }));
    }
    server.restart();
    eventually_async(LONG, "the client to come back", || async {
        matches!(leases.lock("x").try_acquire().await, Ok(Attempt::Held(_)))
    })
    .await;
}

#[tokio::test]
async fn a_script_flush_is_not_noticed() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let guard = held(&leases, "x").await;
    for _ in 0..3 {
        server.cli(&["SCRIPT", "FLUSH"]);
        guard.extend().await.unwrap();
        server.cli(&["SCRIPT", "FLUSH"]);
        assert!(matches!(leases.lock("x").try_acquire().await.unwrap(), Attempt::Busy { .. }));
    }
    server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(guard.release().await.unwrap(), Released::Free);
}

#[tokio::test]
async fn dead_waiters_do_not_stop_a_hand_over() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let guard = held(&leases, "x").await;
    let waiters = "leasehold:waiters:{lock:x}";
    let far_ahead = (guard.fence().get() + 3_600_000_000).to_string();
    for number in 0..350 {
        let entry = format!("2 1000 9000000000000 15000 nobody-listens {number:032x} 1 1 host dead");
        server.cli(&["ZADD", waiters, &number.to_string(), &entry]);
        // Heard of a moment ago, and within its time: only the missing subscriber tells that it is dead.
        server.cli(&["HSET", "leasehold:seen:{lock:x}", &format!("{number:032x} "), &far_ahead]);
    }
    let waiter = tokio::spawn(leases.lock("x").wait(LONG).into_future());
    waiting(&leases, "x", 351).await;
    assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
    let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(server.cli(&["EXISTS", waiters, "lock:x"]).int(), 0);
}

#[tokio::test]
async fn a_waiter_of_another_version_is_not_overtaken_silently() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    server.cli(&["ZADD", "leasehold:waiters:{lock:x}", "1", "3 an entry of a later layout"]);
    let error = leases.lock("x").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("version"), "{error}");
}

#[tokio::test]
async fn a_thousand_leases_are_kept_alive_with_few_commands() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    // A thousand claims at once may take a while on a busy machine.
    let leases = Leasehold::builder(server.url()).command_timeout(LONG).connect().await.unwrap();
    let ttl = Duration::from_secs(6);
    let take = |number: u32| leases.lock(format!("kept-{number}")).ttl(ttl).keep_alive().into_future();
    let guards = futures_util::future::try_join_all((0..1000).map(take)).await.unwrap();
    // From a renewal to the next but one: two intervals.
    let renewed = || leases.stats().renewed;
    eventually_async(LONG, "the first renewals", || async { renewed() >= 1000 }).await;
    let before = (commands(&server), renewed());
    eventually_async(LONG, "two more intervals", || async { renewed() >= before.1 + 2000 }).await;
    let calls = commands(&server) - before.0;
    assert!(calls <= 40, "{calls} commands for two intervals");
    assert!(guards.iter().all(|guard| guard.is_held()));
    drop(guards);
    leases.close().await.unwrap();
    assert_eq!(server.cli(&["KEYS", "*"]).list().len(), 1, "only the last fence is left");
}

/// Idle since it was made, and cut off silently: the first thing it sends is the subscription to wake-ups.
#[tokio::test]
async fn a_connection_that_died_before_its_first_waiter_is_replaced() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases = client(proxy.url()).await;
    // Nothing that was sent from here on ever arrives, and nothing says so.
    proxy.hold();
    for _ in 0..3 {
        leases.lock("x").wait(ms(700)).acquire().await.unwrap_err();
    }
    assert!(leases.stats().disconnected > 0, "the dead connection is still in use");
}

#[tokio::test]
async fn an_attempt_ends_in_time_while_a_patient_one_waits_for_the_same_subscription() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases = Leasehold::builder(proxy.url()).command_timeout(LONG).connect().await.unwrap();
    proxy.hold();
    let patient = tokio::spawn(leases.lock("x").wait(LONG).into_future());
    let sent = proxy.requests_bytes();
    eventually_async(LONG, "the subscription to leave", || async { proxy.requests_bytes() > sent }).await;
    let hasty = leases.lock("y").wait(ms(300)).acquire();
    tokio::time::timeout(ms(3000), hasty).await.expect("it ends by its own limit").unwrap_err();
    patient.abort();
}

/// A client that lives longer than the runtime it was made on, as a `static` does between tests.
#[test]
fn a_dial_that_died_with_its_runtime_is_begun_again() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    proxy.hold();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let leases = first.block_on(async {
        let leases = Leasehold::builder(proxy.url()).command_timeout(LONG).connect_lazy().unwrap();
        let acquire = leases.lock("x").wait(ms(100)).acquire();
        assert!(tokio::time::timeout(ms(300), acquire).await.is_ok());
        leases
    });
    drop(first);
    proxy.pass();
    let (ended, outcome) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = ended.send(runtime().block_on(leases.lock("x").acquire()).map(|guard| guard.is_held()));
    });
    assert!(outcome.recv_timeout(LONG).expect("it hangs").unwrap());
}

/// Without a prefix a name could be the side key of another one, or share its queue.
#[tokio::test]
async fn no_two_names_meet_in_one_key() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases =
        Leasehold::builder(server.url()).configure(|config| config.prefix.clear()).connect().await.unwrap();
    let holder = held(&leases, "x").await;
    let waiter = tokio::spawn(leases.lock("x").wait(ms(500)).into_future());
    waiting(&leases, "x", 1).await;
    for name in ["{x}", "leasehold:fence:{y}", "leasehold:"] {
        let got = leases.lock(name).try_acquire().await;
        assert!(matches!(got, Err(Error::Unsupported { .. })), "{name}: {got:?}");
    }
    assert!(matches!(waiter.await.unwrap(), Err(Error::TimedOut { .. })), "two holders");
    assert!(holder.is_held());
    for name in ["{x}y", "y{x}", "{x", "leasehold"] {
        let _ = held(&leases, name).await.release().await.unwrap();
    }
}

/// A virtual address, a DNS name or a managed endpoint leads somewhere else after a fail-over, while connections to the
/// old primary stay open.
#[tokio::test]
async fn a_server_that_became_a_replica_is_left_for_the_one_that_its_address_leads_to_now() {
    let (Some(old), Some(new)) = (leasehold_testkit::redis_or_skip(), leasehold_testkit::redis_or_skip())
    else {
        return;
    };
    new.cli(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    let proxy = FaultProxy::start(old.addr());
    let leases = client(proxy.url()).await;
    let first = held(&leases, "first").await;
    let guard = leases.lock("x").ttl(ms(6000)).keep_alive().acquire().await.unwrap();
    let waiter = tokio::spawn(leases.lock("x").wait(LONG).into_future());
    waiting(&leases, "x", 1).await;
    eventually_async(LONG, "the copy of the lock and its queue", || async {
        new.cli(&["ZCARD", "leasehold:waiters:{lock:x}"]).int() == 1
    })
    .await;
    proxy.lead_to(new.addr());
    new.cli(&["REPLICAOF", "NO", "ONE"]);
    old.cli(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    // The first who meets the old one does not fail for it.
    assert_eq!(first.release().await.unwrap(), Released::Free);
    let renewed = leases.stats().renewed;
    eventually_async(LONG, "renewals at the new primary", || async { leases.stats().renewed > renewed })
        .await;
    assert!(guard.is_held());
    let _ = guard.release().await.unwrap();
    let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// Operations gather in a task of the runtime that began to gather, whoever else waits for it.
#[test]
fn operations_go_on_after_a_runtime_ended_while_they_gathered() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let home = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let leases = home.block_on(
        Leasehold::builder(proxy.url())
            .configure(|config| config.connections = 1)
            .command_timeout(ms(2000))
            .connect(),
    );
    let leases = leases.unwrap();
    let _ = home.block_on(async { held(&leases, "warm").await.release().await.unwrap() });
    for _ in 0..10 {
        let short = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        proxy.hold();
        short.block_on(async {
            let names = ["a", "b", "c"].map(|name| leases.lock(name).into_future());
            // The first leaves alone, the others gather; the runtime ends before they leave.
            let mut all = futures_util::future::join_all(names);
            let polled = futures_util::poll!(&mut all);
            assert!(polled.is_pending(), "{polled:?}");
        });
        drop(short);
        proxy.pass();
        let got = home.block_on(leases.lock("d").try_acquire());
        assert!(matches!(got, Ok(Attempt::Held(_))), "{got:?}");
        home.block_on(async {
            if let Ok(Attempt::Held(guard)) = got {
                let _ = guard.release().await.unwrap();
            }
        });
    }
}
