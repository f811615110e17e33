//! What a person sees: colours where the terminal has them, and lines of a story.

use std::{fmt::Display, io::IsTerminal, io::Write};

use clap::builder::styling::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const FAULT: Style = AnsiColor::Yellow.on_default();
pub(crate) const TITLE: Style = Style::new().bold();
pub(crate) const SMALL: Style = Style::new().dimmed();

/// A text in a style. It is written through `anstream`, which leaves the style out unless a terminal shows it, and if the
/// environment has `NO_COLOR`.
pub(crate) fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// The progress of a run, and the lines above it.
#[derive(Clone)]
pub(crate) struct Show {
    pub(crate) bar: ProgressBar,
}

impl Show {
    pub(crate) fn begin() -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("  {bar:40} {pos}/{len} {elapsed}");
        Self { bar: style.map_or(bar.clone(), |style| bar.with_style(style)) }
    }

    /// Prints a line to stderr.
    pub(crate) fn print(&self, words: impl AsRef<str>) {
        let words = words.as_ref();
        self.bar.suspend(|| {
            let _closed = writeln!(anstream::stderr(), "  {words}");
        });
    }

    /// Prints what was done to the run, and what became of it.
    pub(crate) fn fault(&self, what: impl Display, then: impl Display) {
        self.print(format!("{} {then}", styled(FAULT, format!("✂ {what}:"))));
    }
}
