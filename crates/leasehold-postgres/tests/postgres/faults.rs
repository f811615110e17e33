//! What happens when connections, servers and callers go away.

use std::time::Duration;

use leasehold::{Clock, Leasehold, engine::Mode, engine::postgres::script};
use leasehold_testkit::{FaultProxy, PgBouncer, PostgresServer, eventually, eventually_async};

use super::{LONG, claim, database, engine, is_granted, session, soon, waits};

const PATIENT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_outlives_the_end_of_all_its_connections() {
    let Some((server, database)) = database() else { return };
    let leases = Leasehold::builder(server.url(&database)).connect_lazy().unwrap();
    let guard = leases.lock("held").ttl(Duration::from_secs(6)).keep_alive().acquire().await.unwrap();
    let ends = "SELECT ends FROM leasehold.locks";
    for _ in 0..3 {
        let before = server.sql(&database, ends);
        server.terminate_backends(&database);
        eventually(PATIENT, "a renewal", || server.sql(&database, ends) != before);
        assert!(guard.is_held());
    }
    assert!(guard.release().await.unwrap().was_held());
    leases.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_a_crash_of_the_server() {
    let Some(server) = PostgresServer::start_or_skip() else { return };
    server.install(&script());
    let database = server.database();
    let leases = Leasehold::builder(server.url(&database)).connect_lazy().unwrap();
    let guard = leases.lock("held").ttl(Duration::from_secs(120)).keep_alive().acquire().await.unwrap();
    server.crash();
    let error = leases.lock("other").wait(Duration::from_millis(500)).acquire().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    server.start_again();
    let other = Leasehold::builder(server.url(&database)).connect_lazy().unwrap();
    assert!(other.lock("held").try_acquire().await.unwrap().held().is_none());
    assert!(guard.is_held());
    let before = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    assert!(other.lock("held").acquire().await.unwrap().fence() > before);
}

#[tokio::test]
async fn a_claim_whose_caller_went_away_locks_for_nobody() {
    let Some((server, database)) = database() else { return };
    let url = server.url(&database);
    let (engine, app) = (engine(&url), session(&url).await);
    assert!(is_granted(&engine, &claim(1, "x", Mode::Exclusive, LONG)).await);
    // Somebody keeps the row locked, so that a claim waits within the server.
    app.batch_execute("BEGIN; UPDATE leasehold.locks SET ends = 0").await.unwrap();
    let dropped = waits(claim(2, "x", Mode::Exclusive, LONG));
    {
        let mut claiming = std::pin::pin!(engine.leases().claim(&dropped, soon()));
        let clock = Clock::system();
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        loop {
            assert!(clock.bounded(clock.now() + Duration::from_millis(20), &mut claiming).await.is_none());
            if server.sql(&database, waiting) == "1" {
                break;
            }
        }
    }
    let (ending, ended) = (engine.clone(), dropped.clone());
    let end = tokio::spawn(async move { ending.leases().abandon(&ended, soon()).await });
    app.batch_execute("COMMIT").await.unwrap();
    end.await.unwrap().unwrap();
    // Nothing of it takes effect, however late.
    let next = claim(3, "x", Mode::Exclusive, LONG);
    eventually_async(PATIENT, "the lock to be free", || is_granted(&engine, &next)).await;
    let error = engine.leases().claim(&dropped, soon()).await.unwrap_err();
    assert_eq!(error.fault, leasehold::engine::Fault::Ended);
    assert_eq!(server.sql(&database, "SELECT count(*) FROM leasehold.waiters"), "0");
}

#[tokio::test]
async fn a_claim_that_arrives_after_its_end_is_refused() {
    let Some((server, database)) = database() else { return };
    let proxy = FaultProxy::start(server.addr());
    let engine = engine(&format!("postgres://leasehold@{}/{database}", proxy.addr()));
    // Connections that are there already.
    assert!(is_granted(&engine, &claim(1, "x", Mode::Exclusive, LONG)).await);
    let late = claim(2, "y", Mode::Exclusive, LONG);
    proxy.hold();
    let sent = proxy.requests_bytes();
    {
        let mut claiming = std::pin::pin!(engine.leases().claim(&late, soon()));
        let clock = Clock::system();
        while proxy.requests_bytes() == sent {
            assert!(clock.bounded(clock.now() + Duration::from_millis(10), &mut claiming).await.is_none());
        }
    }
    // The end takes another way, and is there first.
    let direct = session(&server.url(&database)).await;
    let id = late.owner.id_text();
    direct.batch_execute(&format!("SELECT leasehold.release('y', '{id}', 'exclusive', true)")).await.unwrap();
    proxy.pass();
    let ended = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()";
    eventually(PATIENT, "the claim to be over", || server.sql(&database, ended) == "0");
    assert_eq!(
        server.sql(&database, "SELECT count(*) FROM leasehold.locks WHERE name = 'y' AND id IS NOT NULL"),
        "0"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_claims_costs_no_lease() {
    let Some((server, database)) = database() else { return };
    let url = format!("{}?pool=3", server.url(&database));
    let leases = Leasehold::builder(url).connect_lazy().unwrap();
    let guard = leases.lock("held").ttl(Duration::from_secs(6)).keep_alive().acquire().await.unwrap();
    // A session of somebody else keeps the row of a name locked: all who claim it wait within the server.
    let app = session(&server.url(&database)).await;
    assert!(leases.lock("stuck").acquire().await.unwrap().release().await.unwrap().was_held());
    app.batch_execute("BEGIN; UPDATE leasehold.locks SET ends = 0 WHERE name = 'stuck'").await.unwrap();
    let crowd: Vec<_> = (0..20)
        .map(|_| {
            let leases = leases.clone();
            tokio::spawn(async move {
                leases.lock("stuck").wait(Duration::from_secs(20)).acquire().await.map(drop)
            })
        })
        .collect();
    let ends = "SELECT ends FROM leasehold.locks WHERE name = 'held'";
    for _ in 0..3 {
        let before = server.sql(&database, ends);
        eventually(PATIENT, "a renewal", || server.sql(&database, ends) != before);
    }
    assert!(guard.is_held());
    app.batch_execute("COMMIT").await.unwrap();
    crowd.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(guard.release().await.unwrap().was_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_are_serializable_by_default_are_sent_again() {
    let Some((server, database)) = database() else { return };
    server.sql(
        "postgres",
        &format!("ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'"),
    );
    server.sql(&database, "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)");
    let leases = Leasehold::builder(server.url(&database)).connect_lazy().unwrap();
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let (leases, url) = (leases.clone(), server.url(&database));
            tokio::spawn(async move {
                let app = session(&url).await;
                app.batch_execute("SET default_transaction_isolation = 'read committed'").await.unwrap();
                for _ in 0..5 {
                    let guard = leases.lock("counter").wait(PATIENT).acquire().await.unwrap();
                    let n: i32 = app.query_one("SELECT n FROM counter", &[]).await.unwrap().get(0);
                    app.execute("UPDATE counter SET n = $1", &[&(n + 1)]).await.unwrap();
                    assert!(guard.release().await.unwrap().was_held());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(server.sql(&database, "SELECT n FROM counter"), "30");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_listen_names_the_database_itself() {
    let Some((server, database)) = database() else { return };
    let Some(bouncer) = PgBouncer::start_or_skip(server, 5, [database.clone()]) else { return };
    let heard = async |url: String| {
        let (one, two) = (engine(&url), Leasehold::builder(url).connect_lazy().unwrap());
        let guard = two.lock("x").ttl(Duration::from_secs(120)).acquire().await.unwrap();
        let waiting = {
            let two = two.clone();
            tokio::spawn(async move { two.lock("x").wait(PATIENT).acquire().await.map(drop) })
        };
        let state = "notifications";
        let mut said = String::new();
        let known = async || {
            let facts = two.health().await.unwrap().facts;
            said = facts.into_iter().find(|(what, _)| what == state).unwrap().1;
            !said.starts_with("not needed yet")
        };
        let mut known = known;
        while !known().await {
            tokio::task::yield_now().await;
        }
        assert!(guard.release().await.unwrap().was_held());
        waiting.await.unwrap().unwrap();
        drop(one);
        said
    };
    assert_eq!(heard(format!("{}?listen={}", bouncer.url(&database), server.addr())).await, "arrive");
    assert_eq!(heard(bouncer.url(&database)).await, "do not arrive: waiters poll");
}
