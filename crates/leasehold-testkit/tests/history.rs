//! The checker finds every kind of fault, and nothing in a history without one.

use leasehold::Mode;
use leasehold_testkit::history::{Event, Grant, History, HistoryError, Violation, Write, check};
use proptest::prelude::*;

const NAME: &str = "job";

fn grant(holder: usize, fence: u64, invoked_at: u64, returned_at: u64, valid_until: u64) -> Grant {
    let holder = format!("p{holder}#0");
    Grant { holder, fence, invoked_at, returned_at, valid_until, ..Grant::default() }
}

fn history(grants: Vec<Grant>) -> History {
    History { grants: [(NAME.to_owned(), grants)].into(), ..History::default() }
}

fn register(fences: &[u64]) -> History {
    let write = |fence: &u64| Write { process: "w".into(), fence: *fence, accepted: true };
    History { writes: [(NAME.to_owned(), fences.iter().map(write).collect())].into(), ..History::default() }
}

#[derive(Debug, Clone)]
struct Tenure {
    waited: u64,
    returned_after: u64,
    used: u64,
    left: u64,
    released: bool,
    gap: u64,
    fence_step: u64,
}

prop_compose! {
    fn tenure()(
        waited in 0..50_u64, returned_after in 1..5_u64, used in 1..20_u64, left in 0..20_u64,
        released: bool, gap in 0..5_u64, fence_step in 1..1000_u64,
    ) -> Tenure {
        Tenure { waited, returned_after, used, left, released, gap, fence_step }
    }
}

/// One holder after the other; they may have asked long before, so invocations overlap freely.
fn legal(tenures: &[Tenure]) -> Vec<Grant> {
    let (mut now, mut fence) = (1000, 0);
    let mut grants = Vec::new();
    for (holder, tenure) in tenures.iter().enumerate() {
        fence += tenure.fence_step;
        let invoked_at = now - tenure.waited.min(now);
        let returned_at = now + tenure.returned_after;
        let stopped_at = returned_at + tenure.used;
        let mut granted = grant(holder, fence, invoked_at, returned_at, stopped_at);
        if tenure.released {
            granted.valid_until = stopped_at + tenure.left;
            granted.released_at = Some(stopped_at);
        }
        now = stopped_at + tenure.gap;
        grants.push(granted);
    }
    grants
}

fn events(grants: &[Grant]) -> Vec<Event> {
    grants
        .iter()
        .flat_map(|grant| {
            let process = grant.holder.trim_end_matches("#0").to_owned();
            let (attempt, fence) = (0, grant.fence);
            [
                Some(Event::Invoked {
                    process: process.clone(),
                    attempt,
                    name: NAME.into(),
                    at: grant.invoked_at,
                }),
                Some(Event::Granted {
                    process: process.clone(),
                    attempt,
                    fence,
                    at: grant.returned_at,
                    valid_until: grant.valid_until,
                }),
                grant.released_at.map(|at| Event::Released { process, attempt, at }),
            ]
        })
        .flatten()
        .collect()
}

fn tenures() -> impl Strategy<Value = Vec<Tenure>> {
    prop::collection::vec(tenure(), 2..40)
}

