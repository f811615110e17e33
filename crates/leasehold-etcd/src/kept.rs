//! Leases that many keys share: of what is kept for a time and never ended before, such as results, marks and limits.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use leasehold_core::clock::{BootInstant, Until};

use super::{
    Etcd, Result,
    spare::{StoreLease, seconds_for},
};

/// A shared lease is given out for a second, or for this part of what lasts for hours, and lasts so much longer.
const SHARED_FOR: u32 = 64;
const HOURS: Duration = Duration::from_secs(3600);
const SHARED_MIN: Duration = Duration::from_secs(1);
const SHARED_MAX: Duration = Duration::from_secs(600);
/// Most shared leases that are remembered.
const KEPT_MAX: usize = 64;

/// Shared leases, by how long what is attached to them is kept.
#[derive(Default)]
pub(crate) struct Shared(Mutex<HashMap<Duration, StoreLease>>);

fn shared_for(keep: Duration) -> Duration {
    if keep < HOURS { SHARED_MIN } else { (keep / SHARED_FOR).min(SHARED_MAX) }
}

impl Shared {
    fn get(&self, keep: Duration, now: BootInstant) -> Option<StoreLease> {
        let shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shared.get(&keep).filter(|lease| lease.covers(keep, now)).copied()
    }

    fn set(&self, keep: Duration, lease: StoreLease) {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() >= KEPT_MAX {
            shared.clear();
        }
        shared.insert(keep, lease);
    }

    /// One that turned out to be over: somebody revoked it.
    pub(crate) fn forget(&self, id: i64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, lease| lease.id != id);
    }
}

impl Etcd {
    /// A lease for what is kept this long from now on, and a little longer.
    pub(crate) async fn kept_for(&self, keep: Duration, until: Until) -> Result<i64> {
        if let Some(lease) = self.shared.get(keep, self.clock.now()) {
            return Ok(lease.id);
        }
        let longer = shared_for(keep) - SHARED_MIN;
        let wanted = seconds_for(keep.saturating_add(longer)).min(TTL_MAX);
        let lease = self.grant(wanted, until, |_| ()).await?;
        self.shared.set(keep, lease);
        Ok(lease.id)
    }
}

/// The longest lease that members grant.
const TTL_MAX: i64 = 9_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spare::seconds;

    #[test]
    fn a_shared_lease_is_given_out_while_it_lasts_long_enough() {
        let (shared, at) = (Shared::default(), |secs: u64| BootInstant::from_nanos(secs * 1_000_000_000));
        let keep = Duration::from_secs(640);
        shared.set(keep, StoreLease { id: 1, seconds: 651, since: at(0) });
        assert!(shared.get(keep, at(11)).is_some());
        assert!(shared.get(keep, at(12)).is_none() && shared.get(seconds(641), at(0)).is_none());
        shared.forget(1);
        assert!(shared.get(keep, at(0)).is_none());
    }
}
