//! How latches lie in Redis, and what other programs and a full memory do to them.

use std::time::Duration;

use leasehold::{
    ErrorKind, Leasehold,
    engine::{
        Fault, Renewed,
        latches::{KEPT, Op, Said, Standing},
    },
    error::Refusal,
    latch::{Awaited, CountedDown},
};
use leasehold_testkit::redis_or_skip;

use super::every_server::{LONG, Servers, open, soon};
use super::{JOIN, ask, join, request};

fn look(generation: u64) -> Op {
    Op::Look { generation: Some(generation), wake: true }
}

#[tokio::test]
async fn what_is_left_of_a_latch_ends_by_itself() {
    for servers in Servers::all() {
        let engine = open(servers.url());
        let server = servers.server("{lock:x}");
        let generation = join(&engine, 1, "x").await;
        join(&engine, 2, "x").await;
        ask(&engine, &request(9, "x", look(generation))).await;
        let side = |kind: &str| format!("leasehold:{kind}:{{lock:x}}");
        let keys = ["latch", "latch_ends", "latch_parties", "latch_waiters"].map(side);
        let left = |key: &String| server.cli(&["PTTL", key]).int();
        let lives = keys.each_ref().map(left);
        let most = KEPT.as_millis() as i64;
        assert!(lives.iter().all(|left| (1..=most).contains(left)), "{lives:?}");
        assert!(lives[..3].iter().all(|left| *left > most / 2), "longer than any lease: {lives:?}");
        for random in [1, 2] {
            ask(&engine, &request(random, "x", Op::CountDown { generation })).await;
        }
        let lives = keys.each_ref().map(left);
        assert!(
            lives[0] > 0 && lives[1..].iter().all(|left| *left == -2),
            "nothing but the latch: {lives:?}"
        );
        server.cli(&["DEL", &keys[0]]);
    }
}

#[tokio::test]
async fn another_kind_of_key_is_an_error_by_name() {
    let Some(server) = redis_or_skip() else { return };
    let leases = Leasehold::builder(server.url()).command_timeout(LONG).connect().await.unwrap();
    server.cli(&["SET", "leasehold:latch:{lock:x}", "something else"]);
    let error = leases.latch("x", 2).join().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(error.to_string().contains("of the latch x"), "{error}");
    assert_eq!(leases.latch("x", 2).state().await.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(server.cli(&["GET", "leasehold:latch:{lock:x}"]).text(), "something else");
}

/// Nobody who waited for a latch that was lost is let through, and whoever took part learns of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_was_lost_opens_for_nobody() {
    let Some(server) = redis_or_skip() else { return };
    let leases = Leasehold::builder(server.url()).command_timeout(LONG).connect().await.unwrap();
    let latch = leases.latch("x", 2).ttl(Duration::from_secs(3));
    let (one, other) =
        (latch.join().await.unwrap().joined().unwrap(), latch.join().await.unwrap().joined().unwrap());
    assert_eq!(one.count_down().await.unwrap(), CountedDown::Counted { missing: 1 });
    let generation = one.generation();
    server.cli(&["FLUSHALL"]);
    other.lost().await;
    assert_eq!(other.count_down().await.unwrap(), CountedDown::Broken { generation, who: None });
    assert_eq!(one.wait(LONG).await.unwrap(), Awaited::Broken { generation, who: None });
    // Also once others have armed it anew, and opened it.
    let again =
        [latch.join().await.unwrap().joined().unwrap(), latch.join().await.unwrap().joined().unwrap()];
    for participant in &again {
        let _ = participant.count_down().await.unwrap();
    }
    assert!(latch.wait(Duration::ZERO).await.unwrap().is_open());
    assert_eq!(one.wait(LONG).await.unwrap(), Awaited::Broken { generation, who: None });
}

#[tokio::test]
async fn with_full_memory_nobody_joins_and_everything_else_works() {
    let Some(server) = redis_or_skip() else { return };
    let engine = open(server.url());
    let generation = join(&engine, 1, "x").await;
    join(&engine, 2, "x").await;
    join(&engine, 3, "y").await;
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]).error(), None);
    for name in ["y", "new"] {
        let joins = request(4, name, JOIN);
        let error = engine.latches().unwrap().ask(&joins, soon()).await.unwrap_err();
        assert_eq!(error.fault, Fault::Refused(Refusal::OutOfMemory), "{error}");
    }
    let hold = request(1, "x", JOIN).hold(generation, LONG);
    let renewed = engine.leases().renew(&[hold], soon()).await.unwrap().remove(0).unwrap();
    assert!(matches!(renewed, Renewed::Kept { .. }));
    let looked = ask(&engine, &request(9, "x", look(generation))).await;
    assert_eq!(looked.said, Said::Stands(Standing::Armed { missing: 2 }));
    for (random, missing) in [(1, 1), (2, 0)] {
        let counted = ask(&engine, &request(random, "x", Op::CountDown { generation })).await;
        assert!(matches!(counted.said, Said::Counted { missing: left, .. } if left == missing));
    }
    assert_eq!(ask(&engine, &request(9, "x", Op::Rearm { generation })).await.said, Said::Rearmed);
    assert_eq!(ask(&engine, &request(3, "y", Op::Leave { breaks: true })).await.said, Said::Left);
}

/// What one request costs does not grow with the participants.
#[tokio::test]
async fn ten_thousand_take_part_and_the_next_is_refused() {
    let Some(server) = redis_or_skip() else { return };
    let engine = open(server.url());
    let generation = join(&engine, 1, "x").await;
    let (most, key) = ("10000", "leasehold:latch:{lock:x}");
    let fill = "for i = 2, 9999 do local id = ('%032x'):format(i) \
                redis.call('HSET', KEYS[2], id, '0 0 1 1 host ' .. i) \
                redis.call('ZADD', KEYS[3], 9e15, id) end \
                redis.call('HSET', KEYS[1], 'count', ARGV[1])";
    let [parties, ends] = ["leasehold:latch_parties:{lock:x}", "leasehold:latch_ends:{lock:x}"];
    assert_eq!(server.cli(&["EVAL", fill, "3", key, parties, ends, most]).error(), None);
    let of_all = |random, op| leasehold::engine::latches::Request {
        count: 10_000.try_into().unwrap(),
        ..request(random, "x", op)
    };
    assert_eq!(ask(&engine, &of_all(20_000, JOIN)).await.said, Said::Joined);
    assert_eq!(ask(&engine, &of_all(20_001, JOIN)).await.said, Said::Full);
    let state = engine.latches().unwrap().state(&request(1, "x", JOIN).name, soon()).await.unwrap().unwrap();
    assert_eq!((state.joined, state.count), (10_000, 10_000));
    assert!((1..=100).contains(&state.participants.len()), "{}", state.participants.len());
    ask(&engine, &of_all(1, Op::Leave { breaks: true })).await;
    assert!(matches!(
        ask(&engine, &of_all(9, look(generation))).await.said,
        Said::Stands(Standing::Broken { .. })
    ));
}
