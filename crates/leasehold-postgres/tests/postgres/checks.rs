//! Fences that are checked within an application's own transaction.

use std::time::Duration;

use leasehold::{Clock, Fence, Leasehold, engine::Mode, engine::Released, engine::Renewed};
use leasehold_testkit::eventually_async;

use super::{LONG, assert_held, claim, database, engine, granted, is_granted, session, soon, state};

const SHORT: Duration = Duration::from_millis(300);
const PATIENT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_paused_holder_is_refused_within_its_transaction() {
    let Some((server, database)) = database() else { return };
    let url = server.url(&database);
    server.sql(&database, "CREATE TABLE deals (id int PRIMARY KEY, state text, fence bigint)");
    server.sql(&database, "INSERT INTO deals VALUES (1, 'open', 0)");
    let (engine, app) = (engine(&url), session(&url).await);
    let slow = claim(1, "deal:1", Mode::Exclusive, SHORT);
    let fence = granted(&engine, &slow).await.fence;

    // In time: what was checked is committed.
    app.batch_execute("BEGIN").await.unwrap();
    assert_held(&app, "deal:1", fence).await.unwrap();
    app.batch_execute("UPDATE deals SET state = 'paid'; COMMIT").await.unwrap();

    // Paused past its lease: somebody else has it, and the transaction ends.
    app.batch_execute("BEGIN; UPDATE deals SET state = 'late'").await.unwrap();
    let next = claim(2, "deal:1", Mode::Exclusive, LONG);
    eventually_async(PATIENT, "the lease to end", || is_granted(&engine, &next)).await;
    assert_eq!(state(assert_held(&app, "deal:1", fence).await), "LH001");
    assert_eq!(state(app.query("SELECT 1", &[]).await), "25P02", "the transaction is aborted");
    app.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(server.sql(&database, "SELECT state FROM deals"), "paid");

    let held = "SELECT leasehold.held('deal:1', $1)";
    assert!(!app.query_one(held, &[&fence.as_i64()]).await.unwrap().get::<_, bool>(0));
    let fence = granted(&engine, &next).await.fence;
    assert!(app.query_one(held, &[&fence.as_i64()]).await.unwrap().get::<_, bool>(0));
    // A lock that was never taken, and a fence that never was.
    assert_eq!(state(assert_held(&app, "never", fence).await), "LH001");
    assert_eq!(state(assert_held(&app, "deal:1", Fence::new(1)).await), "LH001");
}

#[tokio::test]
async fn takeover_after_expiry_waits_for_the_transaction_that_checked_the_lock() {
    let Some((server, database)) = database() else { return };
    let url = server.url(&database);
    for (at, mode) in [(10, Mode::Exclusive), (20, Mode::Shared)] {
        let (engine, app) = (engine(&url), session(&url).await);
        let lock = format!("takeover of {mode}");
        let mine = claim(at, &lock, mode, SHORT);
        let fence = granted(&engine, &mine).await.fence;
        app.batch_execute("BEGIN").await.unwrap();
        assert_held(&app, &lock, fence).await.unwrap();
        let clock = Clock::system();
        clock.sleep_until(clock.now() + SHORT * 2).await;
        // Over by the clock, and still nobody else's.
        let next = claim(at + 1, &lock, Mode::Exclusive, LONG);
        assert!(!is_granted(&engine, &next).await, "{mode}");
        let renewed = engine.leases().renew(&[mine.hold(fence)], soon()).await.unwrap().remove(0).unwrap();
        assert_eq!(renewed, Renewed::Gone, "{mode}");
        app.batch_execute("COMMIT").await.unwrap();
        assert!(granted(&engine, &next).await.fence > fence, "{mode}");
    }
}

#[tokio::test]
async fn renewals_go_on_beside_a_long_transaction_that_checked_the_lock() {
    let Some((server, database)) = database() else { return };
    let url = server.url(&database);
    for (at, mode) in [(10, Mode::Exclusive), (20, Mode::Shared)] {
        let (engine, app) = (engine(&url), session(&url).await);
        let lock = format!("renewal of {mode}");
        let mine = claim(at, &lock, mode, LONG);
        let fence = granted(&engine, &mine).await.fence;
        app.batch_execute("BEGIN").await.unwrap();
        assert_held(&app, &lock, fence).await.unwrap();
        for _ in 0..3 {
            let renewed =
                engine.leases().renew(&[mine.hold(fence)], soon()).await.unwrap().remove(0).unwrap();
            assert!(matches!(renewed, Renewed::Kept { .. }), "{mode}");
            // So do checks, and claims of others who are refused.
            assert_held(&app, &lock, fence).await.unwrap();
            assert!(!is_granted(&engine, &claim(at + 1, &lock, Mode::Exclusive, LONG)).await);
        }
        app.batch_execute("COMMIT").await.unwrap();
        assert_eq!(engine.leases().release(&mine.hold(fence), soon()).await.unwrap(), Released::Free);
    }
}

#[tokio::test]
async fn force_release_waits_for_the_commit_at_most_as_long_as_its_caller() {
    let Some((server, database)) = database() else { return };
    let url = server.url(&database);
    let (engine, app) = (engine(&url), session(&url).await);
    let mine = claim(1, "held", Mode::Exclusive, LONG);
    let fence = granted(&engine, &mine).await.fence;
    app.batch_execute("BEGIN").await.unwrap();
    assert_held(&app, "held", fence).await.unwrap();

    let impatient = Clock::system().now() + Duration::from_millis(700);
    let error = engine.leases().force_release(&mine.name, fence, impatient).await.unwrap_err();
    assert!(error.why.contains("a transaction that checked this lock is still open"), "{error}");
    assert_held(&app, "held", fence).await.unwrap();

    let (forcing, lock) = (engine.clone(), mine.name.clone());
    let forced = tokio::spawn(async move { forcing.leases().force_release(&lock, fence, soon()).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    eventually_async(PATIENT, "it to wait", || async { server.sql(&database, waits) == "1" }).await;
    // The holder renews meanwhile, and its transaction is not disturbed.
    let renewed = engine.leases().renew(&[mine.hold(fence)], soon()).await.unwrap().remove(0).unwrap();
    assert!(matches!(renewed, Renewed::Kept { .. }));
    app.batch_execute("COMMIT").await.unwrap();
    assert_eq!(forced.await.unwrap().unwrap(), Released::Free);
    assert_eq!(state(assert_held(&app, "held", fence).await), "LH001");
}

#[tokio::test]
async fn a_guard_knows_the_statement_that_checks_it() {
    let Some((server, database)) = database() else { return };
    let url = server.url(&database);
    let leases = Leasehold::connect(url.as_str()).await.unwrap();
    let mut app = session(&url).await;
    let guard = leases.lock("it's").acquire().await.unwrap();

    let transaction = app.transaction().await.unwrap();
    transaction
        .execute(Fence::ASSERT_HELD_SQL, &[&guard.name().as_str(), &guard.fence().as_i64()])
        .await
        .unwrap();
    transaction.batch_execute(&guard.assert_held_sql()).await.unwrap();
    transaction.commit().await.unwrap();

    let late = guard.assert_held_sql();
    assert!(guard.release().await.unwrap().was_held());
    assert_eq!(state(app.batch_execute(&late).await), "LH001");
    leases.close().await.unwrap();
}
