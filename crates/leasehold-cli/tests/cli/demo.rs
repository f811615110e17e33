//! `leasehold demo` with all demos at once. Each demo has its own tests in `leasehold-demos`.
#![cfg(feature = "demos")]

use crate::sandbox::Sandbox;

fn run(words: &[&str]) -> (Option<i32>, String, String) {
    let sandbox = Sandbox::new();
    let output = sandbox.storeless_command(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn all_demos_end_with_one_table_of_what_was_protected_and_what_broke_without() {
    let (code, out, err) = run(&["demo", "all", "--scale", "2", "--kills", "2", "--seed", "7"]);
    assert_eq!(code, Some(0), "{out}\n{err}");
    let table: Vec<_> = out.lines().rev().take(6).collect();
    assert!(table[5].trim().starts_with("demo        what is protected"), "{out}");
    for (line, demo) in table.iter().zip(["invoices", "crawler", "recovery", "escrow", "flash-sale"]) {
        let words = [demo, "2 kills", "safe"];
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
        assert!(!line.ends_with("safe"), "what breaks without coordination is missing: {line}");
    }
    // Each was played both ways.
    assert_eq!(out.matches("the same run").count(), 5, "{out}");
    assert_eq!(err.matches(", without coordination, ").count(), 5, "{err}");
}

#[test]
fn what_belongs_to_one_demo_is_refused_for_all() {
    let (code, _, err) = run(&["demo", "all", "--variant", "deny"]);
    assert_eq!(
        (code, err.as_str()),
        (Some(64), "error: --variant and --config belong to one demo: name it\n")
    );
}
