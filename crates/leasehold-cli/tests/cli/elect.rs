//! `leasehold elect`: one leader at a time, and what becomes of its command.

use std::{fs, time::Instant};

use leasehold_testkit::{eventually, poll};
use rustix::process::Signal;

use crate::sandbox::{BINARY, LONG, Sandbox, Started, lives};

/// A candidate that writes its fence once it leads, and leads until it is told to end.
fn candidate(sandbox: &Sandbox, options: &[&str], name: &str) -> Started {
    let script = "echo $LEASEHOLD_FENCE; exec sleep 60";
    sandbox.start(&[&["elect"], options, &[name, "--", "sh", "-c", script]].concat())
}

fn fence_of(leader: &Started) -> u64 {
    let fence = poll(LONG, || leader.stdout().strip_suffix('\n').and_then(|fence| fence.parse().ok()));
    fence.unwrap_or_else(|| panic!("it does not lead: {} {}", leader.stdout(), leader.stderr()))
}

#[test]
fn the_next_candidate_leads_with_a_larger_fence_when_the_leader_is_killed() {
    for sandbox in Sandbox::on_each_store() {
        let script = "echo $$ > pid; echo $LEASEHOLD_FENCE; exec sleep 60";
        let words = ["elect", "--ttl", "1s", "--label", "first", "elect:killed", "--", "sh", "-c", script];
        let mut first = sandbox.start(&words);
        let (fence, pid) = (fence_of(&first), sandbox.script_pid("pid"));
        let mut second = candidate(&sandbox, &["--label", "second"], "elect:killed");
        sandbox.await_fact("elect:killed", "waiters", "1");
        assert_eq!(second.stdout(), "");
        first.signal(Signal::KILL);
        let killed_at = Instant::now();
        assert!(fence_of(&second) > fence);
        // The ttl, and what a busy machine takes to start a command.
        assert!(killed_at.elapsed().as_millis() < 2500, "{:?}", killed_at.elapsed());
        assert!(!lives(pid));
        assert_eq!(first.end(), None);
        second.signal(Signal::TERM);
        assert_eq!(second.end(), Some(143));
        assert_eq!(sandbox.fact("elect:killed", "state"), "free");
    }
}

#[test]
fn a_leader_that_is_told_to_end_resigns_when_its_command_has_ended() {
    for sandbox in Sandbox::on_each_store() {
        let script = "trap 'echo told; while [ ! -e stop ]; do sleep 0.02; done; exit 3' TERM; \
            echo leads; while :; do sleep 0.02; done";
        let mut first = sandbox.start(&["elect", "--ttl", "600ms", "elect:told", "--", "sh", "-c", script]);
        first.await_stdout("leads");
        let fence = sandbox.fact("elect:told", "fence");
        let mut second = sandbox.start(&["elect", "elect:told", "--", "test", "-e", "stop"]);
        sandbox.await_fact("elect:told", "waiters", "1");
        first.signal(Signal::TERM);
        first.await_stdout("told");
        let since = Instant::now();
        eventually(LONG, "a ttl", || since.elapsed().as_millis() > 700);
        assert_eq!(sandbox.fact("elect:told", "fence"), fence);
        assert!(first.is_running() && second.is_running());
        fs::write(sandbox.path("stop"), "").unwrap();
        assert_eq!((first.end(), second.end()), (Some(3), Some(0)), "{}", second.stderr());
    }
}

#[test]
fn the_command_has_the_variables_of_run() {
    let sandbox = Sandbox::new();
    let show = "echo $LEASEHOLD_NAME $LEASEHOLD_TTL_MS $LEASEHOLD_MODE; exit 7";
    let ran = sandbox.run(&["elect", "--ttl", "20s", "scheduler", "-c", show]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(7), "scheduler 20000 exclusive\n"), "{ran}");
    assert_eq!((ran.stderr.as_str(), sandbox.fact("scheduler", "state").as_str()), ("", "free"));
}

