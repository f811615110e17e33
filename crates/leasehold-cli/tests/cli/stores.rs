//! Which store is used.

use std::os::unix::fs::PermissionsExt;

use leasehold_testkit::{RedisServer, eventually};

use crate::sandbox::{BINARY, LONG, Sandbox};

/// What a command says about its store: `doctor` uses any.
fn said(command: std::process::Command, sandbox: &Sandbox) -> String {
    let ran = sandbox.run_command(command);
    assert_eq!(ran.code, Some(0), "{ran}");
    ran.stderr
}

#[test]
fn a_store_that_the_command_does_not_name_is_shown_once() {
    let sandbox = Sandbox::on("memory:environment");
    let words = ["doctor"];
    let user = sandbox.path(".config/leasehold");
    std::fs::create_dir_all(&user).unwrap();
    std::fs::set_permissions(&user, PermissionsExt::from_mode(0o755)).unwrap();
    sandbox.write(".config/leasehold/leasehold.toml", "store = 'memory:user'");
    let by_files = || said(sandbox.storeless_command(&words), &sandbox);
    let path = "[FOLDER]/.config/leasehold/leasehold.toml";
    assert_eq!(by_files(), format!("store: memory:user (chosen by {path})\n"));
    // Nearer policies alone do not hide the store.
    sandbox.write("leasehold.toml", "[locks.x]\nkey = 'x'");
    assert_eq!(by_files(), format!("store: memory:user (chosen by {path})\n"));
    sandbox.write("leasehold.toml", "store = 'memory:here'\n[locks.x]\nkey = 'x'");
    assert_eq!(by_files(), "store: memory:here (chosen by leasehold.toml)\n");
    assert_eq!(
        said(sandbox.bare_command(&words), &sandbox),
        "store: memory:environment (chosen by LEASEHOLD_STORE)\n"
    );
    let by_flag = ["doctor", "--store", "memory:flag"];
    assert_eq!(said(sandbox.bare_command(&by_flag), &sandbox), "");
    let loud = [&["-v"], &by_flag[..]].concat();
    assert_eq!(said(sandbox.bare_command(&loud), &sandbox), "store: memory:flag (chosen by --store)\n");
    let json = said(sandbox.bare_command(&["doctor", "--json"]), &sandbox);
    assert_eq!(json, "", "a program reads it");
}

#[test]
fn the_redis_variables_are_enough_and_come_after_the_files() {
    let Some(server) = RedisServer::builder().password("p@ss:/word").start_or_skip() else { return };
    let sandbox = Sandbox::new();
    let command = |words: &[&str]| {
        let mut command = sandbox.storeless_command(words);
        command
            .env("REDIS_HOST", "127.0.0.1")
            .env("REDIS_PORT", server.port().to_string())
            .env("REDIS_PASSWORD", "p@ss:/word");
        command
    };
    let line = said(command(&["run", "x", "--", "true"]), &sandbox);
    assert_eq!(line, format!("store: redis://127.0.0.1:{} (chosen by REDIS_HOST)\n", server.port()));
    sandbox.write("leasehold.toml", "store = 'memory:here'");
    assert_eq!(said(command(&["doctor"]), &sandbox), "store: memory:here (chosen by leasehold.toml)\n");
}

#[test]
fn an_unknown_variable_is_an_error_with_the_nearest() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["ls"]);
    command.env("LEASEHOLD_STOER", "redis://cache");
    insta::assert_snapshot!(sandbox.run_command(command), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid variable "LEASEHOLD_STOER": expected the name of a setting; did you mean LEASEHOLD_STORE?

    hint: correct or unset LEASEHOLD_STOER; leasehold(1) lists the variables
    "#);
}

#[test]
fn a_job_can_use_leasehold_itself() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["run", "outer", "--", BINARY, "run", "inner", "--", "echo", "done"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "done\n"), "{ran}");
}

#[test]
fn a_store_that_ends_with_the_command_is_refused_by_all_that_share_something() {
    let sandbox = Sandbox::on("memory:");
    for words in [
        &["run", "x", "--", "true"][..],
        &["elect", "x", "--", "true"],
        &["leader", "x"],
        &["lock", "acquire", "x"],
        &["ls"],
        &["inspect", "x"],
        &["force-release", "x", "--fence", "1"],
        &["watch"],
        &["stats"],
        &["quorum", "status"],
        &["idem", "get", "a", "b"],
        &["marker", "test", "a", "b"],
        &["deadlines", "stats", "a"],
    ] {
        let ran = sandbox.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(64), ""), "{words:?}: {ran}");
        let says = "error: the store memory: (chosen by --store) ends with this command";
        assert!(ran.stderr.starts_with(says), "{words:?}: {ran}");
    }
}

