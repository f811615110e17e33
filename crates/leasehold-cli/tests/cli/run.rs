//! `leasehold run`: the command's life under the lock.

use crate::sandbox::{BINARY, LONG, Sandbox, lives};
use leasehold_testkit::eventually;
use rustix::process::Signal;

#[test]
fn the_exit_code_is_the_commands() {
    let sandbox = Sandbox::new();
    for code in [0, 1, 7, 255] {
        assert_eq!(sandbox.run(&["run", "x", "--", "sh", "-c", &format!("exit {code}")]).code, Some(code));
    }
}

#[test]
fn a_command_that_a_signal_ended_is_128_and_the_signal() {
    let sandbox = Sandbox::new();
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
        assert_eq!(
            sandbox.run(&["run", "x", "--", "sh", "-c", &format!("kill -{signal} $$")]).code,
            Some(code)
        );
    }
}

#[test]
fn a_command_that_is_not_found_is_127_and_leaves_no_lock() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.run(&["run", "x", "--", "no-such-command"]), @r#"
    exit 127
    --- stdout
    --- stderr
    error: cannot run "no-such-command"
      caused by: No such file or directory (os error 2)

    hint: check the name of the command and PATH, or the interpreter that the script names
    "#);
    assert_eq!(sandbox.fact("x", "state"), "free");
}

#[test]
fn a_command_that_cannot_be_executed_is_126() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("not-a-program"), "text").unwrap();
    insta::assert_snapshot!(sandbox.run(&["run", "x", "--", "./not-a-program"]), @r#"
    exit 126
    --- stdout
    --- stderr
    error: cannot run "./not-a-program"
      caused by: Permission denied (os error 13)

    hint: check that it is a program and its permissions
    "#);
}

#[test]
fn the_command_finds_name_fence_mode_and_ttl_but_no_secret() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["run", "--ttl", "20s", "deal:42", "--", "env"]);
    let mut ours: Vec<_> = ran.stdout.lines().filter(|line| line.starts_with("LEASEHOLD_")).collect();
    ours.sort_unstable();
    assert_eq!(ours.len(), 5, "{ours:?}");
    assert!(ours[0].strip_prefix("LEASEHOLD_FENCE=").is_some_and(|fence| fence.parse::<u64>().is_ok()));
    assert_eq!(ours[1], "LEASEHOLD_MODE=exclusive");
    assert_eq!(ours[2], "LEASEHOLD_NAME=deal:42");
    assert!(ours[3].starts_with("LEASEHOLD_STORE="));
    assert_eq!(ours[4], "LEASEHOLD_TTL_MS=20000");
}

#[test]
fn the_environment_of_the_command_is_set_last() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["run", "x", "-c", "echo $LEASEHOLD_NAME"]);
    command.env("LEASEHOLD_NAME", "somebody else's");
    assert_eq!(sandbox.run_command(command).stdout, "x\n");
}

#[test]
fn stdin_is_inherited_and_stdout_is_the_commands_alone() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run_with_input(&["-v", "run", "x", "--", "cat"], "from outside\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "from outside\n"));
}

#[test]
fn options_come_before_or_after_the_name_and_the_command_after_two_dashes() {
    let sandbox = Sandbox::new();
    for words in [
        &["run", "-w", "3s", "x", "--", "echo", "-n", "--json"][..],
        &["run", "x", "-w", "3s", "--", "echo", "-n", "--json"],
        &["run", "x", "-w3", "--", "echo", "-n", "--json"],
    ] {
        assert_eq!(sandbox.run(words).stdout, "--json", "{words:?}");
    }
    assert_eq!(sandbox.run(&["run", "x", "--", "echo", "--", "-n"]).stdout, "-- -n\n");
}

/// In a table of cron jobs each of these would never run its job, and hold the lock of another name.
#[test]
fn a_forgotten_name_or_command_is_wrong_usage_and_takes_no_lock() {
    let sandbox = Sandbox::new();
    for (words, error, hint) in [
        (&["run", "./job.sh"][..], "lock \"./job.sh\"? No command", "--hold"),
        (&["run", "x", "--"], "lock \"x\"? No command", "leasehold run x -- CMD"),
        (&["run", "--", "echo", "hi"], "the name of the lock is missing", "leasehold run NAME -- CMD"),
        (&["run", "x", "echo", "-n", "hi"], "\"echo\" comes after the name", "leasehold run x -- echo"),
        (&["run", "--policy", "p", "echo"], "\"echo\" is no KEY=VALUE", "-- echo"),
        (&["run", "--hold", "x", "--", "echo"], "cannot be used with", "--help"),
    ] {
        sandbox.write("leasehold.toml", "[locks.p]\nkey = 'p'");
        let ran = sandbox.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(64), ""), "{words:?}: {ran}");
        assert!(ran.stderr.contains(error) && ran.stderr.contains(hint), "{words:?}: {ran}");
    }
    assert_eq!(sandbox.run(&["ls"]).stdout.lines().count(), 0);
}