proptest! {
    #[test]
    fn a_legal_history_passes_in_any_order(
        grants in tenures().prop_map(|tenures| legal(&tenures)).prop_shuffle(),
    ) {
        prop_assert_eq!(check(&history(grants)), []);
    }

    #[test]
    fn a_history_survives_its_text(tenures in tenures()) {
        let grants = legal(&tenures);
        let text: String = events(&grants).iter().map(|event| event.to_line() + "\n").collect();
        let mut read = History::from_text(&text).unwrap();
        read.grants.get_mut(NAME).unwrap().sort_by_key(|grant| grant.returned_at);
        prop_assert_eq!(read, history(grants));
    }

    #[test]
    fn acquisitions_without_a_result_never_matter(tenures in tenures(), at in 0..5000_u64) {
        let lost = Event::Invoked { process: "lost".into(), attempt: 0, name: NAME.into(), at };
        let mut events = events(&legal(&tenures));
        events.insert(0, lost);
        let history = History::from_events(events).unwrap();
        prop_assert_eq!(history.unknown, 1);
        prop_assert_eq!(check(&history), []);
    }

    #[test]
    fn a_repeated_fence_is_found(tenures in tenures(), pick: prop::sample::Index) {
        let mut grants = legal(&tenures);
        let index = pick.index(grants.len() - 1);
        grants[index + 1].fence = grants[index].fence;
        let (first, second) = (grants[index].clone(), grants[index + 1].clone());
        let expected = Violation::DuplicateFence { name: NAME.into(), first, second };
        prop_assert!(check(&history(grants)).contains(&expected));
    }

    #[test]
    fn a_fence_that_goes_back_is_found(tenures in tenures(), pick: prop::sample::Index) {
        let mut grants = legal(&tenures);
        let index = pick.index(grants.len() - 1);
        let (earlier, later) = (grants[index].fence, grants[index + 1].fence);
        (grants[index].fence, grants[index + 1].fence) = (later, earlier);
        grants[index + 1].invoked_at = grants[index].returned_at + 1;
        let found = check(&history(grants.clone()));
        let expected = Violation::OutOfOrder {
            name: NAME.into(),
            earlier: grants[index].clone(),
            later: grants[index + 1].clone(),
        };
        prop_assert_eq!(found, [expected]);
    }

    #[test]
    fn a_holder_that_believes_too_long_is_found(tenures in tenures(), pick: prop::sample::Index, extra in 1..50_u64) {
        let mut grants = legal(&tenures);
        let index = pick.index(grants.len() - 1);
        grants[index].released_at = None;
        grants[index].valid_until = grants[index + 1].returned_at + extra;
        let (first, second) = (grants[index].clone(), grants[index + 1].clone());
        let found = check(&history(grants));
        let expected = Violation::Overlap { name: NAME.into(), first, second };
        prop_assert!(found.contains(&expected));
        let only_overlaps = found.iter().all(|found| matches!(found, Violation::Overlap { .. }));
        prop_assert!(only_overlaps);
    }

    #[test]
    fn a_register_that_goes_down_is_found(mut fences in prop::collection::vec(1..1000_u64, 1..40)) {
        fences.sort_unstable();
        prop_assert_eq!(check(&register(&fences)), []);
        fences.push(fences[fences.len() - 1] - 1);
        prop_assert_eq!(check(&register(&fences)).len(), 1);
    }

    #[test]
    fn the_fast_rules_agree_with_the_obvious_ones(
        grants in prop::collection::vec((0..12_u64, 0..20_u64, 1..6_u64, 0..9_u64, prop::option::of(0..9_u64)), 0..8),
    ) {
        let mut grants: Vec<Grant> = grants.iter().enumerate().map(|(holder, (fence, invoked, took, valid, released))| {
            let returned = invoked + took;
            let mut granted = grant(holder, *fence, *invoked, returned, returned + valid);
            granted.released_at = released.map(|after| returned + after);
            granted
        }).collect();
        let end = |grant: &Grant| grant.valid_until.min(grant.released_at.unwrap_or(u64::MAX));
        grants.sort_by_key(|grant| (grant.returned_at, end(grant)));
        let later_ones = |bad: &dyn Fn(&Grant, &Grant) -> bool| {
            (0..grants.len()).filter(|later| grants[..*later].iter().any(|earlier| bad(earlier, &grants[*later]))).count()
        };
        let found = check(&history(grants.clone()));
        let count = |kind: fn(&Violation) -> bool| found.iter().filter(|found| kind(found)).count();
        prop_assert_eq!(
            count(|found| matches!(found, Violation::DuplicateFence { .. })),
            later_ones(&|earlier, later| earlier.fence == later.fence)
        );
        prop_assert_eq!(
            count(|found| matches!(found, Violation::OutOfOrder { .. })),
            later_ones(&|earlier, later| earlier.returned_at < later.invoked_at && earlier.fence > later.fence)
        );
        prop_assert_eq!(
            count(|found| matches!(found, Violation::Overlap { .. })),
            later_ones(&|earlier, later| later.returned_at < end(earlier).min(end(later)))
        );
    }

    #[test]
    fn any_text_survives_a_line(process in ".*", name in ".*", fence: u64, at: u64, accepted: bool) {
        for event in [
            Event::Invoked { process: process.clone(), attempt: at, name: name.clone(), at },
            Event::Granted { process: process.clone(), attempt: at, fence, at, valid_until: fence },
            Event::Failed { process: process.clone(), attempt: at },
            Event::Renewed { process: process.clone(), attempt: at, valid_until: fence },
            Event::Released { process: process.clone(), attempt: at, at },
            Event::Asked { process: process.clone(), attempt: at, mode: Mode::Shared },
            Event::GivenBack { process: process.clone(), attempt: at, at },
            Event::Limiting { process: process.clone(), attempt: at, name: name.clone(), limit: 3, at },
            Event::Limited { process: process.clone(), attempt: at, at },
            Event::Wrote { process, name, fence, accepted },
        ] {
            let line = event.to_line();
            prop_assert!(!line.contains('\n') && !line.contains('\r'));
            prop_assert_eq!(Event::from_line(&line).unwrap(), event);
        }
    }
}

