//! The SQL condition that makes a database refuse a late writer.
#![cfg(feature = "memory")]

use std::time::Duration;

use leasehold::{Fence, Leasehold};
use rusqlite::{Connection, params};

#[tokio::test]
async fn a_late_write_changes_no_row() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch("CREATE TABLE deals (id INTEGER PRIMARY KEY, state TEXT, fence INTEGER); INSERT INTO deals VALUES (42, 'new', NULL)")
        .unwrap();
    let sql = format!(
        "UPDATE deals SET state = ?1, fence = ?2 WHERE id = 42 AND {}",
        Fence::sql_condition("fence", "?2")
    );
    let write = |state: &str, fence: Fence| db.execute(&sql, params![state, fence.as_i64()]).unwrap();

    let leases = Leasehold::connect("memory:").await.unwrap();
    let slow = leases.lock("deal:42").ttl(Duration::from_millis(100)).acquire().await.unwrap();
    assert_eq!(write("begun", slow.fence()), 1);
    slow.lost().await;
    let next = leases.lock("deal:42").acquire().await.unwrap();
    assert_eq!(write("paid", next.fence()), 1);
    assert_eq!(write("cancelled", slow.fence()), 0, "the late write is refused");
    assert_eq!(write("settled", next.fence()), 1, "the holder may write more than once");
    let state: String = db.query_row("SELECT state FROM deals", [], |row| row.get(0)).unwrap();
    assert_eq!(state, "settled");
}