#[test]
fn a_shell_runs_what_c_says() {
    let sandbox = Sandbox::new();
    for words in [&["run", "-c", "echo a; exit 3", "x"][..], &["run", "x", "-c", "echo a; exit 3"]] {
        let ran = sandbox.run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "a\n"));
    }
}

#[test]
fn a_busy_lock_is_refused_at_once_with_n() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&["--label", "the-holder"], "x", "sleep 60");
    for words in [&["run", "-n", "x", "--", "true"][..], &["run", "-w", "0", "x", "--", "true"]] {
        let ran = sandbox.run(words);
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.starts_with("error: \"x\" is held by the-holder ("), "{}", ran.stderr);
    }
    assert_eq!(sandbox.run(&["run", "-n", "-E", "33", "x", "--", "true"]).code, Some(33));
    insta::assert_snapshot!(sandbox.run(&["run", "-n", "-E", "0", "x", "--", "true"]), @r"
    exit 0
    --- stdout
    --- stderr
    ");
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&[], "x", "sleep 60");
    let ran = sandbox.run(&["--json", "run", "-w", "100ms", "-E", "9", "x", "--", "true"]);
    assert_eq!(ran.code, Some(9));
    assert!(
        ran.stderr.starts_with(r#"{"schema":{"version":"v1"},"error":{"kind":"timed_out","retry":true,"#)
    );
    assert!(ran.stderr.contains(r#""name":"x""#), "{}", ran.stderr);
}

#[test]
fn a_waiting_command_runs_when_the_holder_has_ended() {
    let sandbox = Sandbox::new();
    let mut holder = sandbox.start_script(&[], "x", "while :; do sleep 0.05; done");
    let mut waiter = sandbox.start(&["run", "x", "--", "echo", "mine"]);
    sandbox.await_fact("x", "waiters", "1");
    assert_eq!(waiter.stdout(), "");
    holder.signal(Signal::TERM);
    assert_eq!(holder.end(), Some(143));
    assert_eq!((waiter.end(), waiter.stdout().as_str()), (Some(0), "mine\n"));
    assert_eq!(sandbox.fact("x", "state"), "free");
}

#[test]
fn a_minimum_hold_time_outlives_the_command() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["run", "--hold-at-least", "10m", "x", "--", "true"]).code, Some(0));
    assert_eq!(sandbox.run(&["run", "-n", "x", "--", "true"]).code, Some(1));
    assert_eq!(sandbox.fact("x", "ttl").split(' ').next(), Some("9m"));
}

#[test]
fn a_command_that_runs_too_long_is_stopped_with_all_it_started() {
    let sandbox = Sandbox::new();
    let script = "sh -c 'trap \"\" TERM; echo $$ > grandchild; while :; do sleep 1; done' & wait";
    let mut run = sandbox.start_script(&["--max-runtime", "300ms", "--kill-after", "300ms"], "x", script);
    let pids = [sandbox.script_pid("pid"), sandbox.script_pid("grandchild")];
    assert_eq!(run.end(), Some(124));
    assert_eq!(pids.map(lives), [false, false]);
    insta::assert_snapshot!(run.stderr(), @r"
    error: stopped after 300ms

    hint: raise --max-runtime, or find out why it took so long
    ");
    assert_eq!(sandbox.fact("x", "state"), "free");
}

#[test]
fn without_a_command_the_lock_is_held_until_a_signal() {
    let sandbox = Sandbox::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut holder = sandbox.start(&["run", "--hold", "x"]);
        holder.await_stdout("\n");
        assert_eq!(holder.stdout(), format!("x\t{}\n", sandbox.fact("x", "fence")));
        holder.signal(signal);
        assert_eq!(holder.end(), Some(0));
        assert_eq!(sandbox.fact("x", "state"), "free");
    }
}

#[test]
fn the_lock_is_kept_alive_beyond_its_ttl() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start_script(&["--ttl", "600ms"], "x", "while [ ! -e stop ]; do sleep 0.05; done");
    let fence = sandbox.fact("x", "fence");
    let since = std::time::Instant::now();
    eventually(LONG, "two ttls", || since.elapsed().as_millis() > 1300);
    assert_eq!(sandbox.fact("x", "fence"), fence);
    std::fs::write(sandbox.path("stop"), "").unwrap();
    assert_eq!(run.end(), Some(0), "{}", run.stderr());
}

