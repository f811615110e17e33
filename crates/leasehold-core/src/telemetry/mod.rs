//! Counters of a client, and events for an observer.

mod histogram;
mod observer;
mod prometheus;

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Serialize;

use crate::name::Name;
pub use histogram::Histogram;
use histogram::LiveHistogram;
pub use observer::{Event, Observer};

/// The list of metrics: names, help and order come from here.
macro_rules! counters {
    ($($field:ident : $help:literal),+ $(,)?) => {
        #[derive(Default)]
        struct Counters { $($field: AtomicU64),+ }

        /// One counter of [`Stats`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "spelled as in the metrics, one word per idea")]
        pub(crate) enum Count { $($field),+ }

        impl Counters {
            fn of(&self, count: Count) -> &AtomicU64 {
                match count { $(Count::$field => &self.$field),+ }
            }
        }

        /// What a client has seen since it was made.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        #[non_exhaustive]
        pub struct Stats {
            $(#[doc = $help] pub $field: u64,)+
            /// Time from asking for a lock to having it.
            pub acquire_latency: Histogram,
            /// Time from having a lock to giving it back or losing it.
            pub hold_time: Histogram,
        }

        impl Stats {
            /// Each counter with its help text.
            fn counters(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($field), $help, self.$field)),+]
            }
        }

        impl Telemetry {
            /// The numbers at this moment.
            pub(crate) fn stats(&self) -> Stats {
                Stats {
                    $($field: self.counters.$field.load(Ordering::Relaxed),)+
                    acquire_latency: self.acquire_latency.snapshot(),
                    hold_time: self.hold_time.snapshot(),
                }
            }
        }
    };
}

counters! {
    attempts: "Calls that asked for a lock.",
    acquired: "Locks acquired.",
    refused: "Attempts without waiting that found the lock held.",
    timed_out: "Attempts that waited in vain.",
    failed: "Attempts that ended in another error.",
    cancelled: "Attempts whose future was dropped.",
    contended: "Attempts that found the lock held by somebody else.",
    handed_over: "Locks handed over by their last holder.",
    released: "Locks released while they were held.",
    release_not_ours: "Releases that found the lock expired or taken.",
    release_failed: "Releases whose outcome is unknown.",
    dropped: "Guards dropped without release.",
    lost: "Leases that ended before their holder was done.",
    renewed: "Renewals that succeeded.",
    renew_miss: "Renewals that got no answer.",
    overheld: "Leases of a fixed ttl held for more than half of it.",
    degraded: "Runs that went on without protection.",
    executed: "Executions under an idempotency key whose result was stored.",
    replayed: "Calls that got the result of an earlier execution.",
    in_progress: "Calls that found the request in progress.",
    mismatched: "Calls whose idempotency key belongs to another request.",
    fenced_off: "Executions that ended after a later one had begun.",
    disconnected: "Breaks of the connection to the store.",
    deadlines_claimed: "Deadlines claimed.",
    deadlines_done: "Deadlines acknowledged.",
    deadlines_failed: "Deadlines whose handler returned an error.",
    deadlines_panicked: "Deadlines whose handler panicked.",
    deadlines_timed_out: "Deadlines whose handler took too long.",
    deadlines_buried: "Deadlines given up.",
    deadlines_stale: "Deadlines claimed by another client or set again before they were settled.",
    recovery_scans: "Scans for deadlines that are due.",
    recovery_skipped: "Scans left to another process.",
}

impl Stats {
    /// The share of finished attempts that got the lock, from 0 to 1; `None` before the first one.
    pub fn success_rate(&self) -> Option<f64> {
        let ended = self.acquired + self.refused + self.timed_out + self.failed;
        (ended > 0).then(|| self.acquired as f64 / ended as f64)
    }

    /// The numbers in Prometheus' text format. No label carries a name: names are unbounded.
    pub fn prometheus(&self) -> String {
        prometheus::render(self)
    }
}

/// Names that were logged once already; bounded, because names are not.
const NAMES_REMEMBERED: usize = 1_000;

pub(crate) struct Telemetry {
    counters: Counters,
    acquire_latency: LiveHistogram,
    hold_time: LiveHistogram,
    observer: Option<Arc<dyn Observer>>,
    overheld: Mutex<HashSet<Name>>,
}

impl Telemetry {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>) -> Self {
        Self {
            counters: Counters::default(),
            acquire_latency: LiveHistogram::default(),
            hold_time: LiveHistogram::default(),
            observer,
            overheld: Mutex::default(),
        }
    }

    pub(crate) fn count(&self, count: Count) {
        self.count_many(count, 1);
    }

    pub(crate) fn count_many(&self, count: Count, times: usize) {
        self.counters.of(count).fetch_add(times as u64, Ordering::Relaxed);
    }

    pub(crate) fn acquired_after(&self, latency: Duration) {
        self.count(Count::acquired);
        self.acquire_latency.record(latency);
    }

    pub(crate) fn held_for(&self, time: Duration) {
        self.hold_time.record(time);
    }

    /// Counts a fixed lease that was held too close to its end; logged once per name.
    pub(crate) fn overheld(&self, name: &Name, held: Duration, ttl: Duration) {
        self.count(Count::overheld);
        let mut names = self.overheld.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() < NAMES_REMEMBERED && names.insert(name.clone()) {
            tracing::warn!(%name, ?held, ?ttl, "held for more than half of a fixed ttl: keep it alive or raise the ttl");
        }
    }

    /// Notifies the observer. The event is built only if there is one. A panic of the observer is caught: it would end
    /// the task that renews every lease.
    pub(crate) fn emit(&self, event: impl FnOnce() -> Event) {
        if let Some(observer) = &self.observer {
            let event = event();
            if catch_unwind(AssertUnwindSafe(|| observer.on_event(&event))).is_err() {
                tracing::error!("the observer panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_success_rate_counts_what_ended() {
        let stats = Stats { acquired: 3, refused: 1, ..Stats::default() };
        assert_eq!(stats.success_rate(), Some(0.75));
        assert_eq!(Stats::default().success_rate(), None);
    }
}
