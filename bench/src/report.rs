//! The report of a run: a table for people, one JSON object for programs.

use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use serde_json::{Map, Value, json};

use crate::spread::Spread;

/// The raw figures of one round, by name.
pub(crate) type Figures = Vec<(&'static str, f64)>;

/// One result: computed from each round's figures, then the median over rounds.
pub(crate) struct Ratio {
    pub(crate) key: &'static str,
    pub(crate) target: Target,
    pub(crate) of: fn(&Round) -> f64,
}

/// What a result should be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Printed for orientation.
    None,
}

impl Target {
    pub(crate) fn words(&self) -> Option<String> {
        match self {
            Self::AtMost(most) => Some(format!("<= {most}")),
            Self::AtLeast(least) => Some(format!(">= {least}")),
            Self::None => None,
        }
    }

    pub(crate) fn verdict(&self, value: f64) -> &'static str {
        match self {
            Self::AtMost(most) if value > *most => "missed",
            Self::AtLeast(least) if value < *least => "missed",
            Self::AtMost(_) | Self::AtLeast(_) => "met",
            Self::None => "",
        }
    }
}

/// The figures of one round.
#[derive(Default)]
pub(crate) struct Round(pub(crate) Figures);

impl Round {
    /// # Panics
    /// When no measurement gives a figure of that name.
    pub(crate) fn figure(&self, name: &str) -> f64 {
        let found = self.0.iter().find(|(figure, _)| *figure == name);
        found.unwrap_or_else(|| panic!("no figure {name:?}")).1
    }
}

pub(crate) struct Report<'a> {
    pub(crate) rounds: &'a [Round],
    pub(crate) ratios: &'a [Ratio],
}

impl Report<'_> {
    fn spread(&self, of: impl Fn(&Round) -> f64) -> Spread {
        Spread::of(self.rounds.iter().map(of))
    }

    /// Each raw figure, over all rounds.
    fn figures(&self) -> Vec<(&'static str, Spread)> {
        let mut names: Vec<_> = self.rounds[0].0.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.into_iter().map(|name| (name, self.spread(|round| round.figure(name)))).collect()
    }

    pub(crate) fn table(&self) -> String {
        let mut ratios = Table::new();
        ratios.load_style(UTF8_HORIZONTAL_ONLY);
        ratios.set_header(["result", "median", "min..max", "target", ""]);
        for ratio in self.ratios {
            let spread = self.spread(ratio.of);
            ratios.add_row([
                ratio.key.to_owned(),
                format!("{:.4}", spread.median),
                format!("{:.4}..{:.4}", spread.min, spread.max),
                ratio.target.words().unwrap_or_default(),
                ratio.target.verdict(spread.median).to_owned(),
            ]);
        }
        let mut figures = Table::new();
        figures.load_style(UTF8_HORIZONTAL_ONLY);
        figures.set_header(["figure", "median", "min..max"]);
        for (name, spread) in self.figures() {
            figures.add_row([
                name.to_owned(),
                format!("{:.2}", spread.median),
                format!("{:.2}..{:.2}", spread.min, spread.max),
            ]);
        }
        format!("{ratios}\n\n{figures}\n")
    }

    pub(crate) fn json(&self) -> String {
        let mut object = Map::new();
        object.insert("schema".into(), json!({ "version": "v1" }));
        object.insert("rounds".into(), json!(self.rounds.len()));
        for ratio in self.ratios {
            let mut result = numbers(self.spread(ratio.of));
            if let Some(target) = ratio.target.words() {
                result.insert("target".into(), json!(target));
            }
            object.insert(ratio.key.into(), Value::Object(result));
        }
        let figures = self
            .figures()
            .into_iter()
            .map(|(name, spread)| (name.to_owned(), Value::Object(numbers(spread))));
        object.insert("figures".into(), Value::Object(figures.collect()));
        format!("{}\n", Value::Object(object))
    }
}

pub(crate) fn numbers(spread: Spread) -> Map<String, Value> {
    let entries = [("median", spread.median), ("min", spread.min), ("max", spread.max)];
    entries.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
}
