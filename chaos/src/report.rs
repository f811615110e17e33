//! The report of a run: tables for people, one JSON object for programs.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use clap::ValueEnum;
use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use leasehold_testkit::load::{self, Tally};
use serde_json::{Map, Value, json};

use crate::{
    judge::{Verdict, Window},
    topology::Kind,
};

/// As many examples as fit on a screen; the histories have the rest.
const EXAMPLES_MAX: usize = 10;

/// A fault that happened.
pub(crate) struct InjectedFault {
    pub(crate) kind: &'static str,
    /// When it began, on the clock of the histories.
    pub(crate) at: u64,
    /// Time from its start until every name could be locked anew; `None` if that did not happen.
    pub(crate) recovered: Option<Duration>,
    /// The window in which servers may have lost leases.
    pub(crate) window: Option<Window>,
}

pub(crate) struct Report {
    pub(crate) topology: Kind,
    /// What the load competed for.
    pub(crate) locks: load::Kind,
    pub(crate) seed: u64,
    pub(crate) lasted: Duration,
    pub(crate) workers: usize,
    pub(crate) injected: Vec<InjectedFault>,
    pub(crate) tally: Tally,
    pub(crate) verdict: Verdict,
}

/// Recovery times of one kind of fault, or of all.
struct Recovery {
    faults: usize,
    median: Duration,
    worst: Duration,
}

impl Recovery {
    fn of<'a>(injected: impl Iterator<Item = &'a InjectedFault>) -> Self {
        let injected: Vec<_> = injected.collect();
        let mut times: Vec<_> = injected.iter().filter_map(|one| one.recovered).collect();
        times.sort_unstable();
        let at = |index: usize| times.get(index).copied().unwrap_or_default();
        let median = (at(times.len().saturating_sub(1) / 2) + at(times.len() / 2)) / 2;
        Self { faults: injected.len(), median, worst: times.last().copied().unwrap_or_default() }
    }

    fn json(&self) -> Value {
        let seconds = Duration::as_secs_f64;
        json!({ "faults": self.faults, "median_s": seconds(&self.median), "worst_s": seconds(&self.worst) })
    }
}

impl Report {
    /// A run without a grant or without a fault proves nothing.
    pub(crate) fn passed(&self) -> bool {
        self.violations() == 0 && self.all_recovered() && !self.injected.is_empty() && self.verdict.grants > 0
    }

    fn violations(&self) -> usize {
        self.verdict.fences.len() + self.verdict.overlaps.len()
    }

    fn all_recovered(&self) -> bool {
        self.injected.iter().all(|one| one.recovered.is_some())
    }

    fn topology(&self) -> String {
        self.topology.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn by_kind(&self) -> BTreeMap<&'static str, Recovery> {
        let kinds = self.injected.iter().map(|one| one.kind);
        kinds.map(|kind| (kind, Recovery::of(self.injected.iter().filter(|one| one.kind == kind)))).collect()
    }

    pub(crate) fn table(&self) -> String {
        let mut faults = Table::new();
        faults.load_style(UTF8_HORIZONTAL_ONLY);
        faults.set_header(["fault", "times", "recovered, median", "worst"]);
        let all = ("all", Recovery::of(self.injected.iter()));
        for (kind, recovery) in self.by_kind().into_iter().chain([all]) {
            faults.add_row([
                kind.to_owned(),
                recovery.faults.to_string(),
                format!("{:.2} s", recovery.median.as_secs_f64()),
                format!("{:.2} s", recovery.worst.as_secs_f64()),
            ]);
        }
        let mut text = format!(
            "topology {}, {} locks, seed {}, {:.0} s, {} workers\n\n{faults}\n\n",
            self.topology(),
            self.locks,
            self.seed,
            self.lasted.as_secs_f64(),
            self.workers
        );
        for (name, value) in self.facts() {
            let _ = writeln!(text, "{:<20} {value}", name.replace('_', " "));
        }
        for one in self.injected.iter().filter(|one| one.recovered.is_none()) {
            let _ = writeln!(text, "\nnot recovered: {}", one.kind);
        }
        for violation in self.examples() {
            let _ = writeln!(text, "\nviolation: {violation}");
        }
        text
    }

