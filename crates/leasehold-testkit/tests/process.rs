//! Helper processes, and the register they share.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use leasehold_testkit::history::{Event, History, check};
use leasehold_testkit::{Admission, Helper, Recorder, Register, eventually, now};

const SOON: Duration = Duration::from_secs(20);
const WRITES: u64 = 200;

#[test]
fn helper_process() {
    match Helper::role().as_deref() {
        None => {}
        Some("counter") => {
            for count in 0.. {
                Helper::say(&format!("count {count}"));
                thread::sleep(Duration::from_millis(1));
            }
        }
        Some("speaker") => {
            Helper::say("first a");
            Helper::say("second b");
            assert_ne!(std::env::var("END").as_deref(), Ok("panic"), "asked to fail");
        }
        Some("writer") => write_all(&folder()),
        Some("recorder") => record_until_killed(&folder()),
        Some(role) => panic!("no such role: {role}"),
    }
}

fn folder() -> PathBuf {
    std::env::var_os("FOLDER").expect("FOLDER is set").into()
}

fn register(folder: &Path) -> Register {
    Register::open(&folder.join("register"), "job", Admission::AtLeastHighest).unwrap()
}

fn write_all(folder: &Path) {
    let register = register(folder);
    let who = std::process::id().to_string();
    for fence in 1..=WRITES {
        register.write(fence, &who).unwrap();
    }
}

fn record_until_killed(folder: &Path) {
    let recorder = Recorder::open(&folder.join("events")).unwrap();
    for attempt in 0.. {
        let process = "r".to_owned();
        recorder.record(&Event::Invoked { process: process.clone(), attempt, name: "job".into(), at: now() });
        let at = now();
        recorder.record(&Event::Granted {
            process: process.clone(),
            attempt,
            fence: attempt,
            at,
            valid_until: at + 1,
        });
        recorder.record(&Event::Released { process, attempt, at });
        if attempt == 100 {
            Helper::say("recorded");
        }
    }
}

#[test]
fn lines_are_found_in_order_and_the_end_is_seen() {
    let helper = Helper::spawn("speaker", &[]);
    assert_eq!(helper.wait_for_line("first ", SOON), "a");
    assert_eq!(helper.wait_for_line("second ", SOON), "b");
    assert!(helper.wait(SOON).success());
}

#[test]
fn a_failing_role_fails_its_process() {
    let helper = Helper::spawn("speaker", &[("END", "panic")]);
    assert!(!helper.wait(SOON).success());
    eventually(SOON, "the panic to be readable", || helper.stderr().contains("asked to fail"));
}

#[test]
#[should_panic(expected = "ended without a line \"third \"…; its output:")]
fn a_line_that_never_comes_is_reported_with_the_others() {
    Helper::spawn("speaker", &[]).wait_for_line("third ", SOON);
}

#[test]
#[should_panic(expected = "still runs after")]
fn a_process_that_does_not_end_is_reported() {
    Helper::spawn("counter", &[]).wait(Duration::from_millis(50));
}

#[test]
fn a_stopped_process_does_nothing_until_it_continues() {
    let helper = Helper::spawn("counter", &[]);
    helper.wait_for_line("count ", SOON);
    helper.stop();
    // What was written before the stop may still be in the pipe.
    let state = std::fs::read_to_string(format!("/proc/{}/stat", helper.pid())).unwrap();
    assert!(state.contains(") T "), "{state}");
    helper.cont();
    for _ in 0..200 {
        helper.wait_for_line("count ", SOON);
    }
    helper.kill9();
    assert!(!helper.wait(SOON).success());
}

#[test]
fn a_dropped_helper_is_gone() {
    let helper = Helper::spawn("counter", &[]);
    let proc = PathBuf::from(format!("/proc/{}", helper.pid()));
    helper.wait_for_line("count ", SOON);
    assert!(proc.exists());
    drop(helper);
    eventually(SOON, "the process to be gone", || !proc.exists());
}

#[test]
fn processes_and_threads_share_one_register() {
    let folder = tempfile::tempdir().unwrap();
    let env = [("FOLDER", folder.path().to_str().unwrap())];
    let helpers = [Helper::spawn("writer", &env), Helper::spawn("writer", &env)];
    thread::scope(|scope| {
        scope.spawn(|| write_all(folder.path()));
        scope.spawn(|| write_all(folder.path()));
    });
    for helper in &helpers {
        assert!(helper.wait(SOON).success());
    }
    let register = register(folder.path());
    let log = register.log().unwrap();
    assert_eq!(log.len() as u64, 4 * WRITES);
    assert_eq!(register.highest().unwrap(), Some(WRITES));
    assert_eq!(check(&History::from_events(log).unwrap()), []);
}

#[test]
fn a_killed_recorder_leaves_a_readable_history() {
    let folder = tempfile::tempdir().unwrap();
    let helper = Helper::spawn("recorder", &[("FOLDER", folder.path().to_str().unwrap())]);
    helper.wait_for_line("recorded", SOON);
    helper.kill9();
    let history = History::from_files([folder.path().join("events")]).unwrap();
    assert!(history.granted() > 100);
    assert!(history.unknown <= 1);
    assert_eq!(check(&history), []);
}
