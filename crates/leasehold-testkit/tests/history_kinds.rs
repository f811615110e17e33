//! The rules for readers and writers, permits and leaders: each finds its fault, and nothing in a history without one.

use std::num::NonZeroU32;

use leasehold::Mode;
use leasehold_testkit::history::{Grant, History, HistoryError, Limit, Violation, check};
use proptest::prelude::*;

const NAME: &str = "name";

fn permits(take: u32, of: u32) -> Mode {
    let number = |number| NonZeroU32::new(number).unwrap();
    Mode::Permits { take: number(take), of: number(of) }
}

/// Asked for at once, and released when its validity ends.
fn tenure(mode: Mode, fence: u64, from: u64, until: u64) -> Grant {
    let (holder, released_at) = (format!("p{fence}#0"), Some(until));
    let (invoked_at, returned_at) = (from.saturating_sub(1), from);
    Grant {
        holder,
        mode,
        fence,
        invoked_at,
        returned_at,
        valid_until: until,
        released_at,
        given_back_at: None,
    }
}

/// Asked for long before.
fn waited(grant: Grant) -> Grant {
    Grant { invoked_at: 0, ..grant }
}

fn history(grants: Vec<Grant>) -> History {
    History { grants: [(NAME.to_owned(), grants)].into(), ..History::default() }
}

fn found(grants: Vec<Grant>) -> Vec<Violation> {
    check(&history(grants))
}

fn with_limits(grants: Vec<Grant>, limits: Vec<Limit>) -> Vec<Violation> {
    check(&History { limits: [(NAME.to_owned(), limits)].into(), ..history(grants) })
}

fn limit(limit: u32, asked_at: u64, set_at: u64) -> Limit {
    Limit { limit, asked_at, set_at: Some(set_at) }
}

/// How many permits each violation counted.
fn taken(violations: &[Violation]) -> Vec<(u64, u32)> {
    let number = |violation: &Violation| match violation {
        Violation::TooManyPermits { taken, limit, .. } => (*taken, *limit),
        other => panic!("{other}"),
    };
    violations.iter().map(number).collect()
}

#[test]
fn readers_share_and_writers_do_not() {
    let (reader, writer) = (Mode::Shared, Mode::Exclusive);
    assert_eq!(found(vec![tenure(reader, 1, 10, 50), tenure(reader, 2, 20, 40)]), []);
    for (one, other) in [(reader, writer), (writer, reader), (writer, writer)] {
        assert_eq!(found(vec![tenure(one, 1, 10, 20), tenure(other, 2, 20, 40)]), [], "{one}, then {other}");
        let both = vec![tenure(one, 1, 10, 21), tenure(other, 2, 20, 40)];
        assert!(matches!(found(both)[..], [Violation::Overlap { .. }]), "{one} beside {other}");
    }
    // A short reader does not hide the long one before it.
    let hidden = vec![tenure(reader, 1, 10, 90), tenure(reader, 2, 20, 30), tenure(writer, 3, 40, 50)];
    assert!(matches!(&found(hidden)[..], [Violation::Overlap { first, .. }] if first.fence == 1));
}

#[test]
fn only_readers_that_ask_at_the_same_time_may_have_one_fence() {
    let (reader, writer) = (Mode::Shared, Mode::Exclusive);
    let asked = |mode, from, until| waited(tenure(mode, 1, from, until));
    assert_eq!(found(vec![asked(reader, 10, 50), asked(reader, 20, 40)]), []);
    let one_after_the_other = vec![tenure(reader, 1, 10, 50), tenure(reader, 1, 20, 40)];
    for pair in [vec![asked(writer, 10, 20), asked(reader, 20, 40)], one_after_the_other] {
        let found = found(pair);
        assert!(found.iter().any(|it| matches!(it, Violation::DuplicateFence { .. })), "{found:?}");
    }
}

#[test]
fn a_lock_is_no_semaphore_at_the_same_time() {
    let both = vec![tenure(Mode::Shared, 1, 10, 30), tenure(permits(1, 5), 2, 20, 40)];
    assert!(matches!(found(both)[..], [Violation::Overlap { .. }]));
}