    pub(crate) fn json(&self) -> String {
        let mut object = Map::new();
        object.insert("schema".into(), json!({ "version": "v1" }));
        object.insert("topology".into(), json!(self.topology()));
        object.insert("locks".into(), json!(self.locks.name()));
        object.insert("seed".into(), json!(self.seed));
        object.insert("seconds".into(), json!(self.lasted.as_secs_f64()));
        object.insert("workers".into(), json!(self.workers));
        object.insert("passed".into(), json!(self.passed()));
        for (name, value) in self.facts() {
            object.insert(name.into(), json!(value));
        }
        object.insert("recovery".into(), Recovery::of(self.injected.iter()).json());
        let kinds = self.by_kind().into_iter().map(|(kind, recovery)| (kind.to_owned(), recovery.json()));
        object.insert("by_kind".into(), Value::Object(kinds.collect()));
        let injected = self.injected.iter().map(|one| {
            json!({ "kind": one.kind, "at_ns": one.at, "recovered_s": one.recovered.map(|time| time.as_secs_f64()) })
        });
        object.insert("injected".into(), injected.collect());
        object.insert("examples".into(), self.examples().collect());
        object.insert("errors".into(), distinct(&self.tally.errors).collect());
        format!("{}\n", Value::Object(object))
    }

    fn facts(&self) -> [(&'static str, usize); 10] {
        let Self { tally, verdict, injected, .. } = self;
        let unrecovered = injected.iter().filter(|one| one.recovered.is_none()).count();
        [
            ("grants", verdict.grants),
            ("faults", injected.len()),
            ("not_recovered", unrecovered),
            ("violations", self.violations()),
            ("excused_overlaps", verdict.excused),
            ("lost_leases", tally.lost as usize),
            ("stale_writes_refused", tally.writes_refused as usize),
            ("timed_out", tally.timed_out as usize),
            ("unreachable", tally.unreachable as usize),
            ("other_errors", tally.errors.len()),
        ]
    }

    fn examples(&self) -> impl Iterator<Item = &str> {
        self.verdict.fences.iter().chain(&self.verdict.overlaps).map(String::as_str).take(EXAMPLES_MAX)
    }
}

fn distinct(errors: &[String]) -> impl Iterator<Item = &str> {
    let mut errors: Vec<_> = errors.iter().map(String::as_str).collect();
    errors.sort_unstable();
    errors.dedup();
    errors.into_iter().take(EXAMPLES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn injected(kind: &'static str, recovered_s: Option<u64>) -> InjectedFault {
        InjectedFault { kind, at: 0, recovered: recovered_s.map(Duration::from_secs), window: None }
    }

    fn report(injected: Vec<InjectedFault>, verdict: Verdict) -> Report {
        Report {
            topology: Kind::Quorum,
            locks: load::Kind::Exclusive,
            seed: 7,
            lasted: Duration::from_secs(60),
            workers: 3,
            injected,
            tally: Tally::default(),
            verdict,
        }
    }

    fn verdict(grants: usize, overlaps: usize) -> Verdict {
        Verdict { grants, overlaps: vec!["two at once".into(); overlaps], ..Verdict::default() }
    }

    #[test]
    fn a_run_passes_only_with_grants_faults_recovery_and_no_violation() {
        let good = || injected("kill", Some(1));
        assert!(report(vec![good()], verdict(9, 0)).passed());
        assert!(!report(vec![good()], verdict(0, 0)).passed());
        assert!(!report(vec![], verdict(9, 0)).passed());
        assert!(!report(vec![good()], verdict(9, 1)).passed());
        assert!(!report(vec![good(), injected("stop", None)], verdict(9, 0)).passed());
    }

    #[test]
    fn recovery_is_told_by_kind_and_what_failed_is_named() {
        let faults = [Some(1), Some(2), Some(9), Some(4)].map(|time| injected("kill", time));
        let report = report(faults.into_iter().chain([injected("stop", None)]).collect(), verdict(9, 1));
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["by_kind"]["kill"], json!({ "faults": 4, "median_s": 3.0, "worst_s": 9.0 }));
        assert_eq!((&json["violations"], &json["not_recovered"]), (&json!(1), &json!(1)));
        assert_eq!((&json["topology"], &json["passed"]), (&json!("quorum"), &json!(false)));
        let table = report.table();
        assert!(table.contains("not recovered: stop") && table.contains("violation: two at once"), "{table}");
    }
}
