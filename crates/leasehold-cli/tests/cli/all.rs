//! `leasehold run --all`: a command under several locks at once.

use std::fs;

use rustix::process::Signal;

use crate::sandbox::{BINARY, Sandbox, Started, lives};

/// Runs a script under all these locks and waits until it runs.
fn start_under(sandbox: &Sandbox, options: &[&str], all: &str, script: &str) -> Started {
    let script = format!("echo $$ > pid; {script}");
    let _none = fs::remove_file(sandbox.path("pid"));
    let started = sandbox.start(&[&["run"], options, &["--all", all, "--", "sh", "-c", &script]].concat());
    sandbox.script_pid("pid");
    started
}

#[test]
fn the_command_finds_names_and_fences_in_the_order_of_the_option() {
    let sandbox = Sandbox::new();
    let show = "echo $LEASEHOLD_NAMES $LEASEHOLD_FENCES ${LEASEHOLD_NAME-none} ${LEASEHOLD_FENCE-none} $LEASEHOLD_MODE";
    let words = ["run", "--all", "b,a", "--all", "c", "-c", show];
    let mut command = sandbox.command(&words);
    // Those of a command around it.
    command.env("LEASEHOLD_NAME", "outer").env("LEASEHOLD_FENCE", "7");
    let ran = sandbox.run_command(command);
    let shown: Vec<_> = ran.stdout.split_whitespace().collect();
    let [names, fences, "none", "none", "exclusive"] = shown[..] else { panic!("{ran}") };
    assert_eq!((names, fences.split(',').count()), ("b,a,c", 3), "{ran}");
    let mut holder = sandbox.start(&["run", "--hold", "--all", "b,a"]);
    holder.await_stdout("a\t");
    let expected: Vec<_> = ["b", "a"].map(|name| format!("{name}\t{}\n", sandbox.fact(name, "fence"))).into();
    assert_eq!(holder.stdout(), expected.concat());
    holder.signal(Signal::TERM);
    assert_eq!(holder.end(), Some(0));
    assert_eq!(sandbox.run(&["ls"]).stdout, "");
}

#[test]
fn a_plain_run_of_one_of_the_names_excludes_it_and_the_reverse() {
    for sandbox in Sandbox::on_each_store() {
        let mut holder = sandbox.start_script(&["--label", "plain"], "all:b", "exec sleep 60");
        let busy = sandbox.run(&["run", "-n", "--all", "all:a,all:b", "--", "true"]);
        assert_eq!(busy.code, Some(1), "{busy}");
        assert!(busy.stderr.starts_with("error: \"all:b\" is held by plain ("), "{busy}");
        let mut both = sandbox.start(&["run", "--all", "all:a,all:b", "--", "echo", "both"]);
        sandbox.await_fact("all:b", "waiters", "1");
        // Nothing is held meanwhile.
        assert_eq!(sandbox.run(&["run", "-n", "all:a", "--", "true"]).code, Some(0));
        assert_eq!(both.stdout(), "");
        holder.signal(Signal::TERM);
        assert_eq!((holder.end(), both.end()), (Some(143), Some(0)), "{}", both.stderr());

        let _both = start_under(&sandbox, &[], "all:a,all:b", "exec sleep 60");
        for name in ["all:a", "all:b"] {
            assert_eq!(sandbox.run(&["run", "-n", name, "--", "true"]).code, Some(1), "{name}");
        }
        assert_eq!(sandbox.run(&["run", "-w", "50ms", "--all", "all:c,all:a", "--", "true"]).code, Some(1));
    }
}

#[test]
fn opposite_orders_neither_deadlock_nor_overlap() {
    for sandbox in Sandbox::on_each_store() {
        let script = "mkdir inside || exit 9; sleep 0.02; rmdir inside";
        let start = |all: &str| sandbox.start(&["run", "-w", "25s", "--all", all, "--", "sh", "-c", script]);
        let orders = ["order:a,order:b", "order:b,order:a", "order:b,order:c,order:a"];
        let mut runs: Vec<_> = orders.iter().cycle().take(9).map(|all| start(all)).collect();
        for run in &mut runs {
            assert_eq!(run.end(), Some(0), "{}", run.stderr());
        }
        assert_eq!(sandbox.run(&["ls", "order:"]).stdout, "");
    }
}

#[test]
fn the_first_lock_that_is_lost_ends_the_job_and_gives_the_others_back() {
    for sandbox in Sandbox::on_each_store() {
        let script = "trap '' TERM; while :; do sleep 0.05; done";
        let mut run = start_under(&sandbox, &["--ttl", "1s"], "lost:a,lost:b", script);
        let (pid, fence) = (sandbox.script_pid("pid"), sandbox.fact("lost:b", "fence"));
        assert_eq!(sandbox.run(&["force-release", "lost:b", "--fence", &fence]).code, Some(0));
        assert_eq!(run.end(), Some(76), "{}", run.stderr());
        assert!(!lives(pid));
        let said = format!("error: lost the lock \"lost:b\" (fence {fence})");
        assert!(run.stderr().starts_with(&said), "{}", run.stderr());
        assert_eq!(sandbox.fact("lost:a", "state"), "free");
    }
}

