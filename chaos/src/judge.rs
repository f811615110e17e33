//! The verdict on the histories of all processes.

use std::{fs, path::PathBuf};

use leasehold_testkit::history::{History, check};

use crate::{Failure, load, workers::RunConfig};

/// A time window, on the clock of the histories, in which servers may have lost leases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) grants: usize,
    /// Writes that a fence-checking resource accepted or refused.
    pub(crate) writes: usize,
    /// Fences that repeat or decrease, and leaders replaced while they were at work. No topology allows that.
    pub(crate) fences: Vec<String>,
    /// Two holders at the same time that exclude each other, or too many permits.
    pub(crate) overlaps: Vec<String>,
    /// The same, where the topology may lose leases.
    pub(crate) excused: usize,
}

/// Reads all histories of a run.
pub(crate) fn judge(config: &RunConfig, windows: &[Window]) -> Result<Verdict, Failure> {
    let folder = &config.folder;
    let files = fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let is_history = |path: &&PathBuf| path.extension().is_some_and(|kind| kind == "events");
    let mut history = History::from_files(files.iter().filter(is_history))?;
    for load in load::both(config.kind, &config.stem, "", config.max_ttl, folder)? {
        history.writes.extend(History::from_events(load.writes()?)?.writes);
    }
    Ok(weigh(&history, windows))
}

fn weigh(history: &History, windows: &[Window]) -> Verdict {
    let writes = history.writes.values().map(Vec::len).sum();
    let mut verdict = Verdict { grants: history.granted(), writes, ..Verdict::default() };
    for violation in check(history) {
        match violation.lost_lease_at() {
            Some(at) if windows.iter().any(|window| (window.from..=window.until).contains(&at)) => {
                verdict.excused += 1;
            }
            Some(_) => verdict.overlaps.push(violation.to_string()),
            None => verdict.fences.push(violation.to_string()),
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `b` is granted at 30 while `a` is valid until 100, and with a smaller fence.
    const TWO_HOLDERS: &str = "invoked\ta\t1\tjob\t0\n\
                               granted\ta\t1\t8\t10\t100\n\
                               invoked\tb\t1\tjob\t20\n\
                               granted\tb\t1\t7\t30\t130\n";

    fn verdict(windows: &[Window]) -> Verdict {
        weigh(&History::from_text(TWO_HOLDERS).unwrap(), windows)
    }

    #[test]
    fn an_overlap_counts_unless_leases_may_have_been_forgotten_just_then() {
        for (windows, overlaps, excused) in [
            (&[][..], 1, 0),
            (&[Window { from: 31, until: 200 }], 1, 0),
            (&[Window { from: 0, until: 29 }, Window { from: 5, until: 30 }], 0, 1),
        ] {
            let verdict = verdict(windows);
            assert_eq!((verdict.overlaps.len(), verdict.excused), (overlaps, excused), "{windows:?}");
        }
    }

    #[test]
    fn nothing_excuses_a_fence_that_goes_down() {
        assert_eq!(verdict(&[Window { from: 0, until: u64::MAX }]).fences.len(), 1);
    }
}
