//! `docs/benchmarks.md` and its charts, from one run.

mod chart;

use std::{fs, path::Path};

use crate::{
    Failure,
    goals::{GOALS, Goal},
    section::{Against, Outcome, Section, rounded},
    spread::Spread,
};

/// All that the page tells.
pub(crate) struct Page<'a> {
    pub(crate) sections: &'a [Section],
    /// Peers that could not be built, and why.
    pub(crate) skipped: &'a [String],
    /// Versions of everything.
    pub(crate) facts: &'a [(String, String)],
    pub(crate) command: String,
    pub(crate) is_quick: bool,
}

const HOW: &str = "\
Every library runs in a process of its own, in its own language, pinned to one core; the server has the other. All take
turns on the same server, in an order that changes from round to round, and a ratio compares two turns of the same round.
Tables show the median of all rounds; behind ratios are the lowest and the highest round. A ratio within 15 % of 1 means
nothing. *mt* and *ct* are tokio's multi-thread runtime with two workers and its current-thread runtime. *Two PINGs*, *raw
scripts*, *PUBLISH* and *bare keys* are no libraries but limits: the least that the work costs on a bare connection. The nodes
of a quorum share the server's core. On a virtual machine, what its host takes counts as use by others. Sections without a
table of libraries were measured inside of one process, not pinned.
";

const GOALS_HEAD: &str = "\n## Goals\n\n| | median | goal | |\n|---|---|---|---|\n";

/// Why a goal is missed: counted once, by hand, because it takes a server under valgrind.
const BETWEEN: &str = "
## What stands between

Instructions of an acquire and a release, counted by callgrind (redis-server 7.0.15, tokio's current-thread runtime, calls of 32
operations where there are 64 tasks). The clients of both libraries cost about the same or ours less; the server does more for
ours, because a grant takes a fence and looks at the queue and at the tombstone of its attempt.

| | client, ours | client, rslock | server, ours | server, rslock |
|---|---|---|---|---|
| one task | 42,234 | 42,249 | 87,680 | 33,994 |
| 64 tasks | 24,751 | 34,201 | 38,565 | 31,761 |
| 64 tasks on three nodes, per node | 42,800 in all | 93,142 in all | 55,115 | 31,761 |

- *One task*: six commands in two scripts, against one SET and one script with two commands.
- *64 tasks*: where the server's core is the limit, 31,761 / 38,565 = 0.82 of rslock's throughput is the most that this layout can
  reach; where the client's core is the limit, 34,201 / 24,751 = 1.38 of it.
- *Quorum*: the nodes share one core, so the server is the limit. A vote writes two keys, the lock and the fence of its name.
- *Hand-over*: a PUBLISH costs the server 8,180 instructions. The script around it costs 92,199: seven commands that take the
  next live waiter from the queue, assign its fence, and write the lock before anybody hears of it.
- *Redisson's fenced lock*: a twelfth of the 205 µs that its busier side takes for a cycle is 17 µs. Two bare PINGs take 20.6 µs on
  tokio's multi-thread runtime with 64 tasks, and our cycle takes 16.
- *Contention*: holds of 2 ms follow each other by one hand-over, which takes 1.2 to 1.4 x as long as a PUBLISH that reaches its
  subscriber. With the 0.45 ms of a PUBLISH here nothing can come below 1.22.
- *Kept alive*: a renewal costs the server 14,650 instructions where Redisson's costs 15,861 (100 in a call). 7,202 more make the
  server report the loss of a lock at once: it forgets whom to tell with every write, and remembers again.
";

