//! Latches, through the public API.

use std::sync::Arc;

use leasehold::{
    ErrorKind,
    latch::{Awaited, CountedDown, Join, Rearmed, Standing},
};

use super::{
    TestContext, broken_by, join, label, latch, ms, soon, standing, start_to_wait, until_missing, wait,
};
use crate::conformance::{
    Breakable, Wrapped,
    context::{poll_at_most, sleep},
    eventually,
};

/// More polls than a join or a count needs here; it then completes.
const POLLS: usize = 12;

cases! {
    a_dead_participant_breaks_the_latch_for_all: Latches Contract,
    a_latch_opens_at_the_last_count_and_not_before: Latches,
    counting_down_twice_counts_once: Latches,
    a_participant_that_has_counted_down_may_end: Latches,
    a_participant_is_kept_alive: Latches,
    a_dropped_participant_breaks_the_latch_at_once: Latches,
    a_participant_that_leaves_makes_room: Latches,
    a_late_joiner_of_an_open_latch_passes: Latches,
    a_latch_armed_again_lets_no_old_count_through: Latches,
    a_latch_armed_again_lets_no_old_waiter_through: Latches,
    a_latch_is_armed_again_only_if_it_is_over: Latches,
    another_count_is_refused_with_both_numbers: Latches,
    a_barrier_is_no_latch: Latches,
    a_bad_count_is_refused: Latches,
    a_wait_that_is_dropped_changes_nothing: Latches,
    a_join_dropped_at_any_poll_leaves_nothing: Latches,
    a_count_dropped_at_any_poll_can_be_repeated: Latches,
    waiters_outlast_an_outage: Latches Outage,
    a_latch_and_a_lock_of_one_name_are_apart: Latches,
}

async fn a_dead_participant_breaks_the_latch_for_all(test: TestContext) {
    let (link, alive) = (Breakable::default(), test.client().await);
    let engine = Arc::new(Wrapped::new(test.engine(), link.clone()));
    let dying = test.client_with(|builder| builder.engine(engine)).await;
    let dead = join(&dying.latch("migration", 2).ttl(ms(700)), "the dead one").await;
    let other = join(&latch(&alive, 2), "the other").await;
    let waiting = start_to_wait(&latch(&alive, 2)).await;
    assert_eq!(other.count_down().await.unwrap(), CountedDown::Counted { missing: 1 });
    link.cut();
    let (first, second) = (soon("the end", waiting).await.unwrap(), wait(&latch(&alive, 2)).await);
    assert_eq!((broken_by(&first), broken_by(&second)), ("the dead one", "the dead one"));
    soon("it is lost for its own process", dead.lost()).await;
    let joined = latch(&alive, 2).join().await.unwrap();
    assert!(
        matches!(&joined, Join::Broken { who, .. } if label(who.as_ref()) == "the dead one"),
        "{joined:?}"
    );
    // What comes too late counts for nothing.
    link.mend();
    let late = dead.count_down().await.unwrap();
    assert!(
        matches!(&late, CountedDown::Broken { who, .. } if label(who.as_ref()) == "the dead one"),
        "{late:?}"
    );
}

async fn a_latch_opens_at_the_last_count_and_not_before(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let mut participants = Vec::new();
    for number in 0..5 {
        let client = if number % 2 == 0 { &one } else { &two };
        participants.push(join(&latch(client, 5), &number.to_string()).await);
    }
    let generation = participants[0].generation();
    let mut waiting = Vec::new();
    for client in [&one, &two] {
        waiting.push(start_to_wait(&latch(client, 5)).await);
    }
    for (missing, participant) in [4, 3, 2, 1].into_iter().zip(&participants) {
        assert_eq!(participant.count_down().await.unwrap(), CountedDown::Counted { missing });
        let awaited = latch(&two, 5).wait(ms(0)).await.unwrap();
        assert_eq!(awaited, Awaited::NotYet { generation, missing });
    }
    assert!(waiting.iter().all(|task| !task.is_finished()), "open before the last count");
    assert_eq!(participants[4].count_down().await.unwrap(), CountedDown::Opened { generation });
    for task in waiting {
        assert_eq!(soon("a waiter passes", task).await.unwrap(), Awaited::Opened { generation });
    }
    assert_eq!(participants[0].wait(ms(0)).await.unwrap(), Awaited::Opened { generation });
}

async fn counting_down_twice_counts_once(test: TestContext) {
    let client = test.client().await;
    let (one, other) = (join(&latch(&client, 2), "one").await, join(&latch(&client, 2), "other").await);
    assert_eq!(one.count_down().await.unwrap(), CountedDown::Counted { missing: 1 });
    for _ in 0..3 {
        assert_eq!(one.count_down().await.unwrap(), CountedDown::Again { missing: 1 });
    }
    let opened = CountedDown::Opened { generation: one.generation() };
    assert_eq!(other.count_down().await.unwrap(), opened);
    assert_eq!(
        (one.count_down().await.unwrap(), other.count_down().await.unwrap()),
        (opened.clone(), opened)
    );
}

