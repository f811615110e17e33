//! The tables of engines in README and docs say what the engines say of themselves.
#![cfg(all(
    feature = "memory",
    feature = "sqlite",
    feature = "redis",
    feature = "postgres",
    feature = "etcd"
))]

use std::{path::Path, sync::Arc};

use leasehold::{
    Leasehold,
    engine::{Atomic, Capabilities, Engine, Handover, Reach},
};

/// A URL of each store, and how pages show it.
const STORES: [(&str, &str); 8] = [
    ("memory:", "`memory:`"),
    ("sqlite:FOLDER/x.db", "`sqlite:`"),
    ("redis://h", "`redis://`"),
    ("redis-sentinel://h/n", "`redis-sentinel://`"),
    ("redis-cluster://h", "`redis-cluster://`"),
    ("redlock://a,b,c", "`redlock://`"),
    ("postgres://h/d", "`postgres://`"),
    ("etcd://h", "`etcd://`"),
];

/// An engine that dials nobody.
fn engine(url: &str) -> Arc<dyn Engine> {
    let folder = std::env::temp_dir();
    Leasehold::builder(url.replace("FOLDER", folder.to_str().unwrap())).into_engine().unwrap()
}

fn page(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// The cells of the row of a store, in the table below a line that begins like this.
fn row<'a>(page: &'a str, table: &str, store: &str) -> Vec<&'a str> {
    let lines =
        page.lines().skip_while(|line| !line.starts_with(table)).take_while(|line| line.starts_with('|'));
    let shown = store.trim_end_matches(":`").trim_end_matches('`');
    let row = lines
        .skip(2)
        .find(|line| line.starts_with(&format!("| {shown}")))
        .unwrap_or_else(|| panic!("{store}"));
    row.trim_matches('|').split(" | ").map(str::trim).collect()
}

#[tokio::test]
async fn readme_says_who_shares_a_lock_and_how_it_is_handed_over() {
    let readme = page("README.md");
    for (url, shown) in STORES {
        let engine = engine(url);
        let can = engine.capabilities();
        let cells = row(&readme, "| url |", shown);
        let reach = match can.reach {
            Reach::Process => "the tasks of one process",
            Reach::Host => "the processes of one host",
            _ if can.engine == "postgres" => "every host that reaches the database",
            _ => "every host that reaches the store",
        };
        let next = match can.handover {
            Handover::Push => "is handed the lock",
            _ => "is woken and claims",
        };
        assert_eq!((cells[1], cells[2]), (reach, next), "{shown}");
        assert_eq!(cells[3] == "no", !can.durable, "{shown}");
    }
}

#[tokio::test]
async fn promises_says_which_kinds_each_store_has() {
    let promises = page("docs/promises.md");
    for (url, shown) in STORES {
        let engine = engine(url);
        let can = engine.capabilities();
        let cells = row(&promises, "| store | lock, owner |", shown);
        let word = |lacks: bool| if lacks { "refused" } else { "yes" };
        let kinds = [
            (2, word(can.no_shared.is_some())),
            (3, word(can.no_permits.is_some())),
            (4, if can.claim_all == Atomic::Store { "in one step" } else { "one after the other" }),
            (6, word(engine.latches().is_err())),
            (7, word(can.no_redisson.is_some())),
        ];
        for (column, says) in kinds {
            assert!(cells[column].starts_with(says), "{shown}: {:?} is no {says:?}", cells[column]);
        }
        assert_eq!(cells[5] == "yes", can.no_hand_to.is_none(), "{shown}: {}", cells[5]);
    }
}

/// What a store can do, in a word.
type Ability = (&'static str, fn(&dyn Engine, &Capabilities) -> String);

fn yes(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

const ABILITIES: [Ability; 14] = [
    ("read-write locks", |_, can| yes(can.no_shared.is_none())),
    ("semaphores", |_, can| yes(can.no_permits.is_none())),
    ("`downgrade`, `try_upgrade`", |_, can| yes(can.no_convert.is_none())),
    ("several locks at once, in one step", |_, can| yes(can.claim_all == Atomic::Store)),
    ("a holder names the next one", |_, can| yes(can.no_hand_to.is_none())),
    ("idempotency keys, markers", |engine, _| yes(engine.records().is_ok())),
    ("deadlines", |engine, _| yes(engine.deadlines().is_ok())),
    ("latches, barriers", |engine, _| yes(engine.latches().is_ok())),
    ("waiters are served in order", |_, can| yes(can.ordered)),
    ("a waiter is handed the lock", |_, can| yes(can.handover == Handover::Push)),
    ("a loss is reported at once", |_, can| yes(can.reports_loss)),
    ("`acks`", |_, can| yes(can.no_acks.is_none())),
    ("Redisson's format", |_, can| yes(can.no_redisson.is_none())),
    ("leases end after multiples of", |_, can| format!("{:?}", can.ttl_step)),
];

#[tokio::test]
async fn stores_has_the_table_of_what_each_store_can_do() {
    let engines = STORES.map(|(url, _)| engine(url));
    let columns = STORES.map(|(_, shown)| shown.replace("://", "").replace(':', ""));
    let mut table = format!("| | {} |\n|---|{}\n", columns.join(" | "), "---|".repeat(STORES.len()));
    for (ability, of) in ABILITIES {
        let cells = engines.each_ref().map(|engine| of(&**engine, engine.capabilities()));
        table += &format!("| {ability} | {} |\n", cells.join(" | "));
    }
    let stores = page("docs/stores.md");
    assert!(stores.contains(&table), "docs/stores.md lacks what the engines say of themselves:\n\n{table}");
}
