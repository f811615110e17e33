//! A lost lock: the command is stopped before anybody else can have it, and the exit code is never 0.

use leasehold_testkit::{FaultProxy, RedisServer, eventually};
use rustix::process::Signal;

use crate::sandbox::{LONG, Sandbox, lives};

#[test]
fn a_lock_taken_away_stops_the_command_and_all_it_started() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo cleaned > cleaned; exit 0' TERM; \
                  sh -c 'trap \"\" TERM; echo $$ > grandchild; while :; do sleep 1; done' & wait";
    let mut run = sandbox.start_script(&["--ttl", "3s"], "x", script);
    let pids = [sandbox.script_pid("pid"), sandbox.script_pid("grandchild")];
    let fence = sandbox.fact("x", "fence");
    assert_eq!(sandbox.run(&["force-release", "x", "--fence", &fence]).code, Some(0));
    assert_eq!(run.end(), Some(76));
    assert_eq!(pids.map(lives), [false, false]);
    assert!(sandbox.path("cleaned").exists(), "TERM comes before KILL");
    let said = run.stderr().replace(&fence, "[FENCE]");
    insta::assert_snapshot!(said, @r#"
    error: lost the lock "x" (fence [FENCE]) before the work was done; the command was stopped

    hint: check what the work has done; a longer --ttl survives longer outages, and a resource that checks the fence refuses late writes
    "#);
}

#[test]
fn a_command_that_ends_well_after_the_loss_is_still_76() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start_script(&["--ttl", "60s"], "x", "while [ ! -e stop ]; do sleep 0.05; done");
    let fence = sandbox.fact("x", "fence");
    assert_eq!(sandbox.run(&["force-release", "x", "--fence", &fence]).code, Some(0));
    std::fs::write(sandbox.path("stop"), "").unwrap();
    assert_eq!(run.end(), Some(76));
    assert!(run.stderr().contains("it was gone when the command ended with exit code 0"), "{}", run.stderr());
}

#[test]
fn a_fixed_lock_stops_the_command_before_its_ttl_ends() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start_script(&["--fixed", "--ttl", "1s"], "x", "while :; do sleep 0.05; done");
    let pid = sandbox.script_pid("pid");
    assert_eq!(run.end(), Some(76));
    assert!(!lives(pid));
}

#[test]
fn an_unreachable_store_stops_the_command_before_the_lock_ends() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let sandbox = Sandbox::on(proxy.url());
    // It never obeys, and says until when it was at work.
    let script = "trap '' TERM; while :; do date +%s%3N > at-work; sleep 0.02; done";
    let mut run = sandbox.start_script(&["--ttl", "2s"], "cut-off", script);
    proxy.hold();
    let ends_at_ms = server.cli(&["PEXPIRETIME", "lock:cut-off"]).int();
    assert!(ends_at_ms > 0);
    assert_eq!(run.end(), Some(76), "{}", run.stderr());
    let pid = sandbox.script_pid("pid");
    assert!(!lives(pid));
    let at_work = std::fs::read_to_string(sandbox.path("at-work")).unwrap();
    // A write cut short by KILL leaves an empty file, which says nothing.
    if let Ok(at_work_ms) = at_work.trim().parse::<i64>() {
        assert!(at_work_ms < ends_at_ms, "at work until {at_work_ms}, locked until {ends_at_ms}");
    }
}

#[test]
fn a_holder_that_cannot_renew_says_so_once_and_when_it_can_again() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let sandbox = Sandbox::on(proxy.url());
    let mut run = sandbox.start_script(&["--ttl", "20s"], "told", "while [ ! -e stop ]; do sleep 0.05; done");
    proxy.hold();
    eventually(LONG, "trouble", || run.stderr().contains("warning: cannot renew \"told\" for "));
    assert!(run.stderr().contains("; the lease ends in "), "{}", run.stderr());
    proxy.pass();
    eventually(LONG, "it is over", || run.stderr().contains("renewed \"told\" again after "));
    std::fs::write(sandbox.path("stop"), "").unwrap();
    assert_eq!(run.end(), Some(0));
    assert_eq!(run.stderr().lines().count(), 2, "{}", run.stderr());
}

#[test]
fn a_supervisor_that_slept_through_the_ttl_finds_the_command_dead() {
    let sandbox = Sandbox::new();
    let mut run =
        sandbox.start_script(&["--ttl", "500ms"], "x", "trap '' TERM; while :; do sleep 0.05; done");
    let pid = sandbox.script_pid("pid");
    run.signal(Signal::STOP);
    // Somebody else gets it meanwhile.
    assert_eq!(sandbox.run(&["run", "x", "--", "true"]).code, Some(0));
    assert!(!lives(pid) && run.is_running());
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(76));
}

#[test]
fn a_lost_lock_held_for_its_own_sake_is_76_too() {
    let sandbox = Sandbox::new();
    let mut holder = sandbox.start(&["run", "--ttl", "600ms", "--hold", "x"]);
    holder.await_stdout("\n");
    let fence = sandbox.fact("x", "fence");
    assert_eq!(sandbox.run(&["force-release", "x", "--fence", &fence]).code, Some(0));
    assert_eq!(holder.end(), Some(76));
}

#[test]
fn a_lock_delay_keeps_a_lost_lock_closed() {
    let sandbox = Sandbox::new();
    let run = sandbox.start_script(&["--ttl", "300ms", "--lock-delay", "60s"], "x", "sleep 60");
    run.signal(Signal::KILL);
    // Longer than the ttl.
    assert_eq!(sandbox.run(&["run", "-w", "600ms", "x", "--", "true"]).code, Some(1));
}

#[test]
fn a_grace_that_does_not_fit_into_the_ttl_is_refused() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.run(&["run", "--ttl", "10s", "--kill-after", "5s", "x", "--", "true"]), @r"
    exit 64
    --- stdout
    --- stderr
    error: --kill-after of 5s is too long for a ttl of 10s: at most 2s leaves time to stop before the lock ends

    hint: give a longer --ttl or a shorter --kill-after
    ");
}