#[test]
fn the_folder_of_a_named_file_is_not_created() {
    let sandbox = Sandbox::new();
    let store = format!("sqlite:{}", sandbox.path("lcoks/x.db").display());
    insta::assert_snapshot!(sandbox.run(&["--store", &store, "run", "x", "--", "true"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid store path "[FOLDER]/lcoks/x.db": expected a path in an existing directory; if it is right: mkdir -p -m 700 [FOLDER]/lcoks
    "#);
    assert!(!sandbox.path("lcoks").exists());
}

#[test]
fn the_file_sets_the_ttl_and_a_bad_value_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("leasehold.toml", "default-ttl = '12s'");
    assert_eq!(sandbox.run(&["run", "x", "-c", "echo $LEASEHOLD_TTL_MS"]).stdout, "12000\n");
    sandbox.write("leasehold.toml", "default-ttl = 12");
    insta::assert_snapshot!(sandbox.run(&["run", "x", "--", "true"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid default-ttl in leasehold.toml "12": expected a number with a unit, such as 12s or 12ms

    hint: correct it in leasehold.toml; docs/settings.md lists all settings with their ranges
    "#);
}

#[test]
fn a_hint_for_a_long_ttl_names_what_limits_it() {
    let sandbox = Sandbox::new();
    let words = ["run", "--ttl", "90m", "x", "--", "true"];
    let hint = |ran: &crate::sandbox::Ran| ran.stderr.lines().last().unwrap_or_default().to_owned();
    sandbox.write("leasehold.toml", "max-ttl = '10m'");
    assert_eq!(
        hint(&sandbox.run(&words)),
        "hint: max-ttl is 10m; raise it with max-ttl = \"1h30m\" in leasehold.toml or LEASEHOLD_MAX_TTL=1h30m"
    );
    let mut limited = sandbox.command(&words);
    limited.env("LEASEHOLD_MAX_TTL", "1h");
    assert_eq!(
        hint(&sandbox.run_command(limited)),
        "hint: max-ttl is 1h; raise it with LEASEHOLD_MAX_TTL=1h30m"
    );
    // What the hint says works.
    let mut raised = sandbox.command(&words);
    raised.env("LEASEHOLD_MAX_TTL", "1h30m");
    assert_eq!(sandbox.run_command(raised).code, Some(0));
}

#[test]
fn an_unreachable_store_is_69_and_its_password_is_not_shown() {
    let sandbox = Sandbox::on("redis://user:secret@127.0.0.1:1/0");
    for words in [&["-vv", "run", "x", "--", "true"][..], &["ls"], &["--json", "doctor"]] {
        let ran = sandbox.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(69), ""), "{ran}");
        assert!(ran.stderr.contains("redis://127.0.0.1:1/0") && !ran.stderr.contains("secret"), "{ran}");
    }
}

#[test]
fn a_url_that_names_no_store_is_refused() {
    let ran = Sandbox::on("mysql://localhost").run(&["ls"]);
    assert_eq!(ran.code, Some(64));
    assert!(
        ran.stderr.starts_with("error: invalid store URL \"mysql://localhost\": expected memory:"),
        "{ran}"
    );
}

#[test]
fn two_hosts_worth_of_clients_share_a_redis() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let sandbox = Sandbox::on(server.url());
    let mut holder = sandbox.start_script(&[], "shared", "while :; do sleep 0.05; done");
    assert_eq!(sandbox.run(&["run", "-n", "shared", "--", "true"]).code, Some(1));
    let mut waiter = sandbox.start(&["run", "shared", "--", "echo", "mine"]);
    sandbox.await_fact("shared", "waiters", "1");
    holder.signal(rustix::process::Signal::TERM);
    assert_eq!((holder.end(), waiter.end()), (Some(143), Some(0)));
    assert_eq!(sandbox.fact("shared", "state"), "free");
}

#[test]
fn a_lock_waits_for_replicas_where_there_are_some() {
    let primary = RedisServer::builder().arg("repl-diskless-sync-delay", "0").start_or_skip();
    let Some(primary) = primary else { return };
    let sandbox = Sandbox::on(primary.url());
    let none = sandbox.run(&["run", "--acks", "majority", "x", "--", "true"]);
    assert_eq!(none.code, Some(77), "{none}");
    assert!(none.stderr.contains("no replica is known"), "{none}");

    let origin = format!("127.0.0.1 {}", primary.port());
    let _replica = RedisServer::builder().arg("replicaof", &origin).start().unwrap();
    eventually(LONG, "an acknowledgement", || {
        sandbox.run(&["run", "--acks", "1", "x", "--", "true"]).code == Some(0)
    });
    let taken = sandbox.run(&["--json", "lock", "acquire", "x", "--acks", "majority", "--handle", "h"]);
    assert_eq!(taken.code, Some(0), "{taken}");
    assert!(taken.stdout.contains(r#""ttl_ms":30000,"acks":1,"#), "{taken}");

    let refused = Sandbox::new().run(&["run", "--acks", "1", "x", "--", "true"]);
    assert_eq!(refused.code, Some(70), "{refused}");
    assert!(refused.stderr.contains("a file has no replicas"), "{refused}");
    let unread = sandbox.run(&["run", "--acks", "most", "x", "--", "true"]);
    assert_eq!(unread.code, Some(64), "{unread}");
    assert!(unread.stderr.contains("0 to 255, or majority"), "{unread}");
}

#[test]
fn a_policy_says_how_many_replicas_and_a_flag_wins_over_it() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let sandbox = Sandbox::on(server.url());
    sandbox.write("leasehold.toml", "[locks.x]\nkey = 'policy'\nacks = 'majority'");
    assert_eq!(sandbox.run(&["run", "--policy", "x", "--", "true"]).code, Some(77));
    assert_eq!(sandbox.run(&["run", "--policy", "x", "--acks", "0", "--", "true"]).code, Some(0));
}
