//! Records with hand-set time.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::params;

use crate::tests::host::Host;
use leasehold_core::{
    engine::{
        EngineError, Fault, Renewed, WAITERS_MAX,
        records::{Begin, Begun, Content, MarkOp, Outcome, Record, Settle, Settled},
    },
    fence::Fence,
    name::Name,
    owner::{Holder, Owner},
};

const LEASE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(86_400);
const HOUR_US: u64 = 3_600_000_000;

impl Host {
    fn begin(&mut self, begin: &Begin) -> Result<Begun, EngineError> {
        let since = self.now();
        Ok(self.run(|store| store.begin_record(begin, since, "engine"))?)
    }

    fn yours(&mut self, begin: &Begin) -> Fence {
        match self.begin(begin).unwrap() {
            Begun::Yours(grant) => grant.fence,
            other => panic!("{other:?}"),
        }
    }

    fn settle(&mut self, settle: &Settle) -> Result<Settled, EngineError> {
        Ok(self.run(|store| store.settle_record(settle))?)
    }

    fn completed(&mut self, key: &str, keep: Duration) -> Begin {
        let begin = wish(1, key);
        let fence = self.yours(&begin);
        let settle = Settle { keep, ..end(&begin, fence, Outcome::Completed(Bytes::from_static(b"paid"))) };
        assert_eq!(self.settle(&settle).unwrap(), Settled::Stored);
        begin
    }

    fn mark(&mut self, key: &str, ttl: Duration) -> bool {
        self.run(|store| store.on_mark(&name(key), MarkOp::SetIfAbsent(ttl))).unwrap()
    }

    fn read(&mut self, key: &str) -> Option<Record> {
        self.run(|store| store.read_record(&name(key))).unwrap()
    }
}

fn name(key: &str) -> Name {
    Name::new(key).unwrap()
}

fn wish(number: u128, key: &str) -> Begin {
    let owner = Owner::new(number, &Holder::this_process("", 1));
    Begin { key: name(key), owner, fingerprint: None, lease: LEASE, wake: false }
}

fn end(begin: &Begin, fence: Fence, outcome: Outcome) -> Settle {
    Settle { hold: begin.hold(fence), fingerprint: None, outcome, keep: DAY }
}

#[test]
fn a_restart_ends_what_runs_and_keeps_what_was_settled() {
    let mut host = Host::new();
    host.completed("done", DAY);
    assert!(host.mark("marked", DAY));
    let running = wish(2, "running");
    let fence = host.yours(&running);
    host.restart(Duration::from_secs(600));
    assert_eq!(host.read("running"), None);
    assert!(host.yours(&wish(3, "running")) > fence);
    assert!(matches!(host.begin(&wish(3, "done")).unwrap(), Begun::Completed(_)));
    assert_eq!(host.begin(&wish(3, "marked")).unwrap(), Begun::DoneElsewhere);
    assert_eq!(host.read("done").unwrap().expires_in, Some(DAY - Duration::from_secs(600)));
    // It was off for longer than they are kept.
    host.restart(DAY);
    assert_eq!((host.read("done"), host.read("marked")), (None, None));
}

#[test]
fn a_step_of_the_wall_clock_ends_nothing_and_keeps_nothing() {
    for step in [HOUR_US * 24 * 365, HOUR_US] {
        for back in [false, true] {
            let mut host = Host::new();
            host.completed("done", DAY);
            assert!(host.mark("marked", LEASE));
            host.yours(&wish(2, "running"));
            host.wall_us = if back { host.wall_us - step } else { host.wall_us + step };
            // Adds a row, and so looks for rows to remove.
            assert!(host.mark("other", DAY));
            for key in ["done", "marked", "running"] {
                assert!(host.read(key).is_some(), "{key}");
            }
            host.pass(LEASE);
            assert_eq!((host.read("marked"), host.read("running")), (None, None));
            host.pass(DAY);
            assert_eq!(host.read("done"), None);
        }
    }
}

#[test]
fn fences_of_a_key_grow_although_the_wall_clock_goes_back() {
    let mut host = Host::new();
    let first = wish(1, "payout");
    let fence = host.yours(&first);
    host.wall_us -= HOUR_US;
    host.settle(&end(&first, fence, Outcome::Retry)).unwrap();
    assert_eq!(host.yours(&wish(2, "payout")), Fence::new(fence.get() + 1));
    host.run(|store| store.remove_record(&name("payout"))).unwrap();
    assert_eq!(host.yours(&wish(3, "payout")), Fence::new(fence.get() + 2));
    assert!(host.run(|store| store.on_mark(&name("payout"), MarkOp::Clear)).is_ok_and(|cleared| !cleared));
}

#[test]
fn what_has_ended_is_swept_a_day_later_and_a_mark_at_once() {
    let mut host = Host::new();
    let short = Begin { lease: Duration::from_secs(1), ..wish(1, "running") };
    host.yours(&short);
    host.completed("done", Duration::from_secs(1));
    for number in 0..40 {
        assert!(host.mark(&format!("mark:{number}"), Duration::from_secs(1)));
    }
    assert_eq!(host.rows("record"), 42);
    host.pass(Duration::from_secs(2));
    for number in 0..10 {
        host.yours(&wish(2, &format!("new:{number}")));
    }
    assert_eq!(host.rows("record"), 12, "fences are known for a day");
    host.pass(DAY);
    host.yours(&wish(2, "last"));
    assert_eq!(host.rows("record WHERE key IN ('running', 'done')"), 0);
}

