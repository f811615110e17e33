//! Who holds a lock and who waits for it.

use futures_util::StreamExt;
use leasehold::{
    Error, Fence, Holder,
    engine::{Change, ChangeKind, Changes, Tenure, WAITERS_SHOWN},
};

use super::{
    TestContext,
    context::{enqueue, ms, sleep, soon, until_waiting},
    eventually,
};

cases! {
    a_free_lock_shows_nobody,
    a_holder_is_shown_with_label_host_and_process,
    a_clients_label_is_its_locks_label,
    a_lease_is_shown_with_the_time_it_has_left,
    waiters_are_shown_in_order_with_their_labels: Order,
    more_waiters_are_counted_than_shown,
    an_expired_lock_shows_nobody,
    a_holder_of_a_handed_over_lock_is_the_waiter,
    owner_values_are_never_shown,
    a_watch_reports_every_change_with_its_fence,
    a_watch_tells_a_release_by_force,
    a_watch_of_a_prefix_begins_with_what_is_in_use,
    a_watch_ends_when_its_client_is_closed,
}

fn label_of(holder: &Holder) -> &str {
    match holder {
        Holder::Leasehold { label, .. } => label,
        other => panic!("{other}"),
    }
}

async fn a_free_lock_shows_nobody(test: TestContext) {
    let client = test.client().await;
    for _ in 0..2 {
        let inspection = client.inspect("job").await.unwrap();
        assert_eq!(inspection.name.as_str(), "job");
        assert!(inspection.held().is_none() && inspection.waiters.is_empty() && inspection.waiting == 0);
        assert!(client.lock("job").acquire().await.unwrap().release().await.unwrap().was_held());
    }
}

async fn a_holder_is_shown_with_label_host_and_process(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    for label in ["nightly", "", "two words", "größe 🔒"] {
        let guard = one.lock("job").label(label).acquire().await.unwrap();
        let held = two.inspect("job").await.unwrap().held().cloned().unwrap();
        let Holder::Leasehold { host, pid, since_ms, label: shown } = &held.holder else {
            panic!("{held:?}")
        };
        assert_eq!((shown.as_str(), *pid), (label, std::process::id()));
        assert!(!host.is_empty() && *since_ms > 1_600_000_000_000);
        assert!(held.holder.age().unwrap() < ms(60_000));
        assert!(guard.release().await.unwrap().was_held());
    }
}

async fn a_clients_label_is_its_locks_label(test: TestContext) {
    let named = |builder: leasehold::Builder| builder.configure(|config| config.label = "billing".into());
    let client = test.client_with(named).await;
    let _plain = client.lock("plain").acquire().await.unwrap();
    let _own = client.lock("own").label("refunds").acquire().await.unwrap();
    for (name, label) in [("plain", "billing"), ("own", "refunds")] {
        let held = client.inspect(name).await.unwrap().held().cloned().unwrap();
        assert_eq!(label_of(&held.holder), label);
    }
}

async fn a_lease_is_shown_with_the_time_it_has_left(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").ttl(ms(20_000)).acquire().await.unwrap();
    let left = async || client.inspect("job").await.unwrap().held().unwrap().expires_in.unwrap();
    let first = left().await;
    assert!(first <= ms(20_000) && first > ms(5_000), "{first:?}");
    sleep(ms(30) + test.step()).await;
    let second = left().await;
    assert!(second < first, "{second:?} after {first:?}");
    // On a busy machine the answer may come later than the lease had run before.
    let is_longer = || async {
        guard.extend().await.unwrap();
        left().await > second
    };
    eventually("a longer lease", is_longer).await;
}

async fn waiters_are_shown_in_order_with_their_labels(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let mut tasks = Vec::new();
    let labels = ["first", "second", "third"];
    for (ahead, label) in (0..).zip(labels) {
        tasks.push(enqueue(&one, two.lock("job").label(label), "job", ahead).await);
    }
    let inspection = one.inspect("job").await.unwrap();
    let shown: Vec<_> = inspection.waiters.iter().map(|waiter| label_of(&waiter.holder)).collect();
    assert_eq!(shown, labels);
    assert_eq!(inspection.waiting, 3);
    assert!(inspection.waiters.is_sorted_by_key(|waiter| std::cmp::Reverse(waiter.waiting_for)));
    sleep(ms(20)).await;
    let later = one.inspect("job").await.unwrap();
    assert!(later.waiters[0].waiting_for > inspection.waiters[0].waiting_for);
    assert!(guard.release().await.unwrap().was_held());
    for task in tasks {
        assert!(soon("its turn", task).await.unwrap().release().await.unwrap().was_held());
    }
}

async fn more_waiters_are_counted_than_shown(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let waiters = WAITERS_SHOWN + 5;
    let tasks: Vec<_> =
        (0..waiters).map(|_| tokio::spawn(two.lock("job").wait(ms(30_000)).acquire())).collect();
    until_waiting(&one, "job", waiters).await;
    assert_eq!(one.inspect("job").await.unwrap().waiters.len() as u32, WAITERS_SHOWN);
    for task in &tasks {
        task.abort();
    }
    until_waiting(&one, "job", 0).await;
    assert!(guard.release().await.unwrap().was_held());
}

async fn an_expired_lock_shows_nobody(test: TestContext) {
    let client = test.client().await;
    let _handle = client.lock("job").ttl(ms(150)).acquire().await.unwrap().detach();
    eventually("nobody is shown", async || client.inspect("job").await.unwrap().held().is_none()).await;
    test.assert_empty().await;
}

