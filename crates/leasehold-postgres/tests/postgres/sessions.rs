//! Sessions of a program's own beside the store.

use leasehold::{
    Clock,
    engine::{EngineOptions, Fault, postgres::Sessions},
};
use leasehold_testkit::PgBouncer;

use super::{LONG, database};

fn sessions(url: &str) -> Sessions {
    let options = EngineOptions {
        clock: Clock::system(),
        command_timeout: LONG,
        prefix: String::new(),
        connections: 1,
        max_in_flight: 100,
        client_name: "beside".into(),
        max_ttl: LONG,
    };
    Sessions::open(url, &options).unwrap()
}

#[tokio::test]
async fn a_session_finds_its_tables_in_its_schema() {
    let Some((server, database)) = database() else { return };
    let client = sessions(&server.url(&database)).within("mine").connect().await.unwrap();
    client.batch_execute("CREATE SCHEMA mine; CREATE TABLE of_mine ()").await.unwrap();
    let found = "SELECT table_schema FROM information_schema.tables WHERE table_name = 'of_mine'";
    assert_eq!(server.sql(&database, found), "mine");
    let beside = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'beside'
                  AND datname = current_database()";
    assert_eq!(server.sql(&database, beside), "1");
}

#[tokio::test]
async fn a_session_goes_past_the_pooler_that_the_url_tells_of() {
    let Some((server, database)) = database() else { return };
    let Some(bouncer) = PgBouncer::start_or_skip(server, 5, [database.clone()]) else { return };
    let url = bouncer.url(&database);
    // It would give the schema to whoever has the connection next.
    let refused = sessions(&url).within("mine").connect().await.unwrap_err();
    assert!(matches!(refused.fault, Fault::Refused(_)), "{refused:?}");
    assert!(refused.why.contains("name the database itself by listen=HOST:PORT"), "{refused:?}");
    let url = format!("{url}?listen={}", server.addr());
    let client = sessions(&url).within("mine").connect().await.unwrap();
    let row = client.query_one("SHOW search_path", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "mine");
}
