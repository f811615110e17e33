//! `leasehold top` on a real terminal.

use leasehold::{
    Leasehold,
    audit::{self, Action, Entry},
};
use leasehold_testkit::{RedisServer, eventually};
use rustix::process::Signal;

use crate::{
    sandbox::{BINARY, LONG, Sandbox},
    screen::Screen,
};

fn top(sandbox: &Sandbox, options: &[&str]) -> Screen {
    let screen = Screen::leasehold(sandbox, &[&["top", "--interval", "100ms"], options].concat());
    screen.await_picture("the first answer", |picture| picture.contains("live"));
    screen
}

/// The line of a lock; only names begin lines.
fn line<'a>(picture: &'a str, name: &str) -> Option<&'a str> {
    picture.lines().find(|line| line.split_whitespace().next() == Some(name))
}

fn has(picture: &str, name: &str, words: &[&str]) -> bool {
    line(picture, name).is_some_and(|line| words.iter().all(|word| line.contains(word)))
}

#[test]
fn a_lock_its_waiter_and_its_release_are_seen_while_they_happen() {
    for sandbox in Sandbox::on_each_store() {
        let mut screen = top(&sandbox, &["--prefix", "top:seen:"]);
        screen.await_picture("an empty list", |picture| picture.contains("leasehold run NAME -- CMD"));
        let name = "top:seen:x";
        let holder = sandbox.start_script(&["--label", "the-holder"], name, "exec sleep 60");
        screen.await_picture("the holder", |picture| {
            has(picture, name, &["held", "exclusive", "the-holder", "█"])
                && picture.contains("held 1  waiting 0")
        });
        let script = "read line < gate";
        let gate = sandbox.path("gate");
        assert!(sandbox.program("mkfifo").arg(&gate).status().unwrap().success());
        let mut next = sandbox.start(&["run", "--label", "the-waiter", name, "--", "sh", "-c", script]);
        screen.await_picture("the waiter", |picture| picture.contains("held 1  waiting 1"));
        screen.type_keys("\r");
        screen.await_picture("both", |picture| {
            has(picture, "holder", &["the-holder ("]) && has(picture, "next", &["in line", "the-waiter ("])
        });
        holder.signal(Signal::TERM);
        screen.await_picture("the hand-over", |picture| has(picture, "holder", &["the-waiter ("]));
        screen.type_keys("\x1b");
        screen.await_picture("the list", |picture| has(picture, name, &["held", "the-waiter"]));
        screen.type_keys("3");
        screen.await_picture("who waited for whom", |picture| {
            has(picture, "the-holder", &["the-waiter", name])
        });
        std::fs::write(gate, "\n").unwrap();
        assert_eq!(next.end(), Some(0), "{}", next.stderr());
        screen.type_keys("1");
        screen.await_picture("nothing", |picture| picture.contains("no locks are held and nobody waits"));
        screen.type_keys("q");
        assert_eq!(screen.end(), Some(0));
        assert!(screen.is_usable(), "{:?}", screen.shown());
    }
}

#[test]
fn a_lock_is_taken_from_its_holder_by_its_name_and_a_reason() {
    for sandbox in Sandbox::on_each_store() {
        let name = "top:forced:x";
        let _holder = sandbox.start_script(&["--label", "the-holder"], name, "exec sleep 60");
        let fence = sandbox.fact(name, "fence");
        let mut screen = top(&sandbox, &["--prefix", "top:forced:"]);
        screen.type_keys("f");
        screen.await_picture("the dialog", |picture| {
            picture.contains("may still be running")
                && picture.contains(&fence)
                && picture.contains("the-holder (")
        });
        screen.type_keys("wrong\r");
        screen.await_picture("a refusal", |picture| picture.contains("that is not the name of the lock"));
        screen.type_keys(&"\x7f".repeat(5));
        screen.type_keys(&format!("{name}\rhost is gone\r"));
        let done = format!("released \"{name}\" from fence {fence}");
        screen.await_picture("the outcome", |picture| picture.contains(&done));
        sandbox.await_fact(name, "state", "free");
        screen.type_keys("q");
        assert_eq!(screen.end(), Some(0));
        screen.await_text(&format!("{done}; reason: host is gone"));
        let audit = audit_of(&sandbox, name);
        assert_eq!(audit.len(), 1, "{audit:?}");
        assert_eq!(
            (audit[0].action, audit[0].fence, audit[0].reason.as_deref(), audit[0].outcome.as_str()),
            (Action::ForceRelease, fence.parse().ok(), Some("host is gone"), "free")
        );
        assert!(screen.is_usable(), "{:?}", screen.shown());
    }
}

