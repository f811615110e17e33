//! Counters of a client, and events for an observer.

mod histogram;
mod observer;

use std::{
    collections::{BTreeMap, HashSet},
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
    (
        counters { $($counter:ident: $help:literal,)+ }
        of_the_client { $($plain:ident: $text:literal,)+ }
        histograms { $($histogram:ident: $about:literal,)+ }
    ) => {
        /// One counter of [`Stats`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "spelled as in the metrics, one word per idea")]
        pub(crate) enum Count { $($counter,)+ $($plain,)+ }

        #[derive(Default)]
        struct Live {
            $($counter: AtomicU64,)+
            $($plain: AtomicU64,)+
            $($histogram: LiveHistogram,)+
        }

        impl Live {
            fn of(&self, count: Count) -> &AtomicU64 {
                match count {
                    $(Count::$counter => &self.$counter,)+
                    $(Count::$plain => &self.$plain,)+
                }
            }

            fn stats(&self) -> Stats {
                Stats {
                    $($counter: self.$counter.load(Ordering::Relaxed),)+
                    $($plain: self.$plain.load(Ordering::Relaxed),)+
                    $($histogram: self.$histogram.read(),)+
                    by_policy: BTreeMap::new(),
                }
            }
        }

        /// What a client has seen since it was made.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        #[non_exhaustive]
        pub struct Stats {
            $(#[doc = $help] pub $counter: u64,)+
            $(#[doc = $text] pub $plain: u64,)+
            $(#[doc = $about] pub $histogram: Histogram,)+
            /// The part of each policy that the client was made with, and under an empty name the part of none. Empty for a
            /// client without policies.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            pub by_policy: BTreeMap<String, Stats>,
        }

        impl Stats {
            /// The numbers in Prometheus' text format. Their sum over the label `policy` is that of the client. No label
            /// carries a name of a lock: names are unbounded.
            pub fn prometheus(&self) -> String {
                let parts = self.parts();
                let mut text = String::new();
                $(
                    head(&mut text, stringify!($counter), "total", "counter", $help);
                    parts.iter().for_each(|(policy, part)| sample(&mut text, stringify!($counter), *policy, part.$counter));
                )+
                $(
                    head(&mut text, stringify!($plain), "total", "counter", $text);
                    sample(&mut text, stringify!($plain), "", self.$plain);
                )+
                $(
                    head(&mut text, stringify!($histogram), "seconds", "histogram", $about);
                    parts.iter().for_each(|(policy, part)| buckets(&mut text, stringify!($histogram), *policy, &part.$histogram));
                )+
                text
            }

            fn add(&mut self, part: &Stats) {
                $(self.$counter += part.$counter;)+
                $(self.$plain += part.$plain;)+
                $(self.$histogram.add(&part.$histogram);)+
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
    }
    of_the_client {
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
    /// What each policy has, or the whole of a client without policies.
    fn parts(&self) -> Vec<(&str, &Stats)> {
        if self.by_policy.is_empty() {
            return vec![("", self)];
        }
        self.by_policy.iter().map(|(policy, part)| (policy.as_str(), part)).collect()
    }

    /// The share of finished attempts that got the lock, from 0 to 1; `None` before the first one.
    pub fn success_rate(&self) -> Option<f64> {
        let ended = self.acquired + self.refused + self.timed_out + self.failed;
        (ended > 0).then(|| self.acquired as f64 / ended as f64)
    }
}

fn head(text: &mut String, name: &str, unit: &str, kind: &str, help: &str) {
    *text += &format!("# HELP leasehold_{name}_{unit} {help}\n# TYPE leasehold_{name}_{unit} {kind}\n");
}

/// A label, or none for an empty policy: to Prometheus both are the same. Names of policies need no escape.
fn labels(policy: &str, bound: Option<String>) -> String {
    let policy = (!policy.is_empty()).then(|| format!("policy=\"{policy}\""));
    let labels: Vec<_> = policy.into_iter().chain(bound.map(|bound| format!("le=\"{bound}\""))).collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

fn sample(text: &mut String, name: &str, policy: &str, value: u64) {
    *text += &format!("leasehold_{name}_total{} {value}\n", labels(policy, None));
}

fn buckets(text: &mut String, name: &str, policy: &str, values: &Histogram) {
    let name = format!("leasehold_{name}_seconds");
    for (bound, below) in values.cumulative() {
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
        *text += &format!("{name}_bucket{} {below}\n", labels(policy, Some(bound)));
    }
    let (labels, sum) = (labels(policy, None), values.sum().as_secs_f64());
    *text += &format!("{name}_sum{labels} {sum}\n{name}_count{labels} {}\n", values.count());
}

/// Names that were logged once already; bounded, because names are not.
const NAMES_REMEMBERED: usize = 1_000;

/// What a client counts, outside of policies or under one of them.
pub(crate) struct Telemetry {
    /// The policy, if it is that of one.
    policy: Option<String>,
    /// Those of all policies of the client. A policy has none of its own.
    policies: BTreeMap<String, Arc<Telemetry>>,
    live: Live,
    observer: Option<Arc<dyn Observer>>,
    overheld: Mutex<HashSet<Name>>,
}

impl Telemetry {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>, policies: Vec<String>) -> Self {
        let one = |policy, policies| {
            let (live, observer, overheld) = (Live::default(), observer.clone(), Mutex::default());
            Self { policy, policies, live, observer, overheld }
        };
        let of_policy = |name: String| (name.clone(), Arc::new(one(Some(name), BTreeMap::new())));
        one(None, policies.into_iter().map(of_policy).collect())
    }

    /// That of a policy, if the client was made with it.
    pub(crate) fn of_policy(&self, policy: &str) -> Option<Arc<Self>> {
        self.policies.get(policy).cloned()
    }

    /// The policy, for spans.
    pub(crate) fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The numbers at this moment.
    pub(crate) fn stats(&self) -> Stats {
        let mut all = self.live.stats();
        if self.policies.is_empty() {
            return all;
        }
        let mut by_policy = BTreeMap::from([(String::new(), all.clone())]);
        for (policy, telemetry) in &self.policies {
            let part = telemetry.live.stats();
            all.add(&part);
            by_policy.insert(policy.clone(), part);
        }
        Stats { by_policy, ..all }
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

    #[test]
    fn the_parts_of_all_policies_add_up_to_the_whole() {
        let all = Telemetry::new(None, vec!["payout".into()]);
        let payout = all.of_policy("payout").unwrap();
        payout.acquired_after(Duration::from_millis(1));
        all.acquired_after(Duration::from_millis(1));
        all.count(Count::disconnected);
        assert!(all.of_policy("other").is_none(), "labels are bounded");
        let stats = all.stats();
        assert_eq!((stats.acquired, stats.acquire_latency.count()), (2, 2));
        assert_eq!(stats.by_policy["payout"].acquired, 1);
        let text = stats.prometheus();
        for line in [
            "leasehold_acquired_total 1",
            "leasehold_acquired_total{policy=\"payout\"} 1",
            "leasehold_disconnected_total 1",
            "leasehold_acquire_latency_seconds_bucket{policy=\"payout\",le=\"+Inf\"} 1",
            "leasehold_acquire_latency_seconds_count{policy=\"payout\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "no {line} in {text}");
        }
        assert!(!text.contains("leasehold_disconnected_total{"));
    }
}
