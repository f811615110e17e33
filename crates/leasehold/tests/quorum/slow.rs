//! A network so slow that a round takes longer than most pauses.

use std::time::Duration;

use leasehold::Error;
use leasehold_testkit::{FaultProxy, RedisServer};

use crate::fixture::{LONG, builder, calls, ms, nodes};

/// How many scripts the node has run.
fn scripts(node: &RedisServer) -> u64 {
    calls(node, "evalsha") + calls(node, "eval")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_on_a_slow_network_asks_no_more_often_for_it() {
    const WAIT: Duration = Duration::from_secs(6);
    let Some(set) = nodes(3).start_or_skip() else { return };
    let proxies: Vec<_> = set.nodes().iter().map(|node| FaultProxy::start(node.addr())).collect();
    let addrs: Vec<_> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
    let builder = builder(format!("redlock://{}", addrs.join(",")), LONG).command_timeout(LONG / 2);
    let leases = builder.connect_lazy().unwrap();
    leases.quorum().unwrap().admit_new().await.unwrap();
    let _ = leases.lock("warm up").acquire().await.unwrap().release().await.unwrap();
    // Somebody has two of three: the third says yes in every round, and is given back.
    set.nodes()[1..].iter().for_each(|node| {
        node.cli(&["SET", "lock:x", "another library's", "PX", "200000"]);
    });
    proxies.iter().for_each(|proxy| proxy.delay(ms(70)));
    let before = scripts(&set.nodes()[0]);
    let error = leases.lock("x").wait(WAIT).acquire().await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    let calls = scripts(&set.nodes()[0]) - before;
    assert!(calls < 8 * WAIT.as_secs(), "{calls} calls in {WAIT:?}");
}
