//! Idempotency keys and markers on one server: what other programs see and set, and answers that never come.
#![cfg(feature = "redis")]

use std::time::Duration;

use leasehold::{
    Error, ErrorKind, Leasehold,
    idempotency::{Begun, Idempotent, Settled},
};
use leasehold_testkit::{FaultProxy, RedisServer, eventually_async};

const LONG: Duration = Duration::from_secs(60);
const KEY: &str = "idempotency:payout:42";

async fn client(server: &RedisServer) -> Leasehold {
    Leasehold::connect(server.url()).await.unwrap()
}

#[tokio::test]
async fn at_most_once_is_the_command_that_other_programs_use() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(&server).await;
    let ours = |key: u32| leases.idempotency("payout").key(key).at_most_once();
    let theirs = |key: u32| {
        let key = format!("idempotency:payout:{key}");
        !server.cli(&["SET", &key, "1", "NX", "EX", "86400"]).is_nil()
    };
    assert!(ours(1).await.unwrap().is_first() && !theirs(1));
    assert!(theirs(2) && !ours(2).await.unwrap().is_first());
    assert_eq!(server.cli(&["GET", "idempotency:payout:1"]).text(), "1");
    let ttl = server.cli(&["TTL", "idempotency:payout:1"]).int();
    assert!((86_300..=86_400).contains(&ttl), "{ttl}");
    // Their mark stands for something that was done; our execution is theirs to skip.
    let begun = |key: u32| leases.idempotency("payout").key(key).begin::<u32>();
    assert!(matches!(begun(2).await.unwrap(), Begun::DoneElsewhere));
    let execution = begun(3).await.unwrap().yours().unwrap();
    assert!(!theirs(3));
    execution.complete(&1).await.unwrap();
    assert!(!theirs(3));
}

#[tokio::test]
async fn marks_are_plain_keys() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(&server).await;
    let marker = leases.marker("processing");
    assert!(marker.mark("a b:c").await.unwrap());
    assert_eq!(server.cli(&["GET", "processing:a b%3Ac"]).text(), "1");
    let ttl = server.cli(&["TTL", "processing:a b%3Ac"]).int();
    assert!((200..=300).contains(&ttl), "{ttl}");
    server.cli(&["SET", "processing:theirs", "anything", "EX", "60"]);
    assert!(marker.is_marked("theirs").await.unwrap());
    assert!(!marker.mark_if_absent("theirs").await.unwrap());
}

#[tokio::test]
async fn what_is_no_record_is_named_and_left_alone() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(&server).await;
    let key = || leases.idempotency("payout").key(42);
    server.cli(&["SET", KEY, "theirs"]);
    let error = key().begin::<u32>().await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { key, .. } if key.as_str() == KEY), "{error}");
    assert_eq!(server.cli(&["GET", KEY]).text(), "theirs");
    assert!(key().remove().await.unwrap());
    server.cli(&["RPUSH", KEY, "theirs"]);
    let error = key().begin::<u32>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert_eq!(server.cli(&["LLEN", KEY]).int(), 1);
}

#[tokio::test]
async fn a_result_is_stored_although_the_server_forgot_the_execution_unless_another_has_begun() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(&server).await;
    let begin = || leases.idempotency("payout").key(42).begin::<u32>();
    let forgotten = begin().await.unwrap().yours().unwrap();
    server.cli(&["FLUSHALL"]);
    assert_eq!(forgotten.complete(&7).await.unwrap(), Settled::Stored);
    assert!(matches!(begin().await.unwrap(), Begun::Completed(7)));

    server.cli(&["FLUSHALL"]);
    let slow = begin().await.unwrap().yours().unwrap();
    server.cli(&["FLUSHALL"]);
    let later = begin().await.unwrap().yours().unwrap();
    let fence = later.fence();
    assert_eq!(slow.complete(&7).await.unwrap(), Settled::FencedOff { by: Some(fence) });
    later.fail("no funds").await.unwrap();
    let slow = begin().await.unwrap().yours().unwrap();
    server.cli(&["DEL", KEY]);
    begin().await.unwrap().yours().unwrap().fail("no funds").await.unwrap();
    assert!(matches!(slow.complete(&7).await.unwrap(), Settled::FencedOff { by: Some(_) }));
    assert!(server.cli(&["GET", KEY]).is_nil());
}

