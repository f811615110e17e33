//! Signals: to the command while it runs, out of the queue while waiting, and death with us.

use leasehold_testkit::eventually;
use rustix::process::Signal;

use crate::sandbox::{LONG, Sandbox, lives};

#[test]
fn signals_reach_the_command() {
    let sandbox = Sandbox::new();
    for (word, signal) in [
        ("INT", Signal::INT),
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
    ] {
        let script =
            format!("trap 'echo got {word}; exit 3' {word}; echo ready; while :; do sleep 0.05; done");
        let mut run = sandbox.start_script(&[], "x", &script);
        run.await_stdout("ready");
        run.signal(signal);
        assert_eq!(run.end(), Some(3), "{word}");
        run.await_stdout(&format!("got {word}"));
    }
    assert_eq!(sandbox.fact("x", "state"), "free");
}

#[test]
fn a_signal_that_ends_the_command_is_its_exit_code() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start_script(&[], "x", "exec sleep 60");
    run.signal(Signal::TERM);
    assert_eq!(run.end(), Some(143));
}

#[test]
fn a_signal_while_waiting_leaves_the_queue() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&[], "x", "sleep 60");
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut waiter = sandbox.start(&["run", "x", "--", "touch", "ran"]);
        sandbox.await_fact("x", "waiters", "1");
        waiter.signal(signal);
        assert_eq!(waiter.end(), Some(code));
        assert_eq!(sandbox.fact("x", "waiters"), "0");
    }
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn the_command_dies_with_us() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start_script(&[], "x", "trap '' TERM HUP INT; while :; do sleep 0.05; done");
    let pid = sandbox.script_pid("pid");
    run.signal(Signal::KILL);
    assert_eq!(run.end(), None);
    eventually(LONG, "the command is gone", || !lives(pid));
}

#[test]
fn what_was_ignored_stays_ignored() {
    let sandbox = Sandbox::new();
    // As nohup does it.
    let mut command = sandbox.program("sh");
    let script =
        "trap '' HUP; exec \"$0\" run x -- sh -c 'echo $$ > pid; while [ ! -e stop ]; do sleep 0.05; done'";
    command.args(["-c", script, crate::sandbox::BINARY]);
    let mut run = sandbox.start_command(command);
    let pid = sandbox.script_pid("pid");
    run.signal(Signal::HUP);
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::HUP).unwrap();
    std::fs::write(sandbox.path("stop"), "").unwrap();
    assert_eq!(run.end(), Some(0), "{}", run.stderr());
}

#[test]
fn a_command_that_somebody_stopped_keeps_its_lock() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start_script(&["--ttl", "500ms"], "x", "while [ ! -e stop ]; do sleep 0.05; done");
    let pid = rustix::process::Pid::from_raw(sandbox.script_pid("pid")).unwrap();
    let fence = sandbox.fact("x", "fence");
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    let since = std::time::Instant::now();
    eventually(LONG, "two ttls", || since.elapsed().as_millis() > 1100);
    assert_eq!(sandbox.fact("x", "fence"), fence);
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    std::fs::write(sandbox.path("stop"), "").unwrap();
    assert_eq!(run.end(), Some(0), "{}", run.stderr());
}
