//! On a terminal: the command gets it, Ctrl-C and Ctrl-Z work, waiting is shown, and force-release asks.

use std::{fs::File, io::Write};

use leasehold_testkit::eventually;

use crate::{
    sandbox::{BINARY, LONG, Sandbox},
    screen::Screen,
};

#[test]
fn the_command_reads_from_the_terminal() {
    let sandbox = Sandbox::new();
    let script = "echo ready; read line; echo got $line; exit 3";
    let mut screen = Screen::leasehold(&sandbox, &["run", "x", "--", "sh", "-c", script]);
    screen.await_text("ready");
    screen.type_keys("hello\n");
    screen.await_text("got hello");
    assert_eq!(screen.end(), Some(3));
}

#[test]
fn ctrl_c_ends_the_command_and_frees_the_lock() {
    let sandbox = Sandbox::new();
    let _closed = gate(&sandbox);
    let script = "echo ready; read line < gate";
    let mut screen = Screen::leasehold(&sandbox, &["run", "x", "--", "sh", "-c", script]);
    screen.await_text("ready");
    screen.type_keys("\x03");
    assert_eq!(screen.end(), Some(130));
    assert_eq!(sandbox.fact("x", "state"), "free");
}

/// A pipe that a script waits for without starting anything: a shell caught between vfork and exec does not count as
/// stopped.
fn gate(sandbox: &Sandbox) -> File {
    let path = sandbox.path("gate");
    let made = sandbox.program("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn ctrl_z_stops_the_job_and_fg_goes_on() {
    let sandbox = Sandbox::new();
    let mut gate = gate(&sandbox);
    std::fs::write(sandbox.path("script"), "echo ready; read line < gate; echo fini''shed").unwrap();
    let shell = format!("{BINARY} run x -- sh script; echo code-$?; fg; echo end-$?");
    let mut screen = Screen::open(&sandbox, &["sh", "-m", "-c", &shell]);
    screen.await_text("ready");
    screen.type_keys("\x1a");
    screen.await_text("code-148");
    gate.write_all(b"\n").unwrap();
    screen.await_text("finished");
    // What was written last may be read after its writer has ended.
    screen.await_text("end-0");
    assert_eq!(screen.end(), Some(0));
    let shown = screen.shown();
    assert!(shown.contains("stopped: \"x\" is not renewed and expires in "), "{shown}");
}

#[test]
fn a_job_stopped_for_too_long_never_goes_on() {
    let sandbox = Sandbox::new();
    let mut gate = gate(&sandbox);
    std::fs::write(sandbox.path("script"), "echo ready; read line < gate; echo went on > went-on").unwrap();
    // While it is stopped its ttl ends, and somebody else gets the lock.
    let shell =
        format!("{BINARY} run --ttl 2s x -- sh script; {BINARY} run x -- echo taken; fg; echo end-$?");
    let mut screen = Screen::open(&sandbox, &["sh", "-m", "-c", &shell]);
    screen.await_text("ready");
    screen.type_keys("\x1a");
    screen.await_text("taken");
    gate.write_all(b"\n").unwrap();
    screen.await_text("end-76");
    assert_eq!(screen.end(), Some(0));
    assert!(!sandbox.path("went-on").exists());
}

#[test]
fn a_command_in_a_pipeline_gets_the_terminal_when_it_asks() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("script"), "echo ready; read line < /dev/tty; echo got $line").unwrap();
    let shell = format!("{BINARY} run x -- sh script | cat; echo end");
    let mut screen = Screen::open(&sandbox, &["sh", "-m", "-c", &shell]);
    screen.await_text("ready");
    screen.type_keys("hello\n");
    screen.await_text("got hello");
    screen.await_text("end");
    assert_eq!(screen.end(), Some(0));
}

#[test]
fn a_command_that_does_not_start_leaves_the_terminal_to_us() {
    let sandbox = Sandbox::new();
    let shell = format!("{BINARY} run x -- no-such-command; read line; echo got $line");
    let mut screen = Screen::open(&sandbox, &["sh", "-c", &shell]);
    screen.await_text("hint:");
    screen.type_keys("hello\n");
    screen.await_text("got hello");
    assert_eq!(screen.end(), Some(0));
}

#[test]
fn waiting_is_shown_in_one_line() {
    let sandbox = Sandbox::new();
    let holder = sandbox.start_script(&["--label", "the-holder"], "x", "while :; do sleep 0.05; done");
    let mut screen = Screen::leasehold(&sandbox, &["run", "x", "--", "echo", "mine"]);
    screen.await_text("waiting for \"x\" (");
    screen.await_text(", next in line): held by the-holder (");
    holder.signal(rustix::process::Signal::TERM);
    screen.await_text("mine");
    assert_eq!(screen.end(), Some(0));
    assert!(screen.shown().contains("\r\x1b[2Kmine"), "{:?}", screen.shown());
}

#[test]
fn force_release_shows_the_holder_and_asks_for_the_name() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&["--label", "the-holder"], "x", "sleep 60");
    let mut refused = Screen::leasehold(&sandbox, &["force-release", "x"]);
    refused.await_text("Type the name");
    refused.type_keys("y\n");
    assert_eq!(refused.end(), Some(64));
    assert!(refused.shown().contains("the-holder ("), "{}", refused.shown());
    assert_eq!(sandbox.fact("x", "state"), "held");

    let mut agreed = Screen::leasehold(&sandbox, &["force-release", "x"]);
    agreed.await_text("Type the name");
    agreed.type_keys("x\n");
    assert_eq!(agreed.end(), Some(0));
    eventually(LONG, "the lock is free", || sandbox.fact("x", "state") == "free");
}

#[test]
fn a_terminal_gets_a_table_with_a_heading() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&[], "x", "sleep 60");
    let mut screen = Screen::leasehold(&sandbox, &["ls"]);
    assert_eq!(screen.end(), Some(0));
    screen.await_text("\x1b[1mNAME  STATE  HOLDER");
    screen.await_text("\nx     held   sh (");
}

#[test]
fn no_color_is_respected() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&[], "x", "sleep 60");
    let mut screen = Screen::open(&sandbox, &["env", "NO_COLOR=1", BINARY, "ls"]);
    assert_eq!(screen.end(), Some(0));
    screen.await_text("NAME  STATE  HOLDER");
    assert!(!screen.shown().contains('\x1b'), "{:?}", screen.shown());
}
