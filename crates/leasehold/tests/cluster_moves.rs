//! Locks whose slot moves to another node of a real cluster.
#![cfg(feature = "redis")]

use std::time::{Duration, Instant};

use leasehold::{Attempt, Guard, Leasehold, engine::Released};
use leasehold_testkit::{ClusterSet, RedisServer, eventually_async};

const LONG: Duration = Duration::from_secs(60);

async fn client(set: &ClusterSet) -> Leasehold {
    Leasehold::builder(set.url()).command_timeout(Duration::from_secs(10)).connect().await.unwrap()
}

async fn waiting(leases: &Leasehold, name: &str, count: u32) {
    eventually_async(LONG, "waiters", || async { leases.inspect(name).await.unwrap().waiting == count })
        .await;
}

/// A lock name, its slot, the primary that has it and one that has not.
fn place(set: &ClusterSet) -> (String, u16, &RedisServer, &RedisServer) {
    let [from, to, ..] = set.primaries()[..] else { panic!("at least two primaries") };
    let name = set.name_on(from, "x");
    let slot = ClusterSet::slot(&format!("lock:{name}"));
    (name, slot, from, to)
}

fn start() -> Option<ClusterSet> {
    ClusterSet::builder().replicas(0).start_or_skip()
}

#[tokio::test]
async fn a_moved_slot_is_followed() {
    let Some(set) = start() else { return };
    let (name, slot, _, to) = place(&set);
    let leases = client(&set).await;
    let guard = leases.lock(&name).acquire().await.unwrap();
    set.move_slot(slot, to);
    // Not renewed meanwhile: the release itself is pointed to the new node.
    assert_eq!(guard.release().await.unwrap(), Released::Free);
    let again = leases.lock(&name).acquire().await.unwrap();
    assert!(!to.cli(&["GET", &format!("lock:{name}")]).text().is_empty());
    assert!(again.fence() > Default::default());
    let _ = again.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_is_renewed_and_given_back_while_its_keys_are_on_two_nodes() {
    let Some(set) = start() else { return };
    let (name, slot, from, to) = place(&set);
    let leases = client(&set).await;
    let (key, beside) = (format!("lock:{name}"), format!("lock:{{lock:{name}}}:beside"));
    for lock_moves in [true, false] {
        let guard = leases.lock(&name).ttl(Duration::from_secs(3)).keep_alive().acquire().await.unwrap();
        // Another name of the slot, which is renewed in the same call.
        let other = leases.lock(&beside["lock:".len()..]).ttl(Duration::from_secs(3)).keep_alive();
        let other = other.acquire().await.unwrap();
        set.begin_move(slot, from, to);
        set.migrate_keys(from, to, &[if lock_moves { &key } else { &beside }]);
        let renewed = leases.stats().renewed;
        eventually_async(LONG, "renewals", || async { leases.stats().renewed >= renewed + 5 }).await;
        assert!(guard.is_held() && other.is_held());
        assert_eq!(guard.release().await.unwrap(), Released::Free);
        assert_eq!(other.release().await.unwrap(), Released::Free);
        // Nobody can claim it before the slot has arrived; then everybody can.
        let claim = tokio::spawn(leases.lock(&name).wait(LONG).into_future());
        set.migrate_slot(slot, from, to);
        set.end_move(slot, to);
        let _ = claim.await.unwrap().unwrap().release().await.unwrap();
        set.move_slot(slot, from);
    }
}

#[tokio::test]
async fn a_waiter_leaves_a_queue_whose_keys_are_on_two_nodes() {
    let Some(set) = start() else { return };
    let (name, slot, from, to) = place(&set);
    let leases = client(&set).await;
    let guard = leases.lock(&name).acquire().await.unwrap();
    let waiter = tokio::spawn(leases.lock(&name).wait(LONG).into_future());
    waiting(&leases, &name, 1).await;
    set.begin_move(slot, from, to);
    set.migrate_keys(from, to, &[&format!("lock:{name}")]);
    let queue = format!("leasehold:waiters:{{lock:{name}}}");
    waiter.abort();
    // A key that is not there (any more) is asked for at the other node.
    let is_empty = || async { from.cli(&["ZCARD", &queue]).error().is_some() };
    eventually_async(LONG, "an empty queue", is_empty).await;
    // Who looks at it waits for its keys.
    let looker = leases.clone();
    let looked = tokio::spawn({
        let name = name.clone();
        async move { looker.inspect(&name).await }
    });
    set.migrate_slot(slot, from, to);
    set.end_move(slot, to);
    assert_eq!(looked.await.unwrap().unwrap().held().map(|held| held.fence), Some(guard.fence()));
    assert_eq!(guard.release().await.unwrap(), Released::Free);
    let _ = leases.lock(&name).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn names_without_keys_wait_until_their_slot_has_moved() {
    let Some(set) = start() else { return };
    let (name, slot, from, to) = place(&set);
    let leases = client(&set).await;
    set.begin_move(slot, from, to);
    // Asking once is no reason to fail: it takes as long as one command may.
    let asker = leases.clone();
    let asked = tokio::spawn(async move { asker.lock(&name).try_acquire().await });
    let info = || from.cli(&["INFO", "errorstats"]).text().contains("errorstat_ASK");
    eventually_async(LONG, "a claim that was pointed to the new node", || async { info() }).await;
    set.end_move(slot, to);
    let Attempt::Held(guard) = asked.await.unwrap().unwrap() else { panic!("nobody has it") };
    assert!(!to.cli(&["GET", &format!("lock:{}", guard.name())]).text().is_empty());
    let _ = guard.release().await.unwrap();
}

/// How long it takes to get and give back some locks of another shard.
async fn cycles(leases: &Leasehold, name: &str, count: u32) -> Duration {
    let began = Instant::now();
    for _ in 0..count {
        let _ = leases.lock(name).acquire().await.unwrap().release().await.unwrap();
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_and_its_queue_move_while_other_shards_notice_nothing() {
    let Some(set) = start() else { return };
    let (name, slot, _, to) = place(&set);
    let calm = set.name_on(set.primaries()[2], "calm");
    let clients = [client(&set).await, client(&set).await, client(&set).await];
    let holder = &clients[0];
    let guard = holder.lock(&name).ttl(Duration::from_secs(3)).keep_alive().acquire().await.unwrap();
    let mut waiters = Vec::new();
    for n in 0..5_u32 {
        let lock = clients[1 + n as usize % 2].lock(&name).wait(LONG);
        waiters.push(tokio::spawn(lock.into_future()));
        waiting(holder, &name, n + 1).await;
    }
    let before = cycles(holder, &calm, 200).await;
    let during = {
        let load = tokio::spawn({
            let (leases, calm) = (holder.clone(), calm.clone());
            async move { cycles(&leases, &calm, 200).await }
        });
        tokio::task::block_in_place(|| set.move_slot(slot, to));
        load.await.unwrap()
    };
    assert!(during < before * 10 + Duration::from_secs(1), "{during:?} instead of {before:?}");
    let renewed = holder.stats().renewed;
    eventually_async(LONG, "renewals on the new node", || async { holder.stats().renewed > renewed }).await;
    assert!(guard.is_held());
    // Each hears of its turn on the new node.
    let channels = || to.cli(&["PUBSUB", "SHARDCHANNELS", "leasehold:wake:*"]).list().len();
    eventually_async(LONG, "subscriptions on the new node", || async { channels() == 2 }).await;
    let (mut last, mut turn): (_, Guard) = (guard.fence(), guard);
    for waiter in waiters {
        assert!(matches!(turn.release().await.unwrap(), Released::HandedOver { .. }));
        turn = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap().unwrap();
        assert!(turn.fence() > last);
        last = turn.fence();
    }
    assert_eq!(turn.release().await.unwrap(), Released::Free);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_of_a_subscription_is_never_taken_for_an_answer() {
    let Some(set) = start() else { return };
    let (name, slot, from, to) = place(&set);
    let other = set.name_on(from, "other");
    let leases = client(&set).await;
    let (held, other_held) =
        (leases.lock(&name).acquire().await.unwrap(), leases.lock(&other).acquire().await.unwrap());
    let waiter = tokio::spawn(leases.lock(&name).wait(LONG).into_future());
    let other_waiter = tokio::spawn(leases.lock(&other).wait(LONG).into_future());
    waiting(&leases, &name, 1).await;
    waiting(&leases, &other, 1).await;
    set.begin_move(slot, from, to);
    set.migrate_slot(slot, from, to);
    // A poll of the other waiter is under way, on the connection that hears both slots, ...
    from.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let is_paused = |line: &str| line.contains(" ssub=2 ") && line.contains(" flags=Pb ");
    eventually_async(LONG, "a poll that is not answered", || async {
        from.cli(&["CLIENT", "LIST"]).text().lines().any(is_paused)
    })
    .await;
    // ... when the server ends one of the subscriptions.
    tokio::task::block_in_place(|| set.end_move(slot, to));
    from.cli(&["CLIENT", "UNPAUSE"]);
    for (held, waiter) in [(held, waiter), (other_held, other_waiter)] {
        let _ = held.release().await.unwrap();
        let _ = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
    }
}
