//! What is printed: tables on a terminal, tab-separated lines in a pipe, JSON on request.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    time::Duration,
};

use comfy_table::{Table, presets};
use rustix::{
    event::{PollFd, PollFlags, poll},
    time::Timespec,
};
use serde::Serialize;
use tracing_subscriber::{Layer, Registry, filter::LevelFilter, prelude::*};

/// Where a command's data goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// One JSON document, or one a line, instead of text.
    pub(crate) json: bool,
    /// A person reads it.
    pub(crate) terminal: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, terminal: io::stdout().is_terminal() }
    }

    /// Prints JSON or, if that was not asked for, the text.
    pub(crate) fn print<T: Serialize>(self, body: T, text: impl FnOnce() -> String) -> io::Result<()> {
        let text = if self.json { Envelope::new(body).line()? } else { text() };
        print(&text)
    }

    /// Rows as people read them on a terminal, or as `cut` does in a pipe: no heading, tabs between.
    pub(crate) fn table(self, heading: &[&str], rows: &[Vec<String>]) -> String {
        let rows = rows.iter().map(|row| row.iter().map(|cell| clean(cell)));
        if self.terminal {
            aligned(heading, rows)
        } else {
            rows.fold(String::new(), |mut text, row| {
                let _ = writeln!(text, "{}", row.collect::<Vec<_>>().join("\t"));
                text
            })
        }
    }

    /// Facts, one a line.
    pub(crate) fn facts(self, facts: &[(String, String)]) -> String {
        let width = facts.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
        facts.iter().fold(String::new(), |mut text, (what, value)| {
            let (what, value) = (clean(what), clean(value));
            let _ = if self.terminal {
                writeln!(text, "{what:width$}  {value}")
            } else {
                writeln!(text, "{what}\t{value}")
            };
            text
        })
    }
}

fn aligned(heading: &[&str], rows: impl Iterator<Item = impl Iterator<Item = String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(heading);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut lines = table.lines();
    // Bold; taken out again where styles are not wanted.
    let heading = format!("\x1b[1m{}\x1b[0m\n", lines.next().unwrap_or_default().trim_end());
    lines.fold(heading, |mut text, line| {
        let _ = writeln!(text, "{}", line.trim_end());
        text
    })
}

/// Writes data to stdout at once; styles are dropped where they are not wanted.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Prints a message to stderr. If that fails, nothing can be done.
pub(crate) fn say(text: &str) {
    let _unheard = writeln!(anstream::stderr().lock(), "{text}");
}

/// Prints a message to stderr if that takes no time: who holds a lock, or waits for one, must not wait for a reader.
pub(crate) fn mention(text: &str) {
    if takes_at_once(io::stderr()) {
        say(text);
    }
}

/// Whether a line can be written without a wait, by a pipe that is not full and a terminal that was not paused with Ctrl-S.
pub(crate) fn takes_at_once(file: impl AsFd) -> bool {
    let mut ready = [PollFd::new(&file, PollFlags::OUT)];
    poll(&mut ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Completes when nobody reads stdout any more: a command that prints changes may have nothing to print for a long time.
pub(crate) async fn unread() {
    while !is_unread(io::stdout()) {
        tokio::time::sleep(UNREAD_POLL).await;
    }
}

/// How long nobody may have read stdout before it is noticed.
const UNREAD_POLL: Duration = Duration::from_millis(500);

/// Whether it is a pipe whose reader is gone.
fn is_unread(file: impl AsFd) -> bool {
    let mut gone = [PollFd::new(&file, PollFlags::empty())];
    poll(&mut gone, Some(&Timespec::default())).is_ok() && gone[0].revents().contains(PollFlags::ERR)
}

/// Prints JSON to stderr.
pub(crate) fn say_json<T: Serialize>(envelope: &Envelope<T>) {
    if let Ok(line) = envelope.line() {
        say(line.trim_end());
    }
}

/// Every JSON document names its schema.
#[derive(Serialize)]
pub(crate) struct Envelope<T> {
    schema: Schema,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize)]
struct Schema {
    version: &'static str,
}

impl<T: Serialize> Envelope<T> {
    pub(crate) fn new(body: T) -> Self {
        Self { schema: Schema { version: "v1" }, body }
    }

    pub(crate) fn line(&self) -> io::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// Holder data comes from the store, where anybody may have written it: control characters must not reach a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A duration for people: milliseconds only below ten seconds.
pub(crate) fn spoken(duration: Duration) -> String {
    let rounded = if duration < Duration::from_secs(10) {
        Duration::from_millis(duration.as_millis() as u64)
    } else {
        Duration::from_secs(duration.as_secs())
    };
    humantime::format_duration(rounded).to_string()
}

/// A build that sends no spans.
#[cfg(not(feature = "otel"))]
pub(crate) const NO_SPANS: Option<tracing_subscriber::layer::Identity> = None;

/// The library's log on stderr: nothing, warnings with `-v`, everything with `-vv`. `spans` goes elsewhere, whatever is shown.
pub(crate) fn start_log(verbose: u8, spans: Option<impl Layer<Registry> + Send + Sync>) {
    let level = match verbose {
        0 if spans.is_none() => return,
        0 => LevelFilter::OFF,
        1 => LevelFilter::WARN,
        _ => LevelFilter::DEBUG,
    };
    let is_colored =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let shown = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(is_colored);
    tracing_subscriber::registry().with(spans).with(shown.with_filter(level)).init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_say_them() {
        assert_eq!(spoken(Duration::from_micros(1_250_900)), "1s 250ms");
        assert_eq!(spoken(Duration::from_millis(90_061_500)), "1day 1h 1m 1s");
        assert_eq!(spoken(Duration::ZERO), "0s");
    }

    #[test]
    fn a_pipe_gets_tabs_and_a_terminal_gets_columns() {
        let rows = [vec!["deal:42".to_owned(), "held".to_owned()], vec!["x\u{1b}[2J".into(), "free".into()]];
        let pipe = Output { json: false, terminal: false };
        assert_eq!(pipe.table(&["NAME", "STATE"], &rows), "deal:42\theld\nx\u{fffd}[2J\tfree\n");
        let person = Output { json: false, terminal: true };
        let shown = person.table(&["NAME", "STATE"], &rows);
        assert!(shown.contains("NAME") && shown.contains("deal:42") && !shown.contains('\t'), "{shown}");
    }

    #[test]
    fn a_pipe_whose_reader_is_gone_is_unread() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!is_unread(&writer));
        drop(reader);
        assert!(is_unread(&writer) && !is_unread(tempfile::tempfile().unwrap()));
    }

    #[test]
    fn a_full_pipe_takes_nothing_until_it_is_read() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        assert!(takes_at_once(&writer));
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        while writer.write(&[0; 512]).is_ok() {}
        assert!(!takes_at_once(&writer));
        io::Read::read_exact(&mut reader, &mut [0; 4096]).unwrap();
        assert!(takes_at_once(&writer));
    }
}
