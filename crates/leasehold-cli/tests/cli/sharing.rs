//! Readers and writers, and permits of a semaphore.

use leasehold_testkit::eventually;
use rustix::process::Signal;
use serde_json::Value;

use crate::sandbox::{LONG, Sandbox, Started};

/// Holds a lock with these options until the test ends.
fn hold(sandbox: &Sandbox, options: &[&str], name: &str) -> Started {
    let started = sandbox.start(&[&["run", "--hold"], options, &[name]].concat());
    started.await_stdout(name);
    started
}

fn release(mut holder: Started) {
    holder.signal(Signal::TERM);
    assert_eq!(holder.end(), Some(0), "{}", holder.stderr());
}

fn inspected(sandbox: &Sandbox, name: &str) -> Value {
    let ran = sandbox.run(&["inspect", name, "--json"]);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"))
}

#[test]
fn two_readers_run_at_once_and_a_writer_waits_for_both() {
    let sandbox = Sandbox::new();
    let (one, other) = (hold(&sandbox, &["-s"], "config"), hold(&sandbox, &["--shared"], "config"));
    assert_eq!(sandbox.fact("config", "holders"), "2");
    let busy = sandbox.run(&["run", "-n", "config", "--", "true"]);
    assert_eq!(busy.code, Some(1), "{busy}");
    let mut writer = sandbox.start(&["run", "config", "--", "true"]);
    sandbox.await_fact("config", "waiters", "1");
    // Nobody overtakes the writer.
    assert_eq!(sandbox.run(&["run", "-n", "--shared", "config", "--", "true"]).code, Some(1));
    release(one);
    assert!(writer.is_running());
    release(other);
    assert_eq!(writer.end(), Some(0));
}

#[test]
fn three_of_three_permits_are_taken_and_a_fourth_waits() {
    let sandbox = Sandbox::new();
    let mut holders: Vec<_> = (0..3).map(|_| hold(&sandbox, &["--of", "3"], "gpu")).collect();
    assert_eq!(sandbox.fact("gpu", "in use"), "3 of 3 permits");
    let busy = sandbox.run(&["run", "-n", "--permits", "2", "--of", "3", "gpu", "--", "true"]);
    assert_eq!(busy.code, Some(1), "{busy}");
    assert!(busy.stderr.starts_with("error: \"gpu\" does not have 2 permits free; one holder is "), "{busy}");
    let mut fourth = sandbox.start(&["run", "--of", "3", "gpu", "--", "true"]);
    sandbox.await_fact("gpu", "waiters", "1");
    assert!(fourth.is_running());
    release(holders.pop().unwrap());
    assert_eq!(fourth.end(), Some(0));
}

