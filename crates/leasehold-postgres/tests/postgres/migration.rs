//! What is installed in a database, and which programs work with it.

use leasehold::{
    Leasehold,
    engine::{Installed, postgres::SCHEMA_VERSION},
};

use super::server;

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

#[test]
fn a_script_by_hand_installs_the_same() {
    let Some((server, database)) = super::database() else { return };
    // The databases of all other tests are made by it.
    assert_eq!(
        server.sql(&database, "SELECT version FROM leasehold.schema_version"),
        SCHEMA_VERSION.to_string()
    );
}
