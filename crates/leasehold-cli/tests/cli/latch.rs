//! Latches: wait, count-down, run, show and rearm.

use leasehold_testkit::{RedisServer, eventually};
use rustix::process::Signal;

use crate::sandbox::{LONG, Sandbox};

/// The same on a file and on a server.
fn on_every_store(test: fn(&Sandbox)) {
    test(&Sandbox::new());
    if let Some(server) = leasehold_testkit::redis_or_skip() {
        test(&Sandbox::on(server.url()));
    }
}

impl Sandbox {
    fn latch(&self, words: &[&str]) -> crate::sandbox::Ran {
        self.run(&[&["latch"], words].concat())
    }

    fn latch_fact(&self, name: &str, fact: &str) -> String {
        let shown = self.latch(&["show", name]).stdout;
        let line = shown.lines().find_map(|line| line.strip_prefix(fact)?.strip_prefix('\t'));
        line.unwrap_or_default().to_owned()
    }

    fn await_latch(&self, name: &str, fact: &str, value: &str) {
        eventually(LONG, &format!("{fact} of {name} is {value}"), || self.latch_fact(name, fact) == value);
    }
}

#[test]
fn a_latch_opens_when_all_commands_have_succeeded() {
    on_every_store(|sandbox| {
        let mut waiting = sandbox.start(&["latch", "wait", "migration", "--of", "2", "-w", "1m"]);
        let go = sandbox.path("go");
        let script = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
        let words =
            ["latch", "run", "migration", "--of", "2", "--label", "shard a", "--", "sh", "-c", &script];
        let mut shard = sandbox.start(&words);
        sandbox.await_latch("migration", "joined", "1");
        assert!(sandbox.latch_fact("migration", "participant 1").starts_with("shard a ("));
        assert_eq!(sandbox.latch(&["count-down", "migration", "--of", "2"]).code, Some(0));
        sandbox.await_latch("migration", "missing", "1");
        assert!(waiting.is_running());
        std::fs::write(go, "").unwrap();
        assert_eq!((shard.end(), waiting.end()), (Some(0), Some(0)));
        assert_eq!(sandbox.latch_fact("migration", "state"), "open");
        // Late, and there is nothing to wait for.
        assert_eq!(sandbox.latch(&["count-down", "migration", "--of", "2"]).code, Some(0));
        assert_eq!(sandbox.latch(&["run", "migration", "--of", "2", "--", "true"]).code, Some(0));
        assert_eq!(sandbox.latch(&["wait", "migration", "--of", "2", "-w", "0"]).code, Some(0));
    });
}

#[test]
fn a_command_that_fails_breaks_the_latch_with_its_label() {
    on_every_store(|sandbox| {
        let mut waiting = sandbox.start(&["latch", "wait", "migration", "--of", "2"]);
        sandbox.await_latch("migration", "missing", "2");
        let failed = sandbox.latch(&[
            "run",
            "migration",
            "--of",
            "2",
            "--label",
            "shard b",
            "--",
            "sh",
            "-c",
            "exit 7",
        ]);
        assert_eq!(failed.code, Some(7));
        assert_eq!(waiting.end(), Some(83));
        assert!(waiting.stderr().contains("\"migration\" is broken: shard b ("), "{}", waiting.stderr());
        assert!(waiting.stderr().contains("hint: find out why; `leasehold latch rearm migration`"));
        assert_eq!(sandbox.latch_fact("migration", "state"), "broken");
        let late = sandbox.latch(&["run", "migration", "--of", "2", "--", "true"]);
        assert!(late.code == Some(83) && late.stderr.contains("shard b"), "{late}");
        assert_eq!(sandbox.latch(&["rearm", "migration"]).code, Some(0));
        assert_eq!(sandbox.latch_fact("migration", "missing"), "2");
    });
}

#[test]
fn a_command_that_is_not_found_breaks_the_latch() {
    let sandbox = Sandbox::new();
    let ran = sandbox.latch(&["run", "migration", "--of", "1", "--", "./no-such-command"]);
    assert_eq!(ran.code, Some(127));
    assert!(sandbox.latch_fact("migration", "broken by").starts_with("no-such-command ("));
}

