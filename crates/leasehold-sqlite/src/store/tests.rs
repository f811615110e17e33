//! The operations with hand-set time.

mod fences;

use super::*;
use crate::tests::host::{Host, WALL_US};
use leasehold_core::{
    decide::lock::TURN_MAX,
    engine::{EngineError, Fault, Grant, Holders, Mode, Tenure, WAITERS_MAX, WAITERS_SHOWN, Waiter},
    error::Refusal,
    owner::Holder,
};

const SECOND: u64 = 1_000_000_000;
const DAY_US: u64 = 86_400_000_000;
const TTL: Duration = Duration::from_secs(10);
/// Polls every 5 s: a turn of 2 s, live for 15 s.
const POLL: Duration = Duration::from_secs(5);

impl Host {
    fn claim(&mut self, claim: &Claim) -> Answer {
        let since = self.now() - Duration::from_millis(1);
        self.run(|store| store.claim(claim, since, "engine")).unwrap()
    }

    fn release(&mut self, claim: &Claim) -> Released {
        self.run(|store| store.release(&claim.name, claim.mode, &claim.owner)).unwrap()
    }

    fn renew(&mut self, claim: &Claim) -> Renewed {
        let since = self.now();
        self.run(|store| store.renew(&claim.hold(Fence::new(0)), since)).unwrap()
    }

    fn inspect(&mut self, name: &str) -> Inspection {
        self.run(|store| store.inspect(&Name::new(name).unwrap())).unwrap()
    }
}

/// The attempt `number`, which waits for a minute.
fn waiting(number: u128) -> Claim {
    let holder =
        Holder::Leasehold { host: "host".into(), pid: 1, since_ms: 0, label: format!("attempt {number}") };
    Claim {
        name: Name::new("deal").unwrap(),
        owner: Owner::new(number, &holder),
        ttl: TTL,
        format: leasehold_core::engine::Format::Plain,
        lock_delay: Duration::ZERO,
        mode: Mode::Exclusive,
        queue: Some(leasehold_core::engine::Queue { wait: Duration::from_secs(60), poll_every: POLL }),
        acks: leasehold_core::engine::Acks::None,
    }
}

/// The attempt `number`, which does not wait.
fn trying(number: u128) -> Claim {
    Claim { queue: None, ..waiting(number) }
}

fn named(name: &str, claim: Claim) -> Claim {
    Claim { name: Name::new(name).unwrap(), ..claim }
}

fn fence(answer: &Answer) -> u64 {
    match answer {
        Answer::Granted(grant) => grant.fence.get(),
        other => panic!("expected a grant, got {other:?}"),
    }
}

fn ahead(answer: &Answer) -> u32 {
    match answer {
        Answer::Queued { ahead, .. } => *ahead,
        other => panic!("expected a place in the queue, got {other:?}"),
    }
}

fn is_busy(answer: &Answer) -> bool {
    matches!(answer, Answer::Busy { .. })
}

