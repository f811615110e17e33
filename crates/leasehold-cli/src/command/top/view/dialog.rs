//! What is asked before a lock is taken from its holder.

use ratatui::{
    Frame,
    layout::Rect,
    text::Line,
    widgets::{Block, Clear, Paragraph, Wrap},
};

use super::Theme;
use crate::{
    command::top::{
        dialog::{Dialog, Field},
        model::Top,
    },
    output::clean,
};

pub(super) fn draw(top: &Top, dialog: &Dialog, theme: Theme, frame: &mut Frame<'_>) {
    let cursor = |field| if dialog.field == field { "_" } else { "" };
    let mut lines = vec![
        Line::styled("The holder may still be running.", theme.alarm()),
        Line::raw(
            "It notices the loss at its next renewal; until then only a check of the fence stops its writes.",
        ),
        Line::raw(format!("holder  {}", clean(&dialog.holder))),
        Line::raw(format!("fence   {}", dialog.fence)),
    ];
    if top.dialog_is_stale() {
        let text = "This holder does not have it any more: nothing would be done.";
        lines.push(Line::styled(text, theme.warning()));
    }
    lines.push(Line::default());
    lines.push(Line::raw(format!("name    {}{}", clean(&dialog.typed), cursor(Field::Name))));
    lines.push(Line::raw(format!("reason  {}{}", clean(&dialog.reason), cursor(Field::Reason))));
    lines.push(Line::default());
    lines.push(match (dialog.refused, dialog.field) {
        (Some(why), _) => Line::styled(why, theme.warning()),
        (None, Field::Name) => Line::raw("type the name of the lock, then Enter; Esc cancels"),
        (None, Field::Reason) => Line::raw("type the reason, then Enter releases it; Esc cancels"),
    });
    let title = format!(" force-release {} ", clean(dialog.name.as_str()));
    let area = middle(frame.area());
    let box_ = Block::bordered().title(title).title_style(theme.title());
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(box_), area);
}

fn middle(screen: Rect) -> Rect {
    let (width, height) = (screen.width.min(70), screen.height.min(15));
    let (x, y) = ((screen.width - width) / 2, (screen.height - height) / 2);
    Rect { x, y, width, height }
}
