//! What is counted of the service itself, beside the numbers of the library.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::StatusCode;

use crate::state::Service;

/// Upper bounds of the buckets in seconds.
const BOUNDS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0, 60.0];

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    answers: Mutex<BTreeMap<(&'static str, u16), u64>>,
    latency: Times,
    /// Answers of the store to the service's own inspections.
    pub(crate) store_latency: Times,
    /// How late deadlines were claimed through the service.
    pub(crate) lateness: Times,
    pub(crate) sessions_ended: AtomicU64,
    pub(crate) sessions_renewed: AtomicU64,
    pub(crate) locks_renewed: AtomicU64,
    pub(crate) locks_lost: AtomicU64,
    pub(crate) forced: AtomicU64,
    pub(crate) rejected_connections: AtomicU64,
}

/// Durations in buckets.
#[derive(Debug, Default)]
pub(crate) struct Times {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

impl Times {
    pub(crate) fn record(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.counts[BOUNDS.partition_point(|bound| *bound < seconds)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn write(&self, text: &mut String, name: &str, help: &str) {
        head(text, name, "histogram", help);
        let mut below = 0;
        for (index, count) in self.counts.iter().enumerate() {
            below += count.load(Ordering::Relaxed);
            let bound = BOUNDS.get(index).map_or_else(|| "+Inf".to_owned(), ToString::to_string);
            line(text, &format!("{name}_bucket{{le=\"{bound}\"}}"), below);
        }
        let sum = Duration::from_micros(self.sum_us.load(Ordering::Relaxed)).as_secs_f64();
        line(text, &format!("{name}_sum"), sum);
        line(text, &format!("{name}_count"), below);
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _in_memory = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _in_memory = writeln!(text, "{name} {value}");
}

impl Metrics {
    pub(crate) fn answered(&self, route: &'static str, status: StatusCode, took: Duration) {
        self.latency.record(took);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answers.entry((route, status.as_u16())).or_default() += 1;
    }
}

impl Service {
    /// All numbers in Prometheus' text format: those of the library and those of the service. No label carries the name of a
    /// lock.
    pub(crate) fn prometheus(&self) -> String {
        let mut text = self.leases.stats().prometheus();
        let metrics = &self.metrics;
        let name = "leasehold_http_requests_total";
        head(&mut text, name, "counter", "Answers by route and status.");
        for ((route, status), count) in &*metrics.answers.lock().unwrap_or_else(PoisonError::into_inner) {
            line(&mut text, &format!("{name}{{route=\"{route}\",status=\"{status}\"}}"), count);
        }
        metrics.latency.write(
            &mut text,
            "leasehold_http_request_seconds",
            "Time to an answer, waits included.",
        );
        metrics.store_latency.write(
            &mut text,
            "leasehold_store_latency_seconds",
            "Time of one page of the service's own inspection of the store.",
        );
        metrics.lateness.write(
            &mut text,
            "leasehold_deadline_lateness_seconds",
            "How late deadlines were claimed through the service.",
        );
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        for (name, help, value) in [
            (
                "leasehold_sessions_ended_total",
                "Sessions that were not renewed.",
                load(&metrics.sessions_ended),
            ),
            ("leasehold_sessions_renewed_total", "Renewals of sessions.", load(&metrics.sessions_renewed)),
            (
                "leasehold_session_locks_renewed_total",
                "Locks renewed by sessions.",
                load(&metrics.locks_renewed),
            ),
            (
                "leasehold_session_locks_lost_total",
                "Locks that sessions had lost.",
                load(&metrics.locks_lost),
            ),
            (
                "leasehold_force_released_total",
                "Locks taken by force through the service.",
                load(&metrics.forced),
            ),
            (
                "leasehold_http_rejected_connections_total",
                "Connections closed because there were too many.",
                load(&metrics.rejected_connections),
            ),
        ] {
            head(&mut text, name, "counter", help);
            line(&mut text, name, value);
        }
        let seen = self.history.totals();
        for (name, help, value) in [
            ("leasehold_locks_held", "Names that are held, as last seen.", u64::from(seen.held)),
            ("leasehold_waiters", "Attempts that wait, as last seen.", u64::from(seen.waiting)),
            ("leasehold_store_up", "Whether the store answered last.", u64::from(seen.is_reachable)),
            ("leasehold_sessions", "Sessions.", self.sessions.len() as u64),
            ("leasehold_attempts", "Attempts that are remembered.", self.attempts.len() as u64),
            ("leasehold_executions", "Executions in progress.", self.executions.len() as u64),
            ("leasehold_http_connections", "Connections.", self.connected() as u64),
            ("leasehold_event_clients", "Clients that receive events.", self.events.clients() as u64),
        ] {
            head(&mut text, name, "gauge", help);
            line(&mut text, name, value);
        }
        text
    }
}
