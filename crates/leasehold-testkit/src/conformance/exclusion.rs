//! One holder at a time.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use futures_util::future::join_all;
use leasehold::{Attempt, Fence, Holder};

use super::{
    TestContext,
    context::{is_closed, ms},
};

cases! {
    a_held_lock_refuses_a_second_holder,
    a_released_lock_can_be_taken_again,
    locks_of_different_names_are_independent,
    clones_of_a_client_exclude_each_other,
    twenty_tasks_never_meet_inside,
    a_refusal_is_a_value_with_the_holder_and_a_time,
    a_refused_try_leaves_no_queue_entry,
    a_refused_try_leaves_the_holder_alone,
    a_hundred_refusals_come_back_at_different_times,
}

async fn a_held_lock_refuses_a_second_holder(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    assert!(matches!(two.lock("job").try_acquire().await.unwrap(), Attempt::Busy { .. }));
    assert!(matches!(one.lock("job").try_acquire().await.unwrap(), Attempt::Busy { .. }));
    assert!(guard.is_held());
}

async fn a_released_lock_can_be_taken_again(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    for client in [&one, &two, &one, &one, &two] {
        let guard = client.lock("job").try_acquire().await.unwrap().held().expect("a free lock");
        assert!(guard.release().await.unwrap().was_held());
    }
}

async fn locks_of_different_names_are_independent(test: TestContext) {
    let client = test.client().await;
    let names = ["a", "b", "a:b", "ab"];
    let guards = join_all(names.map(|name| client.lock(name).acquire())).await;
    let [first, others @ ..] = &guards[..] else { unreachable!() };
    assert!(others.iter().chain([first]).all(|guard| guard.as_ref().unwrap().is_held()));
    let mut guards = guards.into_iter();
    assert!(guards.next().unwrap().unwrap().release().await.unwrap().was_held());
    assert!(!is_closed(&client, "a").await);
    for name in &names[1..] {
        assert!(is_closed(&client, name).await, "{name} was opened by the release of a");
    }
}

async fn clones_of_a_client_exclude_each_other(test: TestContext) {
    let client = test.client().await;
    let clone = client.clone();
    let _guard = client.lock("job").acquire().await.unwrap();
    assert!(clone.lock("job").try_acquire().await.unwrap().held().is_none());
}

async fn twenty_tasks_never_meet_inside(test: TestContext) {
    const TASKS: usize = 20;
    const ROUNDS: usize = 5;
    let clients = [test.client().await, test.client().await, test.client().await];
    let inside = Arc::new(AtomicU32::new(0));
    let grants = Arc::new(Mutex::new(Vec::<Fence>::new()));
    let tasks = (0..TASKS).map(|number| {
        let (client, inside, grants) = (clients[number % 3].clone(), inside.clone(), grants.clone());
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = client.lock("hot").wait(ms(20_000)).acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                grants.lock().unwrap().push(guard.fence());
                tokio::task::yield_now().await;
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two holders at once");
                assert!(guard.release().await.unwrap().was_held());
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    let grants = grants.lock().unwrap();
    assert_eq!(grants.len(), TASKS * ROUNDS);
    assert!(grants.is_sorted_by(|a, b| a < b), "fences do not grow in grant order");
}

async fn a_refusal_is_a_value_with_the_holder_and_a_time(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").label("nightly").ttl(ms(10_000)).acquire().await.unwrap();
    let Attempt::Busy { holder, retry_after } = two.lock("job").try_acquire().await.unwrap() else {
        panic!("the lock was granted twice")
    };
    let Some(Holder::Leasehold { label, pid, .. }) = holder else { panic!("the holder is not shown") };
    assert_eq!((label.as_str(), pid), ("nightly", std::process::id()));
    assert!(!retry_after.is_zero() && retry_after <= ms(10_000), "{retry_after:?}");
    assert!(guard.release().await.unwrap().was_held());
}

async fn a_refused_try_leaves_no_queue_entry(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    for _ in 0..3 {
        assert!(two.lock("job").try_acquire().await.unwrap().held().is_none());
        assert!(two.lock("job").wait(ms(0)).acquire().await.is_err());
    }
    assert_eq!(one.inspect("job").await.unwrap().waiting, 0);
    assert!(guard.release().await.unwrap().was_held());
    two.close().await.unwrap();
    test.assert_empty().await;
}

async fn a_refused_try_leaves_the_holder_alone(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(5_000)).acquire().await.unwrap();
    let before = one.inspect("job").await.unwrap().held().cloned().unwrap();
    assert!(two.lock("job").ttl(ms(60_000)).try_acquire().await.unwrap().held().is_none());
    let after = one.inspect("job").await.unwrap().held().cloned().unwrap();
    assert_eq!(before.fence, after.fence);
    assert!(after.expires_in <= before.expires_in, "a refused attempt extended the lease");
    guard.extend().await.unwrap();
}

async fn a_hundred_refusals_come_back_at_different_times(test: TestContext) {
    let client = test.client().await;
    let _guard = client.lock("job").acquire().await.unwrap();
    let mut slots = BTreeSet::new();
    for _ in 0..100 {
        match client.lock("job").try_acquire().await.unwrap() {
            Attempt::Busy { retry_after, .. } => slots.insert(retry_after.as_millis() / 10),
            Attempt::Held(_) => panic!("the lock was granted twice"),
        };
    }
    assert!(slots.len() > 1, "all retry within the same 10 ms");
}
