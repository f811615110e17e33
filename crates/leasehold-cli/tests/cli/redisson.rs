//! `leasehold run --redisson`: the lock is one of Redisson's while the command runs.

use leasehold_testkit::RedisServer;
use rustix::process::Signal;

use crate::sandbox::Sandbox;

#[test]
fn a_lock_in_redissons_format_is_held_while_the_command_runs() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let sandbox = Sandbox::on(server.url());
    let mut run = sandbox.start_script(&["--redisson", "--ttl", "20s"], "of-redisson", "exec sleep 60");
    let held = server.cli(&["HGETALL", "lock:of-redisson"]);
    let fields: Vec<_> = held.list().iter().map(|part| part.text()).collect();
    let [thread, count] = fields[..] else { panic!("{fields:?}") };
    // A client's UUID and a thread, and how often that has acquired it.
    let (uuid, id) = thread.split_once(':').unwrap();
    assert!(uuid.len() == 36 && id.parse::<u32>().is_ok() && count == "1", "{thread} {count}");
    let left_ms = server.cli(&["PTTL", "lock:of-redisson"]).int();
    assert!((1..=20_000).contains(&left_ms), "{left_ms}");
    assert_eq!(sandbox.run(&["run", "-n", "--redisson", "of-redisson", "--", "true"]).code, Some(1));
    run.signal(Signal::TERM);
    assert_eq!(run.end(), Some(143), "{}", run.stderr());
    assert_eq!(server.cli(&["EXISTS", "lock:of-redisson"]).int(), 0);
}

#[test]
fn a_store_without_redisson_refuses_it() {
    let refused = Sandbox::new().run(&["run", "--redisson", "x", "--", "true"]);
    assert_eq!(refused.code, Some(70), "{refused}");
    assert!(refused.stderr.contains("Redisson's format"), "{refused}");
}
