//! What a lock in Redisson's format promises by itself: resends, closed and forced locks, other types, handles.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold::{
    Acks, ErrorKind, Fence, Format, Handle, Holder, Mode, Name,
    engine::{Answer, Claim, Engine, Released, Renewed},
    owner::Owner,
};

use super::{
    Redisson, client,
    every_server::{LONG, Servers, open, soon},
    lock, patient,
};

pub(crate) fn claim(random: u128, name: &str) -> Claim {
    Claim {
        name: Name::new(name).unwrap(),
        owner: Owner::new(random, &Holder::this_process("tests", 1)),
        ttl: LONG,
        format: Format::Redisson,
        lock_delay: Duration::ZERO,
        mode: Mode::Exclusive,
        queue: None,
        acks: Acks::None,
    }
}

async fn granted(engine: &dyn Engine, claim: &Claim) -> Fence {
    match engine.leases().claim(claim, soon()).await.unwrap() {
        Answer::Granted(grant) => grant.fence,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_comes_again_is_counted_once() {
    for servers in Servers::all() {
        let (engine, mine) = (open(servers.url()), claim(1, "x"));
        let java = Redisson::new(&servers, "lock:x");
        let fence = granted(&*engine, &mine).await;
        assert_eq!(granted(&*engine, &mine).await, fence);
        assert_eq!(java.holders()[1], "1");
        java.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(granted(&*engine, &mine).await, fence);
        assert!(matches!(engine.leases().claim(&claim(2, "x"), soon()).await, Ok(Answer::Busy { .. })));

        let hold = mine.hold(fence);
        assert_eq!(engine.leases().release(&hold, soon()).await.unwrap(), Released::Free);
        // The same release again, while another has it.
        let next = granted(&*engine, &claim(2, "x")).await;
        assert!(next > fence);
        let again = engine.leases().release(&hold, soon()).await.unwrap();
        assert_eq!(again, Released::Taken { by: Some(next) });
        let renewed = engine.leases().renew(&[hold], soon()).await.unwrap().remove(0).unwrap();
        assert_eq!(renewed, Renewed::Gone);
        assert_eq!(java.holders()[1], "1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_was_abandoned_gives_back_what_it_got() {
    for servers in Servers::all() {
        let (engine, mine) = (open(servers.url()), claim(1, "x"));
        let java = Redisson::new(&servers, "lock:x");
        granted(&*engine, &mine).await;
        engine.leases().abandon(&mine, soon()).await.unwrap();
        assert!(java.holders().is_empty());
        assert!(engine.leases().claim(&mine, soon()).await.is_err(), "it has ended");
        assert!(java.holders().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_stays_closed_is_nobodys() {
    for servers in Servers::all() {
        let (engine, mine) = (open(servers.url()), claim(1, "x"));
        let java = Redisson::new(&servers, "lock:x");
        let hold = mine.hold(granted(&*engine, &mine).await);
        let short = Duration::from_millis(900);
        for _ in 0..2 {
            let closed = engine.leases().renew(&[hold.closed_for(short)], soon()).await.unwrap().remove(0);
            assert!(matches!(closed, Ok(Renewed::Kept { .. })), "{closed:?}");
        }
        assert_eq!(java.holders(), ["leasehold:closed", "1"]);
        assert!(!java.take(LONG));
        let renewed = engine.leases().renew(&[hold], soon()).await.unwrap().remove(0).unwrap();
        assert_eq!(renewed, Renewed::Gone, "a renewal that was on its way");
        assert!(java.pttl() <= 900);
        let seen = engine.inspector().inspect(&mine.name, soon()).await.unwrap();
        assert_eq!(seen.held().unwrap().holder, mine.owner.holder());
        leasehold_testkit::eventually(LONG, "it to open", || java.take(LONG));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inspection_shows_holders_and_force_release_needs_the_fence_seen() {
    for servers in Servers::all() {
        let leases = client(servers.url()).await;
        let java = Redisson::new(&servers, "lock:x");
        let mut announcements = java.subscribed();

        let guard = lock(&leases, "x").label("nightly").acquire().await.unwrap();
        let seen = leases.inspect("x").await.unwrap();
        let held = seen.held().unwrap();
        assert!(held.holder.to_string().starts_with("nightly"), "{}", held.holder);
        assert_eq!((held.fence, held.expires_in.unwrap() <= LONG), (guard.fence(), true));
        let names: Vec<_> = leases.list("").map(|lock| lock.unwrap().name).collect().await;
        assert_eq!(names, [Name::new("x").unwrap()]);
        let other = leases.force_release("x", Fence::new(7)).await.unwrap();
        assert_eq!(other, Released::Taken { by: Some(guard.fence()) });
        assert_eq!(leases.force_release("x", guard.fence()).await.unwrap(), Released::Free);
        assert_eq!(Redisson::heard(&mut announcements), "0");
        assert_eq!(guard.release().await.unwrap(), Released::Expired);

        assert!(java.take(LONG));
        // Ours is gone, and what was known of it is not taken for theirs.
        let seen = leases.inspect("x").await.unwrap();
        assert_eq!(
            (&seen.held().unwrap().holder, seen.held().unwrap().fence),
            (&Holder::Foreign, Fence::new(0))
        );
        assert_eq!(leases.force_release("x", Fence::new(1)).await.unwrap(), Released::Taken { by: None });
        // Somebody who waits hears of it.
        let waiter = patient(&leases, "x");
        let waiter = tokio::spawn(async move { waiter.acquire().await.unwrap() });
        leasehold_testkit::eventually(LONG, "a subscription", || java.listeners() == 2);
        assert_eq!(leases.force_release("x", Fence::new(0)).await.unwrap(), Released::Free);
        assert_eq!(java.release("1"), None);
        let _ = waiter.await.unwrap().release().await.unwrap();
        leases.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_types_are_named() {
    for servers in Servers::all() {
        let leases = client(servers.url()).await;
        let java = Redisson::new(&servers, "lock:x");
        let error = async |expected: &str| {
            let error = lock(&leases, "x").acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WrongType);
            assert!(error.to_string().contains("\"x\""), "{error}");
            let mut text = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            assert!(text.contains(expected), "{text}");
        };
        // A plain lock, and the other way round.
        let plain = leases.lock("x").acquire().await.unwrap();
        error("WRONGTYPE").await;
        assert!(java.take_error().contains("WRONGTYPE"));
        plain.extend().await.unwrap();
        let _ = plain.release().await.unwrap();
        let guard = lock(&leases, "x").acquire().await.unwrap();
        let plain = leases.lock("x").acquire().await.unwrap_err();
        assert_eq!(plain.kind(), ErrorKind::WrongType);
        guard.extend().await.unwrap();
        let _ = guard.release().await.unwrap();
        // Another lock of Redisson, and something that is none.
        java.cli(&["HSET", "lock:x", "mode", "read", "b1f1c3a8-53a1-4b0e-8f47-0c2f3f0a9d11:1", "1"]);
        error("read-write lock of Redisson").await;
        assert!(leases.force_release("x", Fence::new(0)).await.is_err());
        java.cli(&["DEL", "lock:x"]);
        java.cli(&["HSET", "lock:x", "colour", "blue"]);
        error("no RLock of Redisson").await;
        assert!(leases.force_release("x", Fence::new(0)).await.is_err());
        assert_eq!(java.holders(), ["colour", "blue"]);
        java.cli(&["DEL", "lock:x"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_keeps_its_format() {
    for servers in Servers::all() {
        let leases = client(servers.url()).await;
        let java = Redisson::new(&servers, "lock:x");
        let text = lock(&leases, "x").acquire().await.unwrap().detach().expose();
        let handle: Handle = text.parse().unwrap();
        handle.extend(&leases, None).await.unwrap();
        assert_eq!(java.holders()[1], "1");
        assert_eq!(handle.release(&leases).await.unwrap(), Released::Free);
        assert!(java.take(LONG));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_exclusive_locks_have_it() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let shared = leases.read_lock("x").format(Format::Redisson).acquire().await.unwrap_err();
    assert_eq!(shared.kind(), ErrorKind::Unsupported);
    let permits = leases.semaphore("x", 3).format(Format::Redisson).acquire().await.unwrap_err();
    assert!(permits.to_string().contains("Redisson"), "{permits}");
    let guard = lock(&leases, "x").acquire().await.unwrap();
    assert_eq!(guard.downgrade().await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_can_say_so() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let policies =
        leasehold::Policies::parse("[locks.a]\nkey = \"x\"\nformat = \"redisson\"", "p.toml").unwrap();
    let leases = leasehold::Leasehold::builder(server.url()).policies(policies).connect().await.unwrap();
    let guard = leases.lock_policy("a").unwrap().lock().acquire().await.unwrap();
    let servers = Servers::One(server);
    assert!(!Redisson::new(&servers, "lock:x").take(LONG));
    assert_eq!(guard.release().await.unwrap(), Released::Free);
}
