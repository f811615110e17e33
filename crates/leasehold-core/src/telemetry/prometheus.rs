//! Prometheus' text format.

use std::fmt::Write;

use super::{Histogram, Stats};

pub(super) fn render(stats: &Stats) -> String {
    let mut out = String::new();
    for (name, help, value) in stats.counters() {
        let _ = writeln!(out, "# HELP leasehold_{name}_total {help}");
        let _ = writeln!(out, "# TYPE leasehold_{name}_total counter");
        let _ = writeln!(out, "leasehold_{name}_total {value}");
    }
    histogram(
        &mut out,
        "acquire_latency",
        "Time from asking for a lock to having it.",
        &stats.acquire_latency,
    );
    histogram(
        &mut out,
        "hold_time",
        "Time from having a lock to giving it back or losing it.",
        &stats.hold_time,
    );
    out
}

fn histogram(out: &mut String, name: &str, help: &str, values: &Histogram) {
    let _ = writeln!(out, "# HELP leasehold_{name}_seconds {help}");
    let _ = writeln!(out, "# TYPE leasehold_{name}_seconds histogram");
    for (bound, below) in values.cumulative() {
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
        let _ = writeln!(out, "leasehold_{name}_seconds_bucket{{le=\"{bound}\"}} {below}");
    }
    let _ = writeln!(out, "leasehold_{name}_seconds_sum {}", values.sum().as_secs_f64());
    let _ = writeln!(out, "leasehold_{name}_seconds_count {}", values.count());
}