#[tokio::test]
async fn a_result_whose_answer_was_cut_off_is_told_again() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases = Leasehold::builder(proxy.url()).command_timeout(LONG).connect().await.unwrap();
    let execution = leases.idempotency("payout").key(42).begin::<u32>().await.unwrap().yours().unwrap();
    proxy.hold_replies();
    let completing = tokio::spawn(async move { execution.complete(&7).await });
    eventually_async(LONG, "the server has it", || async {
        server.cli(&["GET", KEY]).text().starts_with("leasehold:1 completed")
    })
    .await;
    proxy.cut();
    proxy.pass();
    assert_eq!(completing.await.unwrap().unwrap(), Settled::Stored);
    assert_eq!(leases.stats().executed, 1);
}

#[tokio::test]
async fn a_result_without_an_answer_is_unknown_and_its_value_is_not_lost() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases =
        Leasehold::builder(proxy.url()).command_timeout(Duration::from_secs(2)).connect().await.unwrap();
    let run = leases.idempotency("payout").key(42).run(async |_| {
        proxy.drop_replies();
        Ok::<_, String>(7)
    });
    match run.await.unwrap() {
        Idempotent::Unstored { result: 7, why } => {
            assert_eq!(why.kind(), ErrorKind::StoreUnreachable);
            assert!(why.to_string().contains("unknown"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    let other = client(&server).await;
    let again = other.idempotency("payout").key(42).run(async |_| Ok::<_, String>(8)).await.unwrap();
    assert!(matches!(again, Idempotent::Replayed(7)), "{again:?}");
}

#[tokio::test]
async fn a_result_that_the_store_was_too_late_for_is_stored_in_the_background() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases =
        Leasehold::builder(proxy.url()).command_timeout(Duration::from_secs(1)).connect().await.unwrap();
    let key = leases.idempotency("payout").key(42).lease_ttl(Duration::from_secs(300));
    let execution = key.begin::<u32>().await.unwrap().yours().unwrap();
    proxy.refuse();
    proxy.cut();
    assert_eq!(execution.complete(&7).await.unwrap_err().kind(), ErrorKind::StoreUnreachable);
    proxy.pass();
    let other = client(&server).await;
    eventually_async(LONG, "the result", || async {
        matches!(other.idempotency("payout").key(42).begin::<u32>().await.unwrap(), Begun::Completed(7))
    })
    .await;
}

#[tokio::test]
async fn what_was_begun_without_an_answer_is_given_back() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases =
        Leasehold::builder(proxy.url()).command_timeout(Duration::from_secs(1)).connect().await.unwrap();
    // So that the server knows the script before its answers get lost.
    leases
        .idempotency("payout")
        .key(1)
        .begin::<u32>()
        .await
        .unwrap()
        .yours()
        .unwrap()
        .complete(&1)
        .await
        .unwrap();
    proxy.drop_replies();
    let key = leases.idempotency("payout").key(42).lease_ttl(Duration::from_secs(300));
    let beginning = tokio::spawn(key.begin::<u32>());
    let is_there = || async { server.cli(&["EXISTS", KEY]).int() == 1 };
    eventually_async(LONG, "it was begun", is_there).await;
    assert_eq!(beginning.await.unwrap().unwrap_err().kind(), ErrorKind::StoreUnreachable);
    eventually_async(LONG, "it was given back", || async { !is_there().await }).await;
}

#[tokio::test]
async fn a_body_is_cancelled_before_its_lease_ends_when_the_store_is_gone() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases =
        Leasehold::builder(server.url()).command_timeout(Duration::from_millis(500)).connect().await.unwrap();
    let run = leases.idempotency("payout").key(42).lease_ttl(Duration::from_secs(2)).run(async |lease| {
        server.stop();
        lease.lost().await;
        std::future::pending::<Result<u32, String>>().await
    });
    let error = run.await.unwrap_err();
    server.cont();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}
