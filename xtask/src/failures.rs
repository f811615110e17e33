//! Extracts failures from the output of test binaries, to show them at the end of a long run.

/// A message of `assert_eq!` on large values can have megabytes.
const LONGEST: usize = 400;

/// Failed tests, each with its message.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    lines: Vec<String>,
    /// Of the running binary: tests that pass may panic and print, too.
    suspected: Vec<String>,
    /// The last line was the location of a panic; the next is its message.
    panicked: bool,
    /// The last result said that tests failed.
    has_verdict: bool,
}

impl Failures {
    /// Reads one line of test output; most lines are irrelevant.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(verdict) = line.strip_prefix("test result: ") {
            let suspected = std::mem::take(&mut self.suspected);
            self.has_verdict = verdict.starts_with("FAILED");
            if self.has_verdict {
                self.lines.extend(suspected);
            }
        } else if std::mem::take(&mut self.panicked) {
            self.add("    ", line);
        } else if line.starts_with("thread '") && line.contains(" panicked at ") {
            self.add("  ", line);
            self.panicked = true;
        } else if let Some(case) = line.strip_prefix("failed: ") {
            self.add("  ", case);
        } else if let Some(name) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.add("", name);
        }
    }

    /// A test binary has ended with an error. If none of its tests says why, it crashed.
    pub(crate) fn binary_failed(&mut self, name: &str) {
        let crashed_in = std::mem::take(&mut self.suspected);
        if !std::mem::take(&mut self.has_verdict) {
            self.lines.push(format!("{name} ended without a result"));
            self.lines.extend(crashed_in);
        }
    }

    /// One line each for a test, its location and its message.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    fn add(&mut self, indent: &str, text: &str) {
        let short: String = text.chars().take(LONGEST).collect();
        let cut = if short.len() < text.len() { " …" } else { "" };
        self.suspected.push(format!("{indent}{short}{cut}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(lines: &[&str]) -> Vec<String> {
        let mut failures = Failures::default();
        lines.iter().for_each(|line| failures.read(line));
        assert_eq!(failures.lines().count(), 0, "the binary has not ended");
        failures.read("test result: FAILED. 1 passed; 1 failed");
        failures.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_failure_is_its_name_its_place_and_its_first_line() {
        let lines = [
            "test lease::expires ... FAILED",
            "failures:",
            "---- lease::expires stdout ----",
            "thread 'lease::expires' (7) panicked at src/lease.rs:1:2:",
            "assertion `left == right` failed",
            "  left: 1",
        ];
        let place = "  thread 'lease::expires' (7) panicked at src/lease.rs:1:2:";
        assert_eq!(failures(&lines), ["lease::expires", place, "    assertion `left == right` failed"]);
    }

    #[test]
    fn conformance_cases_that_failed_are_among_them() {
        let lines = ["skipped: 1 x memory: it cannot", "failed: redis: a: why", "1 cases failed: redis: a"];
        assert_eq!(failures(&lines), ["  redis: a: why"]);
    }

    #[test]
    fn what_passing_binaries_print_is_no_failure() {
        let lines =
            ["failed: broken: a: why", "test result: ok. 9 passed; 0 failed", "failed: redis: b: why"];
        assert_eq!(failures(&lines), ["  redis: b: why"]);
    }

    #[test]
    fn a_binary_that_crashed_is_among_them_by_its_name() {
        let mut failures = Failures::default();
        failures.read("test result: FAILED. 1 passed; 1 failed");
        failures.binary_failed("leasehold/one");
        assert_eq!(failures.lines().count(), 0);
        failures.read("running 3 tests");
        failures.binary_failed("leasehold/other");
        assert_eq!(failures.lines().collect::<Vec<_>>(), ["leasehold/other ended without a result"]);
    }

    #[test]
    fn long_messages_are_cut() {
        let long = format!("failed: {}", "ä".repeat(LONGEST + 1));
        let [line] = failures(&[&long]).try_into().unwrap();
        assert_eq!(line, format!("  {} …", "ä".repeat(LONGEST)));
    }
}
