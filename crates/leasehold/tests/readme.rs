//! The README's engine table says what the engines say of themselves.
#![cfg(all(feature = "memory", feature = "sqlite", feature = "redis", feature = "etcd"))]

use leasehold::{
    Leasehold,
    engine::{Handover, Reach},
};

#[tokio::test]
async fn the_engine_table_is_what_the_engines_can_do() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    for (url, shown) in [
        ("memory:", "`memory:`"),
        ("sqlite:x.db", "`sqlite:PATH`"),
        ("redis://h", "`redis://`"),
        ("redis-sentinel://h/n", "`redis-sentinel://`"),
        ("redis-cluster://h", "`redis-cluster://`"),
        ("redlock://a,b,c", "`redlock://`"),
        ("etcd://h", "`etcd://`"),
    ] {
        let leases = Leasehold::connect_lazy(url).unwrap();
        let can = leases.capabilities();
        let row = readme.lines().find(|line| line.starts_with(&format!("| {shown}"))).unwrap();
        let reach = match can.reach {
            Reach::Process => "the tasks of one process",
            Reach::Host => "the processes of one host",
            _ => "every host that reaches the store",
        };
        let next = match can.handover {
            Handover::Push => "is handed the lock",
            _ => "is woken and claims",
        };
        assert!(row.contains(reach) && row.contains(next), "{row}");
        assert_eq!(row.ends_with("| no |"), !can.durable, "{row}");
    }
}
