//! Statements have names over a session of the server's, and none behind a pooler, where a name may stand for something else.

use std::time::Duration;

use leasehold::{Leasehold, engine::postgres::script};
use leasehold_testkit::{Certificates, PgBouncer, PostgresServer, eventually};

/// For a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

/// A server that logs what it is asked, with TLS for those who want it.
fn server() -> Option<(PostgresServer, String, Certificates)> {
    let certificates = Certificates::generate();
    let server = PostgresServer::start_tls_or_skip(&certificates)?;
    server.install(&script());
    server.sql("postgres", "ALTER SYSTEM SET log_statement = 'all'");
    server.sql("postgres", "SELECT pg_reload_conf()");
    eventually(PATIENT, "the server to log", || server.sql("postgres", "SHOW log_statement") == "all");
    let database = server.database();
    Some((server, database, certificates))
}

/// What the server logs of an acquire and a release over this URL.
async fn logged(server: &PostgresServer, url: &str) -> String {
    let before = server.log().len();
    let leases = Leasehold::builder(url).command_timeout(PATIENT).connect().await.unwrap();
    for _ in 0..3 {
        assert!(leases.lock("x").acquire().await.unwrap().release().await.unwrap().was_held());
    }
    leases.close().await.unwrap();
    server.log()[before..].to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_the_server_gets_names_also_over_tls() {
    let Some((server, database, certificates)) = server() else { return };
    let url = server.url(&database);
    for more in [String::new(), format!("?sslmode=verify-full&ca={}", certificates.ca().display())] {
        let log = logged(&server, &format!("{url}{more}")).await;
        let claims: Vec<_> =
            log.lines().filter(|line| line.contains("SELECT * FROM leasehold.claim(")).collect();
        assert!(
            claims.len() >= 3 && claims.iter().all(|line| line.contains("execute s")),
            "{more}: {claims:#?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_nothing_has_a_name() {
    let Some((server, database, _)) = server() else { return };
    let Some(bouncer) = PgBouncer::start_or_skip(&server, 5, [database.clone()]) else { return };
    let log = logged(&server, &bouncer.url(&database)).await;
    assert!(
        log.contains("execute <unnamed>: SELECT * FROM leasehold.claim(") && !log.contains("execute s"),
        "{log}"
    );
}
