//! The report of a run.

use super::Need;

/// The outcome of every case on one or more engines.
#[derive(Debug, Default)]
#[must_use = "failures are hidden until `conclude` is called"]
pub struct Report {
    engines: usize,
    cases: usize,
    passed: Vec<String>,
    failed: Vec<(String, String)>,
    skipped: Vec<Skipped>,
}

#[derive(Debug)]
struct Skipped {
    engine: String,
    case: String,
    need: Need,
    why: Option<&'static str>,
}

impl Report {
    pub(super) fn of_one_engine(cases: usize) -> Self {
        Self { engines: 1, cases, ..Self::default() }
    }

    pub(super) fn pass(&mut self, engine: &str, case: &str) {
        self.passed.push(format!("{engine}: {case}"));
    }

    pub(super) fn fail(&mut self, engine: &str, case: &str, why: &str) {
        // One line each: a message of `assert_eq!` has three.
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
        self.failed.push((format!("{engine}: {case}"), why));
    }

    /// `why` is the reason that the engine gives, if any.
    pub(super) fn skip(&mut self, engine: &str, case: &str, need: Need, why: Option<&'static str>) {
        let case = format!("{engine}: {case}");
        self.skipped.push(Skipped { engine: engine.to_owned(), case, need, why });
    }

    /// Both reports as one, if they are of the same cases.
    pub fn and(mut self, other: Self) -> Self {
        self.engines += other.engines;
        self.cases = self.cases.max(other.cases);
        self.passed.extend(other.passed);
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        self
    }

    /// The cases that failed, as `engine: case`, each with its message.
    pub fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.failed.iter().map(|(case, why)| (case.as_str(), why.as_str()))
    }

    /// The cases that passed, as `engine: case`.
    pub fn passed(&self) -> impl Iterator<Item = &str> {
        self.passed.iter().map(String::as_str)
    }

    /// The cases that were skipped, as `engine: case`, each with what was missing.
    pub fn skipped(&self) -> impl Iterator<Item = (&str, Need)> {
        self.skipped.iter().map(|skipped| (skipped.case.as_str(), skipped.need))
    }

    /// One line for each reason of skips, one for each failure, then one with the totals: the most important lines come last,
    /// at the end of a log.
    pub fn lines(&self) -> Vec<String> {
        let mut missing: Vec<(String, usize)> = Vec::new();
        for Skipped { engine, need, why, .. } in &self.skipped {
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            let line = format!("{engine}: {}{why}", need.lack());
            match missing.iter_mut().find(|(known, _)| *known == line) {
                Some((_, cases)) => *cases += 1,
                None => missing.push((line, 1)),
            }
        }
        let skipped = missing.into_iter().map(|(line, cases)| format!("skipped: {cases} x {line}"));
        let failed = self.failed.iter().map(|(case, why)| format!("failed: {case}: {why}"));
        let numbers = format!(
            "conformance: {} cases x {} engines, {} passed, {} failed, {} skipped",
            self.cases,
            self.engines,
            self.passed.len(),
            self.failed.len(),
            self.skipped.len()
        );
        skipped.chain(failed).chain([numbers]).collect()
    }

    /// Prints the report.
    #[expect(clippy::print_stdout, reason = "the report is the output of a run")]
    pub fn print(&self) {
        // In one piece: tests beside this one print too.
        println!("{}", self.lines().join("\n"));
    }

    /// Prints the report.
    ///
    /// # Panics
    /// When a case failed.
    #[track_caller]
    pub fn conclude(self) {
        self.print();
        let failed: Vec<_> = self.failed().map(|(case, _)| case).collect();
        assert!(failed.is_empty(), "{} cases failed: {}", failed.len(), failed.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_has_the_numbers_of_all_engines() {
        let mut one = Report::of_one_engine(3);
        one.pass("memory", "a");
        one.skip("memory", "b", Need::Wipe, None);
        let mut two = Report::of_one_engine(3);
        two.skip("redis", "a", Need::Records, Some("no memory"));
        two.skip("redis", "c", Need::Records, Some("no memory"));
        two.fail("redis", "b", "left: 1\n right: 2");
        assert_eq!(
            one.and(two).lines(),
            [
                "skipped: 1 x memory: the fixture cannot delete everything in the store",
                "skipped: 2 x redis: the store keeps no records (no memory)",
                "failed: redis: b: left: 1 right: 2",
                "conformance: 3 cases x 2 engines, 1 passed, 1 failed, 3 skipped",
            ]
        );
    }
}
