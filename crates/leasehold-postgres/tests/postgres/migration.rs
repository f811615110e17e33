//! What is installed in a database, and which programs work with it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use leasehold::{
    Leasehold,
    engine::{Installed, postgres::SCHEMA_VERSION},
    latch::CountedDown,
};

use super::{server, session};

/// What a program of layout 1 found installed: its tables, and functions with the same names and arguments as today, but for
/// the one that knew nothing of names that are forgotten.
const LAYOUT_1: [&str; 10] = [
    include_str!("../../src/sql/schema.sql"),
    include_str!("../../src/sql/common.sql"),
    include_str!("../../src/sql/claim.sql"),
    include_str!("../../src/sql/release.sql"),
    include_str!("../../src/sql/records.sql"),
    include_str!("../../src/sql/hold.sql"),
    include_str!("../../src/sql/check.sql"),
    include_str!("../../src/sql/inspect.sql"),
    include_str!("../../src/sql/deadlines.sql"),
    "CREATE OR REPLACE FUNCTION leasehold.lock_row(lock_name text) RETURNS leasehold.locks LANGUAGE plpgsql AS $$
     DECLARE
         l leasehold.locks;
     BEGIN
         INSERT INTO leasehold.locks (name) VALUES (lock_name) ON CONFLICT DO NOTHING;
         SELECT * INTO STRICT l FROM leasehold.locks WHERE name = lock_name FOR NO KEY UPDATE;
         RETURN l;
     END $$;",
];

const INSTALLED: &str = "INSERT INTO leasehold.schema_version (version, works_from, checksum) VALUES";

#[tokio::test]
async fn a_database_without_the_schema_names_the_command_and_is_usable_after_it() {
    let Some(server) = server() else { return };
    server.sql("postgres", "CREATE DATABASE empty");
    let url = server.url("empty");
    let error = Leasehold::connect(url.as_str()).await.unwrap_err().to_string();
    assert!(error.contains("leasehold migrate --store URL"), "{error}");
    // Also where the first use is the first contact.
    let leases = Leasehold::builder(url.as_str()).connect_lazy().unwrap();
    let error = leases.lock("x").try_acquire().await.unwrap_err().to_string();
    assert!(error.contains("leasehold migrate"), "{error}");

    let schema = leases.schema().unwrap();
    assert_eq!(schema.check().await.unwrap(), Installed::Nothing);
    assert_eq!(schema.install().await.unwrap(), Installed::Nothing);
    assert_eq!(schema.install().await.unwrap(), Installed::Current { version: SCHEMA_VERSION });
    assert!(leases.lock("x").acquire().await.unwrap().release().await.unwrap().was_held());
    leases.close().await.unwrap();
}

#[tokio::test]
async fn migrations_that_meet_take_turns() {
    let Some(server) = server() else { return };
    server.sql("postgres", "CREATE DATABASE together");
    let clients: Vec<_> =
        (0..4).map(|_| Leasehold::builder(server.url("together")).connect_lazy().unwrap()).collect();
    let installs =
        clients.iter().map(|client| async move { client.schema().unwrap().install().await.unwrap() });
    let mut found = futures_util::future::join_all(installs).await;
    found.sort_by_key(|found| *found != Installed::Nothing);
    let current = Installed::Current { version: SCHEMA_VERSION };
    assert_eq!(found, [Installed::Nothing, current, current, current]);
}

