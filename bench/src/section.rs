//! What one workload gave: figures of every entrant, and how ours compare.

use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use serde_json::{Map, Value, json};

use crate::{
    contest::{DISTURBED, Results},
    report::{Target, numbers},
    spread::Spread,
};

/// One comparison, by the key under which JSON has it.
pub(crate) struct Outcome {
    pub(crate) key: String,
    pub(crate) spread: Spread,
    pub(crate) target: Target,
}

pub(crate) struct Section {
    key: String,
    title: String,
    /// Figures of each entrant.
    entrants: Vec<(String, Vec<(String, Spread)>)>,
    outcomes: Vec<Outcome>,
    /// Turns during which others used a part of the machine, of all turns, and the largest part.
    disturbed: (usize, usize, f64),
}

impl Section {
    pub(crate) fn new(key: &str, title: &str, results: Results, outcomes: Vec<Outcome>) -> Self {
        let Results { mut entrants, others } = results;
        entrants.sort_by(|(one, _), (other, _)| one.cmp(other));
        let spreads = |figures: std::collections::BTreeMap<String, Vec<f64>>| {
            figures.into_iter().map(|(name, values)| (name, Spread::of(values))).collect()
        };
        let disturbed = others.iter().filter(|share| **share >= DISTURBED).count();
        let most = others.iter().copied().fold(0.0, f64::max);
        Self {
            key: key.to_owned(),
            title: title.to_owned(),
            entrants: entrants.into_iter().map(|(label, figures)| (label, spreads(figures))).collect(),
            outcomes,
            disturbed: (disturbed, others.len(), most),
        }
    }

    pub(crate) fn table(&self) -> String {
        let mut text = format!("{}\n", self.title);
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        if let Some((_, figures)) = self.entrants.first() {
            let names = figures.iter().map(|(name, _)| name.as_str());
            table.set_header(std::iter::once("").chain(names));
        }
        for (label, figures) in &self.entrants {
            let numbers = figures.iter().map(|(_, spread)| format!("{:.1}", spread.median));
            table.add_row(std::iter::once(label.clone()).chain(numbers));
        }
        text += &format!("{table}\n");
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY);
        table.set_header(["ours / theirs, by round", "median", "min..max", "goal", ""]);
        for Outcome { key, spread, target } in &self.outcomes {
            table.add_row([
                key.clone(),
                format!("{:.2}", spread.median),
                format!("{:.2}..{:.2}", spread.min, spread.max),
                target.words().unwrap_or_default(),
                target.verdict(spread.median).to_owned(),
            ]);
        }
        text += &format!("{table}\n");
        if let (disturbed @ 1.., turns, most) = self.disturbed {
            text += &format!(
                "warning: others used the machine during {disturbed} of {turns} turns, up to {:.0} % of a core\n",
                most * 100.0
            );
        }
        text
    }

    fn json(&self) -> Value {
        let of = |figures: &Vec<(String, Spread)>| -> Map<String, Value> {
            figures.iter().map(|(name, spread)| (name.clone(), Value::Object(numbers(*spread)))).collect()
        };
        let entrants: Map<_, _> = self
            .entrants
            .iter()
            .map(|(label, figures)| (label.clone(), Value::Object(of(figures))))
            .collect();
        let (disturbed, turns, most) = self.disturbed;
        json!({
            "title": self.title,
            "entrants": entrants,
            "turns": turns,
            "disturbed_turns": disturbed,
            "others_core_share_max": most,
        })
    }
}

/// All sections; the comparisons are at the top.
pub(crate) fn json(sections: &[Section]) -> String {
    let mut object = Map::new();
    object.insert("schema".into(), json!({ "version": "v2" }));
    for outcome in sections.iter().flat_map(|section| &section.outcomes) {
        let mut result = numbers(outcome.spread);
        if let Some(target) = outcome.target.words() {
            result.insert("target".into(), json!(target));
            result.insert("verdict".into(), json!(outcome.target.verdict(outcome.spread.median)));
        }
        object.insert(outcome.key.clone(), Value::Object(result));
    }
    let workloads = sections.iter().map(|section| (section.key.clone(), section.json()));
    object.insert("workloads".into(), Value::Object(workloads.collect()));
    format!("{}\n", Value::Object(object))
}