#[test]
fn what_outlives_its_validity_was_not_relied_on() {
    let late = Grant { valid_until: 15, ..tenure(Mode::Exclusive, 1, 10, 50) };
    assert_eq!(found(vec![late, tenure(Mode::Shared, 2, 20, 40)]), []);
    let never = Grant { valid_until: 5, ..tenure(permits(5, 5), 1, 10, 50) };
    assert_eq!(found(vec![never, tenure(permits(5, 5), 2, 20, 40)]), []);
}

#[test]
fn a_reader_s_fence_is_between_those_of_the_writers_around_it() {
    let (reader, writer) = (Mode::Shared, Mode::Exclusive);
    let phases = |fences: [u64; 4]| {
        let [before, one, other, after] = fences;
        // All of them had asked at the beginning, so nothing but their tenures puts them in order.
        found(vec![
            waited(tenure(writer, before, 10, 20)),
            waited(tenure(reader, one, 20, 40)),
            waited(tenure(reader, other, 30, 50)),
            waited(tenure(writer, after, 50, 60)),
        ])
    };
    assert_eq!(phases([1, 2, 3, 4]), []);
    assert_eq!(phases([1, 3, 2, 4]), [], "readers of one phase have no order");
    for (fences, earlier, later) in [([2, 1, 3, 4], 2, 1), ([1, 2, 4, 3], 4, 3), ([4, 5, 6, 3], 6, 3)] {
        let found = phases(fences);
        let expected = |it: &Violation| matches!(it, Violation::OutOfPhase { earlier: e, later: l, .. } if (e.fence, l.fence) == (earlier, later));
        assert!(found.len() == 1 && expected(&found[0]), "{fences:?}: {found:?}");
    }
}

#[test]
fn permits_count_by_their_weight() {
    let two = |fence, from, until| tenure(permits(2, 5), fence, from, until);
    assert_eq!(found(vec![two(1, 10, 50), two(2, 20, 40), tenure(permits(1, 5), 3, 30, 60)]), []);
    let three = found(vec![two(1, 10, 50), two(2, 20, 40), two(3, 30, 60)]);
    assert_eq!(taken(&three), [(6, 5)]);
    assert_eq!(found(vec![two(1, 10, 50), two(2, 20, 40), two(3, 40, 60)]), [], "one came back in time");
    let eleven = (0..11).map(|number| tenure(permits(1, 10), number, 10 + number, 100)).collect();
    assert_eq!(taken(&found(eleven)), [(11, 10)]);
}

#[test]
fn a_lowered_limit_takes_nothing_away_and_admits_nobody() {
    let held = |until| (1..=5).map(move |fence| tenure(permits(1, 5), fence, 10, until)).collect::<Vec<_>>();
    let lowered = vec![limit(3, 20, 25)];
    assert_eq!(with_limits(held(100), lowered.clone()), []);
    let mut grown = held(100);
    grown[4].released_at = Some(30);
    grown[3].released_at = Some(40);
    grown.push(tenure(permits(1, 5), 6, 35, 100));
    assert_eq!(taken(&with_limits(grown.clone(), lowered.clone())), [(5, 3)]);
    // Enough came back.
    grown[2].released_at = Some(40);
    *grown.last_mut().unwrap() = tenure(permits(1, 5), 6, 45, 100);
    assert_eq!(with_limits(grown.clone(), lowered.clone()), []);
    grown.push(tenure(permits(1, 5), 7, 46, 100));
    assert_eq!(taken(&with_limits(grown, lowered)), [(4, 3)]);
}

#[test]
fn a_limit_counts_from_some_time_within_its_call() {
    let five = |fence, asked, from| Grant { invoked_at: asked, ..tenure(permits(5, 5), fence, from, 100) };
    for (asked, from, is_found) in [(5, 15, false), (12, 15, false), (5, 30, false), (20, 30, true)] {
        let found = with_limits(vec![five(1, asked, from)], vec![limit(4, 10, 19)]);
        assert_eq!(!found.is_empty(), is_found, "asked at {asked}, granted at {from}: {found:?}");
    }
    let raised = vec![limit(4, 1, 2), limit(5, 50, 60)];
    assert_eq!(taken(&with_limits(vec![five(1, 30, 40)], raised.clone())), [(5, 4)]);
    assert_eq!(with_limits(vec![five(1, 30, 51)], raised), []);
    // Nobody knows whether it was set, so both numbers are right, however late.
    let unknown = vec![limit(4, 1, 2), Limit { limit: 5, asked_at: 10, set_at: None }];
    assert_eq!(with_limits(vec![five(1, 80, 90)], unknown.clone()), []);
    assert_eq!(with_limits(vec![five(1, 8, 9)], unknown).len(), 1, "it had not been asked for");
}

