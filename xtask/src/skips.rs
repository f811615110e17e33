//! Why tests were skipped: one line per reason, which add up to the number in the last line.

use std::collections::{BTreeMap, BTreeSet};

/// A skip that gave no reason. It still counts.
const NO_REASON: &str = "no reason given";

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Skips {
    reasons: BTreeMap<String, Reason>,
    /// Reasons whose total has not been printed yet.
    ignored: Vec<Skipped>,
    cases: Vec<Skipped>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Reason {
    count: u64,
    /// Engines whose conformance cases are among them.
    engines: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Skipped {
    count: u64,
    reason: String,
    engine: Option<String>,
}

impl Skips {
    pub(crate) fn add(&mut self, count: u64, reason: &str) {
        self.insert(Skipped { count, reason: reason.to_owned(), engine: None });
    }

    pub(crate) fn merge(&mut self, other: Skips) {
        for (reason, Reason { count, engines }) in other.reasons {
            let known = self.reasons.entry(reason).or_default();
            known.count += count;
            known.engines.extend(engines);
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.reasons.values().map(|reason| reason.count).sum()
    }

    /// The most frequent reason first.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, reason)| std::cmp::Reverse(reason.count));
        reasons.into_iter().map(|(text, Reason { count, engines })| {
            let engines = engines.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let engines = if engines.is_empty() { engines } else { format!(" ({engines})") };
            format!("skipped {count}: {text}{engines}")
        })
    }

    /// Reads one line of a test binary's standard output; most lines are irrelevant.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(skipped) = ignored_test(line) {
            self.ignored.push(skipped);
        } else if let Some(skipped) = skipped_cases(line) {
            self.cases.push(skipped);
        }
    }

    /// libtest has printed how many tests it ignored.
    pub(crate) fn end_of_binary(&mut self, ignored: u64) {
        let reasons = std::mem::take(&mut self.ignored);
        self.cases.clear();
        self.settle(reasons, ignored);
    }

    /// The conformance suite has printed how many cases it skipped.
    pub(crate) fn end_of_suite(&mut self, skipped: u64) {
        let reasons = std::mem::take(&mut self.cases);
        self.settle(reasons, skipped);
    }

    /// The totals are what counts: a reason that could not be read must not make a skip disappear.
    fn settle(&mut self, reasons: Vec<Skipped>, total: u64) {
        let explained: u64 = reasons.iter().map(|skipped| skipped.count).sum();
        if explained <= total {
            reasons.into_iter().for_each(|skipped| self.insert(skipped));
            self.add(total - explained, NO_REASON);
        } else {
            self.add(total, NO_REASON);
        }
    }

    fn insert(&mut self, Skipped { count, reason, engine }: Skipped) {
        if count > 0 {
            let known = self.reasons.entry(reason).or_default();
            known.count += count;
            known.engines.extend(engine);
        }
    }
}

/// `test NAME ... ignored, REASON`, as libtest prints it.
fn ignored_test(line: &str) -> Option<Skipped> {
    let (_, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ignored")?;
    let reason = outcome.strip_prefix(", ").unwrap_or(NO_REASON).to_owned();
    Some(Skipped { count: 1, reason, engine: None })
}

/// `skipped: N x ENGINE, VARIANT: REASON (DETAILS)`, as a report of the conformance suite prints it.
fn skipped_cases(line: &str) -> Option<Skipped> {
    // Not only at the start of a line: libtest may have begun it with the name of the test.
    let (_, skipped) = line.split_once("skipped: ")?;
    let (count, rest) = skipped.split_once(" x ")?;
    let (label, reason) = rest.split_once(": ")?;
    let engine = label.split(',').next().map(str::to_owned);
    let reason = reason.split(" (").next().unwrap_or(reason).to_owned();
    Some(Skipped { count: count.parse().ok()?, reason, engine })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_of_one_reason_add_up_over_engines_and_their_variants() {
        let mut skips = Skips::default();
        skips.read(
            "skipped: 40 x quorum: the store keeps no records (one majority may miss what another has)",
        );
        skips.read("skipped: 2 x quorum: it cannot");
        skips.end_of_suite(42);
        skips.read("test redis ... skipped: 40 x quorum, one dead: the store keeps no records (so it is)");
        skips.end_of_suite(40);
        skips.read("skipped: 3 x memory: it cannot");
        skips.end_of_suite(3);
        let lines: Vec<_> = skips.lines().collect();
        assert_eq!(
            lines,
            ["skipped 80: the store keeps no records (quorum)", "skipped 5: it cannot (memory, quorum)"]
        );
    }

    #[test]
    fn ignored_tests_have_the_reason_of_their_attribute() {
        let mut skips = Skips::default();
        skips.read("test slow ... ignored, takes an hour");
        skips.read("test src/lib.rs - Fence (line 7) ... ignored");
        skips.read("test quick ... ok");
        skips.end_of_binary(2);
        assert_eq!(
            skips.lines().collect::<Vec<_>>(),
            ["skipped 1: no reason given", "skipped 1: takes an hour"]
        );
    }

    #[test]
    fn the_total_counts_even_if_its_reasons_were_not_understood() {
        let mut skips = Skips::default();
        skips.read("skipped 5 cases, in a format of the future");
        skips.end_of_suite(5);
        skips.read("skipped: 9 x redis: more than there are");
        skips.end_of_suite(2);
        assert_eq!(skips.lines().collect::<Vec<_>>(), ["skipped 7: no reason given"]);
    }
}