#[test]
fn a_lost_lead_stops_the_command() {
    let sandbox = Sandbox::new();
    let script = "echo $$ > pid; trap '' TERM; while :; do sleep 0.05; done";
    let mut leader = sandbox.start(&["elect", "--ttl", "1s", "x", "--", "sh", "-c", script]);
    let (pid, fence) = (sandbox.script_pid("pid"), sandbox.fact("x", "fence"));
    assert_eq!(sandbox.run(&["force-release", "x", "--fence", &fence]).code, Some(0));
    assert_eq!(leader.end(), Some(76));
    assert!(!lives(pid));
    assert!(leader.stderr().contains("; the command was stopped"), "{}", leader.stderr());
}

#[test]
fn a_wait_that_is_bounded_ends_with_1_and_a_signal_ends_any() {
    let sandbox = Sandbox::new();
    let leader = candidate(&sandbox, &["--label", "leads"], "x");
    fence_of(&leader);
    let refused = sandbox.run(&["elect", "-n", "x", "--", "true"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.starts_with("error: \"x\" is held by leads ("), "{refused}");
    let late = sandbox.run(&["elect", "-w", "50ms", "-E", "33", "x", "--", "true"]);
    assert_eq!(late.code, Some(33), "{late}");
    assert!(late.stderr.starts_with("error: timed out waiting for \"x\""), "{late}");
    for options in [&[][..], &["--forever"]] {
        let mut waits = candidate(&sandbox, options, "x");
        sandbox.await_fact("x", "waiters", "1");
        waits.signal(Signal::TERM);
        assert_eq!(waits.end(), Some(143));
        assert_eq!(sandbox.fact("x", "waiters"), "0");
    }
    let inner = [BINARY, "run", "y", "--", "true"];
    let told = sandbox.run(&[&["elect", "y", "--"], &inner[..]].concat());
    assert_eq!(told.code, Some(64), "{told}");
}

#[test]
fn the_preferred_candidate_is_next_ahead_of_others() {
    for sandbox in Sandbox::on_each_store() {
        let mut old = candidate(&sandbox, &["--label", "v1", "--prefer", "v2"], "elect:prefer");
        let fence = fence_of(&old);
        let mut another = candidate(&sandbox, &["--label", "v1", "--prefer", "v3"], "elect:prefer");
        sandbox.await_fact("elect:prefer", "waiters", "1");
        let mut new = candidate(&sandbox, &["--label", "v2", "--prefer", "v3"], "elect:prefer");
        sandbox.await_fact("elect:prefer", "waiters", "2");
        old.signal(Signal::TERM);
        assert_eq!(old.end(), Some(143), "{}", old.stderr());
        let second = fence_of(&new);
        assert!(second > fence && another.stdout().is_empty());
        // Nobody waits with that label: the first does.
        new.signal(Signal::TERM);
        assert_eq!(new.end(), Some(143), "{}", new.stderr());
        assert!(fence_of(&another) > second);
        another.signal(Signal::TERM);
        assert_eq!(another.end(), Some(143));
    }
}

#[test]
fn the_candidate_with_the_highest_priority_is_next() {
    for sandbox in Sandbox::on_each_store() {
        let name = "elect:highest";
        let stands = |priority: &str| {
            candidate(&sandbox, &["--label", "x", "--prefer-highest", "--priority", priority], name)
        };
        let mut leader = stands("0");
        let _fence = fence_of(&leader);
        let waiting = [("-1", "1"), ("5", "2"), ("2", "3")].map(|(priority, waiters)| {
            let waiting = stands(priority);
            sandbox.await_fact(name, "waiters", waiters);
            waiting
        });
        let [low, high, middle] = waiting;
        let priorities = [(high, "x priority=5 ("), (middle, "x priority=2 ("), (low, "x priority=-1 (")];
        for (next, shown) in priorities {
            leader.signal(Signal::TERM);
            assert_eq!(leader.end(), Some(143), "{}", leader.stderr());
            let _fence = fence_of(&next);
            assert!(sandbox.fact(name, "holder").starts_with(shown), "{}", sandbox.fact(name, "holder"));
            leader = next;
        }
    }
}

#[test]
fn with_forever_a_term_follows_a_command_that_ended_and_a_lead_that_was_lost() {
    let sandbox = Sandbox::new();
    let script = "echo $LEASEHOLD_FENCE >> terms; [ ! -e stay ] || exec sleep 60; exit 4";
    let words = ["elect", "--ttl", "1s", "--forever", "--pause", "100ms", "x", "--", "sh", "-c", script];
    let mut leader = sandbox.start(&words);
    let terms = || -> Vec<u64> {
        let text = fs::read_to_string(sandbox.path("terms")).unwrap_or_default();
        text.lines().map(|fence| fence.parse().unwrap()).collect()
    };
    eventually(LONG, "three terms", || terms().len() >= 3);
    fs::write(sandbox.path("stay"), "").unwrap();
    eventually(LONG, "a term that lasts", || {
        terms().last().is_some_and(|fence| sandbox.fact("x", "fence") == fence.to_string())
    });
    let pid = leader.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    assert!(children.split_whitespace().count() <= 2, "guardians stay behind: {children}");
    let lost = *terms().last().unwrap();
    assert_eq!(sandbox.run(&["force-release", "x", "--fence", &lost.to_string()]).code, Some(0));
    eventually(LONG, "another term", || *terms().last().unwrap() > lost);
    assert!(terms().is_sorted_by(|a, b| a < b), "{:?}", terms());
    leader.signal(Signal::TERM);
    assert_eq!(leader.end(), Some(143), "{}", leader.stderr());
    assert_eq!(sandbox.fact("x", "state"), "free");
    let said = leader.stderr();
    assert!(
        said.starts_with("the command ended with exit code 4; campaigning for \"x\" again in 100ms\n"),
        "{said}"
    );
    assert!(
        said.contains("error: lost the lock \"x\"")
            && said.ends_with("campaigning for \"x\" again in 100ms\n"),
        "{said}"
    );
}

#[test]
fn with_forever_a_command_that_cannot_be_started_is_still_the_end() {
    let sandbox = Sandbox::new();
    let mut elect = sandbox.start(&["elect", "--forever", "x", "--", "no-such-command"]);
    assert_eq!(elect.end(), Some(127), "{}", elect.stderr());
    assert!(elect.stderr().starts_with("error: cannot run \"no-such-command\""), "{}", elect.stderr());
}

#[test]
fn wrong_words_are_refused_before_anything_is_sent() {
    let sandbox = Sandbox::new();
    for (words, says) in [
        (&[][..], "required arguments were not provided"),
        (&["--", "true"], "required arguments were not provided"),
        (&["x"], "while leading \"x\"? No command was given\n\nhint: leasehold elect x -- CMD"),
        (&["x", "echo", "--", "true"], "unexpected argument 'echo'"),
        (&["x", "-c", "true", "--", "true"], "both -c and a command were given"),
        (
            &["--forever", "-w", "2s", "x", "--", "no-such-command"],
            "'--forever' cannot be used with '--wait <DUR>'",
        ),
        (&["--forever", "-n", "x", "--", "no-such-command"], "'--forever' cannot be used with '--nonblock'"),
        (&["--pause", "2s", "x", "--", "true"], "--forever"),
        (
            &["--forever", "--pause", "50ms", "x", "--", "true"],
            "--pause of 50ms is out of range\n\nhint: give 100ms to 1h",
        ),
        (&["--forever", "--pause", "2h", "x", "--", "true"], "--pause of 2h is out of range"),
        (&["--prefer", "", "x", "--", "true"], "no candidate can have the label"),
        (&["--prefer", "a", "--prefer-highest", "x", "--", "true"], "cannot be used with"),
        (&["--priority", "high", "x", "--", "true"], "invalid value 'high' for '--priority <N>'"),
        (&["--shared", "x", "--", "true"], "unexpected argument '--shared'"),
        (&["--ttl", "10s", "--kill-after", "5s", "x", "--", "true"], "--kill-after of 5s is too long"),
    ] {
        let ran = sandbox.run(&[&["elect"], words].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(64), ""), "{words:?}: {ran}");
        assert!(ran.stderr.contains(says), "{words:?}: {ran}");
    }
    assert!(!sandbox.path("locks.db").exists(), "nothing was sent");
    let ran = sandbox.run(&["elect", "", "--", "true"]);
    assert_eq!(ran.code, Some(64), "{ran}");
    assert!(ran.stderr.starts_with("error: invalid lock name \"\""), "{ran}");
}