#[test]
fn names_do_not_disturb_each_other() {
    let mut history = history(vec![grant(1, 7, 0, 10, 100)]);
    history.grants.insert("other".into(), vec![grant(2, 7, 5, 15, 100)]);
    assert_eq!(check(&history), []);
}

#[test]
fn a_refused_write_does_not_count() {
    let mut history = register(&[3, 5]);
    history.writes.get_mut(NAME).unwrap().push(Write { process: "late".into(), fence: 4, accepted: false });
    assert_eq!(check(&history), []);
}

#[test]
fn a_renewal_lengthens_the_tenure() {
    let tenure = |renewal: &str| {
        let text = format!(
            "invoked\ta\t0\tjob\t0\ngranted\ta\t0\t1\t5\t10\n{renewal}\
             invoked\tb\t0\tjob\t2\ngranted\tb\t0\t2\t12\t20\nfailed\tc\t0\n"
        );
        History::from_text(&text.replace("failed", "invoked\tc\t0\tjob\t1\nfailed")).unwrap()
    };
    let short = tenure("");
    assert_eq!((short.granted(), short.failed, check(&short).len()), (2, 1, 0));
    assert!(matches!(check(&tenure("renewed\ta\t0\t15\n"))[..], [Violation::Overlap { .. }]));
}

#[test]
fn violations_name_both_sides() {
    let duplicate = history(vec![grant(1, 7, 0, 10, 11), grant(2, 7, 20, 30, 31)]);
    assert_eq!(check(&duplicate)[0].to_string(), r#""job": fence 7 was granted to p1#0 and to p2#0"#);
    let back = history(vec![grant(1, 7, 0, 10, 11), grant(2, 6, 20, 30, 31)]);
    assert_eq!(
        check(&back)[0].to_string(),
        r#""job": fence 6 of p2#0 was asked for at 20 and is below fence 7 of p1#0, granted before that at 10"#
    );
    let overlap = history(vec![grant(1, 7, 0, 10, 40), grant(2, 8, 20, 30, 50)]);
    assert_eq!(
        check(&overlap)[0].to_string(),
        r#""job": fence 7 of p1#0 overlaps fence 8 of p2#0: [10, 40] and [30, 50]"#
    );
    assert_eq!(
        check(&register(&[5, 4]))[0].to_string(),
        r#""job": the register accepted fence 4 of w after fence 5 of w"#
    );
}

#[test]
fn a_line_without_its_end_is_ignored_and_nonsense_is_not() {
    assert_eq!(History::from_text("invoked\ta\t0\tjob\t0\ngranted\ta\t0\t1").unwrap().unknown, 1);
    for text in ["nonsense\n", "failed\ta\n", "failed\ta\t0\t0\n", "wrote\ta\tjob\t1\tmaybe\n"] {
        assert!(matches!(History::from_text(text), Err(HistoryError::Parse(_))), "{text:?}");
    }
    for text in [
        "granted\ta\t0\t1\t5\t10\n",
        "released\ta\t0\t5\n",
        "invoked\ta\t0\tjob\t0\ninvoked\ta\t0\tjob\t0\n",
        "invoked\ta\t0\tjob\t0\nfailed\ta\t0\ngranted\ta\t0\t1\t5\t10\n",
        "invoked\ta\t0\tjob\t9\ngranted\ta\t0\t1\t5\t10\n",
    ] {
        assert!(matches!(History::from_text(text), Err(HistoryError::OutOfPlace { .. })), "{text:?}");
    }
}