async fn a_participant_that_has_counted_down_may_end(test: TestContext) {
    let client = test.client().await;
    let short = client.latch("migration", 2).ttl(ms(200));
    let one = join(&short, "one").await;
    let _ = one.count_down().await.unwrap();
    assert!(!one.is_held());
    drop(one);
    sleep(ms(500)).await;
    assert_eq!(standing(&short).await, Standing::Armed { missing: 1 });
    let other = join(&short, "other").await;
    assert!(matches!(other.count_down().await.unwrap(), CountedDown::Opened { .. }));
}

async fn a_participant_is_kept_alive(test: TestContext) {
    let client = test.client().await;
    let short = client.latch("migration", 1).ttl(ms(600));
    let one = join(&short, "one").await;
    sleep(ms(1500)).await;
    assert!(one.is_held());
    assert!(matches!(one.count_down().await.unwrap(), CountedDown::Opened { .. }));
}

async fn a_dropped_participant_breaks_the_latch_at_once(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let waiting = start_to_wait(&latch(&two, 2)).await;
    drop(join(&latch(&one, 2), "the dropped one").await);
    assert_eq!(broken_by(&soon("it breaks", waiting).await.unwrap()), "the dropped one");
    let latch = two.latch("other", 2);
    let waiting = start_to_wait(&latch).await;
    join(&one.latch("other", 2), "the failed one").await.fail().await.unwrap();
    assert_eq!(broken_by(&soon("it breaks", waiting).await.unwrap()), "the failed one");
}

async fn a_participant_that_leaves_makes_room(test: TestContext) {
    let client = test.client().await;
    let two = latch(&client, 2);
    let (one, other) = (join(&two, "one").await, join(&two, "other").await);
    assert!(matches!(two.join().await.unwrap(), Join::Full { .. }));
    let generation = other.generation();
    other.leave().await.unwrap();
    let next = join(&two, "next").await;
    assert_eq!(next.generation(), generation);
    let _ = (one.count_down().await.unwrap(), next.count_down().await.unwrap());
    assert_eq!(wait(&two).await, Awaited::Opened { generation });
}

async fn a_late_joiner_of_an_open_latch_passes(test: TestContext) {
    let client = test.client().await;
    let one = join(&latch(&client, 1), "one").await;
    let _ = one.count_down().await.unwrap();
    let late = test.client().await;
    for count in [1, 7] {
        let joined = latch(&late, count).join().await.unwrap();
        assert!(
            matches!(joined, Join::Opened { generation } if generation == one.generation()),
            "{joined:?}"
        );
    }
    assert!(wait(&latch(&late, 1)).await.is_open());
}

async fn a_latch_armed_again_lets_no_old_count_through(test: TestContext) {
    let client = test.client().await;
    let two = latch(&client, 2);
    let (slow, other) = (join(&two, "slow").await, join(&two, "other").await);
    let first = slow.generation();
    other.fail().await.unwrap();
    let Rearmed::Done { generation } = two.rearm(first).await.unwrap() else { panic!("it is broken") };
    assert!(generation > first);
    let late = slow.count_down().await.unwrap();
    assert!(
        matches!(&late, CountedDown::Broken { generation, who } if *generation == first
        && label(who.as_ref()) == "other"),
        "{late:?}"
    );
    assert_eq!(standing(&two).await, Standing::Armed { missing: 2 });
    // Nor does one that was counted before count again.
    let (one, other) = (join(&two, "one").await, join(&two, "other").await);
    let _ = (one.count_down().await.unwrap(), other.count_down().await.unwrap());
    assert!(matches!(two.rearm(generation).await.unwrap(), Rearmed::Done { .. }));
    assert_eq!(one.count_down().await.unwrap(), CountedDown::Opened { generation });
    assert_eq!(standing(&two).await, Standing::Armed { missing: 2 });
}

async fn a_latch_armed_again_lets_no_old_waiter_through(test: TestContext) {
    let client = test.client().await;
    let one = latch(&client, 1);
    let mut generations = Vec::new();
    for is_broken in [true, false, true] {
        let participant = join(&one, "one").await;
        let generation = participant.generation();
        let waiting = start_to_wait(&one).await;
        if is_broken {
            participant.fail().await.unwrap();
        } else {
            let _ = participant.count_down().await.unwrap();
        }
        assert!(matches!(one.rearm(generation).await.unwrap(), Rearmed::Done { .. }));
        let awaited = soon("its generation is over", waiting).await.unwrap();
        assert_eq!(awaited.is_open(), !is_broken, "{awaited:?}");
        generations.push(generation);
    }
    assert!(generations.is_sorted_by(|one, next| one < next), "{generations:?}");
    // And the next generation is not open for anybody.
    assert!(matches!(one.wait(ms(50)).await.unwrap(), Awaited::NotYet { missing: 1, .. }));
}

