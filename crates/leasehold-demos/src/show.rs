//! What a person sees: colours where the terminal has them, and lines of a story.

use std::{fmt::Display, io::IsTerminal, io::Write, os::fd::AsFd};

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

/// A number as people read it: 10,000.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A line for a stream. A terminal gets it broken between words, with the further lines indented; a pipe gets it whole.
pub(crate) fn line_for(stream: &(impl AsFd + IsTerminal), words: &str) -> String {
    let size = stream.is_terminal().then(|| rustix::termios::tcgetwinsize(stream).ok()).flatten();
    // A terminal that does not tell its size says zero.
    let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    broken(words, columns.unwrap_or(usize::MAX))
}

fn broken(words: &str, columns: usize) -> String {
    let (mut text, mut used) = (String::from(" "), 1);
    for (place, word) in words.split(' ').enumerate() {
        let width = anstream::adapter::strip_str(word).to_string().chars().count();
        if place > 0 && used + 1 + width > columns {
            text.push_str("\n   ");
            used = 3;
        }
        text.push(' ');
        text.push_str(word);
        used += 1 + width;
    }
    text
}

/// Prints a line to stderr.
pub(crate) fn say(words: &str) {
    let _closed = writeln!(anstream::stderr(), "{}", line_for(&std::io::stderr(), words));
}

/// The progress of a run, and the lines above it.
#[derive(Clone)]
pub(crate) struct Show {
    pub(crate) bar: ProgressBar,
}

impl Show {
    pub(crate) fn begin() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("  {bar:40} {pos}/{len} {elapsed}");
        Self { bar: style.map_or(bar.clone(), |style| bar.with_style(style)) }
    }

    /// Shows progress from here on, if there is a terminal.
    pub(crate) fn progress_of(&self, total: u64) {
        self.bar.set_length(total);
        if self.bar.is_hidden() && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Prints a line to stderr.
    pub(crate) fn print(&self, words: impl AsRef<str>) {
        self.bar.suspend(|| say(words.as_ref()));
    }

    /// Prints what was done to the run, and what became of it.
    pub(crate) fn fault(&self, what: impl Display, then: impl Display) {
        self.print(format!("{} {then}", styled(FAULT, format!("✂ {what}:"))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let shown = [0, 999, 1_000, 10_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "10,000", "1,234,567"]);
    }

    #[test]
    fn a_line_is_broken_between_words_and_its_colours_take_no_room() {
        assert_eq!(broken("one two three", usize::MAX), "  one two three");
        assert_eq!(broken("one two three", 9), "  one two\n    three");
        let styled = styled(FAULT, "one two");
        let shown = broken(&format!("{styled} three"), 15);
        assert_eq!(anstream::adapter::strip_str(&shown).to_string(), "  one two three");
        // A word longer than the terminal is not cut.
        assert_eq!(broken("a longer-than-that b", 8), "  a\n    longer-than-that\n    b");
    }
}
