//! What was seen of the locks (pure): who has them since when, who waited for whom, and which are hot. The store keeps no
//! history, so nothing from before the first listing is known.

use std::{collections::BTreeMap, mem, time::Duration};

use leasehold::{
    Fence, Holder, Inspection, Name,
    engine::{Tenure, Waiter},
};

/// Most names and pairs whose sums are kept. Of more, those with the smallest are forgotten.
const HOT_MAX: usize = 10_000;
const WAITS_MAX: usize = 1_000;
/// Names listed of one pair.
const NAMES_OF_WAITS: usize = 5;
/// A lease that was not renewed has less time left by as much as has passed; servers round by less than this.
const ROUNDING: Duration = Duration::from_millis(50);

/// All locks at about one moment. Times count from the start of the program.
pub(super) struct Listing {
    pub(super) locks: Vec<Inspection>,
    /// More names are in use than were listed.
    pub(super) more: bool,
    pub(super) began: Duration,
    pub(super) ended: Duration,
}

#[derive(Default)]
pub(super) struct Seen {
    locks: BTreeMap<Name, Lock>,
    hot: BTreeMap<Name, Heat>,
    waits: BTreeMap<Pair, Waits>,
    /// When the last listing began and ended.
    last: Option<(Duration, Duration)>,
    pub(super) more: bool,
}

/// A lock in use, and what was seen of its first holder.
pub(super) struct Lock {
    pub(super) now: Inspection,
    pub(super) held: Option<Held>,
}

/// One tenure, as far as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    fence: Fence,
    holder: Holder,
    since: Duration,
    /// It was there at the first listing, so it is older than it looks.
    pub(super) is_older: bool,
    /// The most time it had left: as near to its ttl as was seen.
    pub(super) ttl: Option<Duration>,
    left: Option<Duration>,
    /// How often it was seen renewed.
    pub(super) renewals: u32,
}

/// What happened to one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heat {
    pub(super) acquisitions: u64,
    /// Of all waiters together.
    pub(super) waited: Duration,
    pub(super) waiters_max: u32,
}

/// Label of the holder, label of the waiter.
pub(super) type Pair = (String, String);

/// How one waited for the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) waited: Duration,
    pub(super) longest: Duration,
    pub(super) episodes: u64,
    pub(super) waiting_now: u32,
    /// Some of the locks.
    pub(super) names: Vec<Name>,
}

/// The times that matter between two listings.
#[derive(Clone, Copy)]
struct Step {
    is_first: bool,
    at: Duration,
    /// From the end of the last one to the start of this: a lease lost at least so much.
    least: Duration,
    /// From end to end.
    elapsed: Duration,
}

impl Seen {
    pub(super) fn update(&mut self, listing: Listing) {
        let step = Step {
            is_first: self.last.is_none(),
            at: listing.ended,
            least: self.last.map_or(Duration::ZERO, |(_, ended)| listing.began.saturating_sub(ended)),
            elapsed: self.last.map_or(Duration::ZERO, |(_, ended)| listing.ended.saturating_sub(ended)),
        };
        self.waits.values_mut().for_each(|waits| waits.waiting_now = 0);
        let mut before = mem::take(&mut self.locks);
        for now in listing.locks {
            let was = before.remove(&now.name);
            self.add_heat(was.as_ref(), &now, step);
            self.add_waits(was.as_ref(), &now, step);
            let last = was.and_then(|was| was.held);
            let held = now.held().map(|tenure| Held::next(tenure, last, step));
            self.locks.insert(now.name.clone(), Lock { now, held });
        }
        forget(&mut self.hot, HOT_MAX, |heat| (heat.waited, heat.acquisitions));
        forget(&mut self.waits, WAITS_MAX, |waits| (waits.waited, waits.episodes));
        self.last = Some((listing.began, listing.ended));
        self.more = listing.more;
    }

    fn add_heat(&mut self, was: Option<&Lock>, now: &Inspection, step: Step) {
        let is_new = |tenure: &&Tenure| {
            let of = |was: &Tenure| (was.fence, &was.holder) == (tenure.fence, &tenure.holder);
            !was.is_some_and(|was| was.now.holders.shown.iter().any(of))
        };
        // One that moved up on a list that was cut looks like a newcomer.
        let is_complete = was.is_none_or(|was| was.now.holders.is_complete());
        let acquisitions = match step.is_first || !is_complete {
            true => 0,
            false => now.holders.shown.iter().filter(is_new).count() as u64,
        };
        if acquisitions == 0 && now.waiting == 0 {
            return;
        }
        let unlisted = now.waiting.saturating_sub(now.waiters.len() as u32);
        let listed: Duration = now.waiters.iter().map(|waiter| waiter.waiting_for.min(step.elapsed)).sum();
        let heat = self.hot.entry(now.name.clone()).or_default();
        heat.acquisitions += acquisitions;
        heat.waited += listed + step.elapsed * unlisted;
        heat.waiters_max = heat.waiters_max.max(now.waiting);
    }

