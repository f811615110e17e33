//! Owners that acquire a lock again while they hold it.

use std::sync::{
    Arc,
    atomic::{AtomicI32, Ordering},
};

use futures_util::future::join_all;
use leasehold::{Attempt, ErrorKind, lock::ReentrantRelease};

use super::{
    TestContext,
    context::{ANSWERED, is_closed, ms, poll_at_most, soon, until_waiting},
};

/// More polls than an attempt needs here; it then completes.
const POLLS: usize = 41;

cases! {
    a_kept_alive_re_entry_keeps_the_lease_of_its_owner,
    guards_of_an_owner_and_strangers_never_meet,
    an_owner_re_enters_under_one_fence_without_asking_the_store,
    the_last_guard_of_an_owner_gives_the_lock_back,
    another_owner_is_a_stranger,
    a_lost_lease_is_lost_for_all_guards_of_its_owner,
    two_tasks_of_an_owner_share_one_attempt,
    a_task_asks_itself_when_the_one_it_waited_for_gave_up,
    an_owner_s_acquire_dropped_at_any_poll_leaves_nothing,
    an_owner_re_enters_in_its_own_mode_only: Shared,
    a_reader_re_enters_although_a_writer_waits: Shared,
    permits_cannot_be_re_entered: Permits,
    a_timeout_of_one_s_own_lock_says_so,
}

async fn a_kept_alive_re_entry_keeps_the_lease_of_its_owner(test: TestContext) {
    let client = test.client().await;
    let me = client.owner();
    let outer = me.lock("job").ttl(ms(2_000)).acquire().await.unwrap();
    let inner = me.lock("job").keep_alive().acquire().await.unwrap();
    assert_eq!(inner.release().await.unwrap(), ReentrantRelease::StillHeld);
    assert!(!outer.lost_within(ms(3_000)).await, "lost");
    assert!(outer.release().await.unwrap().was_held());
}

