//! Locks for the tests of the model and of the view.

use std::time::Duration;

use leasehold::{
    Fence, Holder, Inspection, Mode, Name,
    engine::{Holders, Tenure, Waiter},
};

use super::seen::Listing;

pub(super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// A listing that took no time, at this second.
pub(super) fn listing(second: u64, locks: Vec<Sample>) -> Listing {
    let locks = locks.into_iter().map(|sample| sample.0).collect();
    Listing { locks, more: false, began: secs(second), ended: secs(second) }
}

pub(super) struct Sample(pub(super) Inspection);

pub(super) fn lock(of: &str) -> Sample {
    Sample(Inspection::unused(name(of)))
}

fn holder(label: &str) -> Holder {
    Holder::Leasehold { host: "web1".into(), pid: 7, since_ms: 1_700_000_000_000, label: label.into() }
}

impl Sample {
    /// Held under this fence for so many seconds more, by a holder called after its last digits.
    pub(super) fn held(self, fence: u64, left: u64) -> Self {
        self.held_as(Mode::Exclusive, fence, left)
    }

    pub(super) fn held_as(mut self, mode: Mode, fence: u64, left: u64) -> Self {
        let held = Tenure {
            holder: holder(&format!("holder {}", fence % 1_000)),
            fence: Fence::new(fence),
            mode,
            expires_in: Some(secs(left)),
        };
        let mut shown = std::mem::take(&mut self.0.holders.shown);
        shown.push(held);
        self.0.holders = Holders { total: shown.len() as u32, shown, free_in: Some(secs(left)) };
        self.0.limit = match mode {
            Mode::Permits { of, .. } => Some(of),
            _ => None,
        };
        self
    }

    pub(super) fn waits(mut self, label: &str, seconds: u64) -> Self {
        let waiter = Waiter { holder: holder(label), mode: Mode::Exclusive, waiting_for: secs(seconds) };
        self.0.waiters.push(waiter);
        self.0.waiting += 1;
        self
    }
}
