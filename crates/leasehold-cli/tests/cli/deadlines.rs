//! Deadlines: add, due, claim, ack, cancel, stats, dead.

use leasehold_testkit::{RedisServer, eventually};

use crate::sandbox::{LONG, Ran, Sandbox};

fn deadlines(sandbox: &Sandbox, words: &[&str]) -> Ran {
    sandbox.run(&[&["deadlines"], words].concat())
}

/// From adding to acknowledging, one process each.
fn a_deadline_lives(sandbox: &Sandbox) {
    insta::allow_duplicates! { its_life(&|words: &[&str]| deadlines(sandbox, words)) }
}

fn its_life(run: &dyn Fn(&[&str]) -> Ran) {
    insta::assert_snapshot!(run(&["add", "cli", "tx:42", "--in", "0", "--context", "order 7"]), @r"
    exit 0
    --- stdout
    --- stderr
    ");
    insta::assert_snapshot!(run(&["add", "cli", "tx:43", "--in", "1h", "--json"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"pool":"cli","id":"tx:43","due_in_ms":3600000}
    --- stderr
    "#);
    let due = run(&["due", "cli"]).stdout;
    assert!(due.starts_with("tx:42\t0\t") && due.lines().count() == 1, "{due}");
    let claimed = run(&["claim", "cli", "--visibility", "1h"]);
    let row: Vec<_> = claimed.stdout.trim_end().split('\t').collect();
    assert_eq!((claimed.code, row[0], row[2], row[4]), (Some(0), "tx:42", "1", "order 7"), "{claimed}");
    assert_eq!(run(&["due", "cli"]).stdout, "");
    insta::assert_snapshot!(run(&["stats", "cli"]), @r"
    exit 0
    --- stdout
    pending[TAB]2
    due[TAB]0
    tried[TAB]1
    overdue[TAB]0s
    dead[TAB]0
    buckets[TAB]16
    placement[TAB]spread
    --- stderr
    ");
    insta::assert_snapshot!(run(&["ack", "cli", "tx:42", "1"]), @r"
    exit 1
    --- stdout
    --- stderr
    the receipt is no longer valid; nothing was removed
    ");
    insta::assert_snapshot!(run(&["ack", "cli", "tx:42", row[1], "--json"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"pool":"cli","id":"tx:42","acknowledged":true}
    --- stderr
    "#);
    assert_eq!(run(&["cancel", "cli", "tx:43"]).code, Some(0));
    insta::assert_snapshot!(run(&["cancel", "cli", "tx:43"]), @r"
    exit 1
    --- stdout
    --- stderr
    no such deadline
    ");
    insta::assert_snapshot!(run(&["stats", "cli", "--json"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"pool":"cli","pending":0,"due":0,"tried":0,"overdue_ms":0,"dead":0,"buckets":16,"placement":"spread"}
    --- stderr
    "#);
    insta::assert_snapshot!(run(&["add", "cli", "x", "--in", "1s", "--buckets", "8"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid layout of the pool "cli" "8 buckets spread": expected 16 buckets spread, with which the pool was made
    "#);
}

#[test]
fn a_deadline_lives_in_a_file() {
    a_deadline_lives(&Sandbox::new());
}

#[test]
fn a_deadline_lives_on_redis() {
    let Some(server) = RedisServer::builder().start_or_skip() else { return };
    a_deadline_lives(&Sandbox::on(server.url()));
}

#[test]
fn what_was_given_up_is_listed_with_its_reason() {
    let sandbox = Sandbox::new();
    let run = |words: &[&str]| deadlines(&sandbox, words);
    insta::assert_snapshot!(run(&["dead", "cli", "--json"]), @r#"
    exit 1
    --- stdout
    {"schema":{"version":"v1"},"pool":"cli","dead":[],"more":false}
    --- stderr
    "#);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let leases = leasehold::Leasehold::connect(sandbox.store()).await.unwrap();
        let pool = leases.deadlines("cli");
        pool.set_with("tx:42", std::time::Duration::ZERO, vec![0, 255]).await.unwrap();
        let mut claimed = pool.claim().limit(1).visibility(LONG).await.unwrap().due;
        assert!(claimed.remove(0).bury("no such account").await.unwrap().is_settled());
        leases.close().await.unwrap();
    });
    let shown = run(&["dead", "cli"]).stdout;
    let row: Vec<_> = shown.trim_end().split('\t').collect();
    assert_eq!((row[0], row[1], row[3], row[4]), ("tx:42", "1", "no such account", "0x00ff"));
    assert!(row[2].starts_with("20") && row[2].ends_with('Z'), "{row:?}");
    let json = run(&["dead", "cli", "--json"]).stdout;
    assert!(json.contains(r#""context":null,"context_hex":"00ff""#), "{json}");
}

/// Inspected on a store where it was never used.
fn an_unknown_pool_stays_unknown(sandbox: &Sandbox) {
    let run = |words: &[&str]| deadlines(sandbox, words);
    insta::allow_duplicates! {
        for what in ["due", "dead"] {
            insta::assert_snapshot!(run(&[what, "typo"]), @r"
            exit 1
            --- stdout
            --- stderr
            no such pool
            ");
        }
        insta::assert_snapshot!(run(&["stats", "typo"]), @r"
        exit 1
        --- stdout
        pending[TAB]0
        due[TAB]0
        tried[TAB]0
        overdue[TAB]0s
        dead[TAB]0
        --- stderr
        no such pool
        ");
        insta::assert_snapshot!(run(&["stats", "typo", "--json"]), @r#"
        exit 1
        --- stdout
        {"schema":{"version":"v1"},"pool":"typo","pending":0,"due":0,"tried":0,"overdue_ms":0,"dead":0,"buckets":null,"placement":null}
        --- stderr
        "#);
    }
    // It can still be made with any layout.
    assert_eq!(run(&["add", "typo", "tx:42", "--in", "1h", "--buckets", "8"]).code, Some(0));
    assert_eq!(run(&["stats", "typo"]).code, Some(0));
}

#[test]
fn to_look_at_an_unknown_pool_does_not_make_it() {
    an_unknown_pool_stays_unknown(&Sandbox::new());
    let Some(server) = RedisServer::builder().start_or_skip() else { return };
    an_unknown_pool_stays_unknown(&Sandbox::on(server.url()));
}

#[test]
fn a_limit_that_cuts_is_told() {
    let sandbox = Sandbox::new();
    let run = |words: &[&str]| deadlines(&sandbox, words);
    for id in ["a", "b"] {
        assert_eq!(run(&["add", "cli", id, "--in", "0", "--buckets", "1"]).code, Some(0));
    }
    eventually(LONG, "both are due", || run(&["due", "cli"]).stdout.lines().count() == 2);
    let cut = run(&["due", "cli", "--limit", "1"]);
    assert_eq!(
        (cut.stdout.lines().count(), &*cut.stderr),
        (1, "note: more deadlines are due; raise --limit\n")
    );
    let cut = run(&["claim", "cli", "--limit", "1"]);
    assert_eq!(
        (cut.stdout.lines().count(), &*cut.stderr),
        (1, "note: more deadlines are due; claim again\n")
    );
    assert!(run(&["claim", "cli", "--json"]).stdout.ends_with("\"more\":false}\n"));
}

#[test]
fn what_is_out_of_range_is_wrong_usage() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(deadlines(&sandbox, &["claim", "cli", "--visibility", "1ms"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid visibility "1ms": expected 100ms to 86400s
    "#);
    assert_eq!(deadlines(&sandbox, &["stats", "a{b}"]).code, Some(64));
    assert_eq!(deadlines(&sandbox, &["claim", "cli", "--limit", "1001"]).code, Some(64));
    assert_eq!(deadlines(&sandbox, &["add", "cli", "x"]).code, Some(64));
}

#[test]
fn a_quorum_keeps_no_deadlines() {
    let sandbox = Sandbox::new();
    let url = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    let ran = deadlines(&sandbox, &["stats", "cli", "--store", url]);
    assert!(matches!(ran.code, Some(69 | 70)), "{ran}");
}
