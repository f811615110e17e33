use std::time::Duration;

use leasehold::{
    Fence, Holder, Mode, Name,
    engine::{Holders, Tenure, Waiter},
};

use super::{tenures::EndKind, *};

fn holder(label: &str) -> Holder {
    Holder::parse(&format!("{:032x} 5 7 web1 {label}", 1))
}

/// Name, holder with fence and the seconds it has left, who waits.
fn lock(name: &str, held: Option<(&str, u64, u64)>, waiters: &[&str]) -> Inspection {
    let name = Name::new(name).unwrap();
    let tenure = held.map(|(label, fence, left)| Tenure {
        holder: holder(label),
        fence: Fence::new(fence),
        mode: Mode::Exclusive,
        expires_in: Some(Duration::from_secs(left)),
    });
    let waiters: Vec<_> = waiters
        .iter()
        .map(|label| Waiter {
            holder: holder(label),
            mode: Mode::Exclusive,
            waiting_for: Duration::from_secs(60),
        })
        .collect();
    Inspection {
        holders: Holders::from(tenure),
        waiting: waiters.len() as u32,
        waiters,
        ..Inspection::unused(name)
    }
}

fn record(history: &History, at_s: u64, locks: &[Inspection]) -> Found {
    history.record(at_s * 1000, locks, false, &Stats::default())
}

#[test]
fn a_tenure_ends_as_it_looks_from_outside() {
    let history = History::new(0);
    record(&history, 1, &[lock("a", Some(("one", 1, 30)), &[]), lock("b", Some(("one", 2, 1)), &[])]);
    record(&history, 3, &[lock("a", Some(("one", 1, 30)), &[])]);
    record(&history, 5, &[lock("a", Some(("two", 3, 30)), &[])]);
    history.forced("a", 3);
    record(&history, 7, &[]);
    let ends = |name| history.tenures_of(name, 10).0.into_iter().map(|row| row.ended).collect::<Vec<_>>();
    assert_eq!(ends("b"), [Some(EndKind::Expired)]);
    assert_eq!(ends("a"), [Some(EndKind::Forced), Some(EndKind::HandedOver)], "newest first");
    let first = history.tenures_of("a", 10).0.pop().unwrap();
    assert_eq!((first.from_ms, first.to_ms, first.renewals), (1000, Some(5000), 1));
    assert_eq!(history.totals().lost_1h, 2);
}

#[test]
fn a_row_is_sent_when_something_but_time_has_changed() {
    let history = History::new(0);
    let held = |left| [lock("a", Some(("one", 1, left)), &[])];
    let names = |found: Found| {
        let changed = found.changed.unwrap_or_default();
        (changed.changed.into_iter().map(|row| row.name).collect::<Vec<_>>(), changed.removed)
    };
    let (a, none) = (vec!["a".to_owned()], Vec::new());
    assert_eq!(names(record(&history, 1, &held(30))), (a.clone(), none.clone()));
    assert_eq!(names(record(&history, 3, &held(28))), (none.clone(), none.clone()), "only older");
    assert_eq!(names(record(&history, 5, &held(30))), (a.clone(), none.clone()), "renewed");
    assert_eq!(names(record(&history, 7, &[])), (none, a));
}

#[test]
fn those_who_wait_are_counted_for_their_holder() {
    let history = History::new(0);
    let locks = [lock("a", Some(("report", 1, 30)), &["import", "import", "mail"])];
    record(&history, 10, &locks);
    record(&history, 12, &locks);
    let pairs = history.pairs(|_| true, 10);
    let first = &pairs[0];
    assert_eq!((&*first.holder, &*first.waiter, first.waiting_now), ("report", "import", 2));
    assert_eq!((first.waiter_ms, first.longest_ms), (4_000, 60_000));
    assert_eq!(pairs[1].waiter, "mail");
    assert_eq!(pairs[1].episodes, 1, "the same attempt is one episode");
}

#[test]
fn an_outage_is_news_once() {
    let history = History::new(0);
    assert!(history.unreachable(5, "gone".into()).is_some_and(|reach| reach.since_ms == 5));
    assert!(history.unreachable(6, "gone".into()).is_none());
    assert!(record(&history, 1, &[]).reach.is_some_and(|reach| reach.reachable));
}
