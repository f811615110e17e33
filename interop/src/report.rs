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
    torture::Score,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    Failed,
}

#[derive(Default)]
pub(crate) struct Report {
    verdicts: BTreeMap<(&'static str, &'static str), Verdict>,
    skipped: Vec<(&'static str, String)>,
    /// In the order of the columns.
    libraries: Vec<&'static Library>,
    passed: u32,
    failed: u32,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn library(&mut self, library: &'static Library, version: &str) {
        self.line(&format!("\n{version}, key {}NAME", library.prefix()));
        self.libraries.push(library);
    }

    pub(crate) fn skipped(&mut self, library: &'static Library, why: &str) {
        self.line(&format!("\nskipped: {}: {why}", library.name()));
        let reason = why.lines().next().unwrap_or_default().to_owned();
        self.skipped.push((library.name(), reason));
        self.libraries.push(library);
    }

    pub(crate) fn case(&mut self, library: &'static Library, case: &Case, outcome: Seen) {
        let verdict = self.verdict(library.name(), case.title, outcome);
        self.verdicts.insert((library.name(), case.title), verdict);
    }

    pub(crate) fn torture(&mut self, outcome: Result<Vec<Score>, Failure>) {
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
        self.verdict("all at once", "the counter is exact", outcome.map(total));
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

    /// A row for each case, a column for each library.
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header(std::iter::once("case").chain(self.libraries.iter().map(|library| library.name())));
        let mut listed = BTreeSet::new();
        let all = self.libraries.iter().flat_map(|library| library.cases());
        for case in all.filter(|case| listed.insert(case.title)) {
            let verdicts = self.libraries.iter().map(|library| self.word(library, case));
            table.add_row(std::iter::once(case.title).chain(verdicts));
        }
        table
    }

    fn word(&self, library: &Library, case: &Case) -> &'static str {
        let is_skipped = self.skipped.iter().any(|(skipped, _)| *skipped == library.name());
        match self.verdicts.get(&(library.name(), case.title)) {
            Some(Verdict::Ok) => "ok",
            Some(Verdict::Failed) => "FAILED",
            None if is_skipped && library.cases().any(|other| other.title == case.title) => "skipped",
            None => "",
        }
    }
}
