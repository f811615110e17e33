//! Nothing of a job outlives its lease, also when the wrapper or the guardian is stopped or killed.

use std::{
    fs,
    io::{self, PipeReader, PipeWriter, Write},
    process::Stdio,
};

use leasehold_testkit::{eventually, poll};
use rustix::{
    io::ioctl_fionbio,
    process::{Pid, Signal, kill_process},
};

use crate::sandbox::{LONG, Sandbox, Started, lives};

/// A family: a child in the group, one in a session of its own, and a daemon whose parents are gone. None obeys TERM; all end with
/// the folder of the test.
const FAMILY: &str = "trap '' TERM HUP; work() { while [ -e pid ]; do date +%s%N >> at-work; sleep 0.01; done; }; \
    (echo $(exec sh -c 'echo $PPID') > child; work) & \
    setsid sh -c 'trap \"\" TERM HUP; echo $$ > session; while [ -e pid ]; do date +%s%N >> at-work; sleep 0.01; done' & \
    (setsid sh -c '(trap \"\" TERM HUP; echo $(exec sh -c \"echo \\$PPID\") > daemon; \
        while [ -e pid ]; do date +%s%N >> at-work; sleep 0.01; done) & ' &) ; \
    work";

fn start_family(sandbox: &Sandbox, ttl: &str) -> (Started, [i32; 4]) {
    let run = sandbox.start_script(&["--ttl", ttl], "x", FAMILY);
    let pids = ["pid", "child", "session", "daemon"].map(|file| sandbox.script_pid(file));
    assert_eq!(pids.map(lives), [true; 4]);
    (run, pids)
}

/// The next holder writes when it began; nobody of the first job was at work after that.
fn assert_no_overlap(sandbox: &Sandbox, pids: [i32; 4]) {
    let next = sandbox.run(&["run", "x", "--", "date", "+%s%N"]);
    assert_eq!(next.code, Some(0), "{next}");
    assert_eq!(pids.map(lives), [false; 4]);
    let began: u128 = next.stdout.trim().parse().unwrap();
    let at_work = fs::read_to_string(sandbox.path("at-work")).unwrap();
    let times: Vec<u128> = at_work.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(times.len() > 4);
    let last = times.iter().max().unwrap();
    assert!(*last < began, "at work at {last}, the next began at {began}");
}

fn guardian_of(run: &Started) -> Pid {
    let wrapper = run.pid();
    let children = || fs::read_to_string(format!("/proc/{wrapper}/task/{wrapper}/children")).unwrap();
    // Until it has executed the binary it is a fork of the wrapper, which waits for that.
    let executes = |pid: &&str| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.starts_with(b"leasehold-guardian"))
    };
    let guardian = poll(LONG, || children().split_whitespace().find(executes)?.parse().ok());
    Pid::from_raw(guardian.unwrap()).unwrap()
}

#[test]
fn a_job_whose_wrapper_is_stopped_ends_before_the_next_begins() {
    let sandbox = Sandbox::new();
    let (mut run, pids) = start_family(&sandbox, "2s");
    run.signal(Signal::STOP);
    assert_no_overlap(&sandbox, pids);
    assert!(run.is_running());
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(76));
    assert!(run.stderr().contains("lost the lock \"x\""), "{}", run.stderr());
}

#[test]
fn a_wrapper_that_is_stopped_before_it_hears_of_its_command_reports_the_loss() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start(&["run", "--ttl", "500ms", "x", "--", "sleep", "60"]);
    let _begun = guardian_of(&run);
    run.signal(Signal::STOP);
    assert_eq!(sandbox.run(&["run", "x", "--", "true"]).code, Some(0));
    run.signal(Signal::CONT);
    assert_eq!(run.end(), Some(76), "{}", run.stderr());
}

#[test]
fn a_job_whose_wrapper_is_killed_ends_with_all_that_left_its_group() {
    let sandbox = Sandbox::new();
    let (mut run, pids) = start_family(&sandbox, "3s");
    run.signal(Signal::KILL);
    assert_eq!(run.end(), None);
    assert_no_overlap(&sandbox, pids);
    assert!(run.stderr().contains("leasehold was killed"), "{}", run.stderr());
}

/// A pipe that is full, as behind a pager that nobody reads on in.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[0; 512]).is_ok() {}
    ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

