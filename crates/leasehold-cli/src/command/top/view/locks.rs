//! The list of locks.

use std::time::Duration;

use leasehold::Name;
use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    text::Span,
    widgets::Cell,
};

use super::{Column, NARROW, Theme, empty, list, short};
use crate::{
    command::top::{
        model::{Page, Top},
        rows::{holders, is_expiring},
        seen::{Held, Lock},
    },
    output::clean,
    view::State,
};

/// What a list of locks can show, in this order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Name,
    State,
    Mode,
    Holders,
    Fence,
    Age,
    Ttl,
    Renewals,
    Waiters,
}

/// Cells of the bar.
const BAR: u64 = 8;

impl Part {
    fn column(self) -> Column {
        match self {
            Self::Name => ("NAME", Constraint::Fill(3)),
            Self::State => ("STATE", Constraint::Length(8)),
            Self::Mode => ("MODE", Constraint::Length(9)),
            Self::Holders => ("HOLDERS", Constraint::Fill(2)),
            Self::Fence => ("FENCE", Constraint::Length(16)),
            Self::Age => ("AGE", Constraint::Length(6)),
            Self::Ttl => ("TTL", Constraint::Length(14)),
            Self::Renewals => ("RENEWED", Constraint::Length(7)),
            Self::Waiters => ("WAITERS", Constraint::Length(7)),
        }
    }

    /// What a screen this wide has room for.
    fn on(width: u16) -> &'static [Self] {
        use Part::{Age, Fence, Holders, Mode, Name, Renewals, State, Ttl, Waiters};
        match width {
            0..NARROW => &[Name, State, Ttl],
            NARROW..76 => &[Name, State, Holders, Ttl, Waiters],
            76..110 => &[Name, State, Mode, Holders, Age, Ttl, Waiters],
            _ => &[Name, State, Mode, Holders, Fence, Age, Ttl, Renewals, Waiters],
        }
    }
}

pub(super) fn draw(top: &Top, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    if top.order.is_empty() && top.seen.at().is_some() {
        let hint: &[&str] = if top.counts.names == 0 {
            &[
                "no locks are held and nobody waits",
                "",
                "leasehold run NAME -- CMD runs a command under a lock",
            ]
        } else {
            &["no lock matches the filter", "", "Esc removes it"]
        };
        return empty(frame, area, hint);
    }
    let parts = Part::on(area.width);
    let columns: Vec<_> = parts.iter().map(|part| part.column()).collect();
    let row = |at: usize| row(top, theme, &top.order[at], parts);
    list(frame, area, theme, &columns, top.order.len(), row, top.cursors[Page::Locks as usize]);
}

fn row(top: &Top, theme: Theme, name: &Name, parts: &[Part]) -> Vec<Cell<'static>> {
    let Some(lock) = top.seen.lock(name) else { return Vec::new() };
    let at = top.seen.at().unwrap_or_default();
    parts.iter().map(|part| cell(theme, lock, at, *part)).collect()
}

fn cell(theme: Theme, lock: &Lock, at: Duration, part: Part) -> Cell<'static> {
    let held = lock.held.as_ref();
    let text = match part {
        Part::Name => clean(lock.now.name.as_str()),
        Part::State => return state(theme, lock),
        Part::Mode => mode(lock),
        Part::Holders => clean(&holders(lock)),
        Part::Fence => lock.now.held().map_or_else(|| "-".into(), |tenure| tenure.fence.to_string()),
        Part::Age => held.map_or_else(|| "-".into(), |held| age(held, at)),
        Part::Ttl => ttl(lock),
        Part::Renewals => held.map_or_else(|| "-".into(), |held| held.renewals.to_string()),
        Part::Waiters => lock.now.waiting.to_string(),
    };
    Cell::from(text)
}

fn state(theme: Theme, lock: &Lock) -> Cell<'static> {
    let state = State::of(&lock.now);
    Cell::from(match is_expiring(lock) {
        true => Span::styled("expiring", theme.warning()),
        false => Span::styled(state.as_str(), theme.state(state)),
    })
}

/// Of a semaphore, how many permits of how many.
fn mode(lock: &Lock) -> String {
    match (lock.now.permits_used(), lock.now.limit, lock.now.mode()) {
        (Some(used), Some(limit), _) => format!("{used} of {limit}"),
        (.., Some(mode)) => mode.as_str().into(),
        (.., None) => "-".into(),
    }
}

/// `>` where it was held before anybody looked.
pub(super) fn age(held: &Held, at: Duration) -> String {
    let older = if held.is_older { ">" } else { "" };
    format!("{older}{}", short(held.age(at)))
}

/// How much of the ttl is left, as a bar and in words.
pub(super) fn ttl(lock: &Lock) -> String {
    let Some(tenure) = lock.now.held() else { return "-".into() };
    let Some(left) = tenure.expires_in else { return "never ends".into() };
    let ttl = lock.held.as_ref().and_then(|held| held.ttl).unwrap_or(left);
    let full = (left.as_millis() * u128::from(BAR)).div_ceil(ttl.as_millis().max(1)).min(u128::from(BAR));
    let (full, rest) = (full as usize, BAR as usize - full as usize);
    format!("{}{} {}", "█".repeat(full), "░".repeat(rest), short(left))
}
