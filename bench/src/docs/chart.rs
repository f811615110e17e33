//! Bar charts as SVG, readable on a light and on a dark page.

use crate::{
    contest::{OURS, is_limit},
    section::rounded,
    spread::Spread,
};

const WIDTH: f64 = 720.0;
const LABELS: f64 = 150.0;
/// Room for the number behind the longest bar.
const NUMBERS: f64 = 80.0;
const TOP: f64 = 34.0;
const ROW: f64 = 26.0;
const BAR: f64 = 16.0;

/// One bar for each value, with a line from the lowest to the highest round.
pub(crate) fn bars(caption: &str, values: &[(&str, Spread)]) -> String {
    let most = values.iter().map(|(_, spread)| spread.max).fold(0.0, f64::max);
    // One round that was far off must not make all bars short.
    let scale_end = most.min(2.0 * values.iter().map(|(_, spread)| spread.median).fold(0.0, f64::max));
    let x = |value: f64| LABELS + (value / scale_end).clamp(0.0, 1.0) * (WIDTH - LABELS - NUMBERS);
    let height = TOP + ROW * values.len() as f64 + 6.0;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="{caption}">
<style>
text {{ font: 13px system-ui, sans-serif; fill: #24292f }}
.caption {{ fill: #57606a }}
.bar {{ fill: #8c959f }}
.ours {{ fill: #0969da }}
.limit {{ fill-opacity: .4 }}
.range {{ stroke: #24292f; stroke-opacity: .55 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3 }}
.caption {{ fill: #9198a1 }}
.bar {{ fill: #656c76 }}
.ours {{ fill: #4493f8 }}
.range {{ stroke: #e6edf3 }}
}}
</style>
<text class="caption" x="0" y="16">{}</text>
"#,
        escaped(caption),
        caption = escaped(caption),
    );
    for (row, (label, spread)) in values.iter().enumerate() {
        let top = TOP + ROW * row as f64;
        let (middle, baseline, class) = (top + BAR / 2.0, top + 12.5, class_of(label));
        let (end, low, high) = (x(spread.median), x(spread.min), x(spread.max));
        svg += &format!(
            r#"<text x="{}" y="{baseline}" text-anchor="end">{}</text>
<rect class="{class}" x="{LABELS}" y="{top}" width="{:.1}" height="{BAR}" rx="2"/>
<line class="range" x1="{low:.1}" x2="{high:.1}" y1="{middle}" y2="{middle}"/>
<text x="{:.1}" y="{baseline}">{}</text>
"#,
            LABELS - 8.0,
            escaped(label),
            end - LABELS,
            high.max(end) + 6.0,
            rounded(spread.median),
        );
    }
    svg + "</svg>\n"
}

fn class_of(label: &str) -> &'static str {
    match label {
        label if label.starts_with(OURS) => "bar ours",
        label if is_limit(label) => "bar limit",
        _ => "bar",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_is_the_largest_value_and_ours_stands_out() {
        let svg =
            bars("µs & \"more\"", &[("leasehold mt", Spread::of([50.0])), ("<peer>", Spread::of([100.0]))]);
        let widths: Vec<f64> = svg
            .lines()
            .filter(|line| line.starts_with("<rect"))
            .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths.len(), 2);
        assert!((widths[0] * 2.0 - widths[1]).abs() < 0.2, "{widths:?}");
        assert_eq!(svg.matches("bar ours").count(), 1);
        assert!(svg.contains("&lt;peer&gt;") && svg.contains("µs &amp; &quot;more&quot;"), "{svg}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn one_round_that_was_far_off_does_not_shorten_the_bars() {
        let svg = bars("µs", &[("a", Spread::of([10.0, 10.0, 1000.0])), ("b", Spread::of([10.0]))]);
        let width = svg.split("<rect").nth(1).unwrap().split("width=\"").nth(1).unwrap();
        let width: f64 = width.split('"').next().unwrap().parse().unwrap();
        assert!(width > 200.0, "{width}");
    }
}
