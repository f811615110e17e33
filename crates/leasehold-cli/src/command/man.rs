//! `leasehold man`: manual pages from the same definition as the help.

use std::{fs, io, path::PathBuf};

use clap::{Args, CommandFactory};
use clap_mangen::roff::{Roff, bold, roman};

use super::Cli;
use crate::{
    exit::{Exit, Failure},
    output,
};

/// Print the manual page, or write one for every command
#[derive(Args)]
#[command(after_help = "\
Examples:
  leasehold man | man -l -
  leasehold man --dir /usr/local/share/man/man1")]
pub(super) struct Man {
    /// Write a page for every command into this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(super) fn execute(self) -> Result<Exit, Failure> {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        match self.dir {
            Some(dir) => {
                fs::create_dir_all(&dir).and_then(|()| write_pages(&command, &dir)).map_err(|error| {
                    Failure::file(format!("cannot write manual pages to {}", dir.display()), &error)
                })?;
            }
            None => output::print(&String::from_utf8_lossy(&page(&command)?))?,
        }
        Ok(Exit::OK)
    }
}

fn write_pages(command: &clap::Command, dir: &std::path::Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, dir)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(dir.join(format!("{name}.1")), page(command)?)
}

fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let sections = Sections::of(&help);
    let man = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    for paragraph in &sections.description {
        Roff::default().control("PP", []).text([roman(*paragraph)]).to_writer(&mut text)?;
    }
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    verbatim("EXIT STATUS", sections.exit_codes.unwrap_or(EXIT_CODES), &mut text)?;
    list("ENVIRONMENT", &ENVIRONMENT, &mut text)?;
    list("FILES", &FILES, &mut text)?;
    if let Some(examples) = sections.examples {
        verbatim("EXAMPLES", examples, &mut text)?;
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut text)?;
    }
    Ok(text)
}

/// What follows the options in a help text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sections<'a> {
    description: Vec<&'a str>,
    exit_codes: Option<&'a str>,
    examples: Option<&'a str>,
}

impl<'a> Sections<'a> {
    fn of(help: &'a str) -> Self {
        let mut sections = Self::default();
        for block in help.split("\n\n").filter(|block| !block.is_empty()) {
            match block.split_once(':') {
                Some(("Exit codes", codes)) => sections.exit_codes = Some(codes),
                Some(("Examples" | "Example", examples)) => sections.examples = Some(examples),
                _ => sections.description.push(block),
            }
        }
        sections
    }
}

const EXIT_CODES: &str = "
  0   done
  1   not done: the lock is held by another, or there are warnings
  64  wrong usage, or a wrong setting
  65  the key holds a value of another type
  69  the store is unreachable
  70  not supported by this store
  74  a file or the terminal failed
  75  a limit was reached
  76  the lock was lost
  77  the store refused
  78  the key holds something unreadable
  80  the name is in use as another kind of lock
  81  the semaphore has another number of permits
  82  the latch is armed for another number of parties
  83  the latch is broken";

const ENVIRONMENT: [(&str, &str); 9] = [
    ("LEASEHOLD_STORE", "The store, if --store does not name one."),
    ("LEASEHOLD_CONFIG", "The only configuration file to read."),
    (
        "LEASEHOLD_DEFAULT_TTL, LEASEHOLD_MAX_TTL, LEASEHOLD_ACQUISITION_TIMEOUT, LEASEHOLD_RETRY_INTERVAL, \
         LEASEHOLD_COMMAND_TIMEOUT",
        "Durations with a unit, which replace the settings of the files that are spelt like them: default-ttl (30s), max-ttl \
         (5m), acquisition-timeout (5s), retry-interval (50ms growing to 1s), command-timeout (2s).",
    ),
    (
        "LEASEHOLD_PREFIX, LEASEHOLD_LABEL, LEASEHOLD_CONNECTIONS, LEASEHOLD_MAX_IN_FLIGHT",
        "Replace prefix (lock:), label, connections (1) and max-in-flight (1000). Any other variable that begins with \
         LEASEHOLD_ is an error.",
    ),
    ("LEASEHOLD_HANDLE", "The handle of lock acquire, lock extend and lock release."),
    (
        "LEASEHOLD_NAME, LEASEHOLD_FENCE, LEASEHOLD_TTL_MS, LEASEHOLD_MODE, LEASEHOLD_PERMITS",
        "Set for the command that run or elect starts. The mode is exclusive, shared or permits; only with the last there is a \
         number of permits.",
    ),
    (
        "LEASEHOLD_NAMES, LEASEHOLD_FENCES",
        "Set by run --all instead of LEASEHOLD_NAME and LEASEHOLD_FENCE: lists with commas, in the order of --all.",
    ),
    ("REDIS_HOST, REDIS_PORT, REDIS_PASSWORD", "The store, if nothing before names one."),
    ("LOCK_TTL", "The default ttl in milliseconds, if neither a file nor LEASEHOLD_DEFAULT_TTL gives it."),
];

const FILES: [(&str, &str); 5] = [
    (
        "leasehold.toml",
        "Settings and policies, in the working directory. Ignored if another user could have written it.",
    ),
    ("~/.config/leasehold/leasehold.toml", "The same of the user; what the nearer file has wins."),
    ("/etc/leasehold.toml", "The same of the host."),
    (
        "/var/lib/leasehold/leasehold.db",
        "The default store, where this user can write it. Root creates the directory for itself; a group shares it after \
         install -d -m 2770 -g GROUP /var/lib/leasehold.",
    ),
    ("~/.local/state/leasehold/leasehold.db", "The default store of a user who cannot."),
];

fn verbatim(heading: &str, lines: &str, text: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::default();
    roff.control("SH", [heading]).control("nf", []);
    for line in lines.trim_start_matches('\n').lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []).to_writer(text)
}

fn list(heading: &str, entries: &[(&str, &str)], text: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::default();
    roff.control("SH", [heading]);
    for (name, about) in entries {
        roff.control("TP", []).text([bold(*name)]).text([roman(*about)]);
    }
    roff.to_writer(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_help_text_has_its_sections() {
        let help = "It waits.\n\nExit codes: 0 done · 1 not\n\nExamples:\n  leasehold ls\n  leasehold ls a";
        let sections = Sections::of(help);
        assert_eq!(sections.description, ["It waits."]);
        assert_eq!(sections.exit_codes, Some(" 0 done · 1 not"));
        assert_eq!(sections.examples, Some("\n  leasehold ls\n  leasehold ls a"));
    }

    #[test]
    fn the_table_of_exit_codes_has_every_kind() {
        for kind in leasehold::ErrorKind::ALL {
            let line = format!("  {:<4}", crate::exit::code_of(*kind));
            assert!(EXIT_CODES.lines().any(|listed| listed.starts_with(&line)), "{kind}");
        }
    }
}
