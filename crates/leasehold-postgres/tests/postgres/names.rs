//! Names that are forgotten, and fences that do not come again.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{Fence, Leasehold, engine::Mode};

use super::{LONG, assert_held, claim, database, engine, granted, session, waits};

/// The clock of the database so many days from now.
fn clock_after(days: i32) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION leasehold.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS \
         $$ SELECT (extract(epoch FROM clock_timestamp() + interval '{days} days') * 1000000)::bigint $$;"
    )
}

#[tokio::test]
async fn names_that_are_pruned_have_higher_fences_whatever_the_clock_does() {
    let Some((server, database)) = database() else { return };
    let url = server.url(&database);
    let (engine, app) = (engine(&url), session(&url).await);
    let leases = Leasehold::connect(url.as_str()).await.unwrap();
    let mut last = None;
    for name in ["a", "b", "c"] {
        let guard = leases.lock(name).acquire().await.unwrap();
        last = Some(guard.fence());
        assert!(guard.release().await.unwrap().was_held());
    }
    // In use: held for long, by readers, with a queue, or checked by a transaction that is open.
    let week = Duration::from_secs(7 * 86_400);
    granted(&engine, &claim(1, "held", Mode::Exclusive, week)).await;
    granted(&engine, &claim(2, "read", Mode::Shared, LONG)).await;
    granted(&engine, &claim(3, "awaited", Mode::Exclusive, LONG)).await;
    let queued = waits(claim(4, "awaited", Mode::Exclusive, LONG));
    engine.leases().claim(&queued, super::soon()).await.unwrap();
    let checked = granted(&engine, &claim(5, "checked", Mode::Exclusive, LONG)).await.fence;
    app.batch_execute("BEGIN").await.unwrap();
    assert_held(&app, "checked", checked).await.unwrap();
    let names = || server.sql(&database, "SELECT string_agg(name, ' ' ORDER BY name) FROM leasehold.locks");
    let prune = |days: i32| {
        server.sql(&database, &clock_after(days));
        server.sql(&database, "SELECT leasehold.prune('3 days')")
    };
    assert_eq!(prune(2), "0");
    assert_eq!(prune(4), "3");
    assert_eq!(names(), "awaited checked held read");
    app.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(prune(4), "1", "it was only kept because it was checked");

    // The clock went back by days: the row keeps the fence of a name that is known, the floor that of one that is not.
    let guard = leases.lock("known").acquire().await.unwrap();
    let known = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    server.sql(&database, &clock_after(-3));
    let guard = leases.lock("known").acquire().await.unwrap();
    assert!(guard.fence() > known);
    assert!(guard.release().await.unwrap().was_held());
    let guard = leases.lock("c").acquire().await.unwrap();
    assert!(Some(guard.fence()) > last);
    assert!(guard.release().await.unwrap().was_held());
    leases.close().await.unwrap();
}

/// The clock goes back after a release: who waits has its turn, and one that is dead lets it pass.
#[tokio::test]
async fn a_free_lock_is_taken_however_far_the_clock_went_back() {
    let Some((server, database)) = database() else { return };
    let url = server.url(&database);
    let (engine, leases) = (engine(&url), Leasehold::connect(url.as_str()).await.unwrap());
    server.sql(&database, &clock_after(1));
    let guard = leases.lock("x").acquire().await.unwrap();
    let fence = guard.fence();
    let dead = waits(claim(1, "x", Mode::Exclusive, LONG));
    engine.leases().claim(&dead, super::soon()).await.unwrap();
    assert!(guard.release().await.unwrap().was_held());
    server.sql(&database, &clock_after(0));
    let next = leases.lock("x").wait(LONG).acquire().await.unwrap();
    assert!(next.fence() > fence);
    assert!(next.release().await.unwrap().was_held());
    leases.close().await.unwrap();
}

/// Those who claim a name while it is pruned have it one after the other, under fences that grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_pruned_while_it_is_claimed_is_held_by_one() {
    let Some((server, database)) = database() else { return };
    let leases = Leasehold::connect(server.url(&database)).await.unwrap();
    // The time stands still, so that fences only count; whoever prunes is a day and 100 seconds later.
    server.sql(
        &database,
        "CREATE OR REPLACE FUNCTION leasehold.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$ \
         SELECT CASE current_setting('application_name') WHEN 'pruner' THEN 1700086500000000 ELSE 1700000000000000 END $$;",
    );
    let app = session(&format!("{}?application_name=pruner", server.url(&database))).await;
    let last = Arc::new(Mutex::new(Fence::new(0)));
    let tasks = [(); 3].map(|()| {
        let lock = leases.lock("x").ttl(Duration::from_secs(300));
        let last = last.clone();
        tokio::spawn(async move {
            loop {
                let Some(guard) = lock.clone().try_acquire().await.unwrap().held() else { continue };
                let before = std::mem::replace(&mut *last.lock().unwrap(), guard.fence());
                assert!(guard.fence() > before, "{} after {before}", guard.fence());
                assert!(guard.release().await.unwrap().was_held());
            }
        })
    });
    let mut pruned = 0;
    while pruned < 20 && tasks.iter().all(|task| !task.is_finished()) {
        let row = app.query_one("SELECT leasehold.prune('1 day')", &[]).await.unwrap();
        pruned += row.get::<_, i32>(0);
    }
    for task in tasks {
        task.abort();
        let end = task.await.unwrap_err();
        assert!(end.is_cancelled(), "{end}");
    }
}
