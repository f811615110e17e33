//! Counters of a client, and events for an observer.

mod histogram;
mod observer;

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
macro_rules! metrics {
    (counters { $($counter:ident: $help:literal,)+ } histograms { $($histogram:ident: $about:literal,)+ }) => {
        /// One counter of [`Stats`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "spelled as in the metrics, one word per idea")]
        pub(crate) enum Count { $($counter),+ }

        #[derive(Default)]
        struct Live {
            $($counter: AtomicU64,)+
            $($histogram: LiveHistogram,)+
        }

        impl Live {
            fn of(&self, count: Count) -> &AtomicU64 {
                match count { $(Count::$counter => &self.$counter),+ }
            }

            fn stats(&self) -> Stats {
                Stats {
                    $($counter: self.$counter.load(Ordering::Relaxed),)+
                    $($histogram: self.$histogram.read(),)+
                }
            }
        }

        /// What a client has seen since it was made.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        #[non_exhaustive]
        pub struct Stats {
            $(#[doc = $help] pub $counter: u64,)+
            $(#[doc = $about] pub $histogram: Histogram,)+
        }

        impl Stats {
            /// The numbers in Prometheus' text format. No label carries a name: names are unbounded.
            pub fn prometheus(&self) -> String {
                let counters = [$(counter_text(stringify!($counter), $help, self.$counter)),+];
                let histograms = [$(histogram_text(stringify!($histogram), $about, &self.$histogram)),+];
                counters.concat() + &histograms.concat()
            }
        }
    };
}

metrics! {
    counters {
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
    histograms {
        acquire_latency: "Time from asking for a lock to having it.",
        hold_time: "Time from having a lock to giving it back or losing it.",
    }
}

impl Stats {
    /// The share of finished attempts that got the lock, from 0 to 1; `None` before the first one.
    pub fn success_rate(&self) -> Option<f64> {
        let ended = self.acquired + self.refused + self.timed_out + self.failed;
        (ended > 0).then(|| self.acquired as f64 / ended as f64)
    }
}

fn counter_text(name: &str, help: &str, value: u64) -> String {
    let name = format!("leasehold_{name}_total");
    format!("# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}\n")
}

fn histogram_text(name: &str, help: &str, values: &Histogram) -> String {
    let name = format!("leasehold_{name}_seconds");
    let mut text = format!("# HELP {name} {help}\n# TYPE {name} histogram\n");
    for (bound, below) in values.cumulative() {
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
        text += &format!("{name}_bucket{{le=\"{bound}\"}} {below}\n");
    }
    text + &format!("{name}_sum {}\n{name}_count {}\n", values.sum().as_secs_f64(), values.count())
}

/// Names that were logged once already; bounded, because names are not.
const NAMES_REMEMBERED: usize = 1_000;

pub(crate) struct Telemetry {
    live: Live,
    observer: Option<Arc<dyn Observer>>,
    overheld: Mutex<HashSet<Name>>,
}

impl Telemetry {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>) -> Self {
        Self { live: Live::default(), observer, overheld: Mutex::default() }
    }

    /// The numbers at this moment.
    pub(crate) fn stats(&self) -> Stats {
        self.live.stats()
    }

    pub(crate) fn count(&self, count: impl Into<Option<Count>>) {
        count.into().into_iter().for_each(|count| self.count_many(count, 1));
    }

    pub(crate) fn count_many(&self, count: Count, times: usize) {
        self.live.of(count).fetch_add(times as u64, Ordering::Relaxed);
    }

    pub(crate) fn acquired_after(&self, latency: Duration) {
        self.count(Count::acquired);
        self.live.acquire_latency.record(latency);
    }

    pub(crate) fn held_for(&self, time: Duration) {
        self.live.hold_time.record(time);
    }

    /// Counts a fixed lease that was held too close to its end; logged once per name.
    pub(crate) fn overheld(&self, name: &Name, held: Duration, ttl: Duration) {
        self.count(Count::overheld);
        let mut names = self.overheld.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() < NAMES_REMEMBERED && names.insert(name.clone()) {
            tracing::warn!(%name, ?held, ?ttl, "held for more than half of a fixed ttl: keep it alive or raise the ttl");
        }
    }

    /// Notifies the observer, if there is one. Its panic is caught: it would end the task that renews every lease.
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
