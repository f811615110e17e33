//! `leasehold lock`: acquired by one process, extended and released by others.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use crate::sandbox::Sandbox;

#[test]
fn a_lock_outlives_the_command_that_took_it() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.run(&["lock", "acquire", "deploy", "--ttl", "1m", "--handle", "h"]), @r"
    exit 0
    --- stdout
    deploy[TAB][FENCE][TAB]h
    --- stderr
    ");
    assert_eq!(sandbox.fact("deploy", "state"), "held");
    assert_eq!(sandbox.run(&["run", "-n", "deploy", "--", "true"]).code, Some(1));
    insta::assert_snapshot!(sandbox.run(&["lock", "extend", "--handle", "h", "--ttl", "4m"]), @r"
    exit 0
    --- stdout
    deploy[TAB][FENCE]
    --- stderr
    ");
    assert!(sandbox.fact("deploy", "ttl").starts_with("3m"), "{}", sandbox.fact("deploy", "ttl"));
    insta::assert_snapshot!(sandbox.run(&["--json", "lock", "release", "--handle", "h"]), @r#"
    exit 0
    --- stdout
    {"schema":{"version":"v1"},"name":"deploy","fence":[FENCE],"outcome":"free"}
    --- stderr
    "#);
    assert_eq!(sandbox.fact("deploy", "state"), "free");
    assert!(!sandbox.path("h").exists());
}

#[test]
fn the_handle_is_private_and_its_secret_is_never_printed() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["-vv", "--json", "lock", "acquire", "deploy", "--handle", "h"]);
    let mode = std::fs::metadata(sandbox.path("h")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let handle = std::fs::read_to_string(sandbox.path("h")).unwrap();
    let secret = &handle.lines().nth(6).unwrap()[..32];
    assert!(!ran.stdout.contains(secret) && !ran.stderr.contains(secret));
}

#[test]
fn a_handle_survives_a_command_on_another_store() {
    let sandbox = Sandbox::new();
    let acquire = ["--store", "sqlite:one.db", "lock", "acquire", "deploy", "--handle", "h"];
    assert_eq!(sandbox.run(&acquire).code, Some(0));
    for words in [&["extend", "--ttl", "4m"][..], &["release"]] {
        let other = [&["--store", "sqlite:two.db", "lock"], words, &["--handle", "h"]].concat();
        insta::allow_duplicates! {
            insta::assert_snapshot!(sandbox.run(&other), @r"
            exit 64
            --- stdout
            --- stderr
            error: the handle h is of the store sqlite:[FOLDER]/one.db, not of sqlite:[FOLDER]/two.db

            hint: choose that store, for example with --store sqlite:[FOLDER]/one.db
            ");
        }
    }
    let same = format!("sqlite:{}", sandbox.path("one.db").display());
    assert_eq!(sandbox.run(&["--store", &same, "lock", "release", "--handle", "h"]).code, Some(0));
}

#[test]
fn an_existing_handle_is_not_overwritten_and_no_lock_is_taken() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("h"), "mine").unwrap();
    insta::assert_snapshot!(sandbox.run(&["lock", "acquire", "deploy", "--handle", "h"]), @r"
    exit 74
    --- stdout
    --- stderr
    error: cannot create the handle h
      caused by: File exists (os error 17)

    hint: another lock may use it: release that lock, or choose another file
    ");
    assert_eq!(std::fs::read_to_string(sandbox.path("h")).unwrap(), "mine");
    assert_eq!(sandbox.fact("deploy", "state"), "free");
}

#[test]
fn without_a_file_a_new_one_is_made_and_its_path_printed() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["lock", "acquire", "deploy"]);
    let path = ran.stdout.trim_end().split('\t').nth(2).unwrap().replace("[FOLDER]", "");
    assert!(path.starts_with("/state/leasehold/handles/"), "{path}");
    let mut release = sandbox.command(&["lock", "release"]);
    release.env("LEASEHOLD_HANDLE", sandbox.path(path.trim_start_matches('/')));
    assert_eq!(sandbox.run_command(release).code, Some(0));
}

#[test]
fn a_lock_that_was_lost_is_76_and_its_handle_goes() {
    let sandbox = Sandbox::new();
    sandbox.run(&["lock", "acquire", "deploy", "--handle", "h"]);
    sandbox.run(&["force-release", "deploy", "--fence", &sandbox.fact("deploy", "fence")]);
    assert_eq!(sandbox.run(&["lock", "extend", "--handle", "h"]).code, Some(76));
    assert!(sandbox.path("h").exists());
    assert_eq!(sandbox.run(&["lock", "release", "--handle", "h"]).code, Some(76));
    assert!(!sandbox.path("h").exists());
}

#[test]
fn an_acquire_that_fails_leaves_no_handle() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&[], "deploy", "sleep 60");
    assert_eq!(sandbox.run(&["lock", "acquire", "-n", "deploy", "--handle", "h"]).code, Some(1));
    assert!(!sandbox.path("h").exists());
    let mut waiter = sandbox.start(&["lock", "acquire", "deploy", "--handle", "h"]);
    sandbox.await_fact("deploy", "waiters", "1");
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.end(), Some(143));
    assert!(!sandbox.path("h").exists());
    assert_eq!(sandbox.fact("deploy", "waiters"), "0");
}

#[test]
fn a_missing_or_wrong_handle_is_named() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.run(&["lock", "release"]), @r"
    exit 64
    --- stdout
    --- stderr
    error: no handle was given

    hint: give --handle FILE or set LEASEHOLD_HANDLE
    ");
    insta::assert_snapshot!(sandbox.run(&["lock", "release", "--handle", "gone"]), @r"
    exit 74
    --- stdout
    --- stderr
    error: cannot read the handle gone
      caused by: No such file or directory (os error 2)
    ");
    std::fs::write(sandbox.path("other"), "something else").unwrap();
    assert_eq!(sandbox.run(&["lock", "release", "--handle", "other"]).code, Some(64));
    assert!(sandbox.path("other").exists());
}