impl Page<'_> {
    /// Writes `benchmarks.md` and `benchmarks/*.svg`; charts of earlier runs are removed.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), Failure> {
        let charts = folder.join("benchmarks");
        if charts.exists() {
            fs::remove_dir_all(&charts)?;
        }
        fs::create_dir_all(&charts)?;
        for section in self.sections {
            if let Some(svg) = chart_of(section) {
                fs::write(charts.join(format!("{}.svg", section.key)), svg)?;
            }
        }
        Ok(fs::write(folder.join("benchmarks.md"), self.markdown())?)
    }

    fn markdown(&self) -> String {
        let mut text = format!("# Benchmarks\n\nWritten by `{}`. Do not edit.\n\n", self.command);
        if self.is_quick {
            text += "**This was a quick run: it shows that everything runs, the numbers mean little.**\n\n";
        }
        text += HOW;
        text += &self.goals();
        text += BETWEEN;
        text += &self.lost();
        for section in self.sections {
            text += &section_text(section);
        }
        text += "\n## Versions\n\n| | |\n|---|---|\n";
        for (name, value) in self.facts {
            text += &format!("| {name} | {value} |\n");
        }
        if !self.skipped.is_empty() {
            text += "\nSkipped:\n\n";
            self.skipped.iter().for_each(|skipped| text += &format!("- {}\n", one_line(skipped)));
        }
        text
    }

    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.sections.iter().flat_map(|section| &section.outcomes)
    }

    fn goals(&self) -> String {
        let mut text = GOALS_HEAD.to_owned();
        for Goal { key, target, needs_peers, in_every_round } in &GOALS {
            let goal = target.words().unwrap_or_default();
            text += &match self.outcomes().find(|outcome| outcome.key == *key) {
                Some(outcome) => {
                    let verdict = if outcome.verdict() == "met" { "reached" } else { "**missed**" };
                    let worst = if *in_every_round { ", worst round" } else { "" };
                    format!(
                        "| {}{worst} | {} | {goal} | {verdict} |\n",
                        outcome.words,
                        rounded(outcome.judged())
                    )
                }
                None => {
                    let why = if *needs_peers { "not measured: needs `--peers`" } else { "not measured" };
                    format!("| {} | | {goal} | {why} |\n", key.replace('_', " "))
                }
            };
        }
        text
    }

    fn lost(&self) -> String {
        let lost: Vec<_> = self.outcomes().filter(|outcome| outcome.is_lost()).collect();
        if lost.is_empty() {
            return "\n## Where we lose\n\nIn no comparison of this run.\n".to_owned();
        }
        let mut text =
            "\n## Where we lose\n\nEvery comparison in which another library is better:\n\n".to_owned();
        text += "| ours / theirs | median | rounds |\n|---|---|---|\n";
        for Outcome { words, spread, .. } in lost {
            text += &format!("| {words} | {} | {} |\n", rounded(spread.median), range(spread));
        }
        text
    }
}

fn section_text(section: &Section) -> String {
    let mut text = format!("\n## {}\n\n", section.title);
    if chart_of(section).is_some() {
        text += &format!("![{}](benchmarks/{}.svg)\n\n", section.title, section.key);
    }
    if !section.entrants.is_empty() {
        let names: Vec<_> = section.columns().map(heading).collect();
        text += &format!("| | {} |\n|---{}|\n", names.join(" | "), "|---".repeat(names.len()));
        for (label, medians) in section.rows() {
            text += &format!("| {label} | {} |\n", medians.join(" | "));
        }
        text += "\n";
    }
    if !section.outcomes.is_empty() {
        text += "| result | median | rounds |\n|---|---|---|\n";
        for Outcome { words, spread, against, .. } in &section.outcomes {
            let words = if matches!(against, Against::Limit) { format!("*{words}*") } else { words.clone() };
            text += &format!("| {words} | {} | {} |\n", rounded(spread.median), range(spread));
        }
    }
    if !section.notes.is_empty() {
        text += "\n";
        section.notes.iter().for_each(|note| text += &format!("- {}\n", one_line(note)));
    }
    text
}

