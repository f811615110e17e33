//! What lands in the log, as SECURITY.md promises it. Alone in its process: the log is the process's.
#![cfg(feature = "redis")]

mod log;

use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testkit::{FaultProxy, RedisServer, eventually_async};
use log::Log;

const PATIENCE: Duration = Duration::from_secs(10);
const SECRET: &str = "correct horse";

#[tokio::test]
async fn the_log_tells_what_happened_and_no_secret() {
    let Some(server) = RedisServer::builder().password(SECRET).start_or_skip() else { return };
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let proxy = FaultProxy::start(server.addr());
    let secret = SECRET.replace(' ', "%20");
    let url = format!("redis://:{secret}@{}", proxy.addr());
    let leases = Leasehold::builder(url).command_timeout(Duration::from_millis(200)).connect().await.unwrap();

    let released = leases.lock("logged").acquire().await.unwrap();
    let owner = server.cli(&["GET", "lock:logged"]).text().to_owned();
    let fence = released.fence();
    let _ = released.release().await.unwrap();
    let taken = leases.lock("logged").acquire().await.unwrap();
    server.cli(&["DEL", "lock:logged"]);
    let _ = taken.release().await.unwrap();
    proxy.refuse();
    proxy.cut();
    leases.lock("logged").try_acquire().await.unwrap_err();
    eventually_async(PATIENCE, "the broken connection is logged", || async {
        log.text().contains("WARN lost the connection")
    })
    .await;

    let text = log.text();
    for line in [
        format!("DEBUG acquired name=logged fence={fence} waited="),
        format!("DEBUG released name=logged fence={fence} held="),
        "WARN released a lock that was not ours any more name=logged fence=".to_owned(),
        "ERROR store error name=logged kind=store_unreachable error=".to_owned(),
    ] {
        assert!(text.contains(&line), "{line:?} is not in\n{text}");
    }
    proxy.pass();
    closing_is_quiet(&leases, &server, &log).await;
    let text = log.text();
    for secret in [SECRET, &secret, &owner[..32]] {
        assert!(!text.contains(secret), "{secret} is in\n{text}");
    }
}

/// What close() has ended is given back once, not a second time when the connections are gone.
async fn closing_is_quiet(leases: &Leasehold, server: &RedisServer, log: &Log) {
    server.cli(&["SET", "lock:closing", "somebody"]);
    let waiters: Vec<_> =
        (0..5).map(|_| tokio::spawn(leases.lock("closing").wait(PATIENCE).into_future())).collect();
    eventually_async(PATIENCE, "all to wait", || async {
        server.cli(&["ZCARD", "leasehold:waiters:{lock:closing}"]).int() == 5
    })
    .await;
    leases.close().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap_err();
    }
    // Nothing is owed any more: an attempt that were ended twice would be tried for many seconds.
    leases.close().await.unwrap();
    assert!(!log.text().contains("could not give"), "{}", log.text());
    assert_eq!(server.cli(&["EXISTS", "leasehold:waiters:{lock:closing}"]).int(), 0);
}
