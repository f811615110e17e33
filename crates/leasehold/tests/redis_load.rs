//! Faults of one server while many tasks lock, and the verdict on what they saw.
#![cfg(feature = "redis")]

mod story;

use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testkit::{
    RedisServer, eventually_async,
    load::{self, Load},
};
use story::Story;

const LONG: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(2);

async fn client(server: &RedisServer) -> Leasehold {
    Leasehold::builder(server.url()).command_timeout(TIMEOUT).connect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_scripts_is_full_hangs_or_crashes_breaks_no_promise() {
    // It forgets nothing that it has answered.
    let durable = RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always");
    let Some(server) = durable.start_or_skip() else { return };
    let clients = [client(&server).await, client(&server).await];
    let story = Story::begin(Load::default(), &clients);
    let grants = load::grants(1_200) / 6;
    story.goes_on(grants).await;
    server.cli(&["SCRIPT", "FLUSH"]);
    story.goes_on(grants).await;
    for connections in ["normal", "pubsub"] {
        server.cli(&["CLIENT", "KILL", "TYPE", connections, "SKIPME", "yes"]);
    }
    story.goes_on(grants).await;
    let failed = || clients.iter().map(|client| client.stats().failed).sum::<u64>();
    let before = failed();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    eventually_async(LONG, "refusals", || async { failed() > before }).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    story.goes_on(grants).await;
    server.stop();
    tokio::time::sleep(TIMEOUT * 3 / 2).await;
    server.cont();
    story.goes_on(grants).await;
    server.kill();
    server.restart_with_data();
    story.goes_on(grants).await;
    story.end(|_| false).await;
}
