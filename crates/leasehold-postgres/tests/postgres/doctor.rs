//! Each warning of `doctor`, on a server set up that way.

use leasehold::{
    Health, Leasehold,
    engine::postgres::{WARNING_CODES, script},
};
use leasehold_testkit::PostgresServer;

use super::session;

async fn inspect(server: &PostgresServer, database: &str) -> Health {
    let leases = Leasehold::builder(server.url(database)).connect_lazy().unwrap();
    let health = leases.health().await.unwrap();
    leases.close().await.unwrap();
    health
}

fn codes(health: &Health) -> Vec<&'static str> {
    health.warnings.iter().map(|warning| warning.code).collect()
}

#[tokio::test]
async fn a_well_kept_server_has_no_warning() {
    let Some(server) = PostgresServer::start_with_or_skip("fsync = on\nfull_page_writes = on") else {
        return;
    };
    server.install(&script());
    let database = server.database();
    let health = inspect(&server, &database).await;
    assert!(health.warnings.is_empty(), "{:?}", health.warnings);
    let fact = |of: &str| health.facts.iter().find(|(what, _)| what == of).map(|(_, value)| value.clone());
    assert_eq!(fact("role").as_deref(), Some("primary"));
    assert_eq!(fact("database"), Some(database));
    assert_eq!(fact("schema version").as_deref(), Some("2"));
}

#[tokio::test]
async fn a_careless_server_has_a_warning_for_each_setting() {
    let settings = "synchronous_commit = off\ndefault_transaction_isolation = 'serializable'\n\
                    max_connections = 12\nsuperuser_reserved_connections = 0";
    let Some(server) = PostgresServer::start_with_or_skip(settings) else { return };
    server.install(&script());
    let database = server.database();
    // Others use most of its connections.
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(session(&server.url(&database)).await);
    }
    let health = inspect(&server, &database).await;
    assert_eq!(codes(&health), ["fsync-off", "synchronous-commit", "isolation", "connections"]);
    assert!(health.warnings.iter().all(|warning| WARNING_CODES.contains(&warning.code)));
}

#[tokio::test]
async fn a_replica_is_named_as_one() {
    let Some(server) = PostgresServer::start_with_or_skip("wal_level = replica") else { return };
    server.install(&script());
    let database = server.database();
    server.sql("postgres", "CHECKPOINT");
    server.shutdown();
    std::fs::write(server.dir().join("data/standby.signal"), "").unwrap();
    server.start_again();
    let health = inspect(&server, &database).await;
    assert!(codes(&health).contains(&"replica"), "{:?}", health.warnings);
    let leases = Leasehold::builder(server.url(&database)).connect_lazy().unwrap();
    let error = leases.lock("x").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
}
