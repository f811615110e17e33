//! Commands that inspect: ls, inspect, stats, watch, doctor; and force-release, which uses the inspected fence.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::Duration,
};

use leasehold_testkit::{ClusterSet, RedisServer, eventually, poll};
use rustix::process::Signal;

use crate::sandbox::{LONG, Sandbox};

#[test]
fn an_empty_store_has_nothing_to_list() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.run(&["ls"]), @r"
    exit 0
    --- stdout
    --- stderr
    ");
    insta::assert_snapshot!(sandbox.run(&["ls", "--json"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"locks":[],"more":false}
    --- stderr
    "#);
}

#[test]
fn ls_shows_each_lock_with_its_holder_fence_and_waiters() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&["--label", "report"], "deal:42", "sleep 60");
    let _waiter = sandbox.start(&["run", "deal:42", "--", "true"]);
    sandbox.await_fact("deal:42", "waiters", "1");
    let ran = sandbox.run(&["ls", "deal:"]);
    let row: Vec<_> = ran.stdout.trim_end().split('\t').collect();
    assert_eq!((row[0], row[1], row[5]), ("deal:42", "held", "1"));
    assert!(row[2].starts_with("report (") && row[4].ends_with('s'), "{row:?}");
    assert_eq!(row[3], sandbox.fact("deal:42", "fence"));
    assert_eq!(sandbox.run(&["ls", "other:"]).stdout, "");
    assert!(sandbox.run(&["inspect", "deal:42"]).stdout.contains("waiter 1\ttrue ("));
    let json = sandbox.run(&["inspect", "deal:42", "--json"]).stdout;
    assert!(json.contains(r#""state":"held""#) && json.contains(r#""waiting_for_ms":"#), "{json}");
}

#[test]
fn ls_follows_the_pages_and_says_when_the_limit_cuts() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let sandbox = Sandbox::on(server.url());
    for n in 0..700 {
        server.cli(&["SET", &format!("lock:pages:{n:03}"), "another library's", "PX", "60000"]);
    }
    let ran = sandbox.run(&["ls", "pages:"]);
    let names: Vec<_> = ran.stdout.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
    assert_eq!(names, (0..700).map(|n| format!("pages:{n:03}")).collect::<Vec<_>>());
    let cut = sandbox.run(&["ls", "pages:", "--limit", "3"]);
    assert_eq!(cut.stdout.lines().count(), 3);
    assert_eq!(cut.stderr, "note: more locks follow; raise --limit or give a longer prefix\n");
    assert!(ran.stdout.contains("a client of another library"));
}

