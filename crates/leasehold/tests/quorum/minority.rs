//! A minority is dead or stands still: nobody notices.

use std::time::{Duration, Instant};

use leasehold::{Leasehold, engine::Released};
use leasehold_testkit::{QuorumSet, RedisServer};

use crate::fixture::{LONG, all_vote, client, has, held, leftovers, ms, nothing_is_left, quorum};

/// So long that nothing ends by itself within a test.
const MAX_TTL: Duration = Duration::from_secs(240);
const ROUNDS: usize = 200;

async fn cycle(leases: &Leasehold, number: usize) -> Duration {
    let began = Instant::now();
    let guard = leases.lock(format!("cycle-{number}")).wait(LONG).acquire().await.unwrap();
    let took = began.elapsed();
    assert_eq!(guard.release().await.unwrap(), Released::Free);
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Two quorums, one of which loses a node by `breaks`; the other shows what a grant costs at the same time.
async fn is_not_noticed(breaks: impl Fn(&RedisServer)) -> Option<(QuorumSet, Leasehold)> {
    let (broken, whole) = (quorum(3, MAX_TTL).await?, quorum(3, MAX_TTL).await?);
    let clients = [client(&broken, MAX_TTL), client(&whole, MAX_TTL)];
    for leases in &clients {
        all_vote(leases).await;
        cycle(leases, 0).await;
    }
    let short = ms(3000);
    let kept = clients[0].lock("kept").ttl(short).keep_alive().acquire().await.unwrap();
    breaks(&broken.nodes()[0]);
    let began = Instant::now();
    let mut times = [Vec::new(), Vec::new()];
    for number in 0..ROUNDS {
        for (leases, times) in clients.iter().zip(&mut times) {
            times.push(cycle(leases, number).await);
        }
    }
    let [with_one_less, with_all] = times.map(median);
    assert!(with_one_less < with_all * 3, "{with_one_less:?} with one less, {with_all:?} with all");
    let taken_now = clients[0].lock("taken now").ttl(short).keep_alive().acquire().await.unwrap();
    tokio::time::sleep((short * 3).saturating_sub(began.elapsed())).await;
    for guard in [kept, taken_now] {
        assert!(guard.is_held(), "{} was lost: {:?}", guard.name(), clients[0].stats());
        assert_eq!(guard.release().await.unwrap(), Released::Free);
    }
    let [leases, _] = clients;
    Some((broken, leases))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_is_not_noticed() {
    let Some((set, _leases)) = is_not_noticed(RedisServer::kill).await else { return };
    nothing_is_left(&set).await;
}

/// How long it takes to hand one lock from task to task, of three clients.
async fn turns(clients: &[Leasehold], name: &str) -> Duration {
    let began = Instant::now();
    let tasks = (0..16).map(|number| {
        let lock = clients[number % clients.len()].lock(name).wait(LONG * 4);
        tokio::spawn(async move {
            for _ in 0..15 {
                let guard = lock.clone().acquire().await.unwrap();
                tokio::time::sleep(ms(1)).await;
                let _ = guard.release().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_fewest_nodes_that_can_decide_waiters_get_their_turns_as_fast() {
    let Some(set) = quorum(5, MAX_TTL).await else { return };
    let clients = [client(&set, MAX_TTL), client(&set, MAX_TTL), client(&set, MAX_TTL)];
    turns(&clients, "warm").await;
    let with_all = turns(&clients, "x").await;
    set.nodes()[..2].iter().for_each(RedisServer::kill);
    // Now all that are left must choose the same waiter.
    let with_fewest = turns(&clients, "x").await;
    assert!(with_fewest < with_all * 5, "{with_fewest:?} with the fewest, {with_all:?} with all");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stands_still_is_not_noticed_and_holds_nothing_afterwards() {
    let Some((set, leases)) = is_not_noticed(RedisServer::stop).await else { return };
    // Held while it comes back: what it hears late must not undo it.
    let guard = held(&leases, "over the end").await;
    set.nodes()[0].cont();
    all_vote(&leases).await;
    // It got every vote that was sent to it, and must hear of every end too, long before the leases run out.
    leasehold_testkit::eventually_async(LONG, "the node to forget all but one", || async {
        leftovers(&set.nodes()[0]).iter().all(|key| key == "lock:over the end")
    })
    .await;
    assert!(guard.is_held());
    // A renewal brings it to that node too, without which the next one to go would leave the end unknown.
    leasehold_testkit::eventually_async(LONG, "all nodes to have it", || async {
        guard.extend().await.unwrap();
        set.nodes().iter().all(|node| has(node, "over the end"))
    })
    .await;
    // Now with the vote of that node.
    set.nodes()[2].kill();
    let _ = guard.release().await.unwrap();
    let _ = held(&leases, "x").await.release().await.unwrap();
    nothing_is_left(&set).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_dropped_while_a_node_stands_still_leave_nothing_behind() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    all_vote(&leases).await;
    set.nodes()[0].stop();
    for number in 0..100 {
        let attempt = leases.lock(format!("dropped-{number}")).wait(LONG).into_future();
        let _dropped_or_given_back = tokio::time::timeout(Duration::from_micros(number * 30), attempt).await;
    }
    set.nodes()[0].cont();
    nothing_is_left(&set).await;
}
