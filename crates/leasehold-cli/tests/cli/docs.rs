//! The commands of the guides, run as they are written.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::sandbox::{BINARY, Sandbox};

fn guide(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)).unwrap()
}

/// Lines that begin with `$ ` in blocks of the kind `console`.
fn commands(text: &str) -> Vec<&str> {
    let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("console\n"));
    blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("$ ")).collect()
}

#[test]
fn every_command_of_the_troubleshooting_guide_runs() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let sandbox = Sandbox::on(server.url());
    let bin = sandbox.path("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(BINARY, bin.join("leasehold")).unwrap();
    let real = which("redis-cli");
    let wrapper = bin.join("redis-cli");
    fs::write(&wrapper, format!("#!/bin/sh\nexec {real} -p {} \"$@\"\n", server.port())).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();

    let text = guide("troubleshooting.md");
    let commands = commands(&text);
    assert!(commands.len() >= 12, "{commands:?}");
    let hold = || sandbox.start_script(&[], "deal:42", "exec sleep 60");
    let mut holder = hold();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for command in commands {
        let mut shell = sandbox.program("sh");
        shell.args(["-c", command]).env("PATH", &path).env("FENCE", sandbox.fact("deal:42", "fence"));
        // Something to watch: a lock that is taken, or released if the first poll came late.
        let _change = command.contains("watch").then(|| sandbox.start(&["run", "other", "--", "sleep", "2"]));
        let ran = sandbox.run_command(shell);
        let expected = match command.split(' ').next() {
            Some("timeout") => 124,
            // This server has no password, and doctor says so.
            _ if command.ends_with("doctor") => 1,
            _ => 0,
        };
        assert_eq!(ran.code, Some(expected), "$ {command}\n{ran}");
        if command.contains("force-release") {
            drop(holder);
            holder = hold();
        }
    }
}

#[test]
fn every_command_of_the_guide_to_deadlines_runs() {
    let sandbox = Sandbox::new();
    let bin = sandbox.path("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(BINARY, bin.join("leasehold")).unwrap();
    let text = guide("deadlines.md");
    let commands = commands(&text);
    assert!(commands.len() >= 6, "{commands:?}");
    for command in commands {
        let mut shell = sandbox.program("sh");
        shell.args(["-c", command]).env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        let ran = sandbox.run_command(shell);
        assert_eq!(ran.code, Some(0), "$ {command}\n{ran}");
    }
}

/// The guide's table of errors has every exit code.
#[test]
fn the_troubleshooting_guide_knows_the_errors_of_a_store() {
    use leasehold::ErrorKind as Kind;
    let text = guide("troubleshooting.md");
    for (kind, code) in [
        (Kind::StoreUnreachable, 69),
        (Kind::StoreRefused, 77),
        (Kind::WrongType, 65),
        (Kind::Overloaded, 75),
        (Kind::Lost, 76),
    ] {
        assert!(text.contains(&format!("| `{kind}`, {code}")), "{kind}");
    }
}

fn which(program: &str) -> String {
    let path = std::env::var("PATH").unwrap();
    let found =
        path.split(':').map(|folder| format!("{folder}/{program}")).find(|file| Path::new(file).exists());
    found.unwrap_or_else(|| panic!("{program} is not installed (Debian: redis-tools)"))
}
