//! The fence-checking register.

use std::fs::OpenOptions;
use std::io::Write;

use leasehold_testkit::history::Event;
use leasehold_testkit::{Admission, Register};

#[test]
fn a_strict_register_admits_each_fence_once() {
    let folder = tempfile::tempdir().unwrap();
    let register = Register::open(&folder.path().join("r"), "job", Admission::AboveHighest).unwrap();
    assert_eq!(register.highest().unwrap(), None);
    assert!(register.write(0, "a").unwrap());
    assert!(!register.write(0, "a").unwrap());
    assert!(register.write(2, "b").unwrap());
    assert!(!register.write(1, "late").unwrap());
    assert_eq!(register.highest().unwrap(), Some(2));
}

#[test]
fn verdicts_are_logged_as_events() {
    let folder = tempfile::tempdir().unwrap();
    let register = Register::open(&folder.path().join("r"), "my job", Admission::AtLeastHighest).unwrap();
    register.write(5, "a\tb\nc").unwrap();
    register.write(4, "d").unwrap();
    let wrote = |process: &str, fence, accepted| Event::Wrote {
        process: process.into(),
        name: "my job".into(),
        fence,
        accepted,
    };
    assert_eq!(register.log().unwrap(), [wrote("a\tb\nc", 5, true), wrote("d", 4, false)]);
}

#[test]
fn a_torn_last_line_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    let register = Register::open(&path, "job", Admission::AtLeastHighest).unwrap();
    for torn in ["9", "99 wrote\tx"] {
        OpenOptions::new().append(true).open(&path).unwrap().write_all(torn.as_bytes()).unwrap();
        register.write(7, "a").unwrap();
    }
    assert_eq!(register.highest().unwrap(), Some(7));
    assert_eq!(register.log().unwrap().len(), 2);
}

#[test]
fn a_writer_with_an_endless_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let register = Register::open(&folder.path().join("r"), "job", Admission::AtLeastHighest).unwrap();
    assert!(register.write(1, &"x".repeat(5000)).is_err());
    assert_eq!(register.log().unwrap(), []);
}
