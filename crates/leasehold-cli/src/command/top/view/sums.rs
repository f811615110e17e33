//! What adds up while the program runs: hot names, and who waited for whom.

use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    widgets::Cell,
};

use super::{Column, NARROW, Theme, empty, list, short};
use crate::{
    command::top::model::{Page, Top},
    output::clean,
};

pub(super) fn draw_hot(top: &Top, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let hot = top.hot();
    if hot.is_empty() {
        return empty(frame, area, &["nothing was acquired or waited for since this began"]);
    }
    let columns: [Column; 4] = [
        ("NAME", Constraint::Fill(1)),
        ("ACQUIRED", Constraint::Length(8)),
        ("WAITED", Constraint::Length(6)),
        ("WAITERS MAX", Constraint::Length(11)),
    ];
    let row = |at: usize| {
        let (name, heat) = hot[at];
        let (acquired, waiters) = (heat.acquisitions.to_string(), heat.waiters_max.to_string());
        [clean(name.as_str()), acquired, short(heat.waited), waiters].map(Cell::from).into()
    };
    list(frame, area, theme, &columns, hot.len(), row, top.cursors[Page::Hot as usize]);
}

pub(super) fn draw_waits(top: &Top, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let waits = top.waits();
    if waits.is_empty() {
        return empty(frame, area, &["nobody waited for a holder since this began"]);
    }
    let mut columns: Vec<Column> = vec![
        ("HOLDER", Constraint::Fill(2)),
        ("WAITER", Constraint::Fill(2)),
        ("WAITED", Constraint::Length(6)),
        ("LONGEST", Constraint::Length(7)),
    ];
    if area.width >= NARROW {
        columns.extend([
            ("EPISODES", Constraint::Length(8)),
            ("NOW", Constraint::Length(4)),
            ("LOCKS", Constraint::Fill(3)),
        ]);
    }
    let width = columns.len();
    let row = |at: usize| {
        let ((holder, waiter), waits) = waits[at];
        let names: Vec<_> = waits.names.iter().map(|name| name.as_str()).collect();
        let (waited, longest) = (short(waits.waited), short(waits.longest));
        let (episodes, now) = (waits.episodes.to_string(), waits.waiting_now.to_string());
        let cells = [clean(holder), clean(waiter), waited, longest, episodes, now, clean(&names.join(" "))];
        cells.into_iter().take(width).map(Cell::from).collect()
    };
    list(frame, area, theme, &columns, waits.len(), row, top.cursors[Page::Waits as usize]);
}
