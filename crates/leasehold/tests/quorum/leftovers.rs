//! A released lock leaves nothing behind on any node, whatever was on its way.

use std::time::Duration;

use crate::fixture::{client, leftovers, quorum};

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
