//! For how long a node that lost its data is known to have waited. Pure.
//!
//! Several clients watch at once, and come and go. Each goes on from the count that it read first, by its own clock. Every
//! count is a lower bound of the same wait, so the largest one is true; they are never added up.

use std::time::Duration;

use crate::{
    clock::BootInstant,
    engine::voter::{Record, State},
};

/// One wait of one node. Another run of the server, or another nonce, is another wait.
pub(super) struct Watch {
    identity: String,
    nonce: String,
    waited: Duration,
    at: BootInstant,
}

impl Watch {
    /// The wait of a record that was read before `at`.
    pub(super) fn of(record: &Record, at: BootInstant) -> Option<Self> {
        let State::Waits { nonce, watched_ms } = &record.state else { return None };
        let waited = Duration::from_millis(*watched_ms);
        Some(Self { identity: record.identity.clone(), nonce: nonce.clone(), waited, at })
    }

    fn is_same_wait(&self, other: &Self) -> bool {
        (&self.identity, &self.nonce) == (&other.identity, &other.nonce)
    }

    /// How long it had waited at `now`.
    pub(super) fn waited_at(&self, now: BootInstant) -> Duration {
        self.waited + now.since(self.at)
    }

    /// Goes on after a record was read: with a new watch for another wait, and with the other clients' count if that is
    /// more.
    pub(super) fn go_on(&mut self, read: Self) {
        if !self.is_same_wait(&read) || read.waited > self.waited_at(read.at) {
            *self = read;
        }
    }

    /// How long the node of this record had waited at `now`, as far as this watch knows.
    pub(super) fn waited_of(&self, read: &Self, now: BootInstant) -> Duration {
        if self.is_same_wait(read) { self.waited_at(now).max(read.waited) } else { read.waited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> BootInstant {
        BootInstant::from_nanos(0) + ms * MS
    }

    fn read(nonce: &str, watched_ms: u64, ms: u32) -> Watch {
        let state = State::Waits { nonce: nonce.into(), watched_ms };
        let set = super::super::membership::Set { id: "s".into(), epoch: 1, max_ms: 2000 };
        Watch::of(&set.record(3, 0, "run", state), at(ms)).unwrap()
    }

    #[test]
    fn what_other_clients_count_takes_nothing_away() {
        let mut watch = read("n", 500, 1000);
        for (counted, ms) in [(520, 1100), (620, 1900)] {
            watch.go_on(read("n", counted, ms));
        }
        assert_eq!(watch.waited_at(at(2000)), 1500 * MS);
    }

    #[test]
    fn a_client_goes_on_from_the_largest_count() {
        let mut watch = read("n", 0, 1000);
        watch.go_on(read("n", 900, 1100));
        assert_eq!(watch.waited_at(at(1200)), 1000 * MS);
    }

    #[test]
    fn another_wait_begins_with_its_own_count() {
        let mut watch = read("n", 1900, 1000);
        assert_eq!(watch.waited_of(&read("m", 10, 3000), at(3000)), 10 * MS);
        watch.go_on(read("m", 10, 3000));
        assert_eq!(watch.waited_at(at(3100)), 110 * MS);
    }
}
