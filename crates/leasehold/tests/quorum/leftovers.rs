//! A released lock leaves nothing behind on any node, whatever was on its way.

use std::time::Duration;

use leasehold_testkit::{FaultProxy, eventually_async};

use crate::fixture::{LONG, all_vote, builder, client, has, leftovers, nodes, quorum};

/// So long that nothing ends by itself within a test.
const MAX_TTL: Duration = Duration::from_secs(240);
const TASKS: usize = 64;
const CYCLES: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_released_locks_leave_no_vote_behind() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    let _ = leases.lock("warm up").acquire().await.unwrap().release().await.unwrap();
    let tasks = (0..TASKS).map(|task| {
        let leases = leases.clone();
        tokio::spawn(async move {
            for cycle in 0..CYCLES {
                let guard =
                    leases.lock(format!("{task}-{cycle}")).without_keep_alive().acquire().await.unwrap();
                let _ = guard.release().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    // What is still under way ends first.
    leases.close().await.unwrap();
    let left: Vec<_> = set.nodes().iter().map(leftovers).collect();
    assert!(left.iter().all(Vec::is_empty), "{left:?}");
}

/// The runtime of the client ends while a withdrawal is on its way; another one goes on with the client.
#[test]
fn the_end_of_a_runtime_loses_no_withdrawal() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let Some(set) = nodes(3).start_or_skip() else { return };
    let proxies: Vec<_> = set.nodes().iter().map(|node| FaultProxy::start(node.addr())).collect();
    let addresses: Vec<_> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
    let url = format!("redlock://{}", addresses.join(","));
    let leases = first.block_on(async { builder(&url, MAX_TTL).connect_lazy().unwrap() });
    second.block_on(async {
        leases.quorum().unwrap().admit_new().await.unwrap();
        let guard = leases.lock("x").without_keep_alive().acquire().await.unwrap();
        eventually_async(LONG, "all votes", || async { set.nodes().iter().all(|node| has(node, "x")) }).await;
        proxies[2].hold();
        let _ = guard.release().await.unwrap();
    });
    drop(first);
    proxies[2].cut();
    proxies[2].pass();
    assert!(has(&set.nodes()[2], "x"), "the withdrawal arrived");
    second.block_on(async {
        // Nothing more is owed: all connections are new.
        all_vote(&leases).await;
        eventually_async(LONG, "the withdrawal", || async {
            let _ = leases.lock("y").without_keep_alive().acquire().await.unwrap().release().await.unwrap();
            !has(&set.nodes()[2], "x")
        })
        .await;
    });
}
