//! Several locks at once: all of them or none, and never a circle.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use leasehold::{
    ErrorKind, Leasehold, RunError,
    engine::{Answer, AnswerAll, Claim, Mode, Queue},
};

use super::{
    TestContext,
    context::{ANSWERED, is_closed, ms, poll_at_most, sleep, soon, until_waiting},
    engine_client::EngineClient,
    eventually,
};

/// More polls than an attempt needs here; it then completes.
const POLLS: usize = 61;
/// Long enough for all tasks of a case on a busy machine.
const PATIENT: Duration = ms(40_000);

cases! {
    sets_in_opposite_orders_never_deadlock,
    a_set_is_held_as_a_whole,
    a_set_that_is_not_free_holds_nothing_while_it_waits,
    a_set_gets_its_locks_when_they_are_given_back,
    a_lost_member_ends_the_whole_set,
    a_lost_member_cancels_the_body_and_gives_all_back,
    a_set_dropped_at_any_poll_leaves_nothing,
    a_waiting_set_dropped_at_any_poll_leaves_nothing,
    a_kept_alive_set_outlives_its_ttl,
    a_set_with_a_name_twice_is_refused,
    a_set_of_all_kinds_holds_each_in_its_own: Shared Permits,
    a_set_that_is_refused_says_for_which_name: Permits,
    a_release_of_a_set_says_what_became_of_each_lock,
    claims_of_several_locks_are_granted_all_or_none: Contract ClaimAll,
    a_claim_of_several_locks_overtakes_nobody: Contract ClaimAll,
}

