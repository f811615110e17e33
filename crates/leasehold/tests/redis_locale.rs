//! A server that orders strings by a locale: nothing that a client does may depend on the order.
#![cfg(feature = "redis")]

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::Leasehold;
use leasehold_testkit::{RedisServer, eventually_async};

const LONG: Duration = Duration::from_secs(60);
/// In C, capital letters come before small ones; here they do not.
const LOCALE: &str = "en_US.UTF-8";
const TASKS: usize = 20;
const ROUNDS: usize = 10;

fn server() -> Option<RedisServer> {
    RedisServer::builder().locale(LOCALE).start_or_skip()
}

#[test]
fn the_server_orders_strings_by_the_locale() {
    let Some(server) = server() else { return };
    assert_eq!(server.cli(&["EVAL", "return 'B' < 'a' and 'C' or 'locale'", "0"]).text(), "locale");
}

/// Locks and records share calls: a record must not fail, and must not take locks with it.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_lock_tasks_beside_twenty_idempotency_readers_get_every_lock_and_leave_none() {
    let Some(server) = server() else { return };
    let leases = Leasehold::builder(server.url()).command_timeout(LONG).connect().await.unwrap();
    let lock = async |task: usize| {
        for _ in 0..ROUNDS {
            let attempt = leases.lock(format!("task {task}")).ttl(LONG).try_acquire().await?;
            let _ = attempt.held().expect("nobody else wants it").release().await?;
        }
        Ok::<_, leasehold::Error>(())
    };
    let read = async |task: usize| {
        for _ in 0..ROUNDS {
            assert_eq!(leases.idempotency("payout").key(task).get().await?, None);
        }
        Ok::<_, leasehold::Error>(())
    };
    let (locked, seen) = tokio::join!(join_all((0..TASKS).map(lock)), join_all((0..TASKS).map(read)));
    let failed: Vec<_> = locked.into_iter().chain(seen).filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{} tasks failed, the first with: {}", failed.len(), failed[0]);
    eventually_async(LONG, "no lock is left", || async { server.cli(&["KEYS", "lock:*"]).list().is_empty() })
        .await;
}
