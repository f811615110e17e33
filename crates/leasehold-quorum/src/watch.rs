//! For how long a node that lost its data is known to have waited. Pure.
//!
//! Several clients watch at once, and come and go. Each goes on from the count that it read first, by its own clock. Every
//! count is a lower bound of the same wait, so the largest one is true; they are never added up.

use std::time::Duration;

use leasehold_core::BootInstant;
use leasehold_core::engine::voter::{Record, State};

/// One wait of one node: its record, and when that had been read.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) record: Record,
    pub(super) read_at: BootInstant,
}

impl Watch {
    /// How long the node of this record had waited at `now`. Another run of the server, or another nonce, is another wait.
    pub(super) fn waited(&self, of: &Record, now: BootInstant) -> Option<Duration> {
        let (State::Waits { nonce, watched_ms }, State::Waits { nonce: other, .. }) =
            (&self.record.state, &of.state)
        else {
            return None;
        };
        let is_same = (&self.record.identity, nonce) == (&of.identity, other);
        is_same.then(|| Duration::from_millis(*watched_ms) + now.since(self.read_at))
    }

    /// Goes on after a record was read: with a new watch for another wait, and with the other clients' count if that is
    /// more.
    pub(super) fn go_on(&mut self, read: Self) {
        let counted = read.waited(&read.record, read.read_at);
        if counted > self.waited(&read.record, read.read_at) {
            *self = read;
        }
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
        let (set, identity) = ("s".into(), "run".into());
        let record = Record { state, set, epoch: 1, n: 3, index: 0, identity, max_ms: 2000 };
        Watch { record, read_at: at(ms) }
    }

    fn waited(watch: &Watch, ms: u32) -> Option<Duration> {
        watch.waited(&watch.record, at(ms))
    }

    #[test]
    fn what_other_clients_count_takes_nothing_away() {
        let mut watch = read("n", 500, 1000);
        for (counted, ms) in [(520, 1100), (620, 1900)] {
            watch.go_on(read("n", counted, ms));
        }
        assert_eq!(waited(&watch, 2000), Some(1500 * MS));
    }

    #[test]
    fn a_client_goes_on_from_the_largest_count() {
        let mut watch = read("n", 0, 1000);
        watch.go_on(read("n", 900, 1100));
        assert_eq!(waited(&watch, 1200), Some(1000 * MS));
    }

    #[test]
    fn another_wait_begins_with_its_own_count() {
        let mut watch = read("n", 1900, 1000);
        assert_eq!(watch.waited(&read("m", 10, 3000).record, at(3000)), None);
        watch.go_on(read("m", 10, 3000));
        assert_eq!(waited(&watch, 3100), Some(110 * MS));
    }
}
