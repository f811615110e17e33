//! The store: its health, and what it can do.

use leasehold::engine::{Atomic, Capabilities, Handover, Reach};
use ratatui::{
    Frame,
    layout::{Constraint, Rect},
    style::Style,
    widgets::Cell,
};

use super::{Theme, list, short};
use crate::{
    command::top::model::{Page, Top},
    output::clean,
};

/// A line: what, its value, and whether it is a warning.
pub(in crate::command::top) struct Fact {
    what: String,
    value: String,
    is_warning: bool,
}

fn fact(what: impl Into<String>, value: impl Into<String>) -> Fact {
    Fact { what: what.into(), value: value.into(), is_warning: false }
}

pub(in crate::command::top) fn lines(top: &Top) -> Vec<Fact> {
    let mut lines = vec![fact("store", &top.about.store)];
    let warning = |what: String, value: String| Fact { what, value, is_warning: true };
    match &top.health {
        None => lines.push(fact("health", "asking")),
        Some(Err(why)) => lines.push(warning("health".into(), why.clone())),
        Some(Ok(health)) => {
            lines.extend(health.facts.iter().map(|(what, value)| fact(what, value)));
            lines.extend(health.warnings.iter().map(|found| {
                warning(format!("warning {}", found.code), format!("{}; {}", found.found, found.cure))
            }));
            let verdict = match health.warnings.len() {
                0 => "in order".into(),
                1 => "1 warning".into(),
                many => format!("{many} warnings"),
            };
            lines.push(fact("verdict", verdict));
        }
    }
    lines.extend(abilities(&top.about.capabilities));
    lines
}

/// What the store can do; what it lacks comes with the reason.
fn abilities(can: &Capabilities) -> Vec<Fact> {
    let reach = match can.reach {
        Reach::Process => "the tasks of one process",
        Reach::Host => "the processes of one host",
        Reach::Network => "every host that reaches the store",
        _ => "-",
    };
    let next = match can.handover {
        Handover::Push => "is handed the lock",
        Handover::Pull => "is woken and claims",
        _ => "-",
    };
    let several = match can.claim_all {
        Atomic::Store => "in one step",
        _ => "one after the other",
    };
    let ttls = format!("{} to {}", short(*can.ttl.start()), short(*can.ttl.end()));
    let or_why = |what: &str, no: Option<&str>| {
        fact(what, no.map_or_else(|| "yes".to_owned(), |why| format!("no: {why}")))
    };
    vec![
        fact("shared by", reach),
        fact("next waiter", next),
        fact("ttl", ttls),
        fact("several locks", several),
        or_why("read-write", can.no_shared),
        or_why("semaphores", can.no_permits),
        or_why("conversion", can.no_convert),
        or_why("redisson", can.no_redisson),
        or_why("acks", can.no_acks),
        or_why("named successor", can.no_hand_to),
    ]
}

pub(super) fn draw(top: &Top, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let facts = lines(top);
    let widest = facts.iter().map(|fact| fact.what.chars().count()).max().unwrap_or(0) as u16;
    let width = widest.min(area.width / 2);
    let columns = [("WHAT", Constraint::Length(width)), ("VALUE", Constraint::Fill(1))];
    let row = |at: usize| {
        let fact = &facts[at];
        let style = if fact.is_warning { theme.warning() } else { Style::new() };
        [&fact.what, &fact.value].map(|text| Cell::from(clean(text)).style(style)).into()
    };
    list(frame, area, theme, &columns, facts.len(), row, top.cursors[Page::Nodes as usize]);
}
