//! Colours. A state is always also a word, so nothing is lost without them.

use ratatui::style::{Color, Modifier, Style};

use crate::view::State;

#[derive(Clone, Copy, Debug)]
pub(in crate::command::top) struct Theme {
    colors: bool,
}

impl Theme {
    /// As the user wants it: see <https://no-color.org>.
    pub(in crate::command::top) fn of_environment() -> Self {
        Self::new(std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()))
    }

    pub(in crate::command::top) fn new(colors: bool) -> Self {
        Self { colors }
    }

    fn color(self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The row under the cursor.
    pub(super) fn cursor(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The page on the screen.
    pub(super) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    pub(super) fn good(self) -> Style {
        self.color(Color::Green)
    }

    pub(super) fn warning(self) -> Style {
        self.color(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    pub(super) fn alarm(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// A picture that may be wrong by now.
    pub(super) fn old(self) -> Style {
        self.color(Color::DarkGray).add_modifier(Modifier::DIM)
    }

    pub(super) fn state(self, state: State) -> Style {
        match state {
            State::Held => self.good(),
            State::Waiting => self.warning(),
            State::Free => Style::new(),
        }
    }
}
