//! `leasehold quorum`, and what `doctor` says about one.

use leasehold_testkit::{QuorumSet, RedisServer, eventually};

use crate::sandbox::{LONG, Ran, Sandbox};

/// Nodes that nobody has admitted, and a place to work with them. Leases last at most a second, so waits are short.
fn nodes() -> Option<(QuorumSet, Sandbox)> {
    let set = QuorumSet::builder(3).arg("appendfsync", "no").start_or_skip()?;
    let sandbox = Sandbox::on(set.url());
    sandbox.write("leasehold.toml", "max-ttl = '1s'\ndefault-ttl = '1s'");
    Some((set, sandbox))
}

fn quorum() -> Option<(QuorumSet, Sandbox)> {
    let (set, sandbox) = nodes()?;
    let ran = sandbox.run(&["quorum", "admit", "--new"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    Some((set, sandbox))
}

/// What was printed, with a letter instead of each node's address.
fn shown(set: &QuorumSet, ran: &Ran) -> String {
    let mut text = ran.to_string();
    for (node, letter) in set.nodes().iter().zip(["[A]", "[B]", "[C]"]) {
        text = text.replace(&node.addr().to_string(), letter);
    }
    text
}

#[test]
fn a_new_quorum_is_admitted_at_once_and_then_all_vote() {
    let Some((set, sandbox)) = nodes() else { return };
    insta::assert_snapshot!(shown(&set, &sandbox.run(&["quorum", "status"])), @r"
    exit 2
    --- stdout
    [A][TAB]abstains: not admitted yet[TAB]0
    [B][TAB]abstains: not admitted yet[TAB]0
    [C][TAB]abstains: not admitted yet[TAB]0
    --- stderr
    ");
    let refused = sandbox.run(&["run", "x", "--", "true"]);
    assert_eq!(refused.code, Some(77), "{refused}");
    assert!(
        refused.stderr.contains("\nhint: ") && refused.stderr.contains("quorum admit --new"),
        "{refused}"
    );
    insta::assert_snapshot!(shown(&set, &sandbox.run(&["quorum", "admit", "--new"])), @r"
    exit 0
    --- stdout
    [A][TAB]votes[TAB][FENCE]
    [B][TAB]votes[TAB][FENCE]
    [C][TAB]votes[TAB][FENCE]
    --- stderr
    ");
    insta::assert_snapshot!(shown(&set, &sandbox.run(&["quorum", "status", "--json"])), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"store":"redlock://[A],[B],[C]","majority":2,"voting":3,"nodes":[{"label":"[A]","state":"votes","highest":[FENCE]},{"label":"[B]","state":"votes","highest":[FENCE]},{"label":"[C]","state":"votes","highest":[FENCE]}]}
    --- stderr
    "#);
    assert_eq!(sandbox.run(&["run", "x", "--", "true"]).code, Some(0));
}

#[test]
fn readers_run_together_and_a_writer_waits_for_them() {
    let Some((_set, sandbox)) = quorum() else { return };
    let reader = sandbox.start(&["run", "--hold", "--shared", "x"]);
    reader.await_stdout("x");
    let other = sandbox.run(&["run", "-s", "x", "-c", "echo $LEASEHOLD_MODE"]);
    assert_eq!((other.code, other.stdout.as_str()), (Some(0), "shared\n"), "{other}");
    let writer = sandbox.run(&["run", "-n", "x", "--", "true"]);
    assert_eq!(writer.code, Some(1), "{writer}");
    let listed = sandbox.run(&["ls"]);
    assert!(listed.stdout.contains("shared"), "{listed}");
    drop(reader);
    let refused = sandbox.run(&["run", "--of", "2", "x", "--", "true"]);
    assert!(refused.code == Some(70) && refused.stderr.contains("cannot count permits"), "{refused}");
}

#[test]
fn status_tells_a_missing_node_from_a_missing_majority() {
    let Some((set, sandbox)) = quorum() else { return };
    set.nodes()[1].kill();
    let ran = sandbox.run(&["quorum", "status"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(shown(&set, &ran).contains("[B][TAB]unreachable: "), "{ran}");
    set.nodes()[0].restart();
    let ran = sandbox.run(&["quorum", "status"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(shown(&set, &ran).contains("[A][TAB]abstains: restarted or wiped"), "{ran}");
    assert!(shown(&set, &ran).contains("[C][TAB]votes"), "{ran}");
    let json = sandbox.run(&["quorum", "status", "--json"]);
    assert_eq!(json.code, Some(2), "{json}");
    for part in [
        r#""majority":2,"voting":1,"#,
        r#""state":"abstains","why":"restarted or wiped"#,
        r#""state":"unreachable""#,
    ] {
        assert!(json.stdout.contains(part), "{part} is not in {json}");
    }
}

#[test]
fn admit_watches_nodes_that_forgot_and_shows_how_far_it_is() {
    let Some((set, sandbox)) = quorum() else { return };
    set.nodes().iter().for_each(RedisServer::restart_with_data);
    assert_eq!(sandbox.run(&["quorum", "status"]).code, Some(2));
    let ran = sandbox.run(&["quorum", "admit"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_eq!(ran.stdout.matches("\tvotes\t").count(), 3, "{ran}");
    assert!(ran.stderr.contains("waits, ") && ran.stderr.contains(" s left"), "{ran}");
    assert_eq!(sandbox.run(&["run", "x", "--", "true"]).code, Some(0));
}

#[test]
fn admit_needs_a_node_that_remembers() {
    let Some((_set, sandbox)) = nodes() else { return };
    insta::assert_snapshot!(sandbox.run(&["quorum", "admit"]), @r"
    exit 70
    --- stdout
    --- stderr
    error: admitting nodes is not supported: no node remembers this quorum; `leasehold quorum admit --new` makes a new one
    ");
}

#[test]
fn a_quorum_is_replaced_by_a_new_one_only_on_purpose() {
    let Some((set, sandbox)) = quorum() else { return };
    // One that forgot everything is no reason: the others remember.
    set.nodes()[0].cli(&["FLUSHALL"]);
    let ran = sandbox.run(&["quorum", "admit", "--new"]);
    assert_eq!(ran.code, Some(70), "{ran}");
    for words in
        ["is part of a quorum already", "`leasehold quorum admit`", "`leasehold quorum admit --new --yes`"]
    {
        assert!(ran.stderr.contains(words), "{words} is not in {ran}");
    }
    let ran = sandbox.run(&["quorum", "admit", "--new", "--yes"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_eq!(sandbox.run(&["quorum", "admit", "--yes"]).code, Some(64));
}

#[test]
fn admit_says_why_there_is_no_quorum_to_bring_nodes_back_into() {
    let Some((set, sandbox)) = quorum() else { return };
    let addr = |index: usize| set.nodes()[index].addr().to_string();
    let admit = |hosts: String| Sandbox::on(format!("redlock://{hosts}")).run(&["quorum", "admit"]);
    let Some(fourth) = leasehold_testkit::redis_or_skip() else { return };
    let ran = admit(format!("{},{},{},{}", addr(0), addr(1), addr(2), fourth.addr()));
    assert_eq!(ran.code, Some(70), "{ran}");
    assert!(ran.stderr.contains("remember a quorum of 3 nodes, and the store URL names 4"), "{ran}");
    let ran = admit(format!("{},{},{}", addr(1), addr(0), addr(2)));
    assert_eq!(ran.code, Some(70), "{ran}");
    assert!(ran.stderr.contains("all clients must use the same list"), "{ran}");
    for node in set.nodes() {
        node.cli(&["CONFIG", "SET", "requirepass", "secret"]);
    }
    let ran = sandbox.run(&["quorum", "admit"]);
    assert_eq!(ran.code, Some(77), "{ran}");
    set.nodes().iter().for_each(RedisServer::kill);
    let ran = sandbox.run(&["quorum", "admit"]);
    assert_eq!(ran.code, Some(69), "{ran}");
    assert!(shown(&set, &ran).contains("no node that answers remembers this quorum; [A]: "), "{ran}");
}

#[test]
fn a_store_that_is_no_quorum_has_no_nodes() {
    for words in [&["quorum", "status"][..], &["quorum", "admit"], &["quorum", "admit", "--new"]] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(Sandbox::new().run(words), @r"
            exit 70
            --- stdout
            --- stderr
            error: asking the store sqlite:[FOLDER]/locks.db for its quorum is not supported: one server or one cluster decides there; a quorum is a redlock:// store
            ");
        }
    }
}

#[test]
fn doctor_names_nodes_that_are_down_abstain_keep_nothing_or_have_replicas() {
    let Some((set, sandbox)) = quorum() else { return };
    let sound = sandbox.run(&["doctor"]).stdout;
    for code in ["node-down", "quorum-marker", "quorum-replicas", "persistence"] {
        assert!(!sound.contains(&format!("warning {code}\t")), "{sound}");
    }
    let [copied, forgetful, dead] = set.nodes() else { panic!("three nodes") };
    let origin = format!("127.0.0.1 {}", copied.port());
    let _copy = RedisServer::builder().arg("replicaof", &origin).start().unwrap();
    eventually(LONG, "a replica", || copied.info("connected_slaves").as_deref() == Some("1"));
    forgetful.cli(&["CONFIG", "SET", "appendonly", "no"]);
    dead.kill();
    let ran = sandbox.run(&["doctor"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    for (code, node) in [
        ("quorum-replicas", copied),
        // Its data set got another name with the first replica.
        ("quorum-marker", copied),
        ("persistence", forgetful),
        ("node-down", dead),
    ] {
        assert!(ran.stdout.contains(&format!("warning {code}\t{}", node.addr())), "{code}: {ran}");
    }
}
