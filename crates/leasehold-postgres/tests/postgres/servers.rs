//! What happens when a server of PostgreSQL ends, is full, or speaks TLS.

use std::{path::Path, time::Duration};

use leasehold::{Error, Leasehold, Refusal, engine::postgres::script};
use leasehold_testkit::{Certificates, PostgresServer, eventually_async};

use super::{database, session};

const PATIENT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_keeps_its_place_when_all_connections_end() {
    let Some((server, database)) = database() else { return };
    let leases = Leasehold::builder(server.url(&database)).connect_lazy().unwrap();
    let guard = leases.lock("x").ttl(Duration::from_secs(120)).acquire().await.unwrap();
    let waiting: Vec<_> = ["first", "second"]
        .map(|label| {
            let lock = leases.lock("x").label(label).wait(PATIENT);
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        })
        .into();
    eventually_async(PATIENT, "two waiters", || async {
        server.sql(&database, "SELECT count(*) FROM leasehold.waiters") == "2"
    })
    .await;
    let queue = "SELECT string_agg(id::text, ' ' ORDER BY place) FROM leasehold.waiters";
    let before = server.sql(&database, queue);
    server.terminate_backends(&database);
    assert_eq!(server.sql(&database, queue), before);
    let mut last = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    let mut waiting = waiting;
    while !waiting.is_empty() {
        let (next, _, others) = futures_util::future::select_all(waiting).await;
        let next = next.unwrap();
        assert!(next.fence() > last);
        last = next.fence();
        assert!(next.release().await.unwrap().was_held());
        waiting = others;
    }
    assert_eq!(server.sql(&database, "SELECT count(*) FROM leasehold.waiters"), "0");
    leases.close().await.unwrap();
}

