//! Which locks are shown, and in which order (pure).

use std::{cmp::Reverse, time::Duration};

use leasehold::Name;

use super::seen::{Lock, Seen, label};
use crate::view::State;

/// What the locks are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    /// Most waiters first.
    Waiting,
    /// Longest held first.
    Age,
    /// Soonest first.
    Expires,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::Waiting,
            Self::Waiting => Self::Age,
            Self::Age => Self::Expires,
            Self::Expires => Self::Name,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Waiting => "waiting",
            Self::Age => "age",
            Self::Expires => "expires",
        }
    }
}

/// The names to show. A filter is a part of the name, of a holder's label or host, or the word for the state.
pub(super) fn order(seen: &Seen, sort: Sort, filter: &str) -> Vec<Name> {
    let filter = filter.to_lowercase();
    let at = seen.at().unwrap_or_default();
    let mut rows: Vec<_> = seen.locks().filter(|(name, lock)| matches(name, lock, &filter)).collect();
    // They come by name, and stay so where they are equal.
    match sort {
        Sort::Name => {}
        Sort::Waiting => rows.sort_by_key(|(_, lock)| Reverse(lock.now.waiting)),
        Sort::Age => rows.sort_by_key(|(_, lock)| Reverse(lock.held.as_ref().map(|held| held.age(at)))),
        Sort::Expires => rows.sort_by_key(|(_, lock)| {
            let left = lock.now.held().map(|tenure| tenure.expires_in.unwrap_or(Duration::MAX));
            (left.is_none(), left)
        }),
    }
    rows.into_iter().map(|(name, _)| name.clone()).collect()
}

fn matches(name: &Name, lock: &Lock, filter: &str) -> bool {
    if filter.is_empty() || State::of(&lock.now).as_str() == filter {
        return true;
    }
    let holders = lock.now.holders.shown.iter().map(|tenure| tenure.holder.to_string());
    let has = |text: &str| text.to_lowercase().contains(filter);
    has(name.as_str()) || holders.into_iter().any(|holder| has(&holder))
}

/// How many are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) names: usize,
    pub(super) held: usize,
    /// All waiters.
    pub(super) waiting: u64,
    /// Held with less than a fifth of the ttl left.
    pub(super) expiring: usize,
}

pub(super) fn count(seen: &Seen) -> Counts {
    seen.locks().fold(Counts::default(), |counts, (_, lock)| Counts {
        names: counts.names + 1,
        held: counts.held + usize::from(lock.held.is_some()),
        waiting: counts.waiting + u64::from(lock.now.waiting),
        expiring: counts.expiring + usize::from(is_expiring(lock)),
    })
}

pub(super) fn is_expiring(lock: &Lock) -> bool {
    let left = lock.now.held().and_then(|tenure| tenure.expires_in);
    let ttl = lock.held.as_ref().and_then(|held| held.ttl);
    left.zip(ttl).is_some_and(|(left, ttl)| left * 5 < ttl)
}

/// The first holder as people call it, and how many there are beside it.
pub(super) fn holders(lock: &Lock) -> String {
    match (lock.now.held(), lock.now.holders.total) {
        (None, _) => "-".into(),
        (Some(first), 0 | 1) => label(&first.holder).to_owned(),
        (Some(first), total) => format!("{} +{}", label(&first.holder), total - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::top::samples::{listing, lock};

    fn seen() -> Seen {
        let mut seen = Seen::default();
        seen.update(listing(0, vec![lock("a").held(1, 30), lock("b").waits("w", 2)]));
        let c = lock("c").held(3, 5).waits("w", 1).waits("x", 1);
        seen.update(listing(10, vec![lock("a").held(1, 29), lock("b").waits("w", 12), c]));
        seen
    }

    fn sorted(sort: Sort, filter: &str) -> String {
        order(&seen(), sort, filter).iter().map(Name::as_str).collect()
    }

    #[test]
    fn rows_are_sorted_by_what_was_asked_for() {
        assert_eq!(sorted(Sort::Name, ""), "abc");
        assert_eq!(sorted(Sort::Waiting, ""), "cba");
        assert_eq!(sorted(Sort::Age, ""), "acb");
        assert_eq!(sorted(Sort::Expires, ""), "cab");
        let mut sort = Sort::default();
        for _ in 0..4 {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Name);
    }

    #[test]
    fn a_filter_finds_names_holders_and_states() {
        assert_eq!(sorted(Sort::Name, "C"), "c");
        assert_eq!(sorted(Sort::Name, "Holder 1"), "a");
        assert_eq!(sorted(Sort::Name, "web1"), "ac");
        assert_eq!(sorted(Sort::Name, "waiting"), "b");
        assert_eq!(sorted(Sort::Name, "nothing"), "");
    }

    #[test]
    fn counts_are_those_of_all_names() {
        let counts = count(&seen());
        assert_eq!(counts, Counts { names: 3, held: 2, waiting: 3, expiring: 0 });
        let mut seen = seen();
        seen.update(listing(14, vec![lock("c").held(3, 0)]));
        assert_eq!(count(&seen).expiring, 1);
    }
}
