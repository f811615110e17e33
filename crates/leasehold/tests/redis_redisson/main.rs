//! Locks in Redisson's format, beside a client of Redisson by hand, on servers of every kind.
#![cfg(feature = "redis")]

mod client;
#[path = "../each_right/mod.rs"]
mod each_right;
#[path = "../every_server/mod.rs"]
mod every_server;
mod faults;
mod rights;
#[path = "../security_md/mod.rs"]
mod security_md;
mod store;
mod waking;

use std::time::Duration;

use client::Redisson;
use every_server::{LONG, Servers};
use leasehold::{Attempt, Format, Holder, Leasehold, Lock, Retry, engine::Released};
use leasehold_testkit::eventually;

const SHORT: Duration = Duration::from_millis(300);

async fn client(url: impl AsRef<str>) -> Leasehold {
    Leasehold::builder(url).command_timeout(LONG).connect().await.unwrap()
}

fn lock(leases: &Leasehold, name: &str) -> Lock {
    leases.lock(name).format(Format::Redisson).ttl(LONG).wait(LONG)
}

/// One that asks seldom by itself.
fn patient(leases: &Leasehold, name: &str) -> Lock {
    lock(leases, name).retry(Retry::fixed(LONG)).ttl(LONG * 4)
}

async fn is_busy(leases: &Leasehold, name: &str) -> Option<Holder> {
    match lock(leases, name).try_acquire().await.unwrap() {
        Attempt::Busy { holder, .. } => holder,
        Attempt::Held(_) => panic!("it is held"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_holds_it_excludes_the_other() {
    for servers in Servers::all() {
        let leases = client(servers.url()).await;
        let java = Redisson::new(&servers, "lock:x");

        let guard = lock(&leases, "x").acquire().await.unwrap();
        assert!(!java.take(LONG) && java.take_fenced(LONG).is_none());
        assert_eq!(java.release("1"), None, "it is not its own");
        assert!(!java.renew(SHORT));
        guard.extend().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Free);

        assert!(java.take(LONG) && java.take(LONG), "it comes in again");
        assert_eq!(is_busy(&leases, "x").await, Some(Holder::Foreign));
        assert_eq!(java.release("2"), Some(0));
        assert_eq!(java.release("2"), Some(0), "the same request again");
        assert_eq!(is_busy(&leases, "x").await, Some(Holder::Foreign));
        assert_eq!(java.release("3"), Some(1));
        let _ = lock(&leases, "x").acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_announced_and_leaves_nothing_but_the_token() {
    for servers in Servers::all() {
        let leases = client(servers.url()).await;
        let java = Redisson::new(&servers, "lock:x");
        let mut announcements = java.subscribed();
        let guard = lock(&leases, "x").acquire().await.unwrap();
        let [field, count] = &java.holders()[..] else { panic!("{:?}", java.holders()) };
        assert_eq!((count.as_str(), field.len() > 36), ("1", true));
        assert!(field.ends_with(&format!(":{}", std::process::id())), "{field}");
        let _ = guard.release().await.unwrap();
        assert_eq!(Redisson::heard(&mut announcements), "0");
        assert_eq!(java.keys(), [java.token_key()]);
        leases.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_redisson_wakes_one_waiter_and_ours_wakes_the_next() {
    for servers in Servers::all() {
        let leases = client(servers.url()).await;
        let java = Redisson::new(&servers, "lock:x");
        assert!(java.take(LONG * 3));
        let [mut first, mut second] = [1, 2].map(|_| {
            let waiter = patient(&leases, "x");
            tokio::spawn(async move { waiter.acquire().await.unwrap() })
        });
        eventually(LONG, "a subscription", || java.listeners() == 1);
        assert_eq!(java.release("1"), Some(1));
        // Whoever came first has it, and hands the other nothing but a message.
        let (held, waiting) = tokio::select! {
            held = &mut first => (held, second),
            held = &mut second => (held, first),
        };
        let guard = held.unwrap();
        assert!(!waiting.is_finished());
        let _ = guard.release().await.unwrap();
        let _ = waiting.await.unwrap().release().await.unwrap();
        leases.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_end_and_are_renewed() {
    for servers in Servers::all() {
        let leases = client(servers.url()).await;
        let java = Redisson::new(&servers, "lock:x");
        // Theirs ends.
        assert!(java.take(SHORT));
        let guard = lock(&leases, "x").acquire().await.unwrap();
        let _ = guard.release().await.unwrap();
        // Ours ends, and a late release leaves theirs alone.
        let late = lock(&leases, "x").ttl(SHORT).acquire().await.unwrap();
        eventually(LONG, "the end of our lease", || java.take(LONG));
        assert!(!late.is_held());
        assert!(late.extend().await.is_err());
        assert_eq!(late.release().await.unwrap(), Released::Taken { by: None });
        assert_eq!(java.holders().len(), 2);
        assert_eq!(java.release("1"), Some(1));
        // Ours is kept, for longer than its ttl.
        let kept = lock(&leases, "x").ttl(LONG / 20).keep_alive().acquire().await.unwrap();
        let renewed = leases.stats().renewed;
        eventually(LONG, "renewals", || leases.stats().renewed >= renewed + 4);
        assert!(kept.is_held() && !java.take(LONG));
        let _ = kept.release().await.unwrap();
        // One that is gone is not brought back.
        let lost = lock(&leases, "x").keep_alive().acquire().await.unwrap();
        java.cli(&["DEL", "lock:x"]);
        assert!(lost.extend().await.is_err());
        assert_eq!(java.pttl(), -2);
        assert_eq!(lost.release().await.unwrap(), Released::Expired);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_redisson_that_never_expires_is_waited_for() {
    for servers in Servers::all() {
        let leases = client(servers.url()).await;
        let java = Redisson::new(&servers, "lock:x");
        assert!(java.take(LONG));
        java.cli(&["PERSIST", "lock:x"]);
        let late = lock(&leases, "x").wait(SHORT).acquire().await;
        assert_eq!(late.unwrap_err().kind(), leasehold::ErrorKind::TimedOut);
        assert_eq!(java.pttl(), -1);
        let held = leases.inspect("x").await.unwrap();
        assert_eq!(held.held().unwrap().expires_in, None);
        let waiter = patient(&leases, "x");
        let waiter = tokio::spawn(async move { waiter.acquire().await.unwrap() });
        eventually(LONG, "a subscription", || java.listeners() == 1);
        assert_eq!(java.release("1"), Some(1));
        let _ = waiter.await.unwrap().release().await.unwrap();
        leases.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_and_redissons_tokens_are_one_sequence() {
    for servers in Servers::all() {
        let leases = client(servers.url()).await;
        let java = Redisson::new(&servers, "lock:x");
        for expected in [1, 3, 5] {
            let guard = lock(&leases, "x").acquire().await.unwrap();
            assert_eq!(guard.fence().get(), expected);
            let _ = guard.release().await.unwrap();
            assert_eq!(java.take_fenced(LONG), Some(expected as i64 + 1));
            assert_eq!(java.release(&expected.to_string()), Some(1));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_with_braces_are_those_of_redisson() {
    for servers in Servers::all() {
        let leases = client(servers.url()).await;
        for name in ["{deal}:42", "a{b}c", "a{b"] {
            let java = Redisson::new(&servers, &format!("lock:{name}"));
            let acquired = lock(&leases, name).acquire().await;
            let has_tag = name.contains("b}") || name.contains("deal}");
            if matches!(servers, Servers::Cluster(_)) && !has_tag {
                let error = acquired.unwrap_err();
                assert_eq!(error.kind(), leasehold::ErrorKind::Unsupported);
                assert!(error.to_string().contains("hash tag"), "{error}");
                continue;
            }
            let guard = acquired.unwrap();
            let mut announcements = java.subscribed();
            assert!(java.take_fenced(LONG).is_none());
            let _ = guard.release().await.unwrap();
            assert_eq!(Redisson::heard(&mut announcements), "0");
            assert_eq!(java.take_fenced(LONG), Some(2));
            assert_eq!(is_busy(&leases, name).await, Some(Holder::Foreign));
            assert_eq!(java.release(name), Some(1));
        }
    }
}