#[test]
fn a_job_whose_wrapper_is_killed_ends_also_where_nobody_reads_its_words() {
    let sandbox = Sandbox::new();
    let (_unread, stderr) = full_pipe();
    let script = format!("echo $$ > pid; {FAMILY}");
    let mut run = sandbox.command(&["run", "--ttl", "2s", "x", "--", "sh", "-c", &script]);
    let mut run = run.stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
    let pids = ["pid", "child", "session", "daemon"].map(|file| sandbox.script_pid(file));
    run.kill().unwrap();
    run.wait().unwrap();
    assert_no_overlap(&sandbox, pids);
}

#[test]
fn a_command_whose_wrapper_is_killed_may_clean_up() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo cleaned > cleaned; exit 0' TERM; while :; do sleep 0.05; done";
    let mut run = sandbox.start_script(&[], "x", script);
    run.signal(Signal::KILL);
    assert_eq!(run.end(), None);
    eventually(LONG, "TERM comes before KILL", || sandbox.path("cleaned").exists());
}

#[test]
fn a_job_whose_guardian_is_killed_is_ended_by_the_wrapper() {
    let sandbox = Sandbox::new();
    let (mut run, pids) = start_family(&sandbox, "3s");
    kill_process(guardian_of(&run), Signal::KILL).unwrap();
    assert_eq!(run.end(), Some(137));
    assert_eq!(pids.map(lives), [false; 4]);
    assert!(run.stderr().contains("the guardian of the command was killed"), "{}", run.stderr());
    assert_eq!(sandbox.fact("x", "state"), "free");
}

#[test]
fn a_guardian_that_is_stopped_saves_nobody() {
    let sandbox = Sandbox::new();
    let (mut run, pids) = start_family(&sandbox, "2s");
    kill_process(guardian_of(&run), Signal::STOP).unwrap();
    let fence = sandbox.fact("x", "fence");
    assert_eq!(sandbox.run(&["force-release", "x", "--fence", &fence]).code, Some(0));
    assert_eq!(run.end(), Some(76));
    assert_eq!(pids.map(lives), [false; 4]);
}

#[test]
fn a_guardian_that_is_stopped_is_continued() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start_script(&[], "x", "while [ ! -e stop ]; do sleep 0.05; done; exit 5");
    let guardian = guardian_of(&run);
    for _ in 0..3 {
        kill_process(guardian, Signal::STOP).unwrap();
        let stat = || fs::read_to_string(format!("/proc/{guardian}/stat")).unwrap();
        eventually(LONG, "it goes on", || !stat().contains(") T "));
    }
    kill_process(guardian, Signal::STOP).unwrap();
    fs::write(sandbox.path("stop"), "").unwrap();
    assert_eq!(run.end(), Some(5), "{}", run.stderr());
}

#[test]
fn a_guardian_that_is_stopped_before_it_has_reported_is_continued() {
    let sandbox = Sandbox::new();
    // It reports within a moment, so not every run stops it in time.
    for _ in 0..20 {
        let mut run = sandbox.start(&["run", "x", "--", "sleep", "0.2"]);
        kill_process(guardian_of(&run), Signal::STOP).unwrap();
        assert_eq!(run.end(), Some(0), "{}", run.stderr());
    }
}

#[test]
fn signals_that_end_others_leave_the_guardian_alone() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start_script(&[], "x", "while [ ! -e stop ]; do sleep 0.05; done; exit 5");
    let guardian = guardian_of(&run);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::TSTP] {
        kill_process(guardian, signal).unwrap();
    }
    fs::write(sandbox.path("stop"), "").unwrap();
    assert_eq!(run.end(), Some(5), "{}", run.stderr());
}

#[test]
fn what_the_command_leaves_running_ends_after_it() {
    let sandbox = Sandbox::new();
    let script = "setsid sh -c 'echo $$ > left; exec sleep 60' & (sleep 0.2; echo last words) & \
        while [ ! -s left ]; do sleep 0.01; done; exit 4";
    let mut run = sandbox.start_script(&["--ttl", "3s"], "x", script);
    assert_eq!(run.end(), Some(4));
    assert!(!lives(sandbox.script_pid("left")));
    // What ends by itself soon after has the time to.
    assert_eq!(run.stdout(), "last words\n");
    assert_eq!(run.stderr(), "warning: processes that the command left running were stopped\n");
}

#[test]
fn the_command_gets_no_socket_of_the_guardian() {
    let sandbox = Sandbox::new();
    let mut plain = sandbox.program("ls");
    plain.arg("/proc/self/fd");
    let ran = sandbox.run(&["run", "x", "--", "ls", "/proc/self/fd"]);
    // Whoever runs the tests may have left files open for everybody.
    assert_eq!(ran.stdout, sandbox.run_command(plain).stdout);
}