#[test]
fn a_command_that_is_killed_with_leasehold_breaks_the_latch_after_its_ttl() {
    let sandbox = Sandbox::new();
    let words =
        ["latch", "run", "migration", "--of", "1", "--ttl", "500ms", "--label", "dead", "--", "sleep", "1"];
    let dead = sandbox.start(&words);
    sandbox.await_latch("migration", "joined", "1");
    dead.signal(Signal::KILL);
    let waited = sandbox.latch(&["wait", "migration", "--of", "1", "-w", "1m"]);
    assert!(waited.code == Some(83) && waited.stderr.contains("dead ("), "{waited}");
}

#[test]
fn signals_reach_the_command_and_end_a_wait() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start(&["latch", "run", "x", "--of", "2", "--", "sleep", "60"]);
    sandbox.await_latch("x", "joined", "1");
    let mut waiting = sandbox.start(&["latch", "wait", "x", "--of", "2"]);
    // It may have just begun: until it listens, a signal ends it at once.
    eventually(LONG, "it listens", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", waiting.pid().as_raw_nonzero()));
        let mask = status.unwrap_or_default();
        let mask =
            mask.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
        u64::from_str_radix(&mask, 16).unwrap_or(0) & (1 << (Signal::INT.as_raw() - 1)) != 0
    });
    waiting.signal(Signal::INT);
    assert_eq!(waiting.end(), Some(130));
    run.signal(Signal::TERM);
    assert_eq!(run.end(), Some(143));
    assert_eq!(sandbox.latch_fact("x", "state"), "broken");
}

#[test]
fn outcomes_have_exit_codes_and_words_of_their_own() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let sandbox = Sandbox::on(server.url());
    insta::assert_snapshot!(sandbox.latch(&["show", "cli-latch"]), @r#"
    exit 1
    --- stdout
    --- stderr
    no latch or barrier is named "cli-latch"
    "#);
    insta::assert_snapshot!(sandbox.latch(&["wait", "cli-latch", "--of", "2", "-w", "0"]), @r#"
    exit 1
    --- stdout
    --- stderr
    error: "cli-latch" is not open: 2 of 2 have not counted down

    hint: `leasehold latch show cli-latch` shows who takes part
    "#);
    insta::assert_snapshot!(sandbox.latch(&["count-down", "cli-latch", "--of", "2", "--json"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"name":"cli-latch","state":"armed","generation":[FENCE],"missing":1}
    --- stderr
    "#);
    insta::assert_snapshot!(sandbox.latch(&["count-down", "cli-latch", "--of", "3"]), @r#"
    exit 82
    --- stdout
    --- stderr
    error: "cli-latch" is armed for 2 parties in the store, not 3

    hint: give --of 2; once it is over, `leasehold latch rearm cli-latch --of 3` arms it for 3
    "#);
    insta::assert_snapshot!(sandbox.latch(&["rearm", "cli-latch"]), @r#"
    exit 1
    --- stdout
    --- stderr
    error: "cli-latch" was not armed: 1 have not counted down yet

    hint: `leasehold latch show cli-latch` shows who takes part
    "#);
    insta::assert_snapshot!(sandbox.latch(&["count-down", "cli-latch", "--of", "2", "--json"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"name":"cli-latch","state":"open","generation":[FENCE],"missing":0}
    --- stderr
    "#);
    insta::assert_snapshot!(sandbox.latch(&["show", "cli-latch"]), @r"
    exit 0
    --- stdout
    name[TAB]cli-latch
    kind[TAB]latch
    state[TAB]open
    generation[TAB][FENCE]
    parties[TAB]2
    --- stderr
    ");
    insta::assert_snapshot!(sandbox.latch(&["rearm", "cli-latch", "--of", "5", "--json"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"name":"cli-latch","generation":[FENCE],"count":5}
    --- stderr
    "#);
    insta::assert_snapshot!(sandbox.latch(&["show", "cli-latch", "--json"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"name":"cli-latch","kind":"latch","state":"armed","generation":[FENCE],"count":5,"missing":5,"joined":0,"broken_by":null,"participants":[]}
    --- stderr
    "#);
    assert_eq!(sandbox.latch(&["wait", "cli-latch", "--of", "0"]).code, Some(64));
    assert_eq!(sandbox.latch(&["wait", "cli-latch", "--of", "10001", "-w", "0"]).code, Some(64));
}
