//! Many readers, or one writer.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI32, Ordering},
};

use futures_util::future::join_all;
use leasehold::{ErrorKind, Leasehold, Mode, Released, Upgrade};

use super::{
    TestContext,
    context::{enqueue, ms, sleep, soon, until_waiting},
};

cases! {
    readers_and_writers_never_meet: Shared,
    neither_readers_nor_writers_starve: Shared,
    many_readers_hold_at_once_and_no_writer: Shared,
    a_reader_behind_a_waiting_writer_waits: Shared,
    a_writer_s_release_lets_all_readers_in: Shared,
    a_waiting_writer_that_gives_up_unblocks_the_readers_behind_it: Shared,
    a_dead_reader_s_lease_runs_out: Shared,
    one_of_a_batch_of_readers_dies: Shared,
    fences_order_readers_and_writers: Shared,
    a_downgraded_writer_keeps_writers_out: Convert,
    a_writer_counts_as_a_reader_from_its_change_on: Convert,
    only_the_only_reader_is_upgraded: Convert,
    a_change_of_the_mode_that_the_store_lacks_is_refused: Shared,
    all_holders_are_inspected_with_their_modes: Shared,
    a_dropped_reader_leaves_nothing: Shared,
    a_kept_alive_reader_outlives_its_ttl: Shared,
    readers_are_counted_apart_from_writers: Shared,
}

async fn readers_are_counted_apart_from_writers(test: TestContext) {
    let client = test.client().await;
    let reader = client.read_lock("config").acquire().await.unwrap();
    assert!(client.write_lock("config").try_acquire().await.unwrap().held().is_none());
    assert!(reader.release().await.unwrap().was_held());
    let count = |mode: &str| {
        let of = &client.stats().by_mode[mode];
        (of.acquired, of.refused, of.released, of.hold_time.count())
    };
    assert_eq!((count("shared"), count("exclusive")), ((1, 0, 1, 1), (0, 1, 0, 0)));
}

async fn a_writer_counts_as_a_reader_from_its_change_on(test: TestContext) {
    let client = test.client().await;
    let writer = client.write_lock("config").acquire().await.unwrap();
    assert!(writer.downgrade().await.unwrap().release().await.unwrap().was_held());
    let count = |mode: &str| {
        let of = &client.stats().by_mode[mode];
        (of.acquired, of.released, of.hold_time.count())
    };
    assert_eq!((count("shared"), count("exclusive")), ((0, 1, 1), (1, 0, 0)));
    let text = client.stats().prometheus();
    assert!(text.contains("\nleasehold_released_total{mode=\"shared\"} 1\n"), "{text}");
}

async fn a_change_of_the_mode_that_the_store_lacks_is_refused(test: TestContext) {
    let Some(why) = test.capabilities().no_convert else { return };
    let client = test.client().await;
    let refused = client.write_lock("config").acquire().await.unwrap().downgrade().await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Unsupported && refused.to_string().contains(why), "{refused}");
    // It is given back.
    let reader = client.read_lock("config").wait(ms(20_000)).acquire().await.unwrap();
    let refused = reader.try_upgrade().await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Unsupported && refused.to_string().contains(why), "{refused}");
    let writer = client.write_lock("config").wait(ms(20_000)).acquire().await.unwrap();
    assert!(writer.release().await.unwrap().was_held());
}