#[test]
fn a_free_lock_is_free() {
    insta::assert_snapshot!(Sandbox::new().run(&["inspect", "x"]), @r"
    exit 0
    --- stdout
    name[TAB]x
    state[TAB]free
    waiters[TAB]0
    --- stderr
    ");
}

#[test]
fn stats_count_the_whole_store() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&[], "x", "sleep 60");
    let _waiter = sandbox.start(&["run", "x", "--", "true"]);
    sandbox.await_fact("x", "waiters", "1");
    let shown = sandbox.run(&["stats"]).stdout;
    assert!(
        shown.starts_with(
            "held\t1\nheld by other libraries\t0\nwaited for\t1\nwaiters\t1\nlongest queue\t1\n"
        )
    );
    let metrics = sandbox.run(&["stats", "--prometheus"]).stdout;
    assert!(
        metrics.contains("# TYPE leasehold_store_locks_held gauge\nleasehold_store_locks_held 1\n"),
        "{metrics}"
    );
    let json = sandbox.run(&["stats", "--json"]).stdout;
    assert!(json.starts_with(r#"{"schema":{"version":"v1"},"held":1,"#), "{json}");
}

#[test]
fn a_force_release_needs_the_fence_that_was_seen() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&[], "x", "sleep 60");
    insta::assert_snapshot!(sandbox.run(&["force-release", "x"]), @r"
    exit 64
    --- stdout
    --- stderr
    error: --fence is required unless stdin is a terminal

    hint: `leasehold inspect x` shows the fence of the holder
    ");
    insta::assert_snapshot!(sandbox.run(&["force-release", "x", "--fence", "7", "--yes"]), @r#"
    exit 1
    --- stdout
    nothing done: "x" is now held under fence [FENCE], not 7
    --- stderr
    "#);
    let fence = sandbox.fact("x", "fence");
    insta::assert_snapshot!(sandbox.run(&["force-release", "x", "--fence", &fence]), @r#"
    exit 0
    --- stdout
    released "x" from fence [FENCE]
    --- stderr
    "#);
    assert_eq!(sandbox.fact("x", "state"), "free");
    insta::assert_snapshot!(sandbox.run(&["--json", "force-release", "x", "--fence", &fence]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"name":"x","fence":[FENCE],"outcome":"expired"}
    --- stderr
    "#);
}

#[test]
fn watch_says_what_changed() {
    let sandbox = Sandbox::new();
    let mut watch = sandbox.start(&["watch", "--interval", "20ms"]);
    eventually(LONG, "watching", || watch.stderr().contains("watching 0 locks"));
    let mut first = sandbox.start_script(&["--label", "first"], "x", "while :; do sleep 0.05; done");
    watch.await_stdout("acquired\tx\tfirst (");
    let mut second = sandbox.start(&["run", "--label", "second", "--hold", "x"]);
    watch.await_stdout("waiting\tx\tfirst (");
    first.signal(Signal::TERM);
    assert_eq!(first.end(), Some(143));
    // Between the two it may be seen free.
    watch.await_stdout("\tx\tsecond (");
    second.signal(Signal::TERM);
    assert_eq!(second.end(), Some(0));
    watch.await_stdout("released\tx\tsecond (");
    watch.signal(Signal::TERM);
    assert_eq!(watch.end(), Some(0));
    let shown = watch.stdout();
    let times: Vec<_> = shown.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert!(times.is_sorted() && times.iter().all(|at| at.len() == 24 && at.ends_with('Z')), "{shown}");
    assert!(shown.lines().all(|line| line.split('\t').count() == 7), "{shown}");
}

#[test]
fn watch_tells_an_expiry_and_a_force_release_from_a_release() {
    let mut stores = vec![Sandbox::new()];
    stores.extend(RedisServer::shared_or_skip().map(|server| Sandbox::on(server.url())));
    for sandbox in stores {
        let watch = sandbox.start(&["watch", "--interval", "20ms", "told:"]);
        eventually(LONG, "watching", || watch.stderr().contains("watching"));
        let mut killed = sandbox.start(&["run", "--label", "killed", "--ttl", "1s", "--hold", "told:x"]);
        watch.await_stdout("\tacquired\ttold:x\tkilled (");
        killed.signal(Signal::KILL);
        assert_eq!(killed.end(), None);
        watch.await_stdout("\texpired\ttold:x\tkilled (");
        let _forced = sandbox.start(&["run", "--label", "forced", "--hold", "told:x"]);
        watch.await_stdout("\tacquired\ttold:x\tforced (");
        let fence = sandbox.fact("told:x", "fence");
        assert_eq!(sandbox.run(&["force-release", "told:x", "--fence", &fence]).code, Some(0));
        watch.await_stdout("\tforce-released\ttold:x\tforced (");
        assert!(!watch.stdout().contains("\treleased\t"), "{}", watch.stdout());
    }
}

#[test]
fn watch_ends_after_as_many_lines_as_wanted() {
    let sandbox = Sandbox::new();
    let mut watch = sandbox.start(&["watch", "--json", "--interval", "20ms", "--count", "1", "x"]);
    let _holder = sandbox.start_script(&[], "x", "sleep 60");
    let seen = poll(Duration::from_secs(2), || (!watch.is_running()).then_some(()));
    if seen.is_none() {
        // If the lock was acquired before the first poll, its release is the change.
        sandbox.run(&["force-release", "x", "--fence", &sandbox.fact("x", "fence")]);
    }
    assert_eq!(watch.end(), Some(0));
    assert_eq!(watch.stdout().lines().count(), 1);
    assert!(watch.stdout().starts_with(r#"{"schema":{"version":"v1"},"at":""#), "{}", watch.stdout());
}

#[test]
fn watch_ends_well_on_a_signal_or_when_nobody_reads() {
    let sandbox = Sandbox::new();
    let mut watch = sandbox.start(&["watch", "--json"]);
    eventually(LONG, "the store is open", || sandbox.path("locks.db").exists());
    watch.signal(Signal::INT);
    assert_eq!(watch.end(), Some(0), "{}", watch.stderr());

    let mut command = sandbox.command(&["watch", "--interval", "20ms"]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(watch.stdout.take());
    let _holder = sandbox.start(&["run", "--fixed", "--hold", "x"]);
    let ended = poll(LONG, || {
        let _change = sandbox.run(&["run", "other", "--", "sleep", "0.05"]);
        watch.try_wait().unwrap()
    });
    assert_eq!(ended.unwrap().code(), Some(0));
}

#[test]
fn what_prints_changes_ends_when_nobody_reads_although_nothing_changes() {
    let sandbox = Sandbox::new();
    for words in [&["watch", "--json"][..], &["leader", "x", "--watch"]] {
        let mut command = sandbox.command(words);
        let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut read = BufReader::new(watch.stdout.take().unwrap());
        if words.contains(&"leader") {
            let mut present = String::new();
            read.read_line(&mut present).unwrap();
            assert!(present.contains("vacant"), "{present}");
        }
        drop(read);
        let ended = poll(LONG, || watch.try_wait().unwrap());
        if ended.is_none() {
            watch.kill().unwrap();
        }
        assert_eq!(ended.and_then(|ended| ended.code()), Some(0), "{words:?}");
    }
}

#[test]
fn a_broken_pipe_is_no_error() {
    let sandbox = Sandbox::new();
    for words in [&["inspect", "x"][..], &["completions", "bash"], &["man"], &["--help"], &["doctor"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = sandbox.command(words);
        let output =
            command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
    }
}

#[test]
fn doctor_tells_facts_and_the_round_trip() {
    let ran = Sandbox::on("memory:").run(&["doctor"]);
    assert_eq!(ran.code, Some(0));
    let whats: Vec<_> = ran.stdout.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(whats, ["store", "engine", "shared by", "names in use", "round trip", "verdict"]);
    let json = Sandbox::new().run(&["doctor", "--json"]).stdout;
    assert!(json.contains(r#""engine":"sqlite""#) && json.contains(r#""median_us":"#), "{json}");
}

#[test]
fn doctor_warns_of_a_store_that_throws_locks_away() {
    let Some(server) = RedisServer::builder()
        .arg("maxmemory-policy", "allkeys-lru")
        .arg("maxmemory", "50mb")
        .start_or_skip()
    else {
        return;
    };
    let ran = Sandbox::on(server.url()).run(&["doctor"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stdout.contains("warning ") && ran.stdout.contains("verdict\t"), "{ran}");
}

#[test]
fn doctor_looks_at_what_is_left_of_a_cluster() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let dead = set.primary_of("lock:leasehold:doctor");
    dead.kill();
    let ran = Sandbox::on(set.url()).run(&["doctor"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    for node in set.nodes() {
        let lines = ran.stdout.lines().filter(|line| line.starts_with(&format!("{}\t", node.addr())));
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines.len(), 1, "{ran}");
        assert_eq!(lines[0].ends_with("cannot be asked"), node.port() == dead.port(), "{ran}");
    }
    let down: Vec<_> = ran.stdout.lines().filter(|line| line.starts_with("warning node-down\t")).collect();
    assert!(down.len() == 1 && down[0].contains(&dead.addr().to_string()), "{ran}");
    assert!(ran.stdout.contains("\nround trip\t"), "{ran}");
}
