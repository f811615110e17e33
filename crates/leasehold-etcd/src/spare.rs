//! Leases of etcd that an attempt can have at once.
//!
//! To grant a lease takes a majority, as a claim does. So a lease whose attempt ended cleanly is kept for the next attempt
//! with the same ttl. One of whose attempt a put may still be on its way is never used again: it is revoked, and the put
//! then fails by itself.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use leasehold_core::clock::BootInstant;

/// Most leases of one ttl, and most ttls.
const SPARES_MAX: usize = 64;
const TTLS_MAX: usize = 16;

/// A lease in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreLease {
    pub(crate) id: i64,
    pub(crate) seconds: i64,
    /// It was granted or renewed after this.
    pub(crate) since: BootInstant,
}

impl StoreLease {
    /// Whether a lease of this length that begins then ends before this one.
    pub(crate) fn covers(&self, lasts: Duration, from: BootInstant) -> bool {
        self.since + seconds(self.seconds) >= from + lasts
    }
}

pub(crate) fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(seconds.unsigned_abs())
}

/// For how many seconds a lease of this length is asked for: whole ones, and one more, so that the store's lease can have
/// begun a little earlier, and lasts a little longer than its holder believes.
pub(crate) fn seconds_for(lasts: Duration) -> i64 {
    let whole = lasts.as_secs() + u64::from(lasts.subsec_nanos() > 0);
    whole.cast_signed().saturating_add(1)
}

/// Leases that nobody uses.
#[derive(Default)]
pub(crate) struct Spares(Mutex<HashMap<i64, Vec<StoreLease>>>);

impl Spares {
    /// One that is granted for so many seconds and has most of its time left.
    pub(crate) fn take(&self, wanted: i64, now: BootInstant) -> Option<StoreLease> {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = spares.get_mut(&wanted)?;
        same.retain(|lease| now.since(lease.since) < seconds(wanted) / 2);
        // The one that was used last has most of its time left.
        same.pop()
    }

    /// Keeps one for the next. Those that are not taken end by themselves.
    pub(crate) fn keep(&self, lease: StoreLease) {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() >= TTLS_MAX && !spares.contains_key(&lease.seconds) {
            spares.clear();
        }
        let same = spares.entry(lease.seconds).or_default();
        if same.len() < SPARES_MAX {
            same.push(lease);
        }
    }

    /// All of them, to be revoked.
    pub(crate) fn drain(&self) -> Vec<StoreLease> {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spares.drain().flat_map(|(_, same)| same).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lasts_longer_than_its_holder_believes() {
        for (ms, whole) in [(50, 2), (1000, 2), (1001, 3), (30_000, 31)] {
            assert_eq!(seconds_for(Duration::from_millis(ms)), whole);
        }
        let lease = StoreLease { id: 1, seconds: 31, since: BootInstant::from_nanos(5_000_000_000) };
        assert!(lease.covers(Duration::from_secs(30), BootInstant::from_nanos(6_000_000_000)));
        assert!(!lease.covers(Duration::from_secs(30), BootInstant::from_nanos(6_000_000_001)));
    }

    #[test]
    fn a_spare_lease_is_used_once_and_not_when_half_of_it_is_over() {
        let (spares, at) = (Spares::default(), |secs: u64| BootInstant::from_nanos(secs * 1_000_000_000));
        let lease = StoreLease { id: 1, seconds: 10, since: at(1) };
        spares.keep(lease);
        assert_eq!(spares.take(11, at(2)), None);
        assert_eq!(spares.take(10, at(2)), Some(lease));
        assert_eq!(spares.take(10, at(2)), None);
        spares.keep(lease);
        assert_eq!(spares.take(10, at(6)), None);
    }
}