/// What the audit of the store has about a name.
fn audit_of(sandbox: &Sandbox, name: &str) -> Vec<Entry> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let leases = Leasehold::connect(sandbox.store()).await.unwrap();
        let mut entries = audit::entries(&leases).await.unwrap();
        leases.close().await.unwrap();
        entries.retain(|entry| entry.name == name);
        entries
    })
}

#[test]
fn a_lock_that_changed_hands_meanwhile_is_not_taken() {
    let sandbox = Sandbox::new();
    let first = sandbox.start_script(&[], "x", "exec sleep 60");
    let mut screen = top(&sandbox, &[]);
    screen.type_keys("f");
    screen.await_picture("the dialog", |picture| picture.contains("may still be running"));
    first.signal(Signal::TERM);
    sandbox.await_fact("x", "state", "free");
    let _second = sandbox.start_script(&[], "x", "exec sleep 60");
    screen.await_picture("a warning", |picture| picture.contains("does not have it any more"));
    screen.type_keys("x\rstuck\r");
    screen.await_picture("a refusal", |picture| {
        picture.contains("nothing done: \"x\" is now held under fence")
    });
    assert_eq!(sandbox.fact("x", "state"), "held");
}

#[test]
fn read_only_has_no_key_for_force() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&[], "x", "exec sleep 60");
    let mut screen = top(&sandbox, &["--read-only"]);
    screen.await_picture("the lock", |picture| has(picture, "x", &["held"]) && picture.contains("read-only"));
    screen.type_keys("f?");
    screen.await_picture("the help", |picture| picture.contains("this help"));
    assert!(!screen.picture().contains("force") && !screen.picture().contains("take the lock"));
}

#[test]
fn whatever_ends_it_the_terminal_is_as_before() {
    let sandbox = Sandbox::new();
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let mut screen = top(&sandbox, &[]);
        screen.signal(signal);
        assert_eq!(screen.end(), Some(0), "{signal:?}");
        assert!(screen.is_usable(), "{signal:?}: {:?}", screen.shown());
    }
    let mut screen = top(&sandbox, &[]);
    assert!(!screen.is_usable(), "it has the whole screen");
    screen.type_keys("\x03");
    assert_eq!(screen.end(), Some(0));
    assert!(screen.is_usable());
}

#[test]
fn it_ends_with_its_terminal() {
    let sandbox = Sandbox::new();
    let mut screen = top(&sandbox, &[]);
    screen.hang_up();
    assert_eq!(screen.end(), Some(0));
}

#[test]
fn ctrl_z_gives_the_terminal_back_and_fg_takes_it_again() {
    let sandbox = Sandbox::new();
    let shell =
        format!("{BINARY} top --interval 100ms; echo code-$?; read line; echo got-$line; fg; echo end-$?");
    let mut screen = Screen::open(&sandbox, &["sh", "-m", "-c", &shell]);
    screen.await_picture("the first answer", |picture| picture.contains("live"));
    screen.type_keys("\x1a");
    screen.await_text("code-148");
    assert!(screen.is_usable(), "{:?}", screen.shown());
    screen.type_keys("line\n");
    screen.await_text("got-line");
    screen.await_picture("the locks again", |picture| picture.contains("live") && !picture.contains("got-"));
    screen.type_keys("q");
    screen.await_text("end-0");
    assert!(screen.is_usable(), "{:?}", screen.shown());
}