#[test]
fn permits_of_a_holder_that_was_killed_come_free_after_its_ttl() {
    let sandbox = Sandbox::new();
    let mut killed = hold(&sandbox, &["--permits", "2", "--of", "3", "--ttl", "2s"], "gpu");
    killed.signal(Signal::KILL);
    assert_eq!(killed.end(), None);
    assert_eq!(sandbox.fact("gpu", "in use"), "2 of 3 permits");
    let ran = sandbox.run(&["run", "-w", "30s", "--permits", "3", "--of", "3", "gpu", "--", "true"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    sandbox.await_fact("gpu", "in use", "0 of 3 permits");
}

#[test]
fn a_limit_is_changed_while_permits_are_in_use() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.run(&["semaphore", "set-limit", "gpu", "3"]), @r#"
    exit 0
    --- stdout
    "gpu" has 3 permits; 0 in use
    --- stderr
    "#);
    let mut holders: Vec<_> = (0..3).map(|_| hold(&sandbox, &["--of", "3"], "gpu")).collect();
    insta::assert_snapshot!(sandbox.run(&["semaphore", "set-limit", "gpu", "2"]), @r#"
    exit 0
    --- stdout
    "gpu" has 2 permits, instead of 3; 3 are in use, so nobody is admitted until 2 came back
    --- stderr
    "#);
    assert_eq!(sandbox.fact("gpu", "in use"), "3 of 2 permits");
    // One that comes back is not enough.
    release(holders.pop().unwrap());
    assert_eq!(sandbox.run(&["run", "-n", "--of", "2", "gpu", "--", "true"]).code, Some(1));
    // Those who wait under the first number are admitted by a higher one.
    let waiting = sandbox.start(&["run", "--hold", "--permits", "2", "--of", "3", "gpu"]);
    sandbox.await_fact("gpu", "waiters", "1");
    insta::assert_snapshot!(sandbox.run(&["--json", "semaphore", "set-limit", "gpu", "4"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"name":"gpu","limit":4,"limit_before":2,"permits_used":2}
    --- stderr
    "#);
    waiting.await_stdout("gpu");
    assert_eq!(sandbox.fact("gpu", "in use"), "4 of 4 permits");
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.run(&["run", "--shared", "--of", "3", "x", "--", "true"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: the argument '--shared' cannot be used with '--of <M>'

    Usage: leasehold run [OPTIONS] NAME -- CMD [ARGS]...
           leasehold run [OPTIONS] NAME -c STR
           leasehold run [OPTIONS] --all NAME,NAME... -- CMD [ARGS]...
           leasehold run [OPTIONS] --policy POLICY [KEY=VALUE]... -- CMD [ARGS]...
           leasehold run [OPTIONS] NAME --hold

    For more information, try '--help'.
    "#);
    insta::assert_snapshot!(sandbox.run(&["lock", "acquire", "-s", "--permits", "2", "x"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: the argument '--shared' cannot be used with '--permits <N>'

    Usage: leasehold lock acquire --shared <NAME>

    For more information, try '--help'.
    "#);
    insta::assert_snapshot!(sandbox.run(&["run", "--permits", "2", "x", "--", "true"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: --permits 2 of how many? The number of permits of the semaphore is missing

    hint: for example --permits 2 --of 4
    "#);
    insta::assert_snapshot!(sandbox.run(&["run", "--permits", "4", "--of", "3", "x", "--", "true"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: 4 permits were asked for, and the semaphore "x" has 3

    hint: ask for 1 to 3; `leasehold semaphore set-limit x N` changes how many there are
    "#);
    insta::assert_snapshot!(sandbox.run(&["run", "--of", "0", "x", "--", "true"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid value '0' for '--of <M>': expected a whole number from 1 to 4294967295

    For more information, try '--help'.
    "#);
    insta::assert_snapshot!(sandbox.run(&["semaphore", "set-limit", "x", "0"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid value '0' for '<N>': expected a whole number from 1 to 4294967295

    For more information, try '--help'.
    "#);
    assert!(!sandbox.path("locks.db").exists(), "nothing was sent");
}

#[test]
fn another_kind_and_another_limit_have_exit_codes_and_hints_of_their_own() {
    let sandbox = Sandbox::new();
    let _lock = hold(&sandbox, &[], "x");
    let _permit = hold(&sandbox, &["--of", "3"], "gpu");
    insta::assert_snapshot!(sandbox.run(&["run", "-n", "--of", "3", "x", "--", "true"]), @r#"
    exit 80
    --- stdout
    --- stderr
    error: "x" cannot be used like this: it is in use as a read-write lock, not as a semaphore

    hint: `leasehold inspect x` shows who uses it; choose another name for the other kind of lock
    "#);
    insta::assert_snapshot!(sandbox.run(&["run", "-n", "gpu", "--", "true"]), @r#"
    exit 80
    --- stdout
    --- stderr
    error: "gpu" cannot be used like this: it is in use as a semaphore, not as a read-write lock

    hint: `leasehold inspect gpu` shows who uses it; choose another name for the other kind of lock
    "#);
    insta::assert_snapshot!(sandbox.run(&["run", "-n", "--of", "5", "gpu", "--", "true"]), @r#"
    exit 81
    --- stdout
    --- stderr
    error: the semaphore "gpu" has 3 permits in the store, not 5

    hint: give --of 3 (of = 3 in a policy), or change it for all with `leasehold semaphore set-limit gpu 5`
    "#);
    insta::assert_snapshot!(sandbox.run(&["--json", "semaphore", "set-limit", "x", "5"]), @r#"
    exit 80
    --- stdout
    --- stderr
    {"schema":{"version":"v1"},"error":{"kind":"other_mode","retry":false,"message":"\"x\" cannot be used like this: it is in use as a read-write lock, not as a semaphore","hint":"`leasehold inspect x` shows who uses it; choose another name for the other kind of lock","name":"x"}}
    "#);
}

#[test]
fn every_holder_and_every_waiter_is_shown_with_its_mode() {
    let sandbox = Sandbox::new();
    let _two = hold(&sandbox, &["--permits", "2", "--of", "5", "--label", "large"], "gpu");
    let _one = hold(&sandbox, &["--of", "5", "--label", "small"], "gpu");
    let _waits =
        sandbox.start(&["run", "--permits", "4", "--of", "5", "--label", "waits", "gpu", "--", "true"]);
    sandbox.await_fact("gpu", "waiters", "1");
    let shown = sandbox.run(&["inspect", "gpu"]).stdout;
    let whats: Vec<_> = shown.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(
        whats,
        ["name", "state", "mode", "in use", "holders", "holder 1", "holder 2", "waiters", "waiter 1"],
        "{shown}"
    );
    assert_eq!(
        (sandbox.fact("gpu", "mode"), sandbox.fact("gpu", "in use")),
        ("permits".into(), "3 of 5 permits".into())
    );
    let (first, second) = (sandbox.fact("gpu", "holder 1"), sandbox.fact("gpu", "holder 2"));
    assert!(first.starts_with("large (") && first.contains(", 2 permits, fence "), "{first}");
    assert!(second.starts_with("small (") && second.contains(", 1 permit, fence "), "{second}");
    let waiter = sandbox.fact("gpu", "waiter 1");
    assert!(waiter.starts_with("waits (") && waiter.ends_with(", 4 permits"), "{waiter}");

    let json = inspected(&sandbox, "gpu");
    let lock = &json["lock"];
    assert_eq!(
        (&lock["mode"], &lock["permits_used"], &lock["limit"]),
        (&"permits".into(), &3.into(), &5.into())
    );
    assert_eq!((&lock["holders_total"], &lock["holders"][1]["permits"]), (&2.into(), &1.into()));
    assert_eq!(lock["holders"][0]["fence"], lock["fence"], "{json}");
    assert_eq!((&json["waiters"][0]["mode"], &json["waiters"][0]["permits"]), (&"permits".into(), &4.into()));

    let listed = sandbox.run(&["ls"]).stdout;
    let rows: Vec<Vec<_>> = listed.lines().map(|line| line.split('\t').collect()).collect();
    let ends: Vec<_> = rows.iter().map(|row| (row[0], row[1], row[5], row[6], row[7])).collect();
    assert_eq!(
        ends,
        [("gpu", "held", "1", "2 permits", "3 of 5"), ("gpu", "held", "1", "1 permit", "3 of 5")]
    );
    let json = sandbox.run(&["ls", "--json"]).stdout;
    assert!(json.contains(r#""permits_used":3,"limit":5"#), "{json}");
    let stats = sandbox.run(&["stats", "--prometheus"]).stdout;
    assert!(stats.contains("\nleasehold_store_permits_used 3\n"), "{stats}");
    assert!(stats.contains("\nleasehold_store_holders{mode=\"permits\"} 2\n"), "{stats}");
}

#[test]
fn watch_tells_readers_one_by_one() {
    let sandbox = Sandbox::new();
    let watch = sandbox.start(&["watch", "--interval", "20ms"]);
    eventually(LONG, "watching", || watch.stderr().contains("watching 0 locks"));
    let first = hold(&sandbox, &["--shared", "--label", "first"], "x");
    watch.await_stdout("\tacquired\tx\tfirst (");
    let second = hold(&sandbox, &["--shared", "--label", "second"], "x");
    watch.await_stdout("\tacquired\tx\tsecond (");
    release(first);
    watch.await_stdout("\treleased\tx\tfirst (");
    release(second);
    watch.await_stdout("\treleased\tx\tsecond (");
    let _permit = hold(&sandbox, &["--permits", "2", "--of", "3"], "gpu");
    watch.await_stdout("\tacquired\tgpu\t");
    let shown = watch.stdout();
    assert!(!shown.contains("handed-over"), "{shown}");
    let modes: Vec<_> = shown.lines().map(|line| line.rsplit('\t').next().unwrap()).collect();
    assert_eq!(modes, ["shared", "shared", "shared", "shared", "2 permits"], "{shown}");
    let mut json = sandbox.start(&["watch", "--json", "--interval", "20ms", "--count", "1", "y"]);
    eventually(LONG, "a reader is seen", || {
        let _reader = hold(&sandbox, &["-s"], "y");
        !json.is_running()
    });
    assert!(json.stdout().contains(r#""waiting":0,"mode":"shared"}"#), "{}", json.stdout());
}

#[test]
fn a_handle_knows_how_the_lock_is_held() {
    let sandbox = Sandbox::new();
    let acquire = |handle: &str, options: &[&str]| {
        let words = ["lock", "acquire", "x", "-n", "--ttl", "2m", "--handle", handle];
        sandbox.run(&[&words, options].concat())
    };
    for handle in ["one", "two"] {
        let ran = acquire(handle, &["--shared", "--json"]);
        assert!(ran.code == Some(0) && ran.stdout.contains(r#""mode":"shared""#), "{ran}");
    }
    assert_eq!(acquire("three", &[]).code, Some(1));
    assert_eq!(sandbox.run(&["lock", "extend", "--handle", "one"]).code, Some(0));
    for handle in ["one", "two"] {
        assert_eq!(sandbox.run(&["lock", "release", "--handle", handle]).code, Some(0));
    }
    let ran = acquire("three", &["--permits", "2", "--of", "3", "--json"]);
    assert!(ran.code == Some(0) && ran.stdout.contains(r#""mode":"permits","permits":2"#), "{ran}");
    assert_eq!(acquire("four", &["--permits", "2", "--of", "3"]).code, Some(1));
    assert_eq!(acquire("five", &["--of", "3"]).code, Some(0));
    assert_eq!(sandbox.run(&["lock", "release", "--handle", "three"]).code, Some(0));
    assert_eq!(sandbox.fact("x", "in use"), "1 of 3 permits");
}

#[test]
fn a_policy_says_how_the_lock_of_run_is_shared() {
    let sandbox = Sandbox::new();
    let file = "[locks.look]\nkey = 'config'\nkind = 'read'\nwait = '0s'\n\
                [locks.change]\nkey = 'config'\nkind = 'write'\nwait = '0s'\n\
                [locks.gpu]\nkey = 'gpu:{host}'\nkind = 'permits'\nof = 4\npermits = 2\nwait = '0s'";
    sandbox.write("leasehold.toml", file);
    let show = "echo $LEASEHOLD_NAME $LEASEHOLD_MODE ${LEASEHOLD_PERMITS-none}";
    let run = |words: &[&str]| sandbox.run(&[&["run", "--policy"], words, &["-c", show]].concat());
    assert_eq!(run(&["look"]).stdout, "config shared none\n");
    assert_eq!(run(&["change"]).stdout, "config exclusive none\n");
    assert_eq!(run(&["gpu", "host=a"]).stdout, "gpu:a permits 2\n");
    assert_eq!(run(&["gpu", "--permits", "3", "host=a"]).stdout, "gpu:a permits 3\n");
    let _reader = hold(&sandbox, &["--shared"], "config");
    assert_eq!((run(&["look"]).code, run(&["change"]).code), (Some(0), Some(1)));
    insta::assert_snapshot!(run(&["change", "--of", "2"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: --of is for semaphores, and the policy "change" is a lock

    hint: leave it out, or write kind = "permits" and of = N into the policy
    "#);
    insta::assert_snapshot!(run(&["gpu", "--shared", "host=a"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: --shared is for locks, and the policy "gpu" is a semaphore

    hint: leave --shared out, or choose a policy with kind = "read"
    "#);
    sandbox.write("leasehold.toml", "[locks.gpu]\nkey = 'gpu'\nkind = 'permits'");
    insta::assert_snapshot!(run(&["gpu"]), @r#"
    exit 64
    --- stdout
    --- stderr
    error: invalid [locks.gpu] of leasehold.toml "without of": expected the number of permits, such as of = 4, because kind is "permits"

    hint: correct it in leasehold.toml; docs/settings.md lists all settings with their ranges
    "#);
}

#[test]
fn a_job_inside_of_a_job_runs_if_both_fit() {
    let sandbox = Sandbox::new();
    let inside = |outer: &[&str], inner: &str| {
        let script = format!("{} run -w 20s {inner} x -- echo inside", crate::sandbox::BINARY);
        sandbox.run(&[&["run"], outer, &["x", "-c", &script]].concat())
    };
    assert_eq!(inside(&["--shared"], "--shared").stdout, "inside\n");
    assert_eq!(inside(&["--of", "2"], "--of 2").stdout, "inside\n");
    for (outer, inner) in [(&["--shared"][..], ""), (&[], "--shared"), (&["--of", "2"], "--permits 2 --of 2")]
    {
        // The names of semaphores and locks differ in time only.
        let refused = inside(outer, inner);
        assert_eq!(refused.code, Some(64), "{outer:?} {inner}: {refused}");
        assert!(refused.stderr.contains("held by the leasehold that started this command"), "{refused}");
    }
}

#[test]
fn a_reader_is_released_by_force_without_the_others() {
    let sandbox = Sandbox::new();
    let mut first = hold(&sandbox, &["--shared", "--ttl", "1s", "--label", "first"], "x");
    let _second = hold(&sandbox, &["--shared", "--label", "second"], "x");
    let json = inspected(&sandbox, "x");
    let fence = json["lock"]["holders"][0]["fence"].to_string();
    insta::assert_snapshot!(sandbox.run(&["force-release", "x", "--fence", &fence]), @r#"
    exit 0
    --- stdout
    released "x" from fence [FENCE]
    --- stderr
    "#);
    assert_eq!(first.end(), Some(76), "{}", first.stderr());
    assert!(sandbox.fact("x", "holder").starts_with("second ("));
}