async fn readers_and_writers_never_meet(test: TestContext) {
    let clients = [test.client().await, test.client().await, test.client().await];
    // Readers count up from zero, a writer is at -1000.
    let inside = Arc::new(AtomicI32::new(0));
    let tasks = (0..18).map(|number| {
        let (client, inside) = (clients[number % 3].clone(), inside.clone());
        tokio::spawn(async move {
            for round in 0..5 {
                let writes = (number + round) % 3 == 0;
                let lock = if writes { client.write_lock("hot") } else { client.read_lock("hot") };
                let guard = lock.wait(ms(20_000)).acquire().await.unwrap();
                let weight = if writes { -1000 } else { 1 };
                let before = inside.fetch_add(weight, Ordering::SeqCst);
                assert!(if writes { before == 0 } else { before >= 0 }, "{before} inside, writes: {writes}");
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

async fn neither_readers_nor_writers_starve(test: TestContext) {
    let clients = [test.client().await, test.client().await];
    let lock = |client: &Leasehold, reads| {
        let lock = if reads { client.read_lock("config") } else { client.write_lock("config") };
        lock.ttl(ms(60_000)).wait(ms(60_000))
    };
    for crowd_reads in [true, false] {
        // As many of one side as never leave it free together, and one of the other side.
        let over = Arc::new(AtomicBool::new(false));
        let crowd: Vec<_> = (0..6)
            .map(|number| {
                let (client, over) = (clients[number % 2].clone(), over.clone());
                tokio::spawn(async move {
                    while !over.load(Ordering::SeqCst) {
                        let guard = lock(&client, crowd_reads).acquire().await.unwrap();
                        sleep(ms(3 + number as u64)).await;
                        assert!(guard.release().await.unwrap().was_held());
                    }
                })
            })
            .collect();
        for _ in 0..5 {
            let guard = soon("its turn", lock(&clients[0], !crowd_reads).acquire()).await.unwrap();
            assert!(guard.release().await.unwrap().was_held());
        }
        over.store(true, Ordering::SeqCst);
        for task in crowd {
            soon("the crowd", task).await.unwrap();
        }
    }
    test.assert_empty().await;
}

async fn many_readers_hold_at_once_and_no_writer(test: TestContext) {
    let client = test.client().await;
    let readers: Vec<_> = join_all((0..20).map(|_| client.read_lock("config").acquire())).await;
    assert!(readers.iter().all(|reader| reader.as_ref().unwrap().is_held()));
    assert!(client.write_lock("config").try_acquire().await.unwrap().held().is_none());
    for reader in readers {
        assert_eq!(reader.unwrap().release().await.unwrap(), Released::Free);
    }
    let writer = client.write_lock("config").try_acquire().await.unwrap().held().expect("no reader is left");
    assert!(client.read_lock("config").try_acquire().await.unwrap().held().is_none());
    assert_eq!(writer.release().await.unwrap(), Released::Free);
}

async fn a_reader_behind_a_waiting_writer_waits(test: TestContext) {
    let client = test.client().await;
    let reader = client.read_lock("config").keep_alive().acquire().await.unwrap();
    let writer = enqueue(&client, client.write_lock("config").wait(ms(20_000)), "config", 0).await;
    assert!(
        client.read_lock("config").try_acquire().await.unwrap().held().is_none(),
        "the writer would starve"
    );
    assert!(reader.release().await.unwrap().was_held());
    let writer = soon("the writer", writer).await.unwrap();
    assert!(writer.release().await.unwrap().was_held());
}

async fn a_writer_s_release_lets_all_readers_in(test: TestContext) {
    let client = test.client().await;
    let writer = client.write_lock("config").keep_alive().acquire().await.unwrap();
    let mut readers = Vec::new();
    for number in 0..10 {
        let lock = client.read_lock("config").wait(ms(20_000)).keep_alive();
        readers.push(enqueue(&client, lock, "config", number).await);
    }
    let next = enqueue(&client, client.write_lock("config").wait(ms(20_000)), "config", 10).await;
    assert!(matches!(writer.release().await.unwrap(), Released::HandedOver { to: 10, .. }));
    let readers = soon("all readers", join_all(readers)).await;
    let readers: Vec<_> = readers.into_iter().map(Result::unwrap).collect();
    assert!(readers.iter().all(leasehold::Guard::is_held), "they hold it together");
    assert!(!next.is_finished());
    for reader in readers {
        assert!(reader.release().await.unwrap().was_held());
    }
    assert!(soon("the next writer", next).await.unwrap().release().await.unwrap().was_held());
}

async fn a_waiting_writer_that_gives_up_unblocks_the_readers_behind_it(test: TestContext) {
    let client = test.client().await;
    let reader = client.read_lock("config").keep_alive().acquire().await.unwrap();
    let writer = enqueue(&client, client.write_lock("config").wait(ms(20_000)), "config", 0).await;
    let behind = enqueue(&client, client.read_lock("config").wait(ms(20_000)), "config", 1).await;
    writer.abort();
    let behind = soon("the reader behind", behind).await.unwrap();
    assert!(reader.is_held() && behind.is_held());
    assert!(behind.release().await.unwrap().was_held());
}

async fn a_dead_reader_s_lease_runs_out(test: TestContext) {
    let client = test.client().await;
    let _dead = client.read_lock("config").ttl(ms(300)).acquire().await.unwrap().detach();
    let alive = client.read_lock("config").ttl(ms(300)).acquire().await.unwrap();
    let writer = client.write_lock("config").wait(ms(10_000)).acquire();
    let alive_fence = alive.fence();
    assert!(alive.release().await.unwrap().was_held());
    let writer = soon("the writer", writer).await.unwrap();
    assert!(writer.fence() > alive_fence);
    assert!(writer.release().await.unwrap().was_held());
}

async fn one_of_a_batch_of_readers_dies(test: TestContext) {
    let client = test.client().await;
    let writer = client.write_lock("config").keep_alive().acquire().await.unwrap();
    let mut readers = Vec::new();
    for number in 0..10 {
        let ttl = if number == 4 { ms(1_500) } else { ms(60_000) };
        let lock = client.read_lock("config").wait(ms(20_000)).ttl(ttl);
        readers.push(enqueue(&client, lock, "config", number).await);
    }
    assert!(writer.release().await.unwrap().was_held());
    let readers = soon("all readers", join_all(readers)).await;
    let mut readers: Vec<_> = readers.into_iter().map(Result::unwrap).collect();
    let _dead = readers.remove(4).detach();
    let next = enqueue(&client, client.write_lock("config").wait(ms(20_000)), "config", 0).await;
    // The lease of the dead one is over by then, and those of the others are not.
    sleep(ms(1_600)).await;
    assert!(readers.iter().all(leasehold::Guard::is_held) && !next.is_finished());
    for reader in readers {
        assert!(reader.release().await.unwrap().was_held());
    }
    assert!(soon("the writer", next).await.unwrap().release().await.unwrap().was_held());
}

async fn fences_order_readers_and_writers(test: TestContext) {
    let client = test.client().await;
    let mut last = leasehold::Fence::new(0);
    for writes in [true, false, false, true, false, true] {
        let lock = if writes { client.write_lock("config") } else { client.read_lock("config") };
        let guard = lock.acquire().await.unwrap();
        assert!(guard.fence() > last, "{} after {last}", guard.fence());
        assert_eq!(guard.mode(), if writes { Mode::Exclusive } else { Mode::Shared });
        last = guard.fence();
        assert!(guard.release().await.unwrap().was_held());
    }
}

async fn a_downgraded_writer_keeps_writers_out(test: TestContext) {
    let client = test.client().await;
    let writer = client.write_lock("config").keep_alive().acquire().await.unwrap();
    let fence = writer.fence();
    let waiting_reader = client.read_lock("config").wait(ms(20_000)).keep_alive();
    let reader = enqueue(&client, waiting_reader, "config", 0).await;
    let next = enqueue(&client, client.write_lock("config").wait(ms(20_000)), "config", 1).await;
    let downgraded = writer.downgrade().await.unwrap();
    assert_eq!((downgraded.mode(), downgraded.fence()), (Mode::Shared, fence));
    let reader = soon("the waiting reader", reader).await.unwrap();
    assert!(reader.release().await.unwrap().was_held());
    until_waiting(&client, "config", 1).await;
    assert!(downgraded.is_held() && !next.is_finished(), "a writer came in beside the one that reads now");
    assert!(downgraded.release().await.unwrap().was_held());
    assert!(soon("the next writer", next).await.unwrap().release().await.unwrap().was_held());
}

async fn only_the_only_reader_is_upgraded(test: TestContext) {
    let client = test.client().await;
    let one = client.read_lock("config").keep_alive().acquire().await.unwrap();
    let other = client.read_lock("config").keep_alive().acquire().await.unwrap();
    let Upgrade::Busy(one) = one.try_upgrade().await.unwrap() else { panic!("two readers, one writes") };
    let before = other.fence().max(one.fence());
    assert!(other.release().await.unwrap().was_held());
    let Upgrade::Done(writer) = one.try_upgrade().await.unwrap() else { panic!("nobody else reads") };
    assert!(writer.fence() > before && writer.mode() == Mode::Exclusive);
    assert!(client.read_lock("config").try_acquire().await.unwrap().held().is_none());
    assert!(writer.release().await.unwrap().was_held());
    let gone = client.read_lock("config").acquire().await.unwrap();
    client.force_release("config", gone.fence()).await.map(drop).unwrap();
    assert_eq!(gone.try_upgrade().await.unwrap_err().kind(), ErrorKind::Lost);
}

async fn all_holders_are_inspected_with_their_modes(test: TestContext) {
    let client = test.client().await;
    let readers = [
        client.read_lock("config").label("one").acquire().await.unwrap(),
        client.read_lock("config").label("two").acquire().await.unwrap(),
    ];
    let writer = enqueue(&client, client.write_lock("config").wait(ms(20_000)), "config", 0).await;
    let seen = client.inspect("config").await.unwrap();
    assert_eq!((seen.holders.total, seen.waiting), (2, 1));
    let fences: Vec<_> = seen.holders.shown.iter().map(|held| (held.fence, held.mode)).collect();
    assert_eq!(fences, readers.each_ref().map(|reader| (reader.fence(), Mode::Shared)));
    assert_eq!(seen.waiters[0].mode, Mode::Exclusive);
    for reader in readers {
        assert!(reader.release().await.unwrap().was_held());
    }
    assert!(soon("the writer", writer).await.unwrap().release().await.unwrap().was_held());
}

async fn a_dropped_reader_leaves_nothing(test: TestContext) {
    let client = test.client().await;
    drop(client.read_lock("config").acquire().await.unwrap());
    let writer = client.write_lock("config").wait(ms(10_000)).acquire().await.unwrap();
    let waiting = enqueue(&client, client.read_lock("config").wait(ms(20_000)), "config", 0).await;
    waiting.abort();
    until_waiting(&client, "config", 0).await;
    assert!(writer.release().await.unwrap().was_held());
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn a_kept_alive_reader_outlives_its_ttl(test: TestContext) {
    let client = test.client().await;
    let kept = client.read_lock("config").ttl(ms(2_000)).keep_alive().acquire().await.unwrap();
    assert!(!kept.lost_within(ms(3_000)).await, "lost");
    assert!(client.write_lock("config").try_acquire().await.unwrap().held().is_none());
    assert!(kept.release().await.unwrap().was_held());
}
