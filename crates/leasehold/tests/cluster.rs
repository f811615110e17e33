//! Locks on a real cluster whose nodes stay where they are.
#![cfg(feature = "redis")]

use std::{collections::HashSet, time::Duration};

use leasehold::{
    Attempt, ErrorKind, Leasehold, Retry,
    engine::{Health, Released},
};
use leasehold_testkit::{ClusterSet, eventually_async};

const LONG: Duration = Duration::from_secs(60);

async fn client(url: impl AsRef<str>) -> Leasehold {
    Leasehold::builder(url).command_timeout(Duration::from_secs(10)).connect().await.unwrap()
}

async fn waiting(leases: &Leasehold, name: &str, count: u32) {
    eventually_async(LONG, "waiters", || async { leases.inspect(name).await.unwrap().waiting == count })
        .await;
}

#[tokio::test]
async fn every_shard_holds_queues_and_hands_over() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let (a, b) = (client(set.url()).await, client(set.url()).await);
    assert_eq!(a.capabilities().engine, "redis-cluster");
    for primary in set.primaries() {
        // A name with spaces and one with a tag of its own: both have their keys and their channel in one slot.
        let plain = set.name_on(primary, "größe/Ä ß ");
        let tagged = format!("{{{}}}:deal", set.key_on(primary, "tag"));
        for name in [plain, tagged] {
            let guard = a.lock(&name).acquire().await.unwrap();
            assert!(!primary.cli(&["GET", &format!("lock:{name}")]).text().is_empty(), "{name}");
            assert!(matches!(
                b.lock(&name).try_acquire().await.unwrap(),
                Attempt::Busy { holder: Some(_), .. }
            ));
            // Polls so seldom that on a busy machine, too, the message comes first.
            let seldom = Retry::fixed(Duration::from_secs(60));
            let waiter = tokio::spawn(b.lock(&name).wait(LONG).retry(seldom).into_future());
            waiting(&a, &name, 1).await;
            let first = guard.fence();
            assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
            let second = waiter.await.unwrap().unwrap();
            assert!(second.fence() > first && second.is_held());
            assert_eq!(second.release().await.unwrap(), Released::Free);
        }
    }
    assert_eq!(b.stats().handed_over, 6, "every waiter was told, none had to poll for it");
}

#[tokio::test]
async fn a_free_lock_costs_one_command_and_no_subscription() {
    let Some(set) = ClusterSet::builder().primaries(1).replicas(0).start_or_skip() else { return };
    let node = &set.nodes()[0];
    let calls = |command: &str| {
        let info = node.cli(&["INFO", "commandstats"]).text().to_owned();
        let line =
            info.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:"))).map(str::to_owned);
        line.and_then(|line| line.split(['=', ',']).nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    let leases = client(set.url()).await;
    let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
    let before = calls("evalsha");
    let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
    assert_eq!((calls("evalsha") - before, calls("ssubscribe")), (2, 0));
}

#[tokio::test]
async fn busy_clients_share_calls_slot_by_slot() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let leases = client(set.url()).await;
    let guards: Vec<_> =
        (0..300).map(|n| tokio::spawn(leases.lock(format!("n{n}")).keep_alive().into_future())).collect();
    let mut held = Vec::new();
    for guard in guards {
        held.push(guard.await.unwrap().unwrap());
    }
    // Renewed together, each where it is.
    eventually_async(LONG, "renewals", || async { leases.stats().renewed >= 300 }).await;
    assert!(held.iter().all(|guard| guard.is_held()));
    let released: Vec<_> = held.into_iter().map(|guard| tokio::spawn(guard.release())).collect();
    for outcome in released {
        assert_eq!(outcome.await.unwrap().unwrap(), Released::Free);
    }
}

#[tokio::test]
async fn a_scan_finds_the_locks_of_all_shards_once() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let leases = client(set.url()).await;
    let mut guards = Vec::new();
    for n in 0..90 {
        guards.push(leases.lock(format!("job:{n}")).acquire().await.unwrap());
    }
    let other = leases.lock("other").acquire().await.unwrap();
    for limit in [7, 1000] {
        let (mut names, mut from) = (Vec::new(), None);
        loop {
            let page = leases.list_page("job:", from, limit).await.unwrap();
            names.extend(page.items.iter().map(|found| found.name.to_string()));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        let different: HashSet<_> = names.iter().collect();
        assert_eq!((names.len(), different.len()), (90, 90), "in pages of {limit}");
    }
    let _ = other.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_told_again() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let leases = client(set.url()).await;
    let primary = set.primaries()[1];
    let name = set.name_on(primary, "x");
    let guard = leases.lock(&name).acquire().await.unwrap();
    let waiter = tokio::spawn(leases.lock(&name).wait(LONG).into_future());
    waiting(&leases, &name, 1).await;
    primary.cli(&["SCRIPT", "FLUSH"]);
    assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
    let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn health_counts_the_nodes_and_warns_who_takes_a_node_for_the_whole() {
    let Some(set) = ClusterSet::builder().start_or_skip() else { return };
    let leases = client(set.url()).await;
    // A replica counts once it has got something.
    for primary in set.primaries() {
        let _ = leases.lock(set.name_on(primary, "x")).acquire().await.unwrap().release().await.unwrap();
    }
    let fact = |health: &Health, label: &str| {
        health
            .facts
            .iter()
            .find(|(fact, _)| fact == label)
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    };
    eventually_async(LONG, "replicas that are told of", || async {
        fact(&leases.health().await.unwrap(), "replicas") == "3"
    })
    .await;
    let health = leases.health().await.unwrap();
    assert_eq!((&*fact(&health, "engine"), &*fact(&health, "primaries")), ("redis-cluster", "3"));
    assert!(!health.warnings.iter().any(|warning| warning.code == "cluster"));
    let one = client(set.primaries()[0].url()).await.health().await.unwrap();
    let warning = one.warnings.iter().find(|warning| warning.code == "cluster").unwrap();
    assert!(warning.cure.contains("redis-cluster://"), "{warning:?}");
}

#[tokio::test]
async fn a_wrong_url_or_an_incomplete_cluster_is_told_at_once() {
    for bad in
        ["redis-cluster://", "redis-cluster://h/1", "redis-cluster://:secret@a,,b", "redis-cluster://a?x=1"]
    {
        let error = Leasehold::connect_lazy(bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let Some(alone) = leasehold_testkit::redis_or_skip() else { return };
    let url = alone.url().replace("redis://", "redis-cluster://");
    let error = Leasehold::connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("is not part of a cluster"), "{error}");
    drop(alone);
    let error = Leasehold::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnreachable, "{error}");

    let set = ClusterSet::builder().replicas(0).start().unwrap();
    for node in set.nodes() {
        assert!(node.cli(&["CLUSTER", "DELSLOTS", "7", "8", "16000"]).error().is_none());
    }
    eventually_async(LONG, "an error that names the slots", || async {
        let error = Leasehold::connect(set.url()).await.err();
        error.is_some_and(|error| error.to_string().contains("no primary for the slots 7-8, 16000"))
    })
    .await;
}

#[tokio::test]
async fn nodes_with_a_password_are_all_shown_it() {
    let Some(set) = ClusterSet::builder().replicas(0).password("pass word").start_or_skip() else { return };
    let leases = client(set.url()).await;
    for primary in set.primaries() {
        let _ = leases.lock(set.name_on(primary, "x")).acquire().await.unwrap().release().await.unwrap();
    }
    let wrong = set.url().replace("pass", "fail");
    let error = Leasehold::connect(&wrong).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreRefused, "{error}");
}