#[test]
fn terms_do_not_overlap_and_none_ends_before_its_body() {
    let term = |fence, from, until, given_back: u64| Grant {
        given_back_at: Some(given_back),
        ..tenure(Mode::Exclusive, fence, from, until)
    };
    assert_eq!(found(vec![term(1, 10, 20, 21), term(2, 20, 30, 30)]), []);
    let early = found(vec![term(1, 10, 20, 19), term(2, 20, 30, 30)]);
    assert!(matches!(&early[..], [Violation::GivenBackEarly { grant, .. }] if grant.fence == 1), "{early:?}");
    assert!(matches!(found(vec![term(1, 10, 25, 26), term(2, 20, 30, 30)])[..], [Violation::Overlap { .. }]));
    // Given back, and its body has not ended to this day.
    let endless = Grant { released_at: None, ..term(1, 10, 20, 15) };
    assert!(matches!(found(vec![endless])[..], [Violation::GivenBackEarly { .. }]));
    // A leader that was killed neither ended its body nor gave anything back.
    let killed = Grant { released_at: None, given_back_at: None, ..term(1, 10, 20, 0) };
    assert_eq!(found(vec![killed, term(2, 20, 30, 30)]), []);
}

#[test]
fn only_what_a_lost_lease_explains_can_be_excused() {
    let overlap = found(vec![tenure(Mode::Exclusive, 1, 10, 30), tenure(Mode::Shared, 2, 20, 40)]);
    assert_eq!(overlap[0].lost_lease_at(), Some(20));
    let many = found(vec![tenure(permits(2, 3), 1, 10, 30), tenure(permits(2, 3), 2, 20, 40)]);
    assert_eq!(many[0].lost_lease_at(), Some(20));
    let phase =
        found(vec![waited(tenure(Mode::Exclusive, 2, 10, 20)), waited(tenure(Mode::Shared, 1, 30, 40))]);
    assert_eq!(phase[0].lost_lease_at(), Some(30));
    let back = found(vec![tenure(Mode::Exclusive, 2, 10, 20), tenure(Mode::Exclusive, 1, 30, 40)]);
    assert_eq!(back.iter().map(Violation::lost_lease_at).collect::<Vec<_>>(), [None]);
    let early = found(vec![Grant { given_back_at: Some(15), ..tenure(Mode::Exclusive, 1, 10, 20) }]);
    assert_eq!(early[0].lost_lease_at(), None);
}

#[test]
fn modes_limits_and_ends_are_read() {
    let text = "limiting\to\t0\tgpu\t3\t1\nlimited\to\t0\t2\n\
                limiting\to\t1\tgpu\t9\t5\nfailed\to\t1\nlimiting\to\t2\tgpu\t4\t6\n\
                invoked\ta\t1\tgpu\t7\nasked\ta\t1\t2 of 5 permits\ngranted\ta\t1\t7\t10\t100\n\
                given-back\ta\t1\t20\nreleased\ta\t1\t25\n";
    let history = History::from_text(text).unwrap();
    assert_eq!(history.failed, 1);
    let limits = &history.limits["gpu"];
    assert!(limits.len() == 2 && limits.contains(&limit(3, 1, 2)), "{limits:?}");
    assert!(limits.contains(&Limit { limit: 4, asked_at: 6, set_at: None }), "{limits:?}");
    let grant = &history.grants["gpu"][0];
    assert_eq!((grant.mode, grant.released_at, grant.given_back_at), (permits(2, 5), Some(25), Some(20)));
    for text in [
        "asked\ta\t1\tshared\n",
        "given-back\ta\t1\t5\n",
        "limited\to\t0\t2\n",
        "limiting\to\t0\tgpu\t3\t9\nlimited\to\t0\t2\n",
        "invoked\ta\t1\tgpu\t7\ngranted\ta\t1\t7\t10\t100\nasked\ta\t1\tshared\n",
    ] {
        assert!(matches!(History::from_text(text), Err(HistoryError::OutOfPlace { .. })), "{text:?}");
    }
    assert!(matches!(History::from_text("asked\ta\t1\tsometimes\n"), Err(HistoryError::Parse(_))));
}