async fn sets_in_opposite_orders_never_deadlock(test: TestContext) {
    let clients = [test.client().await, test.client().await];
    let inside: Arc<Mutex<HashMap<String, AtomicU32>>> = Arc::default();
    let tasks = (0..64).map(|number: usize| {
        let (client, inside) = (clients[number % 2].clone(), inside.clone());
        tokio::spawn(async move {
            let mut names = ["a", "b", "c", "d"];
            names.rotate_left(number % 4);
            if number % 8 < 4 {
                names.reverse();
            }
            let names = &names[..2 + number % 2];
            let guards = client.lock_all(names.iter().map(|name| client.lock(name))).wait(PATIENT);
            let guards = guards.acquire().await.unwrap();
            let enter = |by: u32| {
                let mut inside = inside.lock().unwrap();
                for name in names {
                    let count = inside.entry((*name).to_owned()).or_default();
                    assert!(count.fetch_add(by, Ordering::SeqCst).wrapping_add(by) <= 1, "two hold {name}");
                }
            };
            enter(1);
            tokio::task::yield_now().await;
            enter(1_u32.wrapping_neg());
            assert!(guards.release().await.was_held());
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    test.assert_empty().await;
}

async fn a_set_is_held_as_a_whole(test: TestContext) {
    let client = test.client().await;
    let guards = client.lock_all([client.lock("b"), client.lock("a")]).acquire().await.unwrap();
    let fences = guards.fences();
    let names: Vec<_> = fences.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"], "in the order of the names");
    for (name, fence) in &fences {
        let held = client.inspect(name).await.unwrap().held().expect("held").fence;
        assert_eq!((held, guards.fence_of(name.as_str())), (*fence, Some(*fence)));
    }
    assert!(guards.is_held() && guards.remaining() > Duration::ZERO);
    assert!(client.lock("a").try_acquire().await.unwrap().held().is_none());
    assert!(
        client.lock_all([client.lock("b"), client.lock("c")]).try_acquire().await.unwrap().held().is_none()
    );
    assert!(!is_closed(&client, "c").await, "a set that was refused holds nothing");
    assert!(guards.release().await.was_held());
    test.assert_empty().await;
}

async fn a_set_that_is_not_free_holds_nothing_while_it_waits(test: TestContext) {
    let (holder, client) = (test.client().await, test.client().await);
    let held = holder.lock("b").keep_alive().acquire().await.unwrap();
    let set = client.lock_all(["a", "b", "c"].map(|name| client.lock(name)));
    let waiting = tokio::spawn(set.clone().wait(PATIENT).acquire());
    until_waiting(&holder, "b", 1).await;
    for free in ["a", "c"] {
        let guard = holder.lock(free).try_acquire().await.unwrap().held();
        assert!(guard.expect("nobody holds it").release().await.unwrap().was_held());
    }
    let error = set.clone().wait(ANSWERED).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("\"b\""), "{error}");
    assert_eq!(set.wait(ms(0)).acquire().await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(held.release().await.unwrap().was_held());
    let guards = soon("the set", waiting).await.unwrap().unwrap();
    assert!(guards.release().await.was_held());
    test.assert_empty().await;
}

async fn a_set_gets_its_locks_when_they_are_given_back(test: TestContext) {
    let (holder, client) = (test.client().await, test.client().await);
    let hold = async |name: &str| holder.lock(name).keep_alive().acquire().await.unwrap();
    let (a, b) = (hold("a").await, hold("b").await);
    let waiting = tokio::spawn(client.lock_all([client.lock("a"), client.lock("b")]).wait(PATIENT).acquire());
    until_waiting(&holder, "a", 1).await;
    // It is given one while the other one is held, and gives it back at once.
    assert!(a.release().await.unwrap().was_held());
    until_waiting(&holder, "b", 1).await;
    eventually("nothing is held", async || !is_closed(&holder, "a").await).await;
    assert!(b.release().await.unwrap().was_held());
    let guards = soon("the set", waiting).await.unwrap().unwrap();
    assert!(guards.release().await.was_held());
    test.assert_empty().await;
}

async fn lose(client: &Leasehold, name: &str) {
    let fence = client.inspect(name).await.unwrap().held().expect("held").fence;
    client.force_release(name, fence).await.map(drop).unwrap();
}

async fn a_lost_member_ends_the_whole_set(test: TestContext) {
    let client = test.client().await;
    let set = client.lock_all([client.lock("a"), client.lock("b")]).ttl(ms(60_000)).keep_alive();
    let guards = set.acquire().await.unwrap();
    let leases = guards.lease_set();
    lose(&client, "b").await;
    soon("the set is lost", guards.lost()).await;
    soon("each of them is", join_all(leases.leases().iter().map(leasehold::Lease::lost))).await;
    assert!(!guards.is_held() && leases.leases().iter().all(|lease| !lease.is_held()));
    assert_eq!(leases.first_lost().expect("one was").name().as_str(), "b");
    assert!(is_closed(&client, "a").await, "the work may still be under way");
    drop(guards);
    eventually("the other one is given back", async || !is_closed(&client, "a").await).await;
}

async fn a_lost_member_cancels_the_body_and_gives_all_back(test: TestContext) {
    let client = test.client().await;
    let (starts, started) = tokio::sync::oneshot::channel();
    let (alive, dropped) = tokio::sync::oneshot::channel::<()>();
    let set = client.lock_all(["a", "b", "c"].map(|name| client.lock(name))).ttl(ms(60_000));
    let task = tokio::spawn(async move {
        let body = async move |_| {
            let _alive = alive;
            starts.send(()).unwrap();
            std::future::pending::<()>().await;
        };
        match set.run(body).await {
            Err(RunError::Lost { name, value: None, .. }) => name,
            other => panic!("{other:?}"),
        }
    });
    soon("the body runs", started).await.unwrap();
    lose(&client, "c").await;
    soon("the body is dropped", dropped).await.unwrap_err();
    assert_eq!(soon("the run ends", task).await.unwrap().as_str(), "c");
    test.assert_empty().await;
}

async fn a_set_dropped_at_any_poll_leaves_nothing(test: TestContext) {
    let client = test.client().await;
    let attempts = (0..POLLS).map(|polls| {
        let locks = ["a", "b", "c"].map(|name| client.lock(format!("{name}:{polls}")));
        poll_at_most(polls, client.lock_all(locks).ttl(ms(60_000)).acquire())
    });
    let ended = join_all(attempts).await;
    assert!(ended[0].is_none() && ended[POLLS - 1].is_some());
    drop(ended);
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn a_waiting_set_dropped_at_any_poll_leaves_nothing(test: TestContext) {
    let (holder, client) = (test.client().await, test.client().await);
    let rounds = (0..POLLS).map(|polls| {
        let (holder, client) = (holder.clone(), client.clone());
        async move {
            let held = holder.lock(format!("b:{polls}")).ttl(ms(60_000)).acquire().await.unwrap();
            let locks = ["a", "b", "c"].map(|name| client.lock(format!("{name}:{polls}")));
            let set = client.lock_all(locks).ttl(ms(60_000)).wait(ms(5_000));
            // Released while the attempt is somewhere between its first and its last poll.
            let release = async {
                sleep(ms(polls as u64 * 2)).await;
                assert!(held.release().await.unwrap().was_held());
            };
            let (ended, ()) = tokio::join!(poll_at_most(polls, set.acquire()), release);
            drop(ended);
        }
    });
    join_all(rounds).await;
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn a_kept_alive_set_outlives_its_ttl(test: TestContext) {
    let client = test.client().await;
    let set = client.lock_all([client.lock("a"), client.lock("b")]).ttl(ms(2_000)).keep_alive();
    let guards = set.acquire().await.unwrap();
    assert!(tokio::time::timeout(ms(3_000), guards.lost()).await.is_err(), "lost");
    assert!(guards.is_held() && guards.release().await.was_held());
}

async fn a_set_with_a_name_twice_is_refused(test: TestContext) {
    let (client, other) = (test.client().await, test.client().await);
    let refused = async |locks: Vec<leasehold::Lock>| {
        let error = client.lock_all(locks).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        error.to_string()
    };
    let lock = |name| client.lock(name);
    assert!(refused(vec![lock("a"), lock("b"), lock("a")]).await.contains("\"a\": expected each name once"));
    refused(Vec::new()).await;
    refused(vec![lock("a"), lock("")]).await;
    refused(vec![lock("a"), other.lock("b")]).await;
    refused((0..65).map(|number| client.lock(format!("a:{number}"))).collect()).await;
    if test.capabilities().no_shared.is_none() {
        let text = refused(vec![lock("a"), client.read_lock("a")]).await;
        assert!(text.contains("not as exclusive and as shared"), "{text}");
    }
    test.assert_empty().await;
}

async fn a_set_of_all_kinds_holds_each_in_its_own(test: TestContext) {
    let client = test.client().await;
    let reader = client.read_lock("config").keep_alive().acquire().await.unwrap();
    let two = client.semaphore("pool", 3).permits(2).keep_alive().acquire().await.unwrap();
    let set = |permits| {
        client.lock_all([
            client.semaphore("pool", 3).permits(permits),
            client.read_lock("config"),
            client.lock("job"),
        ])
    };
    let guards = set(1).acquire().await.unwrap();
    for (name, mode) in [("config", Mode::Shared), ("job", Mode::Exclusive)] {
        let held = client.inspect(name).await.unwrap().holders.shown.last().cloned().expect("held");
        assert_eq!((held.mode, Some(held.fence)), (mode, guards.fence_of(name)));
    }
    assert_eq!(client.inspect("pool").await.unwrap().holders.total, 2);
    assert!(guards.release().await.was_held());
    let waiting = tokio::spawn(set(2).wait(PATIENT).acquire());
    until_waiting(&client, "pool", 1).await;
    assert!(!is_closed(&client, "job").await);
    assert!(two.release().await.unwrap().was_held());
    assert!(soon("the set", waiting).await.unwrap().unwrap().release().await.was_held());
    assert!(reader.release().await.unwrap().was_held());
    test.assert_empty().await;
}

async fn a_set_that_is_refused_says_for_which_name(test: TestContext) {
    let client = test.client().await;
    let permit = client.semaphore("b", 3).keep_alive().acquire().await.unwrap();
    let refused = async |b| {
        let set = client.lock_all([client.lock("a"), b, client.lock("c")]);
        set.wait(PATIENT).acquire().await.unwrap_err()
    };
    let other_mode = refused(client.lock("b")).await;
    let other_limit = refused(client.semaphore("b", 4)).await;
    for (error, kind) in [(other_mode, ErrorKind::OtherMode), (other_limit, ErrorKind::OtherLimit)] {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("\"b\"") && !error.to_string().contains("\"a\""), "{error}");
    }
    let rest = client.lock_all([client.lock("a"), client.lock("c")]).wait(ANSWERED).acquire().await.unwrap();
    assert!(rest.release().await.was_held() && permit.release().await.unwrap().was_held());
    test.assert_empty().await;
}

async fn a_release_of_a_set_says_what_became_of_each_lock(test: TestContext) {
    let (client, operator) = (test.client().await, test.client().await);
    let guards = client.lock_all([client.lock("a"), client.lock("b")]).acquire().await.unwrap();
    lose(&operator, "b").await;
    let released = guards.release().await;
    assert!(!released.was_held());
    let outcomes: Vec<_> = released
        .outcomes
        .iter()
        .map(|(name, outcome)| (name.as_str(), outcome.as_ref().unwrap().was_held()))
        .collect();
    assert_eq!(outcomes, [("a", true), ("b", false)]);
}

async fn claims_of_several_locks_are_granted_all_or_none(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let all = async |claims: &[Claim]| client.leases().claim_all(claims, client.until()).await.unwrap();
    let first = [client.claim_lock("a", Mode::Exclusive), client.claim_lock("b", Mode::Exclusive)];
    let AnswerAll::Granted(grants) = all(&first).await else { panic!("both are free") };
    let AnswerAll::Granted(again) = all(&first).await else { panic!("the same attempts") };
    let fences = |grants: &[leasehold::engine::Grant]| grants.iter().map(|it| it.fence).collect::<Vec<_>>();
    assert_eq!(fences(&grants), fences(&again), "a second count");
    let second = [client.claim_lock("c", Mode::Exclusive), client.claim_lock("b", Mode::Exclusive)];
    let AnswerAll::Busy { claim: 1, holders } = all(&second).await else { panic!("b is held") };
    assert_eq!(holders.first().expect("its holder").fence, grants[1].fence);
    let free = client.claim_lock("c", Mode::Exclusive);
    assert!(matches!(client.leases().claim(&free, client.until()).await.unwrap(), Answer::Granted(_)));
    for (claim, grant) in first.iter().zip(grants) {
        let released = client.leases().release(&claim.hold(grant.fence), client.until()).await.unwrap();
        assert!(released.was_held());
    }
    client.leases().abandon(&free, client.until()).await.unwrap();
    client.leases().abandon(&second[0], client.until()).await.unwrap();
    client.leases().claim_all(&second, client.until()).await.expect_err("one of them has ended");
    client.close().await;
    test.assert_empty().await;
}

async fn a_claim_of_several_locks_overtakes_nobody(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let held = client.claim_lock("a", Mode::Exclusive);
    let Answer::Granted(grant) = client.leases().claim(&held, client.until()).await.unwrap() else {
        panic!("free")
    };
    let queue = Some(Queue { wait: ms(60_000), poll_every: ms(1_000) });
    let waiter = Claim { queue, ..client.claim_lock("a", Mode::Exclusive) };
    let answer = client.leases().claim(&waiter, client.until()).await.unwrap();
    assert!(matches!(answer, Answer::Queued { .. }));
    let released = client.leases().release(&held.hold(grant.fence), client.until()).await.unwrap();
    assert!(released.was_held());
    let all = [client.claim_lock("a", Mode::Exclusive), client.claim_lock("b", Mode::Exclusive)];
    let answer = client.leases().claim_all(&all, client.until()).await.unwrap();
    assert!(matches!(answer, AnswerAll::Busy { claim: 0, .. }), "{answer:?}");
    let answer = client.leases().claim(&waiter, client.until()).await.unwrap();
    assert!(matches!(answer, Answer::Granted(_)));
    client.leases().abandon(&waiter, client.until()).await.unwrap();
    client.close().await;
    test.assert_empty().await;
}
