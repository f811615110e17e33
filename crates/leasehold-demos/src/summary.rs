//! How several demos ended: a table with a line for each.

use std::fmt::Write;

use crate::{
    Demo,
    play::Played,
    show::{BAD, GOOD, SMALL, TITLE, styled},
};

/// How one demo ended.
pub(crate) struct Line {
    demo: &'static str,
    protects: &'static str,
    kills: Option<u32>,
    /// Whether the invariant held with coordination.
    held: Option<bool>,
    /// What broke without coordination, or why the demo was not played.
    without: String,
}

impl Line {
    /// Of a demo that was played with coordination, without it, or both ways.
    pub(crate) fn played(demo: &Demo, with: Option<&Played>, without: Option<&Played>) -> Self {
        let damage = |played: &Played| played.verdict.worst().unwrap_or_else(|| "no damage this time".into());
        Self {
            demo: demo.name,
            protects: demo.protects,
            kills: with.or(without).map(|played| played.kills),
            held: with.map(|played| played.verdict.held()),
            without: without.map(damage).unwrap_or_default(),
        }
    }

    /// Of a demo that has no verdict.
    pub(crate) fn unplayed(demo: &Demo, why: &str) -> Self {
        Self { demo: demo.name, protects: demo.protects, kills: None, held: None, without: why.into() }
    }
}

/// All lines, for a terminal of 80 columns.
pub(crate) fn table(lines: &[Line]) -> String {
    let mut text = String::new();
    let head = ["demo", "what is protected", "survived", "verdict", "without coordination"];
    let head = format!("  {:<10}  {:<23}  {:<8}  {:<7}  {}", head[0], head[1], head[2], head[3], head[4]);
    let _infallible = writeln!(text, "{}", styled(TITLE, head));
    for Line { demo, protects, kills, held, without } in lines {
        let (is_played, kills) = match kills {
            Some(1) => (true, "1 kill".into()),
            Some(kills) => (true, format!("{kills} kills")),
            None => (false, "–".into()),
        };
        let (style, verdict) = match held {
            Some(true) => (GOOD, "safe"),
            Some(false) => (BAD, "BROKE"),
            None => (SMALL, "–"),
        };
        let verdict = styled(style, format_args!("{verdict:<7}"));
        let without = styled(if is_played { BAD } else { SMALL }, without);
        let _infallible = writeln!(text, "  {demo:<10}  {protects:<23}  {kills:<8}  {verdict}  {without}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    #[test]
    fn a_table_of_all_demos_fits_into_80_columns() {
        let played = |sold: u64| Played {
            verdict: Verdict::default()
                .expects("units sold", 1_000, sold)
                .damage(sold - 1_000, "units oversold"),
            kills: 12,
        };
        let lines: Vec<_> = crate::DEMOS
            .iter()
            .map(|demo| Line::played(demo, Some(&played(1_000)), Some(&played(10_999))))
            .chain([Line::unplayed(crate::DEMOS[0], "not made for a quorum")])
            .collect();
        let text = anstream::adapter::strip_str(&table(&lines)).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let flash_sale = text.lines().nth(1).unwrap();
        let expected = "flash-sale  each unit sold once      12 kills  safe     9,999 units oversold";
        assert_eq!(flash_sale.trim(), expected, "{text}");
        assert_eq!(lines.len() + 1, text.lines().count());
    }
}