async fn a_latch_is_armed_again_only_if_it_is_over(test: TestContext) {
    let client = test.client().await;
    let one = latch(&client, 1);
    assert_eq!(one.rearm(1).await.unwrap(), Rearmed::Other { generation: None });
    let participant = join(&one, "one").await;
    let first = participant.generation();
    assert_eq!(one.rearm(first).await.unwrap(), Rearmed::Armed { generation: first, missing: 1 });
    let _ = participant.count_down().await.unwrap();
    assert_eq!(one.rearm(first - 1).await.unwrap(), Rearmed::Other { generation: Some(first) });
    // With another number of parties, and repeated.
    let three = latch(&client, 3);
    let Rearmed::Done { generation } = three.rearm(first).await.unwrap() else { panic!("it is open") };
    assert_eq!(three.rearm(first).await.unwrap(), Rearmed::Done { generation });
    assert_eq!(standing(&three).await, Standing::Armed { missing: 3 });
}

async fn another_count_is_refused_with_both_numbers(test: TestContext) {
    let client = test.client().await;
    let participant = join(&latch(&client, 2), "one").await;
    for error in [
        latch(&client, 3).join().await.map(drop).unwrap_err(),
        latch(&client, 3).wait(ms(0)).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::OtherCount);
        let text = error.to_string();
        assert!(text.contains("migration") && text.contains("2 parties") && text.contains("not 3"), "{text}");
    }
    participant.leave().await.unwrap();
}

async fn a_barrier_is_no_latch(test: TestContext) {
    let client = test.client().await;
    let participant = join(&latch(&client, 2), "one").await;
    let error = client.barrier("migration", 2).join().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OtherMode);
    assert!(error.to_string().contains("in use as a latch"), "{error}");
    participant.leave().await.unwrap();
    let party = client.barrier("phase", 2).join().await.unwrap().joined().unwrap();
    let error = client.latch("phase", 2).wait(ms(0)).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OtherMode);
    party.leave().await.unwrap();
}

async fn a_bad_count_is_refused(test: TestContext) {
    let client = test.client().await;
    for count in [0, 10_001] {
        for error in [
            latch(&client, count).join().await.map(drop).unwrap_err(),
            latch(&client, count).wait(ms(0)).await.map(drop).unwrap_err(),
            client.barrier("x", count).join().await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("1 to 10000 parties"), "{error}");
        }
    }
    let long = client.latch("x", 1).label("l".repeat(129)).join().await.map(drop).unwrap_err();
    let short = client.latch("x", 1).ttl(ms(1)).join().await.map(drop).unwrap_err();
    assert_eq!((long.kind(), short.kind()), (ErrorKind::Invalid, ErrorKind::Invalid));
    assert!(client.latch("x", 1).state().await.unwrap().is_none());
}

async fn a_wait_that_is_dropped_changes_nothing(test: TestContext) {
    let client = test.client().await;
    let two = latch(&client, 2);
    let one = join(&two, "one").await;
    for polls in 1..8 {
        assert!(poll_at_most(polls, two.wait(ms(60_000))).await.is_none());
    }
    let other = join(&two, "other").await;
    let _ = (one.count_down().await.unwrap(), other.count_down().await.unwrap());
    assert!(wait(&two).await.is_open());
}

async fn a_join_dropped_at_any_poll_leaves_nothing(test: TestContext) {
    let client = test.client().await;
    // Those that were dropped leave in the background.
    let many = latch(&client, 2 * POLLS as u32);
    for polls in 1..POLLS {
        match poll_at_most(polls, many.join()).await {
            None => {}
            Some(joined) => joined.unwrap().joined().expect("there is room").leave().await.unwrap(),
        }
    }
    eventually("nobody takes part", async || {
        many.state().await.unwrap().is_none_or(|state| state.joined == 0)
    })
    .await;
    assert!(matches!(many.wait(ms(0)).await.unwrap(), Awaited::NotYet { .. }), "nobody has broken it");
}

async fn a_count_dropped_at_any_poll_can_be_repeated(test: TestContext) {
    let client = test.client().await;
    for polls in 1..POLLS {
        let two = client.latch(format!("migration {polls}"), 2).ttl(ms(60_000));
        let (one, other) = (join(&two, "one").await, join(&two, "other").await);
        drop(poll_at_most(polls, one.count_down()).await);
        let counted = one.count_down().await.unwrap();
        let is_counted =
            matches!(counted, CountedDown::Counted { missing: 1 } | CountedDown::Again { missing: 1 });
        assert!(is_counted, "{counted:?}");
        assert!(matches!(other.count_down().await.unwrap(), CountedDown::Opened { .. }));
    }
}

async fn waiters_outlast_an_outage(test: TestContext) {
    let client = test.client().await;
    let one = join(&latch(&client, 1), "one").await;
    let waiting = start_to_wait(&latch(&client, 1)).await;
    test.cut().await;
    sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    test.mend().await;
    eventually("it is counted", async || one.count_down().await.is_ok()).await;
    assert!(soon("the waiter passes", waiting).await.unwrap().is_open());
}

async fn a_latch_and_a_lock_of_one_name_are_apart(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("migration").acquire().await.unwrap();
    let one = join(&latch(&client, 2), "one").await;
    until_missing(&latch(&client, 2), 2).await;
    assert!(guard.release().await.unwrap().was_held());
    one.leave().await.unwrap();
    test.assert_empty().await;
}