async fn a_holder_of_a_handed_over_lock_is_the_waiter(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").label("before").acquire().await.unwrap();
    let waiter = enqueue(&one, two.lock("job").label("after"), "job", 0).await;
    assert!(guard.release().await.unwrap().was_held());
    let guard = soon("its turn", waiter).await.unwrap();
    let inspection = one.inspect("job").await.unwrap();
    assert_eq!(label_of(&inspection.held().unwrap().holder), "after");
    assert_eq!(inspection.waiting, 0);
    assert!(guard.release().await.unwrap().was_held());
}

async fn owner_values_are_never_shown(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let secret = one.lock("known").acquire().await.unwrap().detach();
    let value = secret.expose().lines().last().unwrap().to_owned();
    let random = &value[..32];
    let waiter = enqueue(&one, two.lock("job"), "job", 0).await;
    let error = two.lock("job").wait(ms(0)).acquire().await.unwrap_err();
    let shown = format!(
        "{guard:?} {secret:?} {error:?} {error} {:?} {:?}",
        one.inspect("job").await.unwrap(),
        one.inspect("known").await.unwrap()
    );
    assert!(!shown.contains(random), "{shown}");
    let hex = shown.split(|c: char| !c.is_ascii_hexdigit()).any(|word| word.len() >= 32);
    assert!(!hex, "{shown}");
    assert!(guard.release().await.unwrap().was_held());
    assert!(soon("its turn", waiter).await.unwrap().release().await.unwrap().was_held());
}

/// The next change that fits; what comes before it is passed over.
async fn next_change(changes: &mut Changes<'_, Error>, fits: impl Fn(&Change) -> bool) -> Change {
    loop {
        let seen = changes.next().await.expect("the watch goes on").unwrap();
        if let Some(change) = seen.into_iter().find(&fits) {
            return change;
        }
    }
}

fn fence_of(held: &Option<Tenure>) -> Option<Fence> {
    held.as_ref().map(|held| held.fence)
}

async fn a_watch_reports_every_change_with_its_fence(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let mut changes = two.watch("job", ms(10)).unwrap();
    assert_eq!(changes.next().await.unwrap().unwrap(), []);
    let guard = one.lock("job").label("nightly").acquire().await.unwrap();
    let acquired = changes.next().await.unwrap().unwrap().remove(0);
    assert_eq!((acquired.kind, fence_of(&acquired.now)), (ChangeKind::Acquired, Some(guard.fence())));
    assert_eq!(label_of(&acquired.now.unwrap().holder), "nightly");
    let waiter = enqueue(&one, two.lock("job").wait(ms(20_000)), "job", 0).await;
    let waiting = next_change(&mut changes, |_| true).await;
    assert_eq!((waiting.kind, waiting.waiting), (ChangeKind::Waiting, 1));
    let first = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    let guard = waiter.await.unwrap();
    let change = next_change(&mut changes, |change| fence_of(&change.now) == Some(guard.fence())).await;
    match change.kind {
        ChangeKind::HandedOver => assert_eq!(fence_of(&change.before), Some(first)),
        // Free in between, where the store only wakes the next waiter.
        kind => assert_eq!((kind, fence_of(&change.before)), (ChangeKind::Acquired, None)),
    }
    let second = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    let released = next_change(&mut changes, |change| change.now.is_none()).await;
    assert_eq!((released.kind, fence_of(&released.before)), (ChangeKind::Released, Some(second)));
    let left_alone = one.lock("job").ttl(ms(300)).acquire().await.unwrap().detach();
    let expired = next_change(&mut changes, |change| change.now.is_none()).await;
    assert_eq!((expired.kind, fence_of(&expired.before)), (ChangeKind::Expired, Some(left_alone.fence())));
}

async fn a_watch_tells_a_release_by_force(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let mut changes = two.watch("job", ms(10)).unwrap();
    assert_eq!(changes.next().await.unwrap().unwrap().len(), 1);
    let waiter = enqueue(&one, two.lock("job").wait(ms(20_000)), "job", 0).await;
    let _ = one.force_release("job", guard.fence()).await.unwrap();
    let forced = next_change(&mut changes, |change| fence_of(&change.before) == Some(guard.fence())).await;
    let noted = one.marker("seen").mark("x").await.is_ok();
    match forced.kind {
        ChangeKind::ForceReleased => assert!(noted && forced.now.is_none()),
        kind => assert!(!noted, "{kind}"),
    }
    let next = waiter.await.unwrap();
    assert!(next.fence() > guard.fence());
    let _ = next.release().await.unwrap();
}

async fn a_watch_of_a_prefix_begins_with_what_is_in_use(test: TestContext) {
    let client = test.client().await;
    let _held = client.lock("job:a").acquire().await.unwrap();
    let mut changes = client.watch_prefix("job:", ms(10)).unwrap();
    let present = changes.next().await.unwrap().unwrap();
    assert_eq!((present.len(), present[0].kind), (1, ChangeKind::Present));
    let _other = client.lock("other").acquire().await.unwrap();
    let _second = client.lock("job:b").acquire().await.unwrap();
    let acquired = changes.next().await.unwrap().unwrap();
    assert_eq!((acquired.len(), acquired[0].name.as_str()), (1, "job:b"));
}

async fn a_watch_ends_when_its_client_is_closed(test: TestContext) {
    let client = test.client().await;
    let mut changes = client.watch("job", ms(10)).unwrap();
    changes.next().await.unwrap().unwrap();
    client.close().await.unwrap();
    assert!(changes.next().await.is_none());
    drop(changes);
    assert!(client.watch("job", ms(10)).is_err() && client.watch("", ms(10)).is_err());
}
