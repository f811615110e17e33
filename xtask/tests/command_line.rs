//! The command line, without running any step.

use std::process::{Command, Output};

fn xtask(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(args).output().expect("xtask runs")
}

#[test]
fn help_goes_to_stdout_and_names_every_command() {
    let help = xtask(&["help"]);
    assert_eq!(help.status.code(), Some(0));
    let text = String::from_utf8_lossy(&help.stdout);
    for command in ["test", "tidy", "book", "bench", "matrix", "minimal-versions", "chaos", "interop"] {
        assert!(text.contains(&format!("\n  {command} ")), "{text}");
    }
}

#[test]
fn help_of_test_names_every_step() {
    let text = String::from_utf8_lossy(&xtask(&["help", "test"]).stdout).into_owned();
    for step in ["fmt", "clippy", "tidy", "test", "doc-tests", "features", "deny", "package"] {
        assert!(text.contains(&format!("- {step}:")), "{text}");
    }
}

#[test]
fn what_is_not_understood_is_named_with_help_and_exits_64() {
    for args in [&["polish"][..], &["test", "--quickly"], &["test", "--only", "everything"], &[]] {
        let refused = xtask(args);
        assert_eq!(refused.status.code(), Some(64), "{args:?}");
        assert!(refused.stdout.is_empty(), "{args:?}");
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(text.contains("Usage: cargo xtask"), "{text}");
        assert!(args.last().is_none_or(|word| text.contains(word)), "{text}");
    }
}