#[test]
fn processes_never_overlap_and_fences_grow() {
    let sandbox = Sandbox::new();
    let script = "mkdir inside || exit 9; echo $LEASEHOLD_FENCE >> fences; sleep 0.02; rmdir inside";
    let mut runs: Vec<_> = (0..8).map(|_| sandbox.start(&["run", "x", "--", "sh", "-c", script])).collect();
    for run in &mut runs {
        assert_eq!(run.end(), Some(0), "{}", run.stderr());
    }
    let fences = std::fs::read_to_string(sandbox.path("fences")).unwrap();
    let fences: Vec<u64> = fences.lines().map(|fence| fence.parse().unwrap()).collect();
    assert_eq!(fences.len(), 8);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

#[test]
fn a_policy_gives_the_name_and_what_no_option_says() {
    let sandbox = Sandbox::new();
    let file = "[locks.payout]\nkey = 'payout:{deal_id}'\nttl = '20s'\nwait = '0s'\nhold-at-least = '1m'";
    sandbox.write("leasehold.toml", file);
    let show = "echo $LEASEHOLD_NAME $LEASEHOLD_TTL_MS";
    let pay = ["run", "--policy", "payout", "deal_id=4:2", "--", "sh", "-c", show];
    assert_eq!(sandbox.run(&pay).stdout, "payout:4%3A2 20000\n");
    // Kept closed, and the policy asks once.
    assert_eq!(sandbox.run(&pay).code, Some(1));
    let own = ["run", "--ttl", "9s", "-c", show, "--policy", "payout", "deal_id=43"];
    assert_eq!(sandbox.run(&own).stdout, "payout:43 9000\n");
}

#[test]
fn a_policy_that_proceeds_runs_without_a_lock_when_the_store_is_away() {
    let sandbox = Sandbox::on("redis://127.0.0.1:1");
    let policy = |on_outage| format!("[locks.report]\nkey = 'report'\non-outage = '{on_outage}'");
    let show = "echo $LEASEHOLD_NAME ${LEASEHOLD_FENCE-none}; exit 3";
    for options in [&[][..], &["-n"], &["-w", "1s"]] {
        let words = [&["run"], options, &["--policy", "report", "--", "sh", "-c", show]].concat();
        sandbox.write("leasehold.toml", &policy("proceed"));
        let ran = sandbox.run(&words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "report none\n"), "{options:?}: {ran}");
        assert!(ran.stderr.starts_with("warning: running WITHOUT the lock \"report\""), "{ran}");
        sandbox.write("leasehold.toml", &policy("deny"));
        let ran = sandbox.run(&words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(69), ""), "{options:?}: {ran}");
    }
}

#[test]
fn a_policy_limits_how_often_a_job_asks() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&[], "report", "exec sleep 60");
    sandbox.write("leasehold.toml", "[locks.report]\nkey = 'report'\nretry = '10ms'\nmax-attempts = 2");
    let ran = sandbox.run(&["run", "--policy", "report", "--", "true"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("2 attempts"), "{ran}");
}

#[test]
fn a_wrong_policy_or_value_is_named() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.run(&["run", "--policy", "payout", "deal_id=42", "--", "true"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: there is no policy "payout": no policies were found

    hint: write [locks.NAME] tables into leasehold.toml, or point LEASEHOLD_CONFIG at a file with some
    "#);
    sandbox.write("leasehold.toml", "[locks.payout]\nkey = 'payout:{deal_id}'");
    insta::assert_snapshot!(sandbox.run(&["run", "--policy", "pay-out", "deal_id=42", "--", "true"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid lock policy "pay-out": expected "payout"

    hint: policies are tables such as [locks.NAME] in leasehold.toml; LEASEHOLD_CONFIG names another file
    "#);
    insta::assert_snapshot!(sandbox.run(&["run", "--policy", "payout", "dael_id=42", "--", "true"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid parameter of policy payout "dael_id": expected "deal_id"
    "#);
}

#[test]
fn a_job_that_wants_its_own_lock_again_is_told_so() {
    let sandbox = Sandbox::new();
    let again = |wait: &[&str]| {
        let inner = [&[BINARY, "run"], wait, &["x", "--", "true"]].concat();
        sandbox.run(&[&["run", "x", "--"], &inner[..]].concat())
    };
    for wait in [&[][..], &["-w", "60s"]] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(again(wait), @r#"
            exit 64
            --- stdout
            --- stderr
            store: sqlite:[FOLDER]/locks.db (chosen by LEASEHOLD_STORE)
            error: "x" is held by the leasehold that started this command, and ends after it

            hint: take the lock once: leave out the inner leasehold, or give it a name of its own
            "#);
        }
    }
    assert_eq!(again(&["-n"]).code, Some(1));
    // Another lock is none of its business.
    let other = [BINARY, "run", "-n", "y", "--", BINARY, "run", "-n", "x", "--", "true"];
    assert_eq!(sandbox.run(&[&["run", "z", "--"], &other[..]].concat()).code, Some(0));
}
