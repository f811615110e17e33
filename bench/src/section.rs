//! What one workload gave: figures of every entrant, and how ours compare.

use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use serde_json::{Map, Value, json};

use crate::{
    contest::Results,
    goals,
    report::{Ratio, Round, Target, numbers},
    spread::Spread,
};

/// One result, by the key under which JSON has it.
pub(crate) struct Outcome {
    pub(crate) key: String,
    /// The same for people.
    pub(crate) words: String,
    pub(crate) spread: Spread,
    pub(crate) better: Better,
    pub(crate) against: Against,
    pub(crate) target: Target,
    /// Whether the target is for the worst round instead of the median.
    in_every_round: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// What ours is divided by.
pub(crate) enum Against {
    /// Another library.
    Peer,
    /// What no library can do without.
    Limit,
    /// A figure of ours, or ours over ours.
    Nobody,
}

impl Outcome {
    pub(crate) fn new(key: &str, words: &str, spread: Spread, better: Better, against: Against) -> Self {
        let goal = goals::of(key);
        Self {
            key: key.to_owned(),
            words: words.to_owned(),
            spread,
            better,
            against,
            target: goals::target(key),
            in_every_round: goal.is_some_and(|goal| goal.in_every_round),
        }
    }

    /// The value that the target is for.
    pub(crate) fn judged(&self) -> f64 {
        match (self.in_every_round, self.better) {
            (false, _) => self.spread.median,
            (true, Better::Lower) => self.spread.max,
            (true, Better::Higher) => self.spread.min,
        }
    }

    pub(crate) fn verdict(&self) -> &'static str {
        self.target.verdict(self.judged())
    }

    /// Whether a peer is better.
    pub(crate) fn is_lost(&self) -> bool {
        let loses = match self.better {
            Better::Lower => self.spread.median > 1.0,
            Better::Higher => self.spread.median < 1.0,
        };
        loses && matches!(self.against, Against::Peer)
    }
}

pub(crate) struct Section {
    pub(crate) key: String,
    pub(crate) title: String,
    /// Figures of each entrant.
    pub(crate) entrants: Vec<(String, Vec<(&'static str, Spread)>)>,
    /// Figures of no entrant.
    pub(crate) figures: Vec<(&'static str, Spread)>,
    pub(crate) outcomes: Vec<Outcome>,
    /// Who is missing and why, and what disturbed the rounds.
    pub(crate) notes: Vec<String>,
    pub(crate) chart: Option<Chart>,
}

/// The figure that a chart shows of every entrant.
pub(crate) struct Chart {
    pub(crate) figure: &'static str,
    pub(crate) caption: String,
}

impl Section {
    /// A contest.
    pub(crate) fn of(key: &str, title: &str, results: Results, outcomes: Vec<Outcome>) -> Self {
        let mut notes = results.notes.clone();
        if let (disturbed @ 1.., most) = results.disturbed() {
            notes.push(format!(
                "warning: others used the machine during {disturbed} of {} turns, up to {:.0} % of a core",
                results.others.len(),
                most * 100.0
            ));
        }
        let spreads = |values: Vec<f64>| Spread::of(values);
        let entrants = results.entrants.into_iter().map(|entrant| {
            let figures = entrant.figures.into_iter().map(|(name, values)| (name, spreads(values)));
            (entrant.label, figures.collect())
        });
        Self {
            key: key.to_owned(),
            title: title.to_owned(),
            entrants: entrants.collect(),
            figures: Vec::new(),
            outcomes,
            notes,
            chart: None,
        }
    }

    /// With a chart of one figure; the caption says what is better.
    pub(crate) fn charted(mut self, figure: &'static str, caption: impl Into<String>) -> Self {
        self.chart = Some(Chart { figure, caption: caption.into() });
        self
    }

    /// Measurements inside of this process.
    pub(crate) fn inside(key: &str, title: &str, rounds: &[Round], ratios: &[Ratio]) -> Self {
        let spread = |of: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(of));
        let outcome = |ratio: &Ratio| Outcome {
            key: ratio.key.to_owned(),
            words: ratio.key.replace('_', " "),
            spread: spread(&ratio.of),
            better: if matches!(ratio.target, Target::AtLeast(_)) { Better::Higher } else { Better::Lower },
            against: Against::Nobody,
            target: ratio.target,
            in_every_round: false,
        };
        let names = rounds[0].0.iter().map(|(name, _)| *name);
        Self {
            key: key.to_owned(),
            title: title.to_owned(),
            entrants: Vec::new(),
            figures: names.map(|name| (name, spread(&|round| round.figure(name)))).collect(),
            outcomes: ratios.iter().map(outcome).collect(),
            notes: Vec::new(),
            chart: None,
        }
    }

    /// The figures of entrants; ours has all of them.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.entrants.first().into_iter().flat_map(|(_, figures)| figures).map(|(name, _)| *name)
    }

    /// Each entrant with its medians, one for each column.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.entrants.iter().map(|(label, figures)| {
            let median = |column| {
                let found = figures.iter().find(|(name, _)| *name == column);
                found.map(|(_, spread)| rounded(spread.median)).unwrap_or_default()
            };
            (label.as_str(), self.columns().map(median).collect())
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        if !self.entrants.is_empty() {
            let mut table = table();
            table.set_header(std::iter::once("").chain(self.columns()));
            for (label, medians) in self.rows() {
                table.add_row(std::iter::once(label.to_owned()).chain(medians));
            }
            text += &format!("{table}\n");
        }
        if !self.figures.is_empty() {
            let mut table = table();
            table.set_header(["figure", "median", "min..max"]);
            for (name, spread) in &self.figures {
                table.add_row([(*name).to_owned(), rounded(spread.median), range(spread)]);
            }
            text += &format!("{table}\n");
        }
        if !self.outcomes.is_empty() {
            let mut table = table();
            table.set_header(["result", "median", "min..max", "goal", ""]);
            for outcome in &self.outcomes {
                table.add_row([
                    outcome.key.clone(),
                    rounded(outcome.spread.median),
                    range(&outcome.spread),
                    outcome.target.words().unwrap_or_default(),
                    outcome.verdict().to_owned(),
                ]);
            }
            text += &format!("{table}\n");
        }
        self.notes.iter().for_each(|note| text += &format!("{note}\n"));
        text
    }

    pub(crate) fn json(&self) -> Value {
        let of = |figures: &[(&'static str, Spread)]| -> Map<String, Value> {
            figures
                .iter()
                .map(|(name, spread)| ((*name).to_owned(), Value::Object(numbers(*spread))))
                .collect()
        };
        let entrants = self.entrants.iter().map(|(label, figures)| (label.clone(), of(figures).into()));
        json!({
            "title": self.title,
            "entrants": entrants.collect::<Map<_, _>>(),
            "figures": of(&self.figures),
            "notes": self.notes,
        })
    }
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table
}

fn range(spread: &Spread) -> String {
    format!("{}..{}", rounded(spread.min), rounded(spread.max))
}

/// Three digits that count.
pub(crate) fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
