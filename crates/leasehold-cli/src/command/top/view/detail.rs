//! One lock: how it is held, by whom, and who waits, next first.

use leasehold::{
    Inspection,
    engine::{Tenure, Waiter},
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::Line,
    widgets::{Cell, Paragraph},
};

use super::{Column, NARROW, Theme, list, locks, short};
use crate::{
    command::top::model::{Open, Top},
    hint::word,
    output::clean,
    view::{ModeView, State},
};

/// Lines above the list.
pub(super) const FACTS: u16 = 7;

pub(super) fn draw(top: &Top, open: &Open, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let [facts, people] = Layout::vertical([Constraint::Length(FACTS), Constraint::Min(0)]).areas(area);
    let name = clean(open.name.as_str());
    let Some(lock) = &open.lock else {
        return frame.render_widget(Line::raw(format!("asking for \"{name}\"")), facts);
    };
    frame.render_widget(Paragraph::new(lines(top, lock, theme)), facts);
    let mut columns: Vec<Column> = vec![
        ("ROLE", Constraint::Length(12)),
        ("WHO", Constraint::Fill(1)),
        ("TIME", Constraint::Length(10)),
    ];
    if area.width >= NARROW {
        columns.extend([("MODE", Constraint::Length(10)), ("FENCE", Constraint::Length(16))]);
    }
    let width = columns.len();
    let holders = lock.holders.shown.len();
    let row = |at: usize| {
        let cells = match at.checked_sub(holders) {
            None => holder(lock, at, &lock.holders.shown[at]),
            Some(place) => waiter(place, &lock.waiters[place]),
        };
        cells.into_iter().take(width).map(Cell::from).collect()
    };
    list(frame, people, theme, &columns, holders + lock.waiters.len(), row, open.cursor);
}

fn holder(lock: &Inspection, at: usize, held: &Tenure) -> [String; 5] {
    let role = if lock.holders.total > 1 { format!("holder {}", at + 1) } else { "holder".into() };
    let left = held.expires_in.map_or_else(|| "never ends".into(), |left| format!("{} left", short(left)));
    let mode = ModeView::from(held.mode).to_string();
    [role, clean(&held.holder.to_string()), left, mode, held.fence.to_string()]
}

fn waiter(place: usize, waiter: &Waiter) -> [String; 5] {
    let role = if place == 0 { "next in line".into() } else { format!("waiter {}", place + 1) };
    let waits = format!("waits {}", short(waiter.waiting_for));
    let mode = ModeView::from(waiter.mode).to_string();
    [role, clean(&waiter.holder.to_string()), waits, mode, "-".into()]
}

fn lines(top: &Top, lock: &Inspection, theme: Theme) -> Vec<Line<'static>> {
    let state = State::of(lock);
    let seen = top.seen.lock(&lock.name);
    let at = top.seen.at().unwrap_or_default();
    let how = match (lock.permits_used(), lock.limit, lock.mode()) {
        (Some(used), Some(limit), _) => format!("{used} of {limit} permits"),
        (.., Some(mode)) => mode.as_str().into(),
        (.., None) => "-".into(),
    };
    let held = seen.and_then(|seen| Some((seen, seen.held.as_ref()?)));
    let ttl = held.map_or_else(
        || "-".into(),
        |(seen, held)| {
            let (bar, age) = (locks::ttl(seen), locks::age(held, at));
            format!("{bar}, renewed {} times, held for {age}", held.renewals)
        },
    );
    let unlisted = match (lock.holders.total as usize + lock.waiting as usize)
        .saturating_sub(lock.holders.shown.len() + lock.waiters.len())
    {
        0 => String::new(),
        more => format!(", {more} not listed"),
    };
    let fence = lock.held().map_or_else(|| "-".into(), |held| held.fence.to_string());
    let name = word(lock.name.as_str());
    let command = match lock.held().filter(|_| !top.about.read_only && lock.holders.total == 1) {
        Some(held) => format!("leasehold force-release {name} --fence {}", held.fence),
        None => format!("leasehold inspect {name}"),
    };
    let title = clean(lock.name.as_str());
    vec![
        Line::styled(title, theme.title()),
        Line::styled(format!("state    {}, {how}", state.as_str()), theme.state(state)),
        Line::raw(format!("fence    {fence}")),
        Line::raw(format!("ttl      {ttl}")),
        Line::raw(format!("people   holders {}, waiters {}{unlisted}", lock.holders.total, lock.waiting)),
        Line::raw(format!("command  {command}")),
        Line::default(),
    ]
}
