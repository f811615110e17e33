//! The keys.

use ratatui::{
    Frame,
    layout::Rect,
    text::Line,
    widgets::{Paragraph, Wrap},
};

use super::Theme;
use crate::command::top::model::Top;

const KEYS: [(&str, &str); 11] = [
    ("arrows j k", "up and down; PgUp PgDn, Home End"),
    ("Enter", "one lock: its holders and its queue"),
    ("Esc", "back; removes the filter"),
    ("1 2 3 4 Tab", "locks, hot names, who waited for whom, nodes"),
    ("/", "filter by name, holder or state"),
    ("s", "sort by name, waiting, age, expires"),
    ("p", "pause and go on"),
    ("f", "take the lock from its holder"),
    ("Ctrl-Z", "stop; fg goes on"),
    ("?", "this help; any key closes it"),
    ("q Ctrl-C", "quit"),
];

pub(super) fn draw(top: &Top, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let keys = KEYS.iter().filter(|(key, _)| *key != "f" || !top.about.read_only);
    let mut lines: Vec<_> = keys.map(|(key, what)| Line::raw(format!("{key:12} {what}"))).collect();
    lines.push(Line::default());
    lines.push(Line::styled("Ages, renewals and sums are what was seen since this began.", theme.title()));
    lines.push(Line::raw("> before an age: held already when this began."));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}
