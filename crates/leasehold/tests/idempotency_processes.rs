//! Idempotency keys between real processes that are killed at every point of an execution.
#![cfg(feature = "redis")]

use std::{fs::OpenOptions, io::Write, path::Path, time::Duration};

use leasehold::{
    Leasehold,
    idempotency::{Begun, Idempotent},
};
use leasehold_testkit::{Helper, RedisServer};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn helper_process() {
    let Some(role) = Helper::role() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let leases = Leasehold::connect(env("STORE")).await.unwrap();
        match role.as_str() {
            "executor" => execute(&leases).await,
            "marker" => mark(&leases).await,
            other => panic!("no role {other}"),
        }
    });
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set for the helper"))
}

/// Says that it has come to a point, and stays there if it is the one to be killed at.
async fn at(point: &str) {
    Helper::say(&format!("at {point}"));
    if env("POINT") == point {
        std::future::pending::<()>().await;
    }
}

async fn execute(leases: &Leasehold) {
    at("before begin").await;
    let key = leases.idempotency("payout").key(42).lease_ttl(Duration::from_millis(1500));
    let execution = key.begin::<String>().await.unwrap().yours().unwrap();
    at("after begin").await;
    work(&env("LEDGER"));
    at("after work").await;
    execution.complete(&"by the first".to_owned()).await.unwrap();
    at("after complete").await;
}

async fn mark(leases: &Leasehold) {
    assert!(leases.idempotency("payout").key(42).at_most_once().await.unwrap().is_first());
    at("after mark").await;
}

fn work(ledger: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(ledger).unwrap();
    writeln!(file, "paid").unwrap();
}

fn worked(ledger: &str) -> usize {
    std::fs::read_to_string(ledger).map_or(0, |text| text.lines().count())
}

struct Arena {
    server: RedisServer,
    dir: tempfile::TempDir,
}

impl Arena {
    fn new() -> Option<Self> {
        Some(Self { server: leasehold_testkit::redis_or_skip()?, dir: tempfile::tempdir().unwrap() })
    }

    fn ledger(&self) -> String {
        Path::new(self.dir.path()).join("ledger").to_str().unwrap().to_owned()
    }

    /// A process that was killed at a point.
    fn killed_at(&self, role: &str, point: &str) {
        let (store, ledger) = (self.server.url(), self.ledger());
        let helper = Helper::spawn(role, &[("STORE", &store), ("LEDGER", &ledger), ("POINT", point)]);
        helper.wait_for_line(&format!("at {point}"), LONG);
        helper.kill9();
    }

    /// What comes of it when somebody else asks for the same.
    async fn again(&self) -> Idempotent<String, String> {
        let leases = Leasehold::connect(self.server.url()).await.unwrap();
        let ledger = self.ledger();
        let body = async |_| {
            work(&ledger);
            Ok::<_, String>("by the second".to_owned())
        };
        let outcome = leases.idempotency("payout").key(42).wait(LONG).run(body).await.unwrap();
        leases.close().await.unwrap();
        outcome
    }
}

#[tokio::test]
async fn killed_before_it_began_another_executes() {
    let Some(arena) = Arena::new() else { return };
    arena.killed_at("executor", "before begin");
    assert!(matches!(arena.again().await, Idempotent::Executed(result) if result == "by the second"));
    assert_eq!(worked(&arena.ledger()), 1);
}

#[tokio::test]
async fn killed_after_it_began_another_takes_over() {
    let Some(arena) = Arena::new() else { return };
    arena.killed_at("executor", "after begin");
    assert!(matches!(arena.again().await, Idempotent::Executed(result) if result == "by the second"));
    assert_eq!(worked(&arena.ledger()), 1);
}

/// What no library can prevent: the work was done and nobody was told. That is what the fence is for.
#[tokio::test]
async fn killed_between_its_work_and_its_result_the_work_is_done_twice() {
    let Some(arena) = Arena::new() else { return };
    arena.killed_at("executor", "after work");
    assert!(matches!(arena.again().await, Idempotent::Executed(result) if result == "by the second"));
    assert_eq!(worked(&arena.ledger()), 2);
}

#[tokio::test]
async fn killed_after_its_result_was_stored_nobody_executes_again() {
    let Some(arena) = Arena::new() else { return };
    arena.killed_at("executor", "after complete");
    assert!(matches!(arena.again().await, Idempotent::Replayed(result) if result == "by the first"));
    assert_eq!(worked(&arena.ledger()), 1);
}

#[tokio::test]
async fn killed_after_at_most_once_the_work_is_skipped() {
    let Some(arena) = Arena::new() else { return };
    arena.killed_at("marker", "after mark");
    let leases = Leasehold::connect(arena.server.url()).await.unwrap();
    assert!(!leases.idempotency("payout").key(42).at_most_once().await.unwrap().is_first());
    assert!(matches!(arena.again().await, Idempotent::DoneElsewhere));
    let key = leases.idempotency("payout").key(42);
    assert!(matches!(key.begin::<String>().await.unwrap(), Begun::DoneElsewhere));
    assert_eq!(worked(&arena.ledger()), 0);
}

/// Stopped for longer than its lease, it goes on as if nothing had happened, and is told at the end.
#[tokio::test]
async fn a_stopped_executor_cannot_overwrite_who_took_over() {
    let Some(arena) = Arena::new() else { return };
    let (store, ledger) = (arena.server.url(), arena.ledger());
    let helper =
        Helper::spawn("executor", &[("STORE", &store), ("LEDGER", &ledger), ("POINT", "after complete")]);
    // It may be stopped anywhere between its begin and its result; both orders must be right. It waits then: one that ended
    // could not be stopped.
    helper.wait_for_line("at after begin", LONG);
    helper.stop();
    let outcome = arena.again().await;
    helper.cont();
    helper.wait_for_line("at after complete", LONG);
    let kept = match outcome {
        Idempotent::Executed(result) | Idempotent::Replayed(result) => result,
        other => panic!("{other:?}"),
    };
    assert!(matches!(arena.again().await, Idempotent::Replayed(result) if result == kept));
}