#[test]
fn a_free_lock_is_granted_from_before_the_claim_set_out() {
    let mut host = Host::new();
    let since = host.now() - Duration::from_millis(1);
    match host.claim(&trying(1)) {
        Answer::Granted(grant) => {
            assert_eq!(grant, Grant { fence: Fence::new(WALL_US), since, ttl: TTL, acks: 0 });
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_held_lock_is_busy_and_says_who_and_for_how_long() {
    let mut host = Host::new();
    host.claim(&trying(1));
    host.pass(Duration::from_secs(4));
    match host.claim(&trying(2)) {
        Answer::Busy { holders } => {
            assert_eq!(holders.first().unwrap().holder, trying(1).owner.holder());
            assert_eq!(holders.free_in, Some(Duration::from_secs(6)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(host.rows("waiter"), 0, "a try leaves no trace");
}

#[test]
fn a_repeated_claim_is_the_same_grant_refreshed() {
    let mut host = Host::new();
    let first = fence(&host.claim(&trying(1)));
    host.pass(Duration::from_secs(9));
    assert_eq!(fence(&host.claim(&trying(1))), first);
    host.pass(Duration::from_secs(9));
    assert!(is_busy(&host.claim(&trying(2))));
}

#[test]
fn a_repeated_claim_keeps_its_place() {
    let mut host = Host::new();
    host.claim(&trying(1));
    assert_eq!(ahead(&host.claim(&waiting(2))), 0);
    assert_eq!(ahead(&host.claim(&waiting(3))), 1);
    assert_eq!(ahead(&host.claim(&waiting(2))), 0);
    assert_eq!(ahead(&host.claim(&waiting(3))), 1);
    assert_eq!(host.inspect("deal").waiting, 2);
}

#[test]
fn waiters_get_the_lock_in_order_of_arrival() {
    let mut host = Host::new();
    let mut last = fence(&host.claim(&waiting(1)));
    for number in 2..=5 {
        host.claim(&waiting(number));
    }
    for number in 1..=4 {
        assert_eq!(host.release(&waiting(number)), Released::handed_over(None));
        assert_eq!(host.hints, [format!("{}@engine", number + 1)], "only the next one is woken");
        let next = fence(&host.claim(&waiting(number + 1)));
        assert!(next > last);
        last = next;
    }
    assert_eq!(host.release(&waiting(5)), Released::Free);
    assert!(host.hints.is_empty());
    assert_eq!(host.rows("waiter"), 0);
}

#[test]
fn a_newcomer_never_overtakes_and_wakes_the_first_in_line() {
    let mut host = Host::new();
    host.claim(&waiting(1));
    host.claim(&waiting(2));
    let _ = host.release(&waiting(1));
    assert!(is_busy(&host.claim(&trying(3))));
    assert_eq!(host.hints, ["2@engine"]);
    assert_eq!(ahead(&host.claim(&waiting(4))), 1);
    assert_eq!(host.hints, ["2@engine"]);
    fence(&host.claim(&waiting(2)));
}

#[test]
fn an_expired_lease_is_free_for_the_first_in_line() {
    let mut host = Host::new();
    let first = fence(&host.claim(&waiting(1)));
    host.pass(Duration::from_secs(1));
    host.claim(&waiting(2));
    host.pass(Duration::from_secs(9));
    assert!(is_busy(&host.claim(&trying(3))));
    assert!(fence(&host.claim(&waiting(2))) > first);
    assert_eq!(host.renew(&waiting(1)), Renewed::Gone);
}

#[test]
fn a_stopped_head_is_passed_over_after_its_turn() {
    let mut host = Host::new();
    host.claim(&waiting(1));
    host.claim(&waiting(2));
    host.claim(&waiting(3));
    host.claim(&waiting(4));
    let _ = host.release(&waiting(1));
    match host.claim(&waiting(3)) {
        Answer::Queued { ahead: 1, holders, .. } => assert_eq!(holders, Holders::none(Some(TURN_MAX))),
        other => panic!("{other:?}"),
    }
    host.pass(TURN_MAX);
    assert_eq!(ahead(&host.claim(&waiting(4))), 2);
    assert_eq!(host.hints, ["2@engine", "3@engine"], "both may claim now");
    fence(&host.claim(&waiting(3)));

    // It let its turn pass once: it costs nobody anything any more, but it is still the first.
    let _ = host.release(&waiting(3));
    assert_eq!(host.hints, ["2@engine", "4@engine"]);
    fence(&host.claim(&waiting(4)));
    assert_eq!(ahead(&host.claim(&waiting(5))), 1);

    // It runs again: it has its turn back.
    assert_eq!(ahead(&host.claim(&waiting(2))), 0);
    let _ = host.release(&waiting(4));
    assert_eq!(host.hints, ["2@engine"]);
    assert_eq!(ahead(&host.claim(&waiting(5))), 1);
    fence(&host.claim(&waiting(2)));
}

#[test]
fn a_newcomer_gets_the_lock_when_everybody_let_their_turn_pass() {
    let mut host = Host::new();
    for number in 1..=3 {
        host.claim(&waiting(number));
    }
    let _ = host.release(&waiting(1));
    host.pass(TURN_MAX * 2 - Duration::from_nanos(1));
    assert!(is_busy(&host.claim(&trying(9))));
    host.pass(Duration::from_nanos(1));
    fence(&host.claim(&trying(9)));
}

#[test]
fn a_head_that_leaves_gives_its_turn_to_the_next() {
    let mut host = Host::new();
    for number in 1..=3 {
        host.claim(&waiting(number));
    }
    let _ = host.release(&waiting(1));
    assert_eq!(host.release(&waiting(2)), Released::Expired);
    assert_eq!(host.hints, ["3@engine"]);
    fence(&host.claim(&waiting(3)));
}

#[test]
fn a_silent_waiter_and_one_out_of_time_do_not_count() {
    let mut host = Host::new();
    let impatient = Claim {
        queue: Some(leasehold_core::engine::Queue { wait: Duration::from_secs(3), poll_every: POLL }),
        ..waiting(3)
    };
    host.claim(&waiting(1));
    host.claim(&waiting(2));
    host.claim(&impatient);
    host.pass(Duration::from_secs(3));
    host.claim(&waiting(1));
    assert_eq!(ahead(&host.claim(&waiting(4))), 1, "one has given up");
    for _ in 0..2 {
        host.pass(Duration::from_secs(6));
        host.claim(&waiting(1));
        host.claim(&waiting(4));
    }
    assert_eq!(ahead(&host.claim(&waiting(4))), 0, "and one has been silent for three polls");
    let _ = host.release(&waiting(1));
    assert_eq!(host.hints, ["4@engine"]);
    assert_eq!(host.inspect("deal").waiting, 1);
}

#[test]
fn a_time_limit_counts_from_the_arrival_and_not_from_the_last_poll() {
    let mut host = Host::new();
    host.claim(&Claim { ttl: Duration::from_secs(300), ..waiting(1) });
    for _ in 0..12 {
        host.claim(&waiting(2));
        host.pass(Duration::from_secs(5));
    }
    host.claim(&waiting(2));
    assert_eq!(host.inspect("deal").waiting, 0);
}

#[test]
fn a_lock_delay_keeps_an_expired_lock_closed_but_not_a_released_one() {
    let mut host = Host::new();
    let delayed = Claim { lock_delay: Duration::from_secs(5), ..trying(1) };
    host.claim(&delayed);
    host.pass(Duration::from_secs(14));
    assert!(is_busy(&host.claim(&trying(2))));
    host.pass(Duration::from_secs(1));
    fence(&host.claim(&trying(2)));
    let _ = host.release(&trying(2));
    host.claim(&delayed);
    assert_eq!(host.release(&delayed), Released::Free);
    fence(&host.claim(&trying(2)));
}

#[test]
fn a_renewal_extends_and_never_resurrects() {
    let mut host = Host::new();
    host.claim(&trying(1));
    host.pass(Duration::from_secs(9));
    assert_eq!(host.renew(&trying(1)), Renewed::Kept { since: host.now(), link: None });
    host.pass(Duration::from_secs(9));
    assert!(is_busy(&host.claim(&trying(2))));
    assert_eq!(host.renew(&trying(2)), Renewed::Gone);
    host.pass(Duration::from_secs(1));
    assert_eq!(host.renew(&trying(1)), Renewed::Gone, "expired, though nobody has taken it");
    assert_eq!(host.inspect("deal").held(), None);
}

#[test]
fn a_release_says_how_it_ended() {
    let mut host = Host::new();
    assert_eq!(host.release(&trying(1)), Released::Expired);
    host.claim(&trying(1));
    assert_eq!(host.release(&trying(1)), Released::Free);
    assert_eq!(host.release(&trying(1)), Released::Expired);
    host.claim(&trying(1));
    host.pass(TTL);
    assert_eq!(host.release(&trying(1)), Released::Expired);
    let by = Fence::new(fence(&host.claim(&trying(2))));
    assert_eq!(host.release(&trying(1)), Released::Taken { by: Some(by) });
    host.claim(&waiting(3));
    assert_eq!(host.release(&trying(2)), Released::handed_over(None));
}

#[test]
fn a_forced_release_compares_the_fence_it_saw() {
    let mut host = Host::new();
    let deal = Name::new("deal").unwrap();
    let force =
        |host: &mut Host, seen| host.run(|store| store.force_release(&deal, Fence::new(seen))).unwrap();
    assert_eq!(force(&mut host, 1), Released::Expired);
    let held = fence(&host.claim(&trying(1)));
    assert_eq!(force(&mut host, held - 1), Released::Taken { by: Some(Fence::new(held)) });
    assert_eq!(host.renew(&trying(1)), Renewed::Kept { since: host.now(), link: None });
    assert_eq!(force(&mut host, held), Released::Free);
    assert_eq!(host.renew(&trying(1)), Renewed::Gone);
    assert!(fence(&host.claim(&trying(2))) > held, "a forced release does not reset the fence");
}

#[test]
fn the_number_of_waiters_is_bounded() {
    let mut host = Host::new();
    host.claim(&waiting(1));
    host.claim(&waiting(2));
    host.db
        .execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
             INSERT INTO waiter (name, owner, boot, arrived, give_up, live_until, turn, wake) \
             SELECT name, printf('f%031x other', i), boot, arrived, give_up, live_until, turn, wake FROM waiter, n",
            [WAITERS_MAX - 1],
        )
        .unwrap();
    let since = host.now();
    let refused = EngineError::from(host.run(|store| store.claim(&waiting(3), since, "engine")).unwrap_err());
    assert_eq!(refused.fault, Fault::Overloaded);
    assert_eq!(ahead(&host.claim(&waiting(2))), 0, "those who wait already are not refused");
    let shown = host.inspect("deal");
    assert_eq!((shown.waiters.len() as u32, shown.waiting), (WAITERS_SHOWN, WAITERS_MAX));
}

#[test]
fn inspection_shows_holder_and_waiters_in_order_and_no_secret() {
    let mut host = Host::new();
    let held = fence(&host.claim(&waiting(1)));
    host.claim(&waiting(2));
    host.pass(Duration::from_secs(2));
    host.claim(&waiting(3));
    let shown = host.inspect("deal");
    let holder = |number| waiting(number).owner.holder();
    assert_eq!(
        shown.held(),
        Some(&Tenure {
            holder: holder(1),
            fence: Fence::new(held),
            mode: Mode::Exclusive,
            expires_in: Some(Duration::from_secs(8))
        })
    );
    assert_eq!(
        shown.waiters,
        [
            Waiter { holder: holder(2), mode: Mode::Exclusive, waiting_for: Duration::from_secs(2) },
            Waiter { holder: holder(3), mode: Mode::Exclusive, waiting_for: Duration::ZERO },
        ]
    );
}

#[test]
fn a_scan_pages_through_what_is_in_use() {
    let mut host = Host::new();
    for number in 0..25 {
        host.claim(&named(&format!("deal:{number:02}"), trying(number)));
    }
    host.claim(&named("dealer", trying(90)));
    host.claim(&named("a", trying(91)));
    let _ = host.release(&named("deal:07", trying(7)));
    // Free but waited for counts as in use.
    host.claim(&named("deal:09", waiting(92)));
    let _ = host.release(&named("deal:09", trying(9)));

    let (mut found, mut from, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = host.run(|store| store.scan("deal:", from.clone(), 10)).unwrap();
        assert!(page.items.len() <= 10);
        found.extend(page.items.into_iter().map(|item| item.name.as_str().to_owned()));
        pages += 1;
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    let expected: Vec<_> = (0..25).filter(|n| *n != 7).map(|n| format!("deal:{n:02}")).collect();
    assert_eq!((found, pages), (expected, 3));
}

#[test]
fn a_scan_looks_at_a_bounded_number_of_rows() {
    let mut host = Host::new();
    host.db
        .execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
             INSERT INTO lock (name, fence, owner, boot, closed_until) SELECT printf('free:%06d', i), ?2, NULL, 'this boot', 0 FROM n",
            params![SCAN_ROWS_MAX, WALL_US.cast_signed()],
        )
        .unwrap();
    host.claim(&named("held", trying(1)));
    let first = host.run(|store| store.scan("", None, 10)).unwrap();
    assert!(first.items.is_empty());
    let second = host.run(|store| store.scan("", first.next.clone(), 10)).unwrap();
    assert_eq!((second.items.len(), second.next), (1, None));
}

#[test]
fn counts_are_of_what_is_held_and_waits_now() {
    let mut host = Host::new();
    host.claim(&waiting(1));
    host.claim(&waiting(2));
    host.claim(&named("other", trying(3)));
    assert_eq!(host.run(|store| store.counts()).unwrap(), (2, 1));
    host.pass(Duration::from_secs(60));
    assert_eq!(host.run(|store| store.counts()).unwrap(), (0, 0));
}
