//! The verdict of the judge, and how it is shown.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::show::{BAD, GOOD, SMALL, TITLE, grouped, styled};

/// Widest bar of a chart.
const BAR: usize = 40;

/// Whether the invariant held, point by point.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Verdict {
    points: Vec<Point>,
    /// Titles, labels and heights.
    charts: Vec<(String, Vec<(String, u64)>)>,
    /// The worst of what broke: how often, and what.
    damage: (u64, String),
}

#[derive(Serialize, Deserialize)]
struct Point {
    what: String,
    wanted: String,
    found: String,
    held: bool,
}

impl Verdict {
    /// A part of the invariant: `found` must equal `wanted`.
    pub(crate) fn expects<T: PartialEq + ToString>(mut self, what: &str, wanted: T, found: T) -> Self {
        self.points.push(Point {
            what: what.into(),
            held: wanted == found,
            wanted: wanted.to_string(),
            found: found.to_string(),
        });
        self
    }

    /// A fact that is not part of the invariant.
    pub(crate) fn reports(mut self, what: &str, found: impl ToString) -> Self {
        let point = Point { what: what.into(), wanted: String::new(), found: found.to_string(), held: true };
        self.points.push(point);
        self
    }

    /// A small chart.
    pub(crate) fn chart(mut self, title: &str, bars: Vec<(String, u64)>) -> Self {
        self.charts.push((title.into(), bars));
        self
    }

    /// The damage that people would talk about, if there is any.
    pub(crate) fn damage(mut self, count: u64, what: &str) -> Self {
        self.damage = (count, what.into());
        self
    }

    /// The damage in a few words; `None` if the invariant held.
    pub(crate) fn worst(&self) -> Option<String> {
        match &self.damage {
            (0, _) if self.held() => None,
            (0, _) => Some("broke, as shown above".into()),
            (count, what) => Some(format!("{} {what}", grouped(*count))),
        }
    }

    /// Whether the whole invariant held.
    pub(crate) fn held(&self) -> bool {
        self.points.iter().all(|point| point.held)
    }

    /// As JSON.
    pub(crate) fn to_json(&self, demo: &str, coordinated: bool) -> serde_json::Result<String> {
        let Self { points, .. } = self;
        let verdict = serde_json::json!({
            "schema": { "version": "v1" }, "demo": demo, "coordinated": coordinated, "held": self.held(),
            "points": points,
        });
        serde_json::to_string(&verdict)
    }

    /// As text.
    pub(crate) fn show(&self) -> String {
        let mut text = String::new();
        let width = self.points.iter().map(|point| point.what.chars().count()).max().unwrap_or(0);
        for Point { what, wanted, found, held } in &self.points {
            let (wanted, found) = (readable(wanted), readable(found));
            let line = match (wanted.as_str(), held) {
                ("", _) => format!("    {what:width$}  {found}"),
                (_, true) => format!("  {} {what:width$}  {found}", styled(GOOD, "✓")),
                (_, false) => {
                    let found = styled(BAD, format_args!("{found}, not {wanted}"));
                    format!("  {} {what:width$}  {found}", styled(BAD, "✗"))
                }
            };
            let _infallible = writeln!(text, "{line}");
        }
        for (title, bars) in &self.charts {
            let _infallible = writeln!(text, "\n  {}", styled(SMALL, title));
            let width = bars.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
            let highest = bars.iter().map(|(_, height)| *height).max().unwrap_or(0).max(1);
            for (label, height) in bars {
                let length = (*height as usize * BAR).div_ceil(highest as usize);
                let height = grouped(*height);
                let _infallible = writeln!(text, "  {label:>width$} {} {height}", "█".repeat(length));
            }
        }
        text
    }
}

/// A number with its thousands apart; other text as it is.
fn readable(found: &str) -> String {
    found.parse().map_or_else(|_| found.into(), grouped)
}

/// The invariant of the same run with and without coordination, point by point.
pub(crate) fn compare(with: &Verdict, without: &Verdict) -> String {
    let points: Vec<_> = with.points.iter().filter(|point| !point.wanted.is_empty()).collect();
    let width = points.iter().map(|point| point.what.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    let head =
        format!("  the same run{:1$}  {2:>11}  {3:>9}", "", width.saturating_sub(12), "coordinated", "not");
    let _infallible = writeln!(text, "{}", styled(TITLE, head));
    for Point { what, found, held, .. } in points {
        let other = without.points.iter().find(|other| other.what == *what);
        let cell = |found: &str, held: bool, width: usize| {
            styled(if held { GOOD } else { BAD }, format_args!("{:>width$}", readable(found)))
        };
        let other = other.map_or_else(|| format!("{:>9}", "–"), |other| cell(&other.found, other.held, 9));
        let _infallible = writeln!(text, "  {what:width$}  {}  {other}", cell(found, *held, 11));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_shows_what_broke_and_the_expected_value() {
        let verdict = Verdict::default()
            .reports("buyers", 9)
            .expects("sold", 5_u64, 7_000)
            .damage(6_995, "oversold")
            .chart("sold by worker", vec![("1".into(), 4), ("2".into(), 0)]);
        assert!(!verdict.held());
        let shown = anstream::adapter::strip_str(&verdict.show()).to_string();
        assert!(shown.contains("✗ sold    7,000, not 5"), "{shown}");
        assert_eq!(verdict.worst().as_deref(), Some("6,995 oversold"));
        assert!(shown.contains("  2  0"), "{shown}");
        let held = Verdict::default().expects("sold", 5, 5).damage(0, "oversold");
        assert!(held.held() && held.worst().is_none());
    }

    #[test]
    fn two_runs_are_compared_by_the_points_of_the_invariant() {
        let [with, without] =
            [5_u64, 7].map(|sold| Verdict::default().reports("buyers", 9).expects("units sold", 5, sold));
        let text = anstream::adapter::strip_str(&compare(&with, &without)).to_string();
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(
            lines,
            [vec!["the", "same", "run", "coordinated", "not"], vec!["units", "sold", "5", "7"]]
        );
    }
}
