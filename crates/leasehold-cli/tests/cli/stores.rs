//! Which store is used.

use leasehold_testkit::{RedisServer, eventually};

use crate::sandbox::{LONG, Sandbox};

fn chosen(command: std::process::Command, sandbox: &Sandbox) -> String {
    let ran = sandbox.run_command(command);
    assert_eq!(ran.code, Some(0), "{ran}");
    ran.stderr.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_flag_wins_over_the_environment_the_file_and_the_default() {
    let sandbox = Sandbox::on("memory:environment");
    let words = ["-v", "ls"];
    let without_env = |words: &[&str]| {
        let mut command = sandbox.command(words);
        command.env_remove("LEASEHOLD_STORE");
        command
    };
    assert_eq!(
        chosen(without_env(&words), &sandbox),
        "store: sqlite:[FOLDER]/state/leasehold/leasehold.db (chosen by default)"
    );
    let user = sandbox.path(".config/leasehold");
    std::fs::create_dir_all(&user).unwrap();
    sandbox.write(".config/leasehold/leasehold.toml", "store = 'memory:user'");
    assert_eq!(chosen(without_env(&words), &sandbox), "store: memory:user (chosen by leasehold.toml)");
    sandbox.write("leasehold.toml", "store = 'memory:here'\n[locks.x]\nkey = 'x'");
    assert_eq!(chosen(without_env(&words), &sandbox), "store: memory:here (chosen by leasehold.toml)");
    assert_eq!(
        chosen(sandbox.command(&words), &sandbox),
        "store: memory:environment (chosen by LEASEHOLD_STORE)"
    );
    assert_eq!(
        chosen(sandbox.command(&["-v", "ls", "--store", "memory:flag"]), &sandbox),
        "store: memory:flag (chosen by --store)"
    );
}

#[test]
fn the_file_sets_the_ttl_and_a_bad_value_is_named() {
    let sandbox = Sandbox::on("memory:");
    sandbox.write("leasehold.toml", "default-ttl = '12s'");
    assert_eq!(sandbox.run(&["run", "x", "-c", "echo $LEASEHOLD_TTL_MS"]).stdout, "12000\n");
    sandbox.write("leasehold.toml", "default-ttl = 12");
    insta::assert_snapshot!(sandbox.run(&["run", "x", "--", "true"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid default-ttl in leasehold.toml "12": expected a number with a unit, such as 12s or 12ms

    hint: change the value
    "#);
}

#[test]
fn env_stands_for_the_redis_variables() {
    let Some(server) = RedisServer::builder().password("p@ss:/word").start_or_skip() else { return };
    let sandbox = Sandbox::on("env");
    let mut command = sandbox.command(&["-v", "run", "x", "--", "true"]);
    command
        .env("REDIS_HOST", "127.0.0.1")
        .env("REDIS_PORT", server.port().to_string())
        .env("REDIS_PASSWORD", "p@ss:/word");
    let line = chosen(command, &sandbox);
    assert_eq!(line, format!("store: redis://127.0.0.1:{} (chosen by LEASEHOLD_STORE)", server.port()));
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

#[test]
fn env_without_redis_variables_is_refused() {
    insta::assert_snapshot!(Sandbox::on("env").run(&["ls"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: the store "env" needs REDIS_HOST, REDIS_PORT or REDIS_PASSWORD, and none is set

    hint: set REDIS_HOST, or name a store with --store URL
    "#);
}