/// Neither a crash nor an orderly end; holders learn in time whether it was too long for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_ends_the_leases_that_it_outlasts_and_no_others() {
    let Some(server) = PostgresServer::start_or_skip() else { return };
    server.install(&script());
    let database = server.database();
    for end in [PostgresServer::crash, PostgresServer::shutdown] {
        let leases = Leasehold::builder(server.url(&database)).connect_lazy().unwrap();
        let long = leases.lock("long").ttl(Duration::from_secs(120)).keep_alive().acquire().await.unwrap();
        let short = leases.lock("short").ttl(Duration::from_secs(2)).keep_alive().acquire().await.unwrap();
        let waits = leases.lock("long").wait(PATIENT);
        let waiter = tokio::spawn(async move { waits.acquire().await.unwrap() });
        eventually_async(PATIENT, "a waiter", || async {
            server.sql(&database, "SELECT count(*) FROM leasehold.waiters") == "1"
        })
        .await;
        tokio::task::block_in_place(|| end(&server));
        short.lost().await;
        assert!(!short.is_held() && long.is_held());
        tokio::task::block_in_place(|| server.start_again());
        let next = leases.lock("short").wait(PATIENT).acquire().await.unwrap();
        assert!(next.fence() > short.fence());
        let error = short.release().await.map(|released| assert!(!released.was_held()));
        assert!(error.is_ok(), "{error:?}");
        assert!(next.release().await.unwrap().was_held());
        let fence = long.fence();
        assert!(long.release().await.unwrap().was_held());
        let next = waiter.await.unwrap();
        assert!(next.fence() > fence);
        assert!(next.release().await.unwrap().was_held());
        leases.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_in_use_is_a_typed_error_and_costs_no_lease() {
    let Some((server, database)) = database() else { return };
    let leases = Leasehold::builder(format!("{}?pool=2", server.url(&database))).connect_lazy().unwrap();
    let guard = leases.lock("held").ttl(Duration::from_secs(3)).keep_alive().acquire().await.unwrap();
    let app = session(&server.url(&database)).await;
    assert!(leases.lock("stuck").acquire().await.unwrap().release().await.unwrap().was_held());
    app.batch_execute("BEGIN; UPDATE leasehold.locks SET ends = 0 WHERE name = 'stuck'").await.unwrap();
    let stuck = leases.lock("stuck").wait(PATIENT);
    let stuck = tokio::spawn(async move { stuck.acquire().await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    eventually_async(PATIENT, "a claim to wait in the server", || async {
        server.sql(&database, waits) == "1"
    })
    .await;
    // The other connection is for what keeps or ends a lease.
    let error = leases.lock("free").try_acquire().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("all 2 connections of the pool are in use"), "{error}");
    let ends = "SELECT ends FROM leasehold.locks WHERE name = 'held'";
    let before = server.sql(&database, ends);
    eventually_async(PATIENT, "a renewal", || async { server.sql(&database, ends) != before }).await;
    assert!(guard.is_held());
    app.batch_execute("COMMIT").await.unwrap();
    assert!(stuck.await.unwrap().unwrap().release().await.unwrap().was_held());
    assert!(guard.release().await.unwrap().was_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_free_connection_is_asked_again() {
    let settings = "max_connections = 8\nsuperuser_reserved_connections = 1";
    let Some(server) = PostgresServer::start_with_or_skip(settings) else { return };
    server.install(&script());
    let database = server.database();
    let leases = Leasehold::builder(server.url(&database)).connect_lazy().unwrap();
    let guard = leases.lock("held").ttl(Duration::from_secs(3)).keep_alive().acquire().await.unwrap();
    let mut sessions = Vec::new();
    while let Ok((client, connection)) =
        tokio_postgres::connect(&server.url(&database), tokio_postgres::NoTls).await
    {
        tokio::spawn(connection);
        sessions.push(client);
    }
    // Who has a connection goes on; who has none is told why.
    let late = Leasehold::builder(server.url(&database)).connect_lazy().unwrap();
    let error = late.lock("x").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::StoreUnreachable { .. }) && error.is_retryable(), "{error}");
    assert!(error.to_string().contains("too many clients"), "{error}");
    let expires = guard.fence();
    assert!(leases.lock("held").try_acquire().await.unwrap().held().is_none());
    let waits = late.lock("x").wait(PATIENT);
    let waiting = tokio::spawn(async move { waits.acquire().await });
    drop(sessions);
    assert!(waiting.await.unwrap().unwrap().release().await.unwrap().was_held());
    assert!(guard.is_held() && guard.fence() == expires);
    assert!(guard.release().await.unwrap().was_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_new_names_clearly_and_costs_no_lease() {
    let Some(server) = PostgresServer::start_with_disk_or_skip(24) else { return };
    server.install(&script());
    let disk = server.dir().join("disk");
    server.sql("postgres", &format!("CREATE TABLESPACE small LOCATION '{}'", disk.display()));
    server.sql("postgres", "CREATE DATABASE filled TEMPLATE leasehold_template TABLESPACE small");
    let leases = Leasehold::connect(server.url("filled")).await.unwrap();
    let guard = leases.lock("held").ttl(Duration::from_secs(3)).keep_alive().acquire().await.unwrap();
    server
        .sql("filled", "CREATE TABLE filler (words text); ALTER TABLE filler ALTER words SET STORAGE plain");
    let mut error = String::new();
    while error.is_empty() {
        let fill = "INSERT INTO filler SELECT repeat('x', 7000) FROM generate_series(1, 100)";
        error = server.try_sql("filled", fill).err().unwrap_or_default();
    }
    assert!(error.contains("No space left on device"), "{error}");
    // To the last page, which a single row still finds.
    while server.try_sql("filled", "INSERT INTO filler VALUES (repeat('x', 7000))").is_ok() {}
    let mut refused = None;
    for number in 0..10_000 {
        match leases.lock(format!("new {number}")).try_acquire().await {
            Ok(outcome) => drop(outcome.held().unwrap().release().await.unwrap()),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let error = refused.expect("the disk is full");
    assert!(matches!(error, Error::StoreRefused { refusal: Refusal::OutOfMemory, .. }), "{error}");
    assert!(error.to_string().contains("No space left on device"), "{error}");
    // What is held is renewed and released on the pages that are there.
    let ends = "SELECT ends FROM leasehold.locks WHERE name = 'held'";
    for _ in 0..2 {
        let before = server.sql("filled", ends);
        eventually_async(PATIENT, "a renewal", || async { server.sql("filled", ends) != before }).await;
    }
    assert!(guard.is_held());
    let fence = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    server.sql("filled", "DROP TABLE filler");
    assert!(leases.lock("one more").try_acquire().await.unwrap().held().is_some());
    assert!(leases.lock("held").acquire().await.unwrap().fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_spoken_to_a_server_that_the_authority_vouches_for_and_to_no_other() {
    let certificates = Certificates::generate();
    let Some(server) = PostgresServer::start_tls_or_skip(&certificates) else { return };
    server.install(&script());
    let database = server.database();
    let trusting = |ca: &Path| format!("{}?sslmode=verify-full&ca={}", server.url(&database), ca.display());
    let leases = Leasehold::connect(trusting(&certificates.ca())).await.unwrap();
    let guard = leases.lock("x").acquire().await.unwrap();
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'leasehold'";
    assert_eq!(server.sql(&database, encrypted), "t");
    // A waiter listens over TLS, too.
    let waits = leases.lock("x").wait(PATIENT);
    let waiting = tokio::spawn(async move { waits.acquire().await });
    eventually_async(PATIENT, "a waiter", || async {
        server.sql(&database, "SELECT count(channel) FROM leasehold.waiters") == "1"
    })
    .await;
    assert_eq!(server.sql(&database, encrypted), "t");
    assert!(guard.release().await.unwrap().was_held());
    assert!(waiting.await.unwrap().unwrap().release().await.unwrap().was_held());

    let error = match Leasehold::connect(trusting(&certificates.wrong_ca())).await {
        Err(error) => error,
        Ok(leases) => leases.lock("x").try_acquire().await.unwrap_err(),
    };
    assert!(matches!(error, Error::StoreRefused { refusal: Refusal::Certificate, .. }), "{error}");
    // A server that speaks no TLS is refused as well, instead of being asked in the clear.
    let Some((plain, database)) = super::database() else { return };
    let url = format!("{}?sslmode=verify-full&ca={}", plain.url(&database), certificates.ca().display());
    let error = Leasehold::connect(url).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
}
