//! Hints that leases may be lost. None of them is believed: the lease is renewed, and the answer counts.

use std::{collections::HashSet, time::Duration};

use super::Kept;
use crate::{clock::BootInstant, engine::LossHint, name::Name};

/// A lease that is kept alive is renewed this soon if the store can report its loss and does not yet: after the grant, and
/// after the link broke. Most locks are released before.
pub(super) const WATCHED_WITHIN: Duration = Duration::from_secs(1);
/// A second hint about a lease within this time waits for its end: a store that drops what it watches sends one for each
/// renewal.
const CHECK_PAUSE: Duration = Duration::from_secs(1);

/// Hints that were not followed yet.
#[derive(Default)]
pub(super) struct Hints {
    changed: HashSet<Name>,
    all_changed: HashSet<u64>,
    unwatched: HashSet<u64>,
}

impl Hints {
    pub(super) fn add(&mut self, hint: LossHint) {
        match hint {
            LossHint::Changed { name } => drop(self.changed.insert(name)),
            LossHint::AllChanged { link } => drop(self.all_changed.insert(link)),
            LossHint::Unwatched { link } => drop(self.unwatched.insert(link)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && !self.is_of_links()
    }

    fn is_of_links(&self) -> bool {
        !(self.all_changed.is_empty() && self.unwatched.is_empty())
    }
}

impl Kept {
    /// Brings the next renewal forward if a hint is about this lease. One that is not kept alive is never renewed for it:
    /// that would prolong it.
    pub(super) fn follow(&mut self, hints: &Hints, now: BootInstant) {
        if !self.lease.is_kept_alive() {
            return;
        }
        let is_of = |links: &HashSet<u64>| self.link.is_some_and(|link| links.contains(&link.get()));
        let is_changed = hints.changed.contains(&self.lease.hold.name) || is_of(&hints.all_changed);
        let Some(renew_at) = self.renew_at else {
            // The store may have answered before the change, over a link that the answer will name.
            self.doubted |= is_changed || hints.is_of_links();
            return;
        };
        if is_changed {
            self.renew_at = Some(renew_at.min(self.check_at(now)));
        } else if is_of(&hints.unwatched) {
            self.renew_at = Some(renew_at.min(now + WATCHED_WITHIN));
        }
    }

    /// When to check a lease that a hint is about.
    pub(super) fn check_at(&mut self, now: BootInstant) -> BootInstant {
        if now < self.checks_from {
            return self.checks_from;
        }
        self.checks_from = now + CHECK_PAUSE;
        now
    }
}
