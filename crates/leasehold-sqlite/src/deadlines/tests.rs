//! Deadlines with hand-set time.

use std::time::Duration;

use crate::tests::host::{Host, WALL_US};
use leasehold_core::{
    engine::deadlines::{Batch, Deadline, Delivery, DueTime, Placement, Pool, PoolLayout, Receipt, Settle},
    name::Name,
};

const VISIBILITY: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const HOUR_US: u64 = 3_600_000_000;

impl Host {
    fn set(&mut self, id: &str, due: DueTime) {
        let deadline = Deadline { id: id.into(), due, context: None };
        self.run(|store| store.set_deadlines(&pool(), &[deadline])).unwrap();
    }

    fn claim_all(&mut self) -> Batch {
        self.run(|store| store.claim_due(&pool(), 100, VISIBILITY)).unwrap()
    }

    fn claim_one(&mut self) -> Option<Delivery> {
        let claimed = self.claim_all();
        assert!(claimed.due.len() <= 1 && !claimed.more);
        claimed.due.into_iter().next()
    }

    fn settle_deadline(&mut self, receipt: &Receipt, settle: Settle) -> bool {
        let settlements = [(receipt.clone(), settle)];
        self.run(|store| store.settle_deadlines(&pool(), &settlements)).unwrap() == [true]
    }
}

fn pool() -> Pool {
    let layout = PoolLayout { buckets: 4, placement: Placement::Spread };
    Pool { name: Name::new("payments").unwrap(), layout }
}

#[test]
fn a_deadline_is_due_to_the_millisecond() {
    let mut host = Host::new();
    host.set("in", DueTime::In(Duration::from_micros(1_500)));
    host.set("at", DueTime::AtMs(WALL_US / 1000 + 5));
    host.pass(Duration::from_micros(1_999));
    assert_eq!(host.claim_one(), None);
    host.pass(Duration::from_micros(1));
    let due = host.claim_one().unwrap();
    assert_eq!((&*due.receipt.id, due.overdue), ("in", Duration::ZERO));
    host.pass(Duration::from_micros(2_999));
    assert_eq!(host.claim_one(), None);
    host.pass(Duration::from_millis(2));
    let due = host.claim_one().unwrap();
    assert_eq!((&*due.receipt.id, due.overdue), ("at", Duration::from_millis(1)));
}

#[test]
fn a_step_of_the_wall_clock_shows_no_claimed_deadline_too_early() {
    let mut host = Host::new();
    host.set("deal", DueTime::In(Duration::ZERO));
    let first = host.claim_one().unwrap();
    host.wall_us += HOUR_US;
    host.pass(VISIBILITY - Duration::from_nanos(1000));
    assert_eq!(host.claim_one(), None);
    assert_eq!(host.run(|store| store.peek(&pool(), 10)).unwrap(), []);
    let stats = host.run(|store| store.pool_stats(&pool())).unwrap();
    assert_eq!((stats.pending, stats.due, stats.tried), (1, 0, 1));
    host.pass(Duration::from_nanos(1000));
    let second = host.claim_one().unwrap();
    assert_eq!(second.attempt, 2);
    assert!(second.receipt.number > first.receipt.number);
    // Who needs more time hides it anew.
    assert!(host.settle_deadline(&second.receipt, Settle::Postpone(VISIBILITY)));
    host.wall_us += HOUR_US;
    host.pass(VISIBILITY - Duration::from_nanos(1000));
    assert_eq!(host.claim_one(), None);
    host.pass(Duration::from_nanos(1000));
    assert_eq!(host.claim_one().unwrap().attempt, 3);
}

#[test]
fn a_wall_clock_that_goes_back_makes_late_and_repeats_no_receipt() {
    let mut host = Host::new();
    host.set("deal", DueTime::In(Duration::ZERO));
    let first = host.claim_one().unwrap();
    host.wall_us -= HOUR_US;
    host.set("other", DueTime::In(Duration::ZERO));
    let other = host.claim_one().unwrap();
    assert!(other.receipt.number > first.receipt.number);
    assert!(host.settle_deadline(&other.receipt, Settle::Done));
    host.pass(VISIBILITY);
    assert_eq!(host.claim_one(), None);
    host.pass(HOUR);
    let second = host.claim_one().unwrap();
    assert!(!host.settle_deadline(&first.receipt, Settle::Done));
    assert!(host.settle_deadline(&second.receipt, Settle::Done));
}

#[test]
fn deadlines_and_claims_outlive_a_restart() {
    let mut host = Host::new();
    host.set("claimed", DueTime::In(Duration::ZERO));
    host.set("later", DueTime::In(HOUR));
    let receipt = host.claim_one().unwrap().receipt;
    host.restart(VISIBILITY / 2);
    assert_eq!(host.claim_one(), None, "a restart shows nothing earlier");
    host.pass(VISIBILITY / 2);
    let again = host.claim_one().unwrap();
    assert_eq!((again.receipt.id.clone(), again.attempt), (receipt.id.clone(), 2));
    assert!(!host.settle_deadline(&receipt, Settle::Done));
    host.pass(HOUR);
    assert_eq!(host.claim_all().due.len(), 2);
}

/// Not a matter of seconds: the plan says what is read.
#[test]
fn a_claim_reads_only_what_it_takes() {
    let host = Host::new();
    let plan = |sql: &str| {
        let mut plan = host.db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let params = plan.parameter_count();
        let rows = plan.query_map(rusqlite::params_from_iter(vec![1; params]), |row| row.get::<_, String>(3));
        rows.unwrap().collect::<Result<Vec<_>, _>>().unwrap().join("; ")
    };
    let claim = plan(include_str!("visible.sql"));
    assert!(claim.contains("deadline_by_due (pool=? AND bucket=? AND due<?)"), "{claim}");
    assert!(!claim.contains("TEMP B-TREE") && !claim.contains("SCAN"), "{claim}");
    for sql in [include_str!("hide.sql"), include_str!("show.sql"), include_str!("bury.sql")] {
        let plan = plan(sql);
        assert!(plan.contains("SEARCH") && !plan.contains("SCAN"), "{plan}");
    }
}