    /// Who waits is counted to the first holder.
    fn add_waits(&mut self, was: Option<&Lock>, now: &Inspection, step: Step) {
        let Some(tenure) = now.held() else { return };
        let was = was.filter(|was| was.held.as_ref().is_some_and(|held| held.is_of(tenure)));
        for (place, waiter) in now.waiters.iter().enumerate() {
            let pair = (label(&tenure.holder).to_owned(), label(&waiter.holder).to_owned());
            let waits = self.waits.entry(pair).or_default();
            waits.waited += waiter.waiting_for.min(step.elapsed);
            waits.longest = waits.longest.max(waiter.waiting_for);
            waits.episodes += u64::from(!was.is_some_and(|was| was.has_waiter(place, waiter)));
            waits.waiting_now += 1;
            if waits.names.len() < NAMES_OF_WAITS && !waits.names.contains(&now.name) {
                waits.names.push(now.name.clone());
            }
        }
    }

    pub(super) fn locks(&self) -> impl Iterator<Item = (&Name, &Lock)> {
        self.locks.iter()
    }

    pub(super) fn lock(&self, name: &Name) -> Option<&Lock> {
        self.locks.get(name)
    }

    /// When the last listing was complete.
    pub(super) fn at(&self) -> Option<Duration> {
        self.last.map(|(_, ended)| ended)
    }

    /// The names that were waited for most.
    pub(super) fn hottest(&self, most: usize) -> Vec<(&Name, Heat)> {
        let mut hot: Vec<_> = self.hot.iter().map(|(name, heat)| (name, *heat)).collect();
        hot.sort_by_key(|(_, heat)| std::cmp::Reverse((heat.waited, heat.acquisitions)));
        hot.truncate(most);
        hot
    }

    /// The pairs that waited most.
    pub(super) fn longest_waits(&self, most: usize) -> Vec<(&Pair, &Waits)> {
        let mut waits: Vec<_> = self.waits.iter().collect();
        waits.sort_by_key(|(_, waits)| std::cmp::Reverse((waits.waited, waits.episodes)));
        waits.truncate(most);
        waits
    }
}

impl Lock {
    /// Those who stay in line move up, seldom by much.
    fn has_waiter(&self, place: usize, waiter: &Waiter) -> bool {
        let known = &self.now.waiters;
        known.get(place).is_some_and(|known| known.holder == waiter.holder)
            || known.iter().any(|known| known.holder == waiter.holder)
    }
}

impl Held {
    fn next(tenure: &Tenure, last: Option<Self>, step: Step) -> Self {
        let left = tenure.expires_in;
        let Some(last) = last.filter(|last| last.is_of(tenure)) else {
            let (fence, holder) = (tenure.fence, tenure.holder.clone());
            return Self {
                fence,
                holder,
                since: step.at,
                is_older: step.is_first,
                ttl: left,
                left,
                renewals: 0,
            };
        };
        let unrenewed = last.left.map(|left| left.saturating_sub(step.least) + ROUNDING);
        let renewed = unrenewed.zip(left).is_some_and(|(unrenewed, left)| left > unrenewed);
        Self { ttl: last.ttl.max(left), left, renewals: last.renewals + u32::from(renewed), ..last }
    }

    fn is_of(&self, tenure: &Tenure) -> bool {
        (self.fence, &self.holder) == (tenure.fence, &tenure.holder)
    }

    /// For how long it has been seen.
    pub(super) fn age(&self, at: Duration) -> Duration {
        at.saturating_sub(self.since)
    }
}

/// What people call a holder: its label, or its host if it has none.
pub(super) fn label(holder: &Holder) -> &str {
    match holder {
        Holder::Leasehold { host, label, .. } if label.is_empty() => host,
        Holder::Leasehold { label, .. } => label,
        _ => "another library",
    }
}

