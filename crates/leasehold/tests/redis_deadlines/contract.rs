//! The same on one server, behind sentinels and in a cluster, spread and together.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use leasehold::engine::{
    Fault,
    deadlines::{Deadline, DeadlineId, DueTime, Placement, Pool, PoolLayout, Receipt, Settle},
};
use leasehold_testkit::eventually_async;

use crate::fixture::{Client, LONG, Servers, due, ids, later, receipts, soon, with};

const PLACEMENTS: [Placement; 2] = [Placement::Spread, Placement::Together];

/// A client of a pool of its own, for every kind of server and placement.
fn everywhere() -> impl Iterator<Item = (Servers, Vec<Client>)> {
    Servers::all().map(|servers| {
        let clients = PLACEMENTS.map(|placement| servers.client(&format!("pay:{placement:?}"), placement));
        (servers, clients.into())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_claimed_once_and_acknowledged() {
    for (_servers, clients) in everywhere() {
        for client in clients {
            let empty = client.claim(100, LONG).await;
            assert!(empty.due.is_empty() && !empty.more);
            let all: Vec<_> = (0..1200).map(|n| due(format!("tx:{n}"))).collect();
            client.set(&all).await;
            client.set(&[later("tx:later", LONG), with(later("tx:now", Duration::ZERO), b"a \0\xff")]).await;
            let stats = client.stats().await;
            assert_eq!((stats.pending, stats.due, stats.tried, stats.dead), (1202, 1201, 0, 0));
            assert!(stats.overdue > LONG);

            let first = client.claim(20, LONG).await;
            assert_eq!((first.due.len(), first.more), (16 * 20, true));
            let rest = client.claim(1000, LONG).await;
            assert_eq!((rest.due.len(), rest.more), (1201 - 16 * 20, false));
            assert!(ids(&first.due).is_disjoint(&ids(&rest.due)));
            let expected: BTreeSet<DeadlineId> =
                all.iter().map(|one| one.id.clone()).chain(["tx:now".into()]).collect();
            assert_eq!(&ids(&first.due) | &ids(&rest.due), expected);
            for one in first.due.iter().chain(&rest.due) {
                let now = &*one.receipt.id == "tx:now";
                assert_eq!((one.attempt, one.context.as_deref()), (1, now.then_some(&b"a \0\xff"[..])));
                assert!(now || one.overdue > LONG, "{:?}", one.overdue);
            }
            assert!(client.claim(1000, LONG).await.due.is_empty());
            assert_eq!(client.stats().await.tried, 1201);

            let done = [receipts(&first), receipts(&rest)].concat();
            let mut wrong = done[0].clone();
            wrong.number += 1;
            assert_eq!(client.acknowledge(&[wrong]).await, [false]);
            assert!(client.acknowledge(&done).await.iter().all(|done| *done));
            assert!(client.acknowledge(&done).await.iter().all(|done| !done));
            let stats = client.stats().await;
            assert_eq!((stats.pending, stats.due, stats.tried), (1, 0, 0));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_acknowledges_comes_back_with_its_attempts() {
    for (_servers, clients) in everywhere() {
        for client in clients {
            client.set(&[with(due("a"), b"context")]).await;
            let mut numbers = Vec::new();
            for attempt in 1..=3 {
                eventually_async(LONG, "a deadline", || async { client.stats().await.due == 1 }).await;
                let claimed = client.claim(10, Duration::from_millis(20)).await;
                let [one] = &claimed.due[..] else { panic!("{claimed:?}") };
                assert_eq!((one.attempt, one.context.as_deref()), (attempt, Some(&b"context"[..])));
                numbers.push(one.receipt.number);
            }
            assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
            // Only the last claim is good.
            let receipts: Vec<_> =
                numbers.iter().map(|number| Receipt { id: "a".into(), number: *number }).collect();
            assert_eq!(client.acknowledge(&receipts).await, [false, false, true]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_is_set_again_voids_its_claim() {
    for (servers, clients) in everywhere() {
        for client in clients {
            client.set(&[with(due("a"), b"old")]).await;
            let first = client.claim(10, LONG).await;
            client.set(&[due("a")]).await;
            assert_eq!(client.acknowledge(&receipts(&first)).await, [false]);
            let again = client.claim(10, LONG).await;
            assert_eq!((again.due[0].attempt, again.due[0].context.clone()), (1, None));
            assert!(again.due[0].receipt.number > first.due[0].receipt.number);
            // Of two with one id in one call the last counts.
            client.set(&[due("b"), with(due("b"), b"x"), with(due("c"), b"x"), due("c")]).await;
            let mut both = client.claim(10, LONG).await.due;
            both.sort_by(|one, other| one.receipt.id.cmp(&other.receipt.id));
            let contexts: Vec<_> = both.iter().map(|one| one.context.as_deref()).collect();
            assert_eq!(contexts, [Some(&b"x"[..]), None]);
            let key = client.key("context", "c");
            assert_eq!(servers.server(&key).cli(&["HEXISTS", &key, "c"]).int(), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postponed_deadline_keeps_its_attempts() {
    for (_servers, clients) in everywhere() {
        for client in clients {
            client.set(&[due("a"), due("b")]).await;
            let mut claimed = client.claim(10, LONG).await;
            claimed.due.sort_by(|one, other| one.receipt.id.cmp(&other.receipt.id));
            let [a, b] = &receipts(&claimed)[..] else { panic!("{claimed:?}") };
            let stale = Receipt { number: 7, ..b.clone() };
            let again = [(a.clone(), Duration::ZERO), (b.clone(), LONG), (stale, Duration::ZERO)]
                .map(|(receipt, by)| (receipt, Settle::Postpone(by)));
            let postponed = client.deadlines().settle(&client.pool, &again, soon()).await.unwrap();
            assert_eq!(postponed, [true, true, false]);
            let due = client.claim(10, LONG).await.due;
            assert!(matches!(&due[..], [one] if one.attempt == 2 && one.receipt.id == a.id), "{due:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dead_are_kept_apart_with_their_reason_and_context() {
    for (_servers, clients) in everywhere() {
        for client in clients {
            let all: Vec<_> = (0..600).map(|n| with(due(format!("tx:{n}")), b"what")).collect();
            client.set(&all).await;
            let claimed = client.claim(1000, LONG).await;
            let bury = async || client.settle(&receipts(&claimed), Settle::Bury("no go".into())).await;
            assert!(bury().await.iter().all(|buried| *buried));
            assert!(bury().await.iter().all(|buried| !buried));
            let stats = client.stats().await;
            assert_eq!((stats.pending, stats.tried, stats.dead), (0, 0, 600));
            let (mut found, mut from) = (BTreeSet::new(), None);
            loop {
                let page = client.deadlines().dead(&client.pool, from, 7, soon()).await.unwrap();
                for one in page.items {
                    assert_eq!((one.attempts, &*one.why), (1, "no go"));
                    assert_eq!(one.context.as_deref(), Some(&b"what"[..]));
                    assert!(one.buried_at_ms > 1_600_000_000_000);
                    found.insert(one.id);
                }
                match page.next {
                    Some(next) => from = Some(next),
                    None => break,
                }
            }
            assert_eq!(found.len(), 600);
            // To set one again, or to cancel it, takes it from the dead.
            client.set(&[due("tx:0")]).await;
            let ids = ["tx:0", "tx:1", "tx:none"].map(DeadlineId::from);
            let cancelled = client.deadlines().cancel(&client.pool, &ids, soon()).await.unwrap();
            assert_eq!(cancelled, [true, true, false]);
            let stats = client.stats().await;
            assert_eq!((stats.pending, stats.dead), (0, 598));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn to_peek_claims_nothing() {
    for (_servers, clients) in everywhere() {
        for client in clients {
            let at = |n: u64| leasehold::engine::deadlines::Deadline {
                due: DueTime::AtMs(1000 * n),
                ..due(format!("tx:{n}"))
            };
            client.set(&(1..50).map(at).collect::<Vec<_>>()).await;
            client.set(&[later("tx:later", LONG)]).await;
            let peek = async |limit| client.deadlines().peek(&client.pool, limit, soon()).await.unwrap();
            let oldest: Vec<_> = peek(5).await.into_iter().map(|one| one.id.to_string()).collect();
            assert_eq!(oldest, ["tx:1", "tx:2", "tx:3", "tx:4", "tx:5"]);
            assert!(peek(1000).await.iter().all(|one| one.attempts == 0));
            assert_eq!(client.claim(1000, Duration::ZERO).await.due.len(), 49);
            eventually_async(LONG, "deadlines", || async { peek(1000).await.len() == 49 }).await;
            assert!(peek(1000).await.iter().all(|one| one.attempts == 1));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_keeps_the_layout_it_was_made_with() {
    for servers in Servers::all() {
        let client = servers.client("pay", Placement::Spread);
        let other =
            Pool { layout: PoolLayout { buckets: 4, placement: Placement::Together }, ..client.pool.clone() };
        let layout = async |pool: &Pool| client.deadlines().layout(pool, soon()).await;
        assert_eq!(layout(&client.pool).await.unwrap(), client.pool.layout);
        assert_eq!(layout(&other).await.unwrap(), client.pool.layout);
        let key = "leasehold:deadlines:{pay}";
        assert_eq!(servers.server(key).cli(&["GET", key]).text(), "1 16 spread");
        servers.server(key).cli(&["SET", key, "2 x"]);
        assert_eq!(layout(&other).await.unwrap_err().fault, Fault::Corrupt);
        servers.server(key).cli(&["DEL", key]);
        servers.server(key).cli(&["LPUSH", key, "x"]);
        let error = layout(&other).await.unwrap_err();
        assert!(error.fault == Fault::WrongType && error.why.contains("pay"), "{error}");
        let key = client.key("due", "a");
        servers.server(&key).cli(&["SET", &key, "x"]);
        let set = client.deadlines().set(&client.pool, &[due("a")], soon()).await;
        assert_eq!(set.unwrap_err().fault, Fault::WrongType);
    }
}

/// More than one command of a script takes as arguments.
#[tokio::test(flavor = "multi_thread")]
async fn peeking_into_a_large_bucket_tells_every_attempt() {
    for (servers, _) in everywhere() {
        let mut client = servers.client("pay:large", Placement::Together);
        client.pool.layout.buckets = 1;
        let all: Vec<_> =
            (0..1100_u64).map(|n| Deadline { due: DueTime::AtMs(n), ..due(n.to_string()) }).collect();
        client.set(&all).await;
        let claimed = receipts(&client.claim(700, LONG).await);
        assert_eq!(client.settle(&claimed, Settle::Postpone(Duration::ZERO)).await, [true; 700]);
        let seen = client.deadlines().peek(&client.pool, 10_000, soon()).await.unwrap();
        let seen: BTreeMap<_, _> =
            seen.into_iter().map(|one| (one.id.parse().unwrap(), one.attempts)).collect();
        assert_eq!(seen, (0..1100_u64).map(|n| (n, u32::from(n < 700))).collect());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn contexts_that_would_not_arrive_in_time_are_left_for_the_next_claim() {
    for (servers, _) in everywhere() {
        for placement in PLACEMENTS {
            let client = servers.client(&format!("pay:wide:{placement:?}"), placement);
            let wide = Bytes::from(vec![b'x'; 1 << 20]);
            // All in one bucket, which is one call in a cluster, too.
            let ids = (0..).map(|n| n.to_string()).filter(|id| client.pool.bucket_of(id) == 0);
            let with_context = |id| Deadline { context: Some(wide.clone()), ..due(id) };
            client.set(&ids.take(20).map(with_context).collect::<Vec<_>>()).await;
            let first = client.claim(100, LONG).await;
            assert_eq!((first.due.len(), first.more), (16, true));
            let rest = client.claim(100, LONG).await;
            assert_eq!((rest.due.len(), rest.more), (4, false));
            assert!(rest.due.iter().all(|one| one.attempt == 1 && one.context.as_ref() == Some(&wide)));
        }
    }
}