prop_compose! {
    fn any_grant()(
        mode in prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared), (1..4_u32).prop_map(|take| permits(take, 5))],
        invoked_at in 0..20_u64, took in 1..6_u64, valid in 0..9_u64, released in prop::option::of(0..9_u64),
        fence in 0..12_u64,
    ) -> Grant {
        let returned_at = invoked_at + took;
        let (valid_until, released_at) = (returned_at + valid, released.map(|after| returned_at + after));
        Grant { mode, fence, invoked_at, returned_at, valid_until, released_at, ..Grant::default() }
    }
}

prop_compose! {
    fn any_limit()(limit in 3..8_u32, asked_at in 1..25_u64, took in prop::option::of(0..6_u64)) -> Limit {
        Limit { limit, asked_at, set_at: took.map(|took| asked_at + took) }
    }
}

fn end(grant: &Grant) -> u64 {
    grant.valid_until.min(grant.released_at.unwrap_or(u64::MAX))
}

/// The grants that were relied on, each with a fence of its own, in the order in which they returned.
fn relied_on(mut grants: Vec<Grant>) -> Vec<Grant> {
    grants.retain(|grant| grant.returned_at < end(grant));
    grants.sort_by_key(|grant| (grant.returned_at, end(grant)));
    for (number, grant) in grants.iter_mut().enumerate() {
        (grant.holder, grant.fence) = (number.to_string(), grant.fence * 100 + number as u64);
    }
    grants
}

proptest! {
    #[test]
    fn the_fast_rules_agree_with_the_obvious_ones(
        grants in prop::collection::vec(any_grant(), 0..9),
        limits in prop::collection::vec(any_limit(), 0..5),
    ) {
        let grants = relied_on(grants);
        let found = with_limits(grants.clone(), limits.clone());
        let count = |kind: fn(&Violation) -> bool| found.iter().filter(|found| kind(found)).count();
        let excludes = |one: &Grant, other: &Grant| {
            one.mode == Mode::Exclusive || one.mode.as_str() != other.mode.as_str()
        };
        let later_ones = |is_wrong: &dyn Fn(&Grant, &[Grant]) -> bool| {
            (0..grants.len()).filter(|later| is_wrong(&grants[*later], &grants[..*later])).count()
        };
        prop_assert_eq!(
            count(|found| matches!(found, Violation::Overlap { .. })),
            later_ones(&|later, before| {
                before.iter().any(|earlier| excludes(earlier, later) && later.returned_at < end(earlier))
            })
        );
        prop_assert_eq!(
            count(|found| matches!(found, Violation::OutOfPhase { .. })),
            later_ones(&|later, before| {
                let over = before.iter().filter(|it| excludes(it, later) && end(it) <= later.returned_at);
                let highest = over.max_by_key(|earlier| earlier.fence);
                highest.is_some_and(|it| it.fence > later.fence && it.returned_at >= later.invoked_at)
            })
        );
        let first = grants.iter().find(|grant| grant.mode.permits() > 0).map(|_| 5);
        let may_be_set = |limit: &Limit, from: u64, until: u64| {
            let replaced_by = limits.iter().filter(|next| limit.set_at.is_some_and(|at| at < next.asked_at));
            let replaced_at = replaced_by.filter_map(|next| next.set_at).min();
            limit.asked_at <= until && replaced_at.is_none_or(|at| from <= at)
        };
        let named = first.map(|limit| Limit { limit, asked_at: 0, set_at: Some(0) });
        prop_assert_eq!(
            count(|found| matches!(found, Violation::TooManyPermits { .. })),
            later_ones(&|later, before| {
                let beside = before.iter().filter(|earlier| later.returned_at < end(earlier));
                let taken: u32 = beside.map(|earlier| earlier.mode.permits()).sum();
                let possible = limits.iter().chain(&named);
                let possible = possible.filter(|limit| may_be_set(limit, later.invoked_at, later.returned_at));
                let highest = possible.map(|limit| limit.limit).max();
                later.mode.permits() > 0 && highest.is_some_and(|most| taken + later.mode.permits() > most)
            })
        );
    }
}