#[test]
fn nothing_of_the_job_outlives_the_lease_that_ends_first() {
    let sandbox = Sandbox::new();
    let script =
        "trap '' TERM; while :; do date +%s%N > at-work.new; mv at-work.new at-work; sleep 0.01; done";
    let mut run = start_under(&sandbox, &["--ttl", "1s"], "a,b", script);
    let pid = sandbox.script_pid("pid");
    run.signal(Signal::STOP);
    let next = sandbox.run(&["run", "--all", "b,a", "--", "date", "+%s%N"]);
    assert_eq!(next.code, Some(0), "{next}");
    assert!(!lives(pid) && run.is_running());
    let at_work = fs::read_to_string(sandbox.path("at-work")).unwrap();
    let (last, began) = (at_work.trim().parse::<u128>().unwrap(), next.stdout.trim().parse().unwrap());
    assert!(last < began, "at work at {last}, the next began at {began}");
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(76), "{}", run.stderr());
}

#[test]
fn readers_of_several_run_together_and_a_writer_of_one_waits() {
    let sandbox = Sandbox::new();
    let _reader = start_under(&sandbox, &["-s"], "a,b", "exec sleep 60");
    let other = sandbox.run(&["run", "-n", "--shared", "--all", "b,a", "-c", "echo $LEASEHOLD_MODE"]);
    assert_eq!((other.code, other.stdout.as_str()), (Some(0), "shared\n"), "{other}");
    assert_eq!(sandbox.run(&["run", "-n", "b", "--", "true"]).code, Some(1));
}

#[test]
fn a_job_that_wants_one_of_its_own_locks_again_is_told_so() {
    let sandbox = Sandbox::new();
    for inner in [&["b"][..], &["--all", "c,a"]] {
        let inner = [&[BINARY, "run", "-w", "60s"], inner, &["--", "true"]].concat();
        let told = sandbox.run(&[&["run", "--all", "a,b", "--"], &inner[..]].concat());
        assert_eq!(told.code, Some(64), "{told}");
        assert!(told.stderr.contains("held by the leasehold that started this command"), "{told}");
    }
}

#[test]
fn names_that_cannot_be_held_together_are_refused_before_anything_is_sent() {
    let sandbox = Sandbox::new();
    for (words, says) in [
        (
            &["--all", "a,b,a", "--", "true"][..],
            "error: \"a\" comes twice in --all\n\nhint: name each lock once",
        ),
        (&["--all", "a,,b", "--", "true"], "error: invalid lock name \"\""),
        (&["--all", "", "--", "true"], "error: invalid lock name \"\""),
        (
            &["--all", "a,b"],
            "locks \"a\", \"b\"? No command was given\n\nhint: leasehold run --all a,b -- CMD",
        ),
        (&["--all", "a,b", "c", "--", "true"], "'--all <NAME,NAME...>' cannot be used with '[NAME]...'"),
        (
            &["--all", "a,b", "--policy", "p", "--", "true"],
            "'--all <NAME,NAME...>' cannot be used with '--policy <POLICY>'",
        ),
        (
            &["--all", "a,b", "--permits", "2", "--", "true"],
            "'--all <NAME,NAME...>' cannot be used with '--permits <N>'",
        ),
        (
            &["--all", "a,b", "--of", "2", "--", "true"],
            "'--all <NAME,NAME...>' cannot be used with '--of <M>'",
        ),
        (&["-s", "--permits", "2", "x", "--", "true"], "'--shared' cannot be used with '--permits <N>'"),
        (&["-s", "--of", "2", "x", "--", "true"], "'--shared' cannot be used with '--of <M>'"),
        (&["-s", "--redisson", "x", "--", "true"], "'--shared' cannot be used with '--redisson'"),
        (&["--of", "2", "--redisson", "x", "--", "true"], "cannot be used with '--redisson'"),
        (&["-n", "-w", "2s", "x", "--", "true"], "'--nonblock' cannot be used with '--wait <DUR>'"),
    ] {
        let ran = sandbox.run(&[&["run"], words].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(64), ""), "{words:?}: {ran}");
        assert!(ran.stderr.contains(says), "{words:?}: {ran}");
    }
    assert!(!sandbox.path("locks.db").exists(), "nothing was sent");
    let many: Vec<_> = (0..65).map(|number| number.to_string()).collect();
    let ran = sandbox.run(&["run", "--all", &many.join(","), "--", "true"]);
    assert_eq!(ran.code, Some(64), "{ran}");
    assert!(ran.stderr.contains("invalid number of locks \"65\": expected 1 to 64"), "{ran}");
}