#[test]
fn the_picture_follows_the_size_of_the_terminal() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&["--label", "the-holder"], "x", "exec sleep 60");
    let mut screen = top(&sandbox, &[]);
    screen.await_picture("all columns", |picture| {
        picture.contains("FENCE") && has(picture, "x", &["the-holder"])
    });
    screen.resize(10, 40);
    screen.await_picture("fewer columns", |picture| {
        !picture.contains("FENCE") && has(picture, "x", &["held"]) && !picture.contains("the-holder")
    });
}

#[test]
fn a_store_that_is_gone_keeps_the_last_picture_and_comes_back() {
    let Some(server) = RedisServer::builder().start_or_skip() else { return };
    let sandbox = Sandbox::on(server.url());
    let _holder = sandbox.start_script(&["--label", "the-holder"], "x", "exec sleep 60");
    let mut screen = top(&sandbox, &[]);
    screen.await_picture("the lock", |picture| has(picture, "x", &["held"]));
    server.kill();
    screen.await_picture("since when", |picture| {
        picture.contains("store gone") && picture.contains("no answer since ") && has(picture, "x", &["held"])
    });
    server.restart();
    screen.await_picture("answers", |picture| picture.contains("live") && picture.contains("as of "));
    server.kill();
    screen.await_picture("since when", |picture| picture.contains("store gone"));
    screen.type_keys("q");
    assert_eq!(screen.end(), Some(0));
    assert!(screen.is_usable(), "{:?}", screen.shown());
}

#[tokio::test]
async fn five_thousand_locks_are_paged_through() {
    let Some(server) = RedisServer::builder().start_or_skip() else { return };
    let leases = Leasehold::connect(&server.url()).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..5_000 {
        guards.push(leases.lock(format!("many:{number:04}")).acquire().await.unwrap());
    }
    let sandbox = Sandbox::on(server.url());
    let seen = tokio::task::spawn_blocking(move || {
        let mut screen = top(&sandbox, &[]);
        screen.await_picture("all of them", |picture| {
            picture.contains("names 5000") && has(picture, "many:0000", &["held"])
        });
        screen.type_keys("\x1b[6~");
        screen.await_picture("the next page", |picture| has(picture, "many:0019", &["held"]));
        screen.type_keys("G");
        screen.await_picture("the last one", |picture| has(picture, "many:4999", &["held"]));
        screen.type_keys("/1234\r");
        screen.await_picture("one of them", |picture| {
            has(picture, "many:1234", &["held"]) && !picture.contains("many:4999")
        });
        screen.type_keys("q");
        screen.end()
    });
    assert_eq!(seen.await.unwrap(), Some(0));
}

#[test]
fn what_is_not_a_terminal_is_told_what_to_use() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.run(&["top"]), @r"
    exit 64
    --- stdout
    --- stderr
    error: top needs a terminal for its input and its output

    hint: `leasehold ls` lists the locks, `leasehold watch --json` reports every change
    ");
    let json = sandbox.run(&["top", "--json"]);
    assert_eq!(json.code, Some(64));
    assert!(json.stderr.contains("leasehold watch --json"), "{json}");
    let mut dumb = Screen::open(&sandbox, &["env", "TERM=dumb", BINARY, "top"]);
    assert_eq!(dumb.end(), Some(64));
    dumb.await_text("TERM is unset or dumb");
    let mut logs = Screen::leasehold(&sandbox, &["-v", "top"]);
    assert_eq!(logs.end(), Some(64));
    let mut often = Screen::leasehold(&sandbox, &["top", "--interval", "1ms"]);
    assert_eq!(often.end(), Some(64));
    eventually(LONG, "the range", || often.shown().contains("give 100ms to 1h"));
}

#[test]
fn without_colours_every_state_is_a_word() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start_script(&[], "x", "exec sleep 60");
    let screen = Screen::open(&sandbox, &["env", "NO_COLOR=1", BINARY, "top", "--interval", "100ms"]);
    screen.await_picture("the lock", |picture| has(picture, "x", &["held"]) && picture.contains("live"));
    let shown = screen.shown();
    assert!(!(30..=37).any(|color| shown.contains(&format!("\x1b[{color}m"))), "{shown:?}");
    assert!(!shown.contains("\x1b[38;"), "{shown:?}");
}