/// Keeps half of what is too much: what has the largest sums.
fn forget<K: Ord + Clone, V, S: Ord>(sums: &mut BTreeMap<K, V>, most: usize, sum: impl Fn(&V) -> S) {
    if sums.len() <= most {
        return;
    }
    let mut by_sum: Vec<_> = sums.iter().map(|(key, value)| (sum(value), key.clone())).collect();
    by_sum.sort_unstable_by(|a, b| b.cmp(a));
    for (_, key) in by_sum.split_off(most / 2) {
        sums.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::top::samples::{listing, lock, name, secs};

    #[test]
    fn a_tenure_is_as_old_as_it_was_seen_and_counts_its_renewals() {
        let mut seen = Seen::default();
        seen.update(listing(0, vec![lock("a").held(1, 30)]));
        seen.update(listing(10, vec![lock("a").held(1, 20), lock("b").held(2, 30)]));
        seen.update(listing(20, vec![lock("a").held(1, 29), lock("b").held(2, 20)]));
        let held = |of: &str| seen.lock(&name(of)).unwrap().held.clone().unwrap();
        assert_eq!((held("a").age(secs(20)), held("a").is_older), (secs(20), true));
        assert_eq!((held("b").age(secs(20)), held("b").is_older), (secs(10), false));
        assert_eq!((held("a").renewals, held("b").renewals), (1, 0));
        assert_eq!(held("a").ttl, Some(secs(30)));
        seen.update(listing(30, vec![lock("a").held(7, 30)]));
        let next = seen.lock(&name("a")).unwrap().held.clone().unwrap();
        assert_eq!((next.age(secs(30)), next.renewals), (secs(0), 0));
    }

    #[test]
    fn a_listing_that_takes_long_is_no_renewal() {
        let mut seen = Seen::default();
        // Asked for at the end of the first listing and at the start of the second: one second has passed.
        for (began, ended, left) in [(0, 10, 30), (11, 20, 29)] {
            let locks = listing(0, vec![lock("a").held(1, left)]).locks;
            seen.update(Listing { locks, more: false, began: secs(began), ended: secs(ended) });
        }
        assert_eq!(seen.lock(&name("a")).unwrap().held.as_ref().unwrap().renewals, 0);
    }

    #[test]
    fn hot_names_are_those_that_were_waited_for() {
        let mut seen = Seen::default();
        seen.update(listing(0, vec![lock("a").held(1, 30).waits("w", 5)]));
        seen.update(listing(
            10,
            vec![lock("a").held(2, 30).waits("w", 15).waits("x", 4), lock("b").held(3, 30)],
        ));
        let hot = seen.hottest(10);
        let a = Heat { acquisitions: 1, waited: secs(14), waiters_max: 2 };
        let b = Heat { acquisitions: 1, ..Heat::default() };
        assert_eq!(hot, [(&name("a"), a), (&name("b"), b)]);
        assert_eq!(seen.hottest(1).len(), 1);
    }

    #[test]
    fn an_episode_is_one_waiter_behind_one_tenure() {
        let mut seen = Seen::default();
        let at = |seconds, fence, waiters: &[&str]| {
            let held = lock("a").held(fence, 30);
            listing(seconds, vec![waiters.iter().fold(held, |lock, label| lock.waits(label, seconds + 1))])
        };
        seen.update(at(0, 1, &["w"]));
        seen.update(at(10, 1, &["w"]));
        let of = |seen: &Seen, holder: &str| seen.waits[&(holder.to_owned(), "w".to_owned())].clone();
        let first = of(&seen, "holder 1");
        assert_eq!((first.episodes, first.waited, first.longest), (1, secs(10), secs(11)));
        assert_eq!((first.waiting_now, &first.names[..]), (1, &[name("a")][..]));
        seen.update(at(20, 2, &["w"]));
        assert_eq!((of(&seen, "holder 1").waiting_now, of(&seen, "holder 2").episodes), (0, 1));
        seen.update(at(30, 2, &[]));
        seen.update(at(40, 2, &["w"]));
        assert_eq!((of(&seen, "holder 2").episodes, of(&seen, "holder 2").waiting_now), (2, 1));
    }

    #[test]
    fn what_is_too_much_is_forgotten_beginning_with_the_least() {
        let mut sums: BTreeMap<_, _> = (0..11).map(|number| (number, number)).collect();
        forget(&mut sums, 10, |sum| *sum);
        assert_eq!(sums.into_keys().collect::<Vec<_>>(), [6, 7, 8, 9, 10]);
    }
}
