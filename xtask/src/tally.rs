//! Counts tests from the output of test binaries.

use std::fmt;

use crate::skips::Skips;

/// The last line of `cargo xtask test`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skips: Skips,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skips.merge(other.skips);
    }

    /// Prints why tests were skipped, then the numbers; true if none failed.
    pub(crate) fn conclude(&self) -> bool {
        self.skips.lines().for_each(|line| println!("{line}"));
        println!("{self}");
        self.failed == 0
    }

    /// Adds one line of a test binary's standard output; most lines are irrelevant.
    ///
    /// Conformance cases run inside libtest tests, which count as passed or failed already. Only libtest does
    /// not know how many of them were skipped, so only those are added.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            // The verdict (`ok.`, `FAILED.`) stands before the first number.
            let counts = counts.split_once(". ").map_or("", |(_verdict, counts)| counts);
            self.passed += number_before(counts, "passed");
            self.failed += number_before(counts, "failed");
            self.skips.end_of_binary(number_before(counts, "ignored"));
        } else if let Some((_, counts)) = line.split_once("conformance: ") {
            // Not only at the start of a line: libtest may have begun it with the name of the test.
            self.skips.end_of_suite(number_before(counts, "skipped"));
        } else {
            self.skips.read(line);
        }
    }

    /// Adds one line of a test binary's standard error.
    ///
    /// A test that finds at run time that it cannot run here says so and returns: libtest counts it as passed.
    pub(crate) fn read_error(&mut self, line: &str) {
        if let Some(reason) = line.strip_prefix("skipped: ") {
            self.passed = self.passed.saturating_sub(1);
            self.skips.add(1, reason);
        }
    }
}

fn number_before(counts: &str, label: &str) -> u64 {
    let labelled = counts.split([';', ',']).filter_map(|part| part.trim().split_once(' '));
    labelled.filter(|(_, word)| *word == label).filter_map(|(number, _)| number.parse::<u64>().ok()).sum()
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skips.total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.read(line));
        tally
    }

    /// Passed, failed, skipped.
    fn numbers(lines: &[&str]) -> (u64, u64, u64) {
        let tally = tally(lines);
        (tally.passed, tally.failed, tally.skips.total())
    }

    #[test]
    fn results_of_all_binaries_add_up() {
        let lines = [
            "running 3 tests",
            "test lease::expires ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.20s",
        ];
        assert_eq!(numbers(&lines), (13, 2, 1));
    }

    #[test]
    fn conformance_adds_only_what_libtest_cannot_know() {
        let counts = "conformance: 40 cases x 3 engines, 80 passed, 1 failed, 39 skipped";
        assert_eq!(numbers(&[counts]), (0, 0, 39));
        assert_eq!(numbers(&[&format!("test redis ... {counts}")]), (0, 0, 39));
    }

    #[test]
    fn a_test_that_skips_itself_is_skipped_not_passed() {
        let mut tally =
            tally(&["test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"]);
        tally.read_error("skipped: no `redis-server` here");
        tally.read_error("a line of something else");
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 1 skipped");
        assert_eq!(tally.skips.lines().collect::<Vec<_>>(), ["skipped 1: no `redis-server` here"]);
    }

    /// What a binary prints when libtest captured it: the list of tests, then what they printed.
    #[test]
    fn the_reasons_add_up_to_the_number_in_the_last_line() {
        let mut tally = tally(&[
            "running 4 tests",
            "test long ... ignored, takes an hour",
            "test quorum_conforms ... ok",
            "test redis_conforms ... ok",
            "test valkey_only ... ok",
            "successes:",
            "---- quorum_conforms stdout ----",
            "skipped: 41 x quorum: the store keeps no records (why)",
            "skipped: 7 x quorum: the fixture cannot make the store unreachable",
            "conformance: 200 cases x 1 engines, 152 passed, 0 failed, 48 skipped",
            "---- redis_conforms stdout ----",
            "skipped: 9 x redis, en_US.UTF-8: the store does not follow tokio's paused clock",
            "conformance: 200 cases x 1 engines, 190 passed, 0 failed, 10 skipped",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ]);
        tally.read_error("skipped: the server cannot compare and delete");
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 60 skipped");
        let lines: Vec<_> = tally.skips.lines().collect();
        assert_eq!(lines[0], "skipped 41: the store keeps no records (quorum)");
        let number =
            |line: &String| line.split([' ', ':']).nth(1).and_then(|number| number.parse::<u64>().ok());
        assert_eq!(lines.iter().filter_map(number).sum::<u64>(), 60, "{lines:?}");
        assert_eq!(lines.len(), 6, "{lines:?}");
    }

    #[test]
    fn other_lines_count_nothing() {
        let lines = ["", "5 passed", "test result: unknown", "conformance: none"];
        assert_eq!(numbers(&lines), (0, 0, 0));
    }

    #[test]
    fn the_closing_line_has_three_numbers() {
        let mut tally = Tally { passed: 13, failed: 2, ..Tally::default() };
        tally.skips.add(1, "because");
        assert_eq!(tally.to_string(), "13 passed, 2 failed, 1 skipped");
    }
}
