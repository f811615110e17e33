//! The lines of docs/postgres.md, as they are.

use super::database;

const GUIDE: &str = include_str!("../../../../docs/postgres.md");

/// Every block of SQL in the guide runs in `psql`, in one session, and leaves no lock behind.
#[test]
fn the_sessions_of_the_guide_run_in_psql() {
    let Some((server, database)) = database() else { return };
    let blocks: Vec<&str> =
        GUIDE.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 3, "{} blocks", blocks.len());
    let said = server.sql(&database, &blocks.concat());
    assert!(said.contains("granted") && said.contains("released"), "{said}");
    assert_eq!(server.sql(&database, "SELECT count(*) FROM leasehold.locks WHERE id IS NOT NULL"), "0");
}