async fn guards_of_an_owner_and_strangers_never_meet(test: TestContext) {
    let client = test.client().await;
    let me = client.owner();
    // Guards of the owner count up from zero, a stranger is at -1000.
    let inside = Arc::new(AtomicI32::new(0));
    let tasks = (0..12).map(|number| {
        let (client, me, inside) = (client.clone(), me.clone(), inside.clone());
        tokio::spawn(async move {
            let (owner, weight) = if number % 3 == 0 { (client.owner(), -1000) } else { (me, 1) };
            for _ in 0..8 {
                let guard = owner.lock("hot").wait(ms(20_000)).acquire().await.unwrap();
                let before = inside.fetch_add(weight, Ordering::SeqCst);
                assert!(if weight < 0 { before == 0 } else { before >= 0 }, "{before} inside, {weight}");
                tokio::task::yield_now().await;
                inside.fetch_sub(weight, Ordering::SeqCst);
                assert!(guard.release().await.unwrap().was_held());
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    test.assert_empty().await;
}

async fn an_owner_re_enters_under_one_fence_without_asking_the_store(test: TestContext) {
    let client = test.client().await;
    let me = client.owner();
    let outer = me.lock("job").acquire().await.unwrap();
    let before = client.round_trips();
    let inner = me.lock("job").acquire().await.unwrap();
    let Attempt::Held(innermost) = me.clone().lock("job").try_acquire().await.unwrap() else {
        panic!("its own lock is busy")
    };
    assert_eq!((inner.fence(), innermost.fence()), (outer.fence(), outer.fence()));
    assert_eq!(inner.release().await.unwrap(), ReentrantRelease::StillHeld);
    drop(innermost);
    assert_eq!(client.round_trips(), before, "the store was asked");
    assert!(outer.is_held());
    let total = me.lock("job").run(async |lease| lease.fence()).await.unwrap();
    assert_eq!(total, outer.fence());
    assert!(outer.release().await.unwrap().was_held());
}

async fn the_last_guard_of_an_owner_gives_the_lock_back(test: TestContext) {
    let client = test.client().await;
    let me = client.owner();
    let outer = me.lock("job").acquire().await.unwrap();
    let inner = me.lock("job").acquire().await.unwrap();
    // The order does not matter.
    assert_eq!(outer.release().await.unwrap(), ReentrantRelease::StillHeld);
    assert!(is_closed(&client, "job").await && inner.is_held());
    let ReentrantRelease::Released(released) = inner.release().await.unwrap() else { panic!("the last") };
    assert!(released.was_held() && !is_closed(&client, "job").await);
    let again = me.lock("job").acquire().await.unwrap();
    drop(me.lock("job").acquire().await.unwrap());
    assert!(is_closed(&client, "job").await);
    drop(again);
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn another_owner_is_a_stranger(test: TestContext) {
    let client = test.client().await;
    let (me, other) = (client.owner(), client.owner());
    let mine = me.lock("job").keep_alive().acquire().await.unwrap();
    assert!(other.lock("job").try_acquire().await.unwrap().held().is_none());
    assert!(client.lock("job").try_acquire().await.unwrap().held().is_none(), "nor a lock without an owner");
    let waiting = tokio::spawn(other.lock("job").wait(ms(20_000)).acquire());
    until_waiting(&client, "job", 1).await;
    let inner = me.lock("job").acquire().await.unwrap();
    assert!(mine.release().await.unwrap().was_held());
    assert!(!waiting.is_finished() && inner.is_held());
    let fence = inner.fence();
    assert!(inner.release().await.unwrap().was_held());
    let theirs = soon("the other owner", waiting).await.unwrap().unwrap();
    assert!(theirs.fence() > fence);
    assert!(theirs.release().await.unwrap().was_held());
}

async fn a_lost_lease_is_lost_for_all_guards_of_its_owner(test: TestContext) {
    let client = test.client().await;
    let me = client.owner();
    let outer = me.lock("job").acquire().await.unwrap();
    let inner = me.lock("job").acquire().await.unwrap();
    let fence = outer.fence();
    client.force_release("job", fence).await.map(drop).unwrap();
    soon("both are lost", async { tokio::join!(outer.lost(), inner.lost()) }).await;
    let refused = me.lock("job").acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Lost, "the code around it is without protection");
    assert_eq!(inner.release().await.unwrap(), ReentrantRelease::Lost);
    let last = outer.release().await.unwrap();
    assert!(matches!(last, ReentrantRelease::Released(_)) && !last.was_held(), "{last:?}");
    let next = me.lock("job").acquire().await.unwrap();
    assert!(next.fence() > fence);
    assert!(next.release().await.unwrap().was_held());
}

async fn two_tasks_of_an_owner_share_one_attempt(test: TestContext) {
    let (holder, client) = (test.client().await, test.client().await);
    let me = client.owner();
    let held = holder.lock("job").keep_alive().acquire().await.unwrap();
    let tasks = [1, 2].map(|_| tokio::spawn(me.lock("job").wait(ms(20_000)).acquire()));
    until_waiting(&client, "job", 1).await;
    assert_eq!(client.stats().attempts, 1);
    assert!(me.lock("job").try_acquire().await.unwrap().held().is_none());
    assert!(held.release().await.unwrap().was_held());
    let [one, two] = tasks.map(|task| async { soon("a guard", task).await.unwrap().unwrap() });
    let (one, two) = tokio::join!(one, two);
    assert_eq!(one.fence(), two.fence());
    assert_eq!(one.release().await.unwrap(), ReentrantRelease::StillHeld);
    assert!(two.release().await.unwrap().was_held());
    test.assert_empty().await;
}

async fn a_task_asks_itself_when_the_one_it_waited_for_gave_up(test: TestContext) {
    let (holder, client) = (test.client().await, test.client().await);
    let me = client.owner();
    let held = holder.lock("job").keep_alive().acquire().await.unwrap();
    let first = tokio::spawn(me.lock("job").wait(ms(20_000)).acquire());
    until_waiting(&client, "job", 1).await;
    let second = tokio::spawn(me.lock("job").wait(ms(20_000)).acquire());
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    soon("the second task asks", async {
        while client.stats().attempts < 2 {
            tokio::time::sleep(ms(2)).await;
        }
    })
    .await;
    assert!(held.release().await.unwrap().was_held());
    let second = soon("the second task", second).await.unwrap().unwrap();
    assert!(second.release().await.unwrap().was_held());
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn an_owner_s_acquire_dropped_at_any_poll_leaves_nothing(test: TestContext) {
    let client = test.client().await;
    let me = client.owner();
    let attempts = (0..POLLS).map(|polls| {
        let (free, me) = (format!("free:{polls}"), me.clone());
        async move {
            let ended = poll_at_most(polls, me.lock(&free).ttl(ms(60_000)).acquire()).await;
            // And again while the first one may be held.
            drop(poll_at_most(polls, me.lock(&free).ttl(ms(60_000)).acquire()).await);
            ended
        }
    });
    let ended = join_all(attempts).await;
    assert!(ended[0].is_none() && ended[POLLS - 1].is_some());
    drop(ended);
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn an_owner_re_enters_in_its_own_mode_only(test: TestContext) {
    let client = test.client().await;
    let me = client.owner();
    let reader = me.read_lock("config").acquire().await.unwrap();
    let refused = me.lock("config").acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("its owner holds it as shared"), "{refused}");
    assert!(reader.release().await.unwrap().was_held());
    let writer = me.lock("config").acquire().await.unwrap();
    let refused = me.read_lock("config").try_acquire().await.unwrap_err();
    assert!(refused.to_string().contains("re-entering \"config\" as shared"), "{refused}");
    assert!(writer.release().await.unwrap().was_held());
}

async fn a_reader_re_enters_although_a_writer_waits(test: TestContext) {
    let client = test.client().await;
    let me = client.owner();
    let outer = me.read_lock("config").keep_alive().acquire().await.unwrap();
    let writer = tokio::spawn(client.write_lock("config").wait(ms(20_000)).acquire());
    until_waiting(&client, "config", 1).await;
    let inner = soon("the reader", me.read_lock("config").acquire()).await.unwrap();
    assert!(outer.release().await.unwrap().was_held());
    assert!(inner.release().await.unwrap().was_held());
    let writer = soon("the writer", writer).await.unwrap().unwrap();
    assert!(writer.release().await.unwrap().was_held());
}

async fn permits_cannot_be_re_entered(test: TestContext) {
    let client = test.client().await;
    let refused = client.owner().own(client.semaphore("pool", 3)).acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    test.assert_empty().await;
}

async fn a_timeout_of_one_s_own_lock_says_so(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").keep_alive().acquire().await.unwrap();
    for wait in [ms(0), ANSWERED] {
        let error = client.lock("job").wait(wait).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let text = error.to_string();
        assert!(text.contains("held by this process") && text.contains("use an owner to re-enter"), "{text}");
    }
    assert!(guard.release().await.unwrap().was_held());
}
