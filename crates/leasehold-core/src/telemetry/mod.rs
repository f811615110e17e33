//! Counters of a client, and events for an observer.

mod histogram;
mod observer;

use std::{
    collections::{BTreeMap, HashSet},
    num::NonZeroU32,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Serialize;

use crate::{engine::Mode, lock::Kind, name::Name};
pub use histogram::Histogram;
use histogram::LiveHistogram;
pub use observer::{Event, Observer};

/// The list of metrics: names, help and order come from here.
macro_rules! metrics {
    (
        of_locks { $($lock:ident: $what:literal,)+ }
        counters { $($counter:ident: $help:literal,)+ }
        of_the_client { $($plain:ident: $text:literal,)+ }
        histograms { $($histogram:ident: $about:literal,)+ }
    ) => {
        /// One counter of [`Stats`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "spelled as in the metrics, one word per idea")]
        pub(crate) enum Count { $($lock,)+ $($counter,)+ $($plain,)+ }

        #[derive(Default)]
        struct Live {
            $($lock: AtomicU64,)+
            $($counter: AtomicU64,)+
            $($plain: AtomicU64,)+
            $($histogram: LiveHistogram,)+
        }

        impl Live {
            fn of(&self, count: Count) -> &AtomicU64 {
                match count {
                    $(Count::$lock => &self.$lock,)+
                    $(Count::$counter => &self.$counter,)+
                    $(Count::$plain => &self.$plain,)+
                }
            }

            fn stats(&self) -> Stats {
                Stats {
                    $($lock: self.$lock.load(Ordering::Relaxed),)+
                    $($counter: self.$counter.load(Ordering::Relaxed),)+
                    $($plain: self.$plain.load(Ordering::Relaxed),)+
                    $($histogram: self.$histogram.read(),)+
                    by_mode: BTreeMap::new(),
                    by_policy: BTreeMap::new(),
                }
            }
        }

        /// What a client has seen since it was made.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        #[non_exhaustive]
        pub struct Stats {
            $(#[doc = $what] pub $lock: u64,)+
            $(#[doc = $help] pub $counter: u64,)+
            $(#[doc = $text] pub $plain: u64,)+
            $(#[doc = $about] pub $histogram: Histogram,)+
            /// The part of each [mode](crate::Mode::as_str) of locks: `exclusive`, and `shared` and `permits` once one was asked
            /// for. A lock that became another mode counts for the one it was asked for until then, and for the new one from
            /// then on. Only what is about locks is counted apart.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            pub by_mode: BTreeMap<&'static str, Stats>,
            /// The part of each policy that the client was made with, and under an empty name the part of none. Empty for a
            /// client without policies.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            pub by_policy: BTreeMap<String, Stats>,
        }

        impl Stats {
            /// The numbers in Prometheus' text format. Their sum over the labels `policy` and, of what is about locks, `mode` is
            /// that of the client. No label carries a name of a lock: names are unbounded.
            pub fn prometheus(&self) -> String {
                let parts = self.parts();
                let mut text = String::new();
                $(
                    head(&mut text, stringify!($lock), "total", "counter", $what);
                    for_each_mode(&parts, |labels, part| sample(&mut text, stringify!($lock), labels, part.$lock));
                )+
                $(
                    head(&mut text, stringify!($counter), "total", "counter", $help);
                    parts.iter().for_each(|(policy, part)| sample(&mut text, stringify!($counter), (*policy, ""), part.$counter));
                )+
                $(
                    head(&mut text, stringify!($plain), "total", "counter", $text);
                    sample(&mut text, stringify!($plain), ("", ""), self.$plain);
                )+
                $(
                    head(&mut text, stringify!($histogram), "seconds", "histogram", $about);
                    for_each_mode(&parts, |labels, part| buckets(&mut text, stringify!($histogram), labels, &part.$histogram));
                )+
                text
            }

            /// What is about locks.
            fn of_locks(&self) -> Self {
                Self { $($lock: self.$lock,)+ $($histogram: self.$histogram.clone(),)+ ..Self::default() }
            }

            fn add(&mut self, part: &Stats) {
                $(self.$lock += part.$lock;)+
                $(self.$counter += part.$counter;)+
                $(self.$plain += part.$plain;)+
                $(self.$histogram.add(&part.$histogram);)+
                for (mode, part) in &part.by_mode {
                    self.by_mode.entry(mode).or_default().add(part);
                }
            }
        }
    };
}

metrics! {
    of_locks {
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
    }
    counters {
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

/// A policy and a mode.
type Labels<'a> = (&'a str, &'a str);

/// What each policy has, one mode after the other.
fn for_each_mode<'a>(parts: &[(&'a str, &'a Stats)], mut show: impl FnMut(Labels<'a>, &'a Stats)) {
    for (policy, part) in parts {
        part.by_mode.iter().for_each(|(mode, part)| show((policy, mode), part));
    }
}

/// A label each, or none for what is empty: to Prometheus both are the same. Names of policies need no escape.
fn labels((policy, mode): Labels<'_>, bound: Option<String>) -> String {
    let given = [("policy", policy), ("mode", mode)].into_iter().filter(|(_, value)| !value.is_empty());
    let given = given.map(|(label, value)| format!("{label}=\"{value}\""));
    let labels: Vec<_> = given.chain(bound.map(|bound| format!("le=\"{bound}\""))).collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

fn sample(text: &mut String, name: &str, of: Labels<'_>, value: u64) {
    *text += &format!("leasehold_{name}_total{} {value}\n", labels(of, None));
}

fn buckets(text: &mut String, name: &str, of: Labels<'_>, values: &Histogram) {
    let name = format!("leasehold_{name}_seconds");
    for (bound, below) in values.cumulative() {
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
        *text += &format!("{name}_bucket{} {below}\n", labels(of, Some(bound)));
    }
    let (labels, sum) = (labels(of, None), values.sum().as_secs_f64());
    *text += &format!("{name}_sum{labels} {sum}\n{name}_count{labels} {}\n", values.count());
}

/// The labels of modes.
const EXCLUSIVE: &str = Mode::Exclusive.as_str();
const SHARED: &str = Mode::Shared.as_str();
const PERMITS: &str = Mode::Permits { take: NonZeroU32::MIN, of: NonZeroU32::MIN }.as_str();

/// Names that were logged once already; bounded, because names are not.
const NAMES_REMEMBERED: usize = 1_000;

/// What a client counts, outside of policies or under one of them: of exclusive locks, and of all that is no lock.
pub(crate) struct Telemetry {
    /// The policy, if it is that of one.
    policy: Option<String>,
    mode: &'static str,
    /// Those of the other modes. A mode has none of its own.
    shared: Option<Arc<Telemetry>>,
    permits: Option<Arc<Telemetry>>,
    /// Those of all policies of the client. A policy has none of its own.
    policies: BTreeMap<String, Arc<Telemetry>>,
    live: Live,
    observer: Option<Arc<dyn Observer>>,
    overheld: Mutex<HashSet<Name>>,
}

impl Telemetry {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>, policies: Vec<String>) -> Self {
        let part = |policy, mode| {
            let (live, observer, overheld) = (Live::default(), observer.clone(), Mutex::default());
            let (shared, permits, policies) = (None, None, BTreeMap::new());
            Self { policy, mode, shared, permits, policies, live, observer, overheld }
        };
        let all_modes = |policy: Option<String>| {
            let of = |mode| Some(Arc::new(part(policy.clone(), mode)));
            Self { shared: of(SHARED), permits: of(PERMITS), ..part(policy.clone(), EXCLUSIVE) }
        };
        let of_policy = |name: String| (name.clone(), Arc::new(all_modes(Some(name))));
        Self { policies: policies.into_iter().map(of_policy).collect(), ..all_modes(None) }
    }

    /// That of locks that are held like this.
    pub(crate) fn of_kind(self: &Arc<Self>, kind: Kind) -> &Arc<Self> {
        let other = match kind {
            Kind::Exclusive => None,
            Kind::Shared => self.shared.as_ref(),
            Kind::Permits { .. } => self.permits.as_ref(),
        };
        other.unwrap_or(self)
    }

    /// The same of a policy.
    pub(crate) fn of(self: &Arc<Self>, policy: Option<&str>, kind: Kind) -> &Arc<Self> {
        policy.and_then(|policy| self.policies.get(policy)).unwrap_or(self).of_kind(kind)
    }

    /// That of a policy, if the client was made with it.
    pub(crate) fn of_policy(&self, policy: &str) -> Option<Arc<Self>> {
        self.policies.get(policy).cloned()
    }

    /// The mode, for spans.
    pub(crate) fn mode(&self) -> &'static str {
        self.mode
    }

    /// The policy, for spans.
    pub(crate) fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The numbers at this moment.
    pub(crate) fn stats(&self) -> Stats {
        let mut all = self.of_all_modes();
        if self.policies.is_empty() {
            return all;
        }
        let mut by_policy = BTreeMap::from([(String::new(), all.clone())]);
        for (policy, telemetry) in &self.policies {
            let part = telemetry.of_all_modes();
            all.add(&part);
            by_policy.insert(policy.clone(), part);
        }
        Stats { by_policy, ..all }
    }

    /// Those of all modes together, and each that was used. Exclusive ones are always shown: a counter that is there before
    /// its first event misses none in a query of its rate.
    fn of_all_modes(&self) -> Stats {
        let mut all = self.live.stats();
        let mut by_mode = BTreeMap::from([(self.mode, all.of_locks())]);
        for other in [&self.shared, &self.permits].into_iter().flatten() {
            let part = other.live.stats();
            if part != Stats::default() {
                all.add(&part);
                by_mode.insert(other.mode, part.of_locks());
            }
        }
        Stats { by_mode, ..all }
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
    fn modes_are_counted_apart_once_they_are_used() {
        let all = Arc::new(Telemetry::new(None, vec!["gpu".into()]));
        let (shared, permits) = (Kind::Shared, Kind::Permits { take: 2, of: 5 });
        assert_eq!(all.stats().by_mode.keys().collect::<Vec<_>>(), [&"exclusive"]);
        all.of_kind(shared).acquired_after(Duration::from_millis(1));
        all.of(Some("gpu"), permits).count(Count::attempts);
        all.of(Some("gpu"), Kind::Exclusive).count(Count::executed);
        let stats = all.stats();
        assert_eq!((stats.acquired, stats.attempts, stats.executed), (1, 1, 1));
        assert_eq!((stats.by_mode["shared"].acquired, stats.by_mode["exclusive"].acquired), (1, 0));
        assert_eq!(stats.by_mode["permits"].attempts, 1);
        assert_eq!(stats.by_mode["exclusive"].executed, 0, "no lock");
        let gpu = &stats.by_policy["gpu"];
        assert_eq!(gpu.by_mode.keys().collect::<Vec<_>>(), [&"exclusive", &"permits"]);
        let text = stats.prometheus();
        for line in [
            "leasehold_acquired_total{mode=\"shared\"} 1",
            "leasehold_acquire_latency_seconds_count{mode=\"shared\"} 1",
            "leasehold_attempts_total{policy=\"gpu\",mode=\"permits\"} 1",
            "leasehold_executed_total{policy=\"gpu\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "no {line} in {text}");
        }
        assert_eq!(all.of(None, permits).mode(), "permits");
        assert_eq!(all.of(Some("gpu"), shared).policy(), Some("gpu"));
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
            "leasehold_acquired_total{mode=\"exclusive\"} 1",
            "leasehold_acquired_total{policy=\"payout\",mode=\"exclusive\"} 1",
            "leasehold_executed_total{policy=\"payout\"} 0",
            "leasehold_disconnected_total 1",
            "leasehold_acquire_latency_seconds_bucket{policy=\"payout\",mode=\"exclusive\",le=\"+Inf\"} 1",
            "leasehold_acquire_latency_seconds_count{policy=\"payout\",mode=\"exclusive\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "no {line} in {text}");
        }
        assert!(!text.contains("leasehold_disconnected_total{"));
    }
}
