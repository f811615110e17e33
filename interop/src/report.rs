//! Lines while it runs, and the closing table.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Write, stdout},
};

use comfy_table::{Table, presets::ASCII_MARKDOWN};

use crate::{
    Failure,
    cases::{Case, Seen},
    library::Library,
    servers::Topology,
    torture::Score,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    Failed,
}

#[derive(Default)]
pub(crate) struct Report {
    /// By column and case.
    verdicts: BTreeMap<(String, &'static str), Verdict>,
    skipped: Vec<(&'static str, String)>,
    columns: Vec<(&'static Library, Topology)>,
    passed: u32,
    failed: u32,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn library(&mut self, library: &'static Library, version: &str, topology: Topology) {
        self.line(&format!("\n{version}, key {}NAME, {}", library.prefix(), topology.words()));
        self.columns.push((library, topology));
    }

    pub(crate) fn skipped(&mut self, library: &'static Library, why: &str) {
        self.line(&format!("\nskipped: {}: {why}", library.name()));
        let reason = why.lines().next().unwrap_or_default().to_owned();
        self.skipped.push((library.name(), reason));
        self.columns.push((library, Topology::One));
    }

    /// About the library that came last.
    pub(crate) fn case(&mut self, case: &Case, outcome: Seen) {
        let (library, topology) = self.columns.last().expect("a library came before");
        let column = library.on(*topology);
        let verdict = self.verdict(&column, case.title, outcome);
        self.verdicts.insert((column, case.title), verdict);
    }

    pub(crate) fn torture(&mut self, who: &str, outcome: Result<Vec<Score>, Failure>) {
        if let Ok(scores) = &outcome {
            let mut table = Table::new();
            table.load_style(ASCII_MARKDOWN);
            table.set_header(["process", "increments", "after another", "longest wait"]);
            for score in scores {
                let longest = format!("{:.1} s", score.longest.as_secs_f64());
                table.add_row([
                    &score.name,
                    &score.increments.to_string(),
                    &score.changes.to_string(),
                    &longest,
                ]);
            }
            self.line(&table.to_string());
        }
        let total = |scores: Vec<Score>| {
            let sum: u32 = scores.iter().map(|score| score.increments).sum();
            format!("exactly {sum}")
        };
        self.verdict(who, "the counter is exact", outcome.map(total));
    }

    fn verdict(&mut self, who: &str, title: &str, outcome: Seen) -> Verdict {
        let (verdict, detail) = match outcome {
            Ok(seen) => (Verdict::Ok, seen),
            Err(error) => (Verdict::Failed, error.to_string()),
        };
        match verdict {
            Verdict::Ok => self.passed += 1,
            Verdict::Failed => self.failed += 1,
        }
        let word = if verdict == Verdict::Ok { "ok    " } else { "FAILED" };
        let gap = if detail.is_empty() { "" } else { "; " };
        self.line(&format!("{word} {who}: {title}{gap}{detail}"));
        verdict
    }

    /// Prints a line at once: a run takes minutes.
    pub(crate) fn line(&self, line: &str) {
        // Fails only if nobody reads it.
        let _ = writeln!(stdout(), "{line}").and_then(|()| stdout().flush());
    }

    /// Prints the table; true if all is well.
    pub(crate) fn conclude(&self, no_skips: bool) -> bool {
        self.line(&format!("\n{}", self.table()));
        for (library, why) in &self.skipped {
            self.line(&format!("skipped: {library}: {why}"));
        }
        let (passed, failed, skipped) = (self.passed, self.failed, self.skipped.len());
        let libraries = if skipped == 1 { "library" } else { "libraries" };
        self.line(&format!("{passed} passed, {failed} failed, {skipped} {libraries} skipped"));
        let nothing = passed + failed == 0;
        if nothing {
            self.line("error: nothing was tried, because no toolchain is installed");
        }
        failed == 0 && !nothing && (skipped == 0 || !no_skips)
    }

    /// A row for each case, a column for each library and topology.
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        let names = self.columns.iter().map(|(library, topology)| library.on(*topology));
        table.set_header(std::iter::once("case".to_owned()).chain(names));
        let mut listed = BTreeSet::new();
        let all = self.columns.iter().flat_map(|(library, _)| library.cases());
        for case in all.filter(|case| listed.insert(case.title)) {
            let verdicts = self.columns.iter().map(|(library, topology)| self.word(library, *topology, case));
            table.add_row(std::iter::once(case.title).chain(verdicts));
        }
        table
    }

    fn word(&self, library: &Library, topology: Topology, case: &Case) -> &'static str {
        let is_skipped = self.skipped.iter().any(|(skipped, _)| *skipped == library.name());
        match self.verdicts.get(&(library.on(topology), case.title)) {
            Some(Verdict::Ok) => "ok",
            Some(Verdict::Failed) => "FAILED",
            None if is_skipped && library.cases().any(|other| other.title == case.title) => "skipped",
            None => "",
        }
    }
}