#[tokio::test]
async fn two_versions_of_the_program_share_a_database_if_its_layout_says_so() {
    let Some((server, database)) = super::database() else { return };
    let url = server.url(&database);
    let leases = Leasehold::connect(url.as_str()).await.unwrap();
    let guard = leases.lock("held").keep_alive().acquire().await.unwrap();
    let schema = leases.schema().unwrap();
    let found = |version, works| Installed::Differs { version, wanted: SCHEMA_VERSION, works };

    // Changed by hand: it works, and a migration brings it back, also while locks are held.
    server.sql(&database, "UPDATE leasehold.schema_version SET checksum = 'x'");
    assert_eq!(schema.check().await.unwrap(), found(SCHEMA_VERSION, true));
    assert_eq!(schema.install().await.unwrap(), found(SCHEMA_VERSION, true));
    assert_eq!(schema.check().await.unwrap(), Installed::Current { version: SCHEMA_VERSION });
    assert!(guard.is_held());

    // Of a later program, which says that ours works with it: it is left as it is.
    server.sql(&database, &format!("DELETE FROM leasehold.schema_version; {INSTALLED} (99, 1, 'x')"));
    assert_eq!(schema.install().await.unwrap(), found(99, true));
    assert_eq!(schema.check().await.unwrap(), found(99, true));
    Leasehold::connect(url.as_str()).await.unwrap();

    // Of one that says the opposite.
    server.sql(&database, "UPDATE leasehold.schema_version SET works_from = 99");
    assert_eq!(schema.check().await.unwrap(), found(99, false));
    for error in [Leasehold::connect(url.as_str()).await.map(drop), schema.install().await.map(drop)] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("too new for this program"), "{error}");
    }
    assert!(guard.release().await.unwrap().was_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layout_of_before_is_brought_up_to_date_while_its_programs_run() {
    let Some(server) = server() else { return };
    server.sql("postgres", "CREATE DATABASE of_before");
    server.sql("of_before", &format!("{} {INSTALLED} (1, 1, 'x')", LAYOUT_1.concat()));
    let url = server.url("of_before");
    let error = Leasehold::connect(url.as_str()).await.map(drop).unwrap_err().to_string();
    assert!(error.contains(&format!("has version 1, and this program needs {SCHEMA_VERSION}")), "{error}");
    let leases = Leasehold::builder(url.as_str()).connect_lazy().unwrap();

    // One that holds a lock, and one that takes and releases another all the time, as programs of that layout do.
    let held = "SELECT fence FROM leasehold.claim('held', 'f47ac10b-58cc-4372-a567-0e02b2c3d479', 600000)";
    let fence = server.sql("of_before", held);
    let (app, is_over) = (session(&url).await, Arc::new(AtomicBool::new(false)));
    let until = is_over.clone();
    let working = tokio::spawn(async move {
        let (mut rounds, mut last) = (0, 0_i64);
        while !until.load(Ordering::Relaxed) || rounds < 20 {
            let claim = "SELECT outcome, fence FROM leasehold.claim('busy', $1::text::uuid)";
            let owner = format!("{:032x}", rounds + 1);
            let row = app.query_one(claim, &[&owner]).await.unwrap();
            assert_eq!(row.get::<_, &str>(0), "granted");
            assert!(row.get::<_, i64>(1) > last);
            last = row.get(1);
            let release = "SELECT outcome FROM leasehold.release('busy', $1::text::uuid)";
            assert_eq!(app.query_one(release, &[&owner]).await.unwrap().get::<_, &str>(0), "released");
            rounds += 1;
        }
    });
    let found = leases.schema().unwrap().install().await.unwrap();
    assert_eq!(found, Installed::Differs { version: 1, wanted: SCHEMA_VERSION, works: false });
    is_over.store(true, Ordering::Relaxed);
    working.await.unwrap();

    assert_eq!(
        leases.schema().unwrap().check().await.unwrap(),
        Installed::Current { version: SCHEMA_VERSION }
    );
    let works_from = server.sql("of_before", "SELECT works_from FROM leasehold.schema_version");
    assert_eq!(works_from, "1", "programs of layout 1 may connect");
    assert!(leases.lock("held").try_acquire().await.unwrap().held().is_none());
    assert_eq!(server.sql("of_before", &format!("SELECT leasehold.held('held', {fence})")), "t");
    let latch = leases.latch("new", 1);
    let participant = latch.join().await.unwrap().joined().unwrap();
    assert!(matches!(participant.count_down().await.unwrap(), CountedDown::Opened { .. }));
    leases.close().await.unwrap();
}

#[test]
fn a_script_by_hand_installs_the_same() {
    let Some((server, database)) = super::database() else { return };
    // The databases of all other tests are made by it.
    assert_eq!(
        server.sql(&database, "SELECT version FROM leasehold.schema_version"),
        SCHEMA_VERSION.to_string()
    );
}
