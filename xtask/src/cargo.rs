//! Child processes: each is shown before it runs, and its output streams to the terminal.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `cargo <args>` in the workspace, as if typed into a shell.
///
/// `cargo run` describes the package xtask to xtask in variables. Build scripts that watch them would see a
/// change and build their crate again.
pub(crate) fn command(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(args);
    for (name, _) in std::env::vars_os() {
        if describes_a_package(&name) {
            command.env_remove(name);
        }
    }
    command
}

fn describes_a_package(variable: &OsStr) -> bool {
    variable
        .to_str()
        .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
}

/// Where cargo builds.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Shows the command, beside what it prints, and runs it to its end.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    eprintln!("$ {}", shown(command));
    let status = command.status();
    status.map_err(|error| cannot_run(command, &error)).is_ok_and(|status| status.success())
}

/// Like [`succeeds`], with every line of standard output handed to `on_line` as it arrives.
pub(crate) fn succeeds_reading(command: &mut Command, mut on_line: impl FnMut(&str)) -> bool {
    eprintln!("$ {}", shown(command));
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            cannot_run(command, &error);
            return false;
        }
    };
    let mut output = BufReader::new(child.stdout.take().expect("stdout was piped"));
    let mut line = Vec::new();
    // Bytes, because a test may print anything and the counts after it still matter.
    while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        on_line(String::from_utf8_lossy(&line).trim_end_matches('\n'));
        line.clear();
    }
    child.wait().is_ok_and(|status| status.success())
}

fn cannot_run(command: &Command, error: &std::io::Error) {
    eprintln!("error: cannot run {}: {error}", command.get_program().display());
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let command = command(Path::new("."), &["fmt", "--all"]);
        assert_eq!(shown(&command), "cargo fmt --all");
    }

    #[test]
    fn every_line_is_read_even_when_it_is_not_text() {
        let mut lines = Vec::new();
        let succeeded = succeeds_reading(Command::new("printf").arg("a\\n\\377\\nlast"), |line| {
            lines.push(line.to_owned());
        });
        assert!(succeeded);
        assert_eq!(lines, ["a", "\u{fffd}", "last"]);
    }

    #[test]
    fn a_program_that_is_not_there_has_failed() {
        assert!(!succeeds(&mut Command::new("no-such-program-anywhere")));
        assert!(!succeeds_reading(&mut Command::new("no-such-program-anywhere"), |_| {}));
    }
}