#[test]
fn a_renewed_record_is_not_swept() {
    let mut host = Host::new();
    let mine = Begin { lease: DAY, ..wish(1, "payout") };
    let hold = mine.hold(host.yours(&mine));
    for number in 0..6 {
        host.pass(DAY / 2);
        let since = host.now();
        let renewed = host.run(|store| store.renew_record(&hold, since)).unwrap();
        assert_eq!(renewed, Renewed::Kept { since, link: None });
        assert!(host.mark(&format!("other:{number}"), LEASE));
    }
    host.pass(DAY);
    assert_eq!(host.read("payout"), None);
    assert!(host.mark("last", LEASE));
    let settle = end(&mine, hold.fence, Outcome::Completed(Bytes::new()));
    assert_eq!(host.settle(&settle).unwrap(), Settled::Stored, "late, but nobody has begun since");
}

/// Bytes that repeat from run to run, some of which begin as a record does.
fn random_texts() -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..100).map(move |number| {
        let prefix: &[u8] = match number % 4 {
            0 => b"leasehold:",
            1 => b"leasehold:1 completed ",
            _ => b"",
        };
        let length = next() % 200;
        prefix.iter().copied().chain((0..length).map(|_| next() as u8)).collect()
    })
}

#[test]
fn what_cannot_be_read_is_an_error_and_stays_as_it_is() {
    let mut host = Host::new();
    let mine = wish(1, "payout");
    let fence = host.yours(&mine);
    for text in random_texts() {
        host.db.execute("UPDATE record SET text = ?1", params![text]).unwrap();
        let row = |host: &Host| {
            let sql = "SELECT fence, text, boot, ends, ends_us, sweep_us FROM record";
            let read = |row: &rusqlite::Row<'_>| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, i64>(3)?))
            };
            host.db.query_row(sql, [], read).unwrap()
        };
        let before = row(&host);
        assert_eq!(host.begin(&mine).unwrap_err().fault, Fault::Corrupt);
        assert_eq!(host.begin(&wish(2, "payout")).unwrap_err().fault, Fault::Corrupt);
        for outcome in [Outcome::Retry, Outcome::Completed(Bytes::new())] {
            assert_eq!(host.settle(&end(&mine, fence, outcome)).unwrap_err().fault, Fault::Corrupt);
        }
        let since = host.now();
        let renewed = host.run(|store| store.renew_record(&mine.hold(fence), since)).unwrap();
        assert_eq!(renewed, Renewed::Gone);
        assert!(!host.mark("payout", LEASE));
        assert_eq!(host.read("payout").unwrap().content, Content::Corrupt);
        assert_eq!(row(&host), before);
    }
    assert!(host.run(|store| store.remove_record(&name("payout"))).unwrap(), "an operator may remove it");
    assert!(host.yours(&mine) > fence);
}

#[test]
fn who_waits_is_told_once_and_not_after_a_restart() {
    let mut host = Host::new();
    let mine = wish(1, "payout");
    let fence = host.yours(&mine);
    for number in [2, 3, 2] {
        host.begin(&Begin { wake: true, ..wish(number, "payout") }).unwrap();
    }
    assert_eq!(host.rows("watcher"), 2);
    host.settle(&end(&mine, fence, Outcome::Retry)).unwrap();
    assert_eq!(host.hints, ["2@engine", "3@engine"]);
    assert_eq!(host.rows("watcher"), 0);
    let fence = host.yours(&mine);
    host.begin(&Begin { wake: true, ..wish(2, "payout") }).unwrap();
    host.restart(LEASE);
    let next = wish(4, "payout");
    assert!(host.yours(&next) > fence);
    host.run(|store| store.remove_record(&name("payout"))).unwrap();
    assert!(host.hints.is_empty(), "its process is gone");
}

#[test]
fn watchers_are_bounded_and_those_that_are_gone_are_swept() {
    let mut host = Host::new();
    host.yours(&wish(1, "payout"));
    let many = "INSERT INTO watcher SELECT 'payout', printf('%032x', value + 100), 'this boot', ?1, 'engine' \
                FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT ?2) SELECT value FROM n)";
    host.db.execute(many, params![i64::MAX, WAITERS_MAX - 1]).unwrap();
    for number in [2, 3] {
        let begun = host.begin(&Begin { wake: true, ..wish(number, "payout") }).unwrap();
        assert!(matches!(begun, Begun::Running { .. }), "too many watchers are no reason to fail");
    }
    assert_eq!(host.rows("watcher"), i64::from(WAITERS_MAX));
    host.db.execute("UPDATE watcher SET live_until = 0", []).unwrap();
    host.yours(&wish(1, "other"));
    host.begin(&Begin { wake: true, ..wish(2, "other") }).unwrap();
    assert_eq!(host.rows("watcher"), i64::from(WAITERS_MAX) - 4 + 1);
}
