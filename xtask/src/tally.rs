//! Counts tests from the output of test binaries.

use std::fmt;

/// The last line of `cargo xtask test`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// Adds one line of test output; most lines are irrelevant.
    ///
    /// Conformance cases run inside libtest tests, which count as passed or failed already. Only libtest does
    /// not know how many of them found no server, so only those are added.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            // The verdict (`ok.`, `FAILED.`) stands before the first number.
            let counts = counts.split_once(". ").map_or("", |(_verdict, counts)| counts);
            self.passed += number_before(counts, "passed");
            self.failed += number_before(counts, "failed");
            self.skipped += number_before(counts, "ignored");
        } else if let Some((_, counts)) = line.split_once("conformance: ") {
            // Not only at the start of a line: libtest may have begun it with the name of the test.
            self.skipped += number_before(counts, "skipped");
        }
    }
}

fn number_before(counts: &str, label: &str) -> u64 {
    let labelled = counts.split([';', ',']).filter_map(|part| part.trim().split_once(' '));
    labelled.filter(|(_, word)| *word == label).filter_map(|(number, _)| number.parse::<u64>().ok()).sum()
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
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

    #[test]
    fn results_of_all_binaries_add_up() {
        let tally = tally(&[
            "running 3 tests",
            "test lease::expires ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.20s",
        ]);
        assert_eq!(tally, Tally { passed: 13, failed: 2, skipped: 1 });
    }

    #[test]
    fn conformance_adds_only_what_libtest_cannot_know() {
        let counts = "conformance: 40 cases x 3 engines, 80 passed, 1 failed, 39 skipped";
        assert_eq!(tally(&[counts]), Tally { skipped: 39, ..Tally::default() });
        assert_eq!(tally(&[&format!("test redis ... {counts}")]), Tally { skipped: 39, ..Tally::default() });
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(tally(&["", "5 passed", "test result: unknown", "conformance: none"]), Tally::default());
    }

    #[test]
    fn the_closing_line_has_three_numbers() {
        let tally = Tally { passed: 13, failed: 2, skipped: 1 };
        assert_eq!(tally.to_string(), "13 passed, 2 failed, 1 skipped");
    }
}