fn chart_of(section: &Section) -> Option<String> {
    let shown = section.chart.as_ref()?;
    let values = section.entrants.iter().filter_map(|(label, figures)| {
        let (_, spread) = figures.iter().find(|(name, _)| *name == shown.figure)?;
        Some((label.as_str(), *spread))
    });
    let values: Vec<_> = values.collect();
    (!values.is_empty()).then(|| chart::bars(&shown.caption, &values))
}

fn range(spread: &Spread) -> String {
    format!("{} to {}", rounded(spread.min), rounded(spread.max))
}

/// `client_cpu_us` as people write it.
fn heading(figure: &str) -> String {
    let words = figure.replace("_per_s", "/s").replace('_', " ").replace("cpu", "CPU");
    match words.strip_suffix(" us") {
        Some(words) => format!("{words}, µs"),
        None => words,
    }
}

fn one_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Better;

    fn outcome(key: &str, median: f64, better: Better, against: Against) -> Outcome {
        Outcome::new(key, &format!("words of {key}"), Spread::of([median]), better, against)
    }

    fn page(outcomes: Vec<Outcome>) -> String {
        let section = Section { outcomes, ..Section::inside("k", "Title", &[Default::default()], &[]) };
        let facts = [("server".to_owned(), "redis-server 7".to_owned())];
        let skipped = ["redsync: no go\ndetails".to_owned()];
        let command = "cargo xtask bench".to_owned();
        let sections = &[section];
        Page { sections, skipped: &skipped, facts: &facts, command, is_quick: false }.markdown()
    }

    #[test]
    fn a_peer_that_is_better_is_listed_and_a_limit_is_not() {
        let text = page(vec![
            outcome("slower", 1.2, Better::Lower, Against::Peer),
            outcome("faster", 0.8, Better::Lower, Against::Peer),
            outcome("fewer", 0.8, Better::Higher, Against::Peer),
            outcome("above_limit", 1.5, Better::Lower, Against::Limit),
            outcome("own", 1.5, Better::Lower, Against::Nobody),
        ]);
        let lost = text.split("## Where we lose").nth(1).unwrap().split("\n## ").next().unwrap();
        assert!(lost.contains("words of slower") && lost.contains("words of fewer"), "{lost}");
        assert!(!lost.contains("faster") && !lost.contains("limit") && !lost.contains("own"), "{lost}");
        assert!(page(Vec::new()).contains("In no comparison of this run."));
    }

    #[test]
    fn goals_are_reached_missed_or_not_measured() {
        let text = page(vec![
            outcome("cycle_p50_vs_rslock", 1.0, Better::Lower, Against::Peer),
            outcome("throughput_64_vs_rslock", 1.0, Better::Higher, Against::Peer),
        ]);
        assert!(text.contains("| words of cycle_p50_vs_rslock | 1.00 | <= 1.1 | reached |"), "{text}");
        assert!(text.contains("| words of throughput_64_vs_rslock | 1.00 | >= 1.8 | **missed** |"), "{text}");
        assert!(text.contains("| >= 12 | not measured: needs `--peers` |"), "{text}");
    }

    #[test]
    fn what_must_never_happen_is_judged_by_the_worst_round() {
        let key = "quorum_3_killed_vs_healthy";
        let rounds = Spread::of([1.0, 1.0, 0.5]);
        let text = page(vec![Outcome::new(key, "killed", rounds, Better::Higher, Against::Nobody)]);
        assert!(text.contains("| killed, worst round | 0.50 | >= 0.9 | **missed** |"), "{text}");
    }

    #[test]
    fn versions_and_what_was_skipped_are_named() {
        let text = page(Vec::new());
        assert!(text.contains("| server | redis-server 7 |\n\nSkipped:\n\n- redsync: no go\n"), "{text}");
    }

    #[test]
    fn headings_have_units() {
        assert_eq!(heading("client_cpu_us"), "client CPU, µs");
        assert_eq!(heading("cycles_per_s"), "cycles/s");
        assert_eq!(heading("total_per_holds"), "total per holds");
    }
}
