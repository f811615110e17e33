//! The picture of a model (pure).

mod detail;
mod dialog;
mod help;
mod locks;
pub(super) mod nodes;
mod sums;
mod theme;

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::Style,
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row, Table},
};

pub(super) use theme::Theme;

use super::{
    cursor::Cursor,
    model::{Page, Top},
};
use crate::output::clean;

/// Lines above the list: what is watched, counts, pages.
const ABOVE: u16 = 3;
/// Lines below it.
const BELOW: u16 = 1;
/// The heading of a list.
const HEADING: u16 = 1;
/// Screens that are not as wide as this show less.
const NARROW: u16 = 60;

/// How many rows of the list fit on a screen this high.
pub(super) fn visible(top: &Top, height: u16) -> usize {
    let facts = if top.open.is_some() { detail::FACTS } else { 0 };
    usize::from(height.saturating_sub(ABOVE + facts + HEADING + BELOW))
}

pub(super) fn draw(top: &Top, theme: Theme, frame: &mut Frame<'_>) {
    let parts = [ABOVE, 0, BELOW].map(|lines| match lines {
        0 => Constraint::Min(0),
        lines => Constraint::Length(lines),
    });
    let [above, body, below] = Layout::vertical(parts).areas(frame.area());
    header(top, theme, frame, above);
    match (&top.open, top.page) {
        _ if top.helps => help::draw(top, theme, frame, body),
        (Some(open), _) => detail::draw(top, open, theme, frame, body),
        (None, Page::Locks) => locks::draw(top, theme, frame, body),
        (None, Page::Hot) => sums::draw_hot(top, theme, frame, body),
        (None, Page::Waits) => sums::draw_waits(top, theme, frame, body),
        (None, Page::Nodes) => nodes::draw(top, theme, frame, body),
    }
    if top.gone.is_some() {
        frame.buffer_mut().set_style(body, theme.old());
    }
    footer(top, theme, frame, below);
    if let Some(open) = &top.dialog {
        dialog::draw(top, open, theme, frame);
    }
}

fn header(top: &Top, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let [about, counts, pages] = Layout::vertical([1; 3].map(Constraint::Length)).areas(area);
    let (word, style) = match (&top.gone, top.paused, &top.taken_at) {
        (_, true, _) => ("paused", theme.warning()),
        (Some(_), ..) => ("store gone", theme.alarm()),
        (None, false, None) => ("asking", Style::new()),
        (None, false, Some(_)) => ("live", theme.good()),
    };
    let rights = if top.about.read_only { "  read-only" } else { "" };
    let prefix = match &top.about.prefix {
        prefix if prefix.is_empty() => String::new(),
        prefix => format!("  prefix {}", clean(prefix)),
    };
    let left = Line::from(vec![
        Span::styled("leasehold top  ", theme.title()),
        Span::raw(clean(&top.about.store)),
        Span::raw(prefix),
    ]);
    sides(frame, about, left, Line::from(vec![Span::styled(word, style), Span::raw(rights)]));
    match &top.gone {
        Some(gone) => {
            let text = format!("no answer since {}: {}", gone.since, clean(&gone.why));
            frame.render_widget(Paragraph::new(Span::styled(text, theme.alarm())), counts);
        }
        None => {
            let when = top.taken_at.as_ref().filter(|_| area.width >= NARROW);
            let when = when.map_or_else(String::new, |at| format!("as of {at}"));
            sides(frame, counts, Line::raw(counted(top)), Line::raw(when));
        }
    }
    let titles = Page::ALL.iter().enumerate().flat_map(|(at, page)| {
        let style = if *page == top.page { theme.chosen() } else { Style::new() };
        let [title, short] = page.titles();
        let title = if area.width < NARROW { short } else { title };
        [Span::styled(format!("{} {title}", at + 1), style), Span::raw("  ")]
    });
    frame.render_widget(Line::from(titles.collect::<Vec<_>>()), pages);
}

fn counted(top: &Top) -> String {
    let counts = top.counts;
    let more = if top.seen.more { " of more" } else { "" };
    let (held, waiting) = (counts.held, counts.waiting);
    format!("held {held}  waiting {waiting}  expiring {}  names {}{more}", counts.expiring, counts.names)
}

fn footer(top: &Top, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let line = match &top.note {
        Some(note) => Line::styled(clean(note), theme.warning()),
        None if top.releasing => Line::styled("releasing", theme.warning()),
        None if top.types_filter => Line::styled(format!("filter: {}_", clean(&top.filter)), theme.title()),
        None if top.open.is_some() => Line::raw(keys(top, "Esc back")),
        None if top.page == Page::Locks => {
            let filter = match &top.filter {
                filter if filter.is_empty() => "/ filter".into(),
                filter => format!("/ filter \"{}\"", clean(filter)),
            };
            Line::raw(keys(top, &format!("Enter detail  {filter}  s sort: {}", top.sort.as_str())))
        }
        None if top.page == Page::Nodes => Line::raw(keys(top, "")),
        None => Line::raw(keys(top, "Enter detail")),
    };
    frame.render_widget(Paragraph::new(line), area);
}

/// What is cut on a narrow screen is on the page of help.
fn keys(top: &Top, own: &str) -> String {
    let is_of_a_lock = top.open.is_some() || top.page == Page::Locks;
    let force = if top.about.read_only || !is_of_a_lock { "" } else { "f force-release  " };
    format!("? help  q quit  p pause  {force}{own}")
}

/// The right side gives way to the left.
fn sides(frame: &mut Frame<'_>, area: Rect, left: Line<'_>, right: Line<'_>) {
    let width = (right.width() as u16).min(area.width);
    let [start, _, end] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(1), Constraint::Length(width)])
            .areas(area);
    frame.render_widget(left, start);
    frame.render_widget(right.alignment(Alignment::Right), end);
}

/// A column: its heading, and how wide it is.
type Column = (&'static str, Constraint);

/// The part of a list that is on the screen, under its headings.
fn list<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    theme: Theme,
    columns: &[Column],
    rows: usize,
    row: impl Fn(usize) -> Vec<Cell<'a>>,
    cursor: Cursor,
) {
    let fit = usize::from(area.height.saturating_sub(HEADING));
    let rows = (cursor.top..rows).take(fit).map(|at| {
        let row = Row::new(row(at));
        if at == cursor.at { row.style(theme.cursor()) } else { row }
    });
    let headings = Row::new(columns.iter().map(|(heading, _)| *heading)).style(theme.title());
    let table = Table::new(rows, columns.iter().map(|(_, width)| *width)).header(headings);
    frame.render_widget(table, area);
}

/// What stands where there is no list.
fn empty(frame: &mut Frame<'_>, area: Rect, lines: &[&str]) {
    let lines: Vec<_> = lines.iter().map(|line| Line::raw(*line)).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

/// A duration in at most six letters.
fn short(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..10 => format!("{:.1}s", (duration.as_millis() / 100) as f64 / 10.0),
        10..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
