use leasehold::{
    Fence, Mode,
    engine::{Handover, Reach},
};

use super::*;
use crate::command::top::samples::{Sample, listing, lock, name, secs};

fn top(read_only: bool) -> Top {
    let capabilities = Capabilities::new("redis", Reach::Network, Handover::Push, true, 512);
    Top::new(About { store: "redis://h".into(), prefix: String::new(), capabilities, read_only })
}

fn see(top: &mut Top, second: u64, locks: Vec<Sample>) {
    let detail = top.question(secs(second)).detail.map(|name| {
        let found = locks.iter().find(|sample| sample.0.name == name);
        found.map_or_else(|| Inspection::unused(name.clone()), |sample| sample.0.clone())
    });
    let listing = listing(second, locks);
    top.answered(Answered { listing, detail, health: None }, "12:00:00 UTC".into());
}

fn press(top: &mut Top, key: KeyCode) -> Effect {
    top.key(KeyEvent::from(key))
}

fn types(top: &mut Top, text: &str) -> Effect {
    text.chars().map(|letter| press(top, KeyCode::Char(letter))).last().unwrap_or(Effect::None)
}

fn under_cursor(top: &Top) -> &str {
    top.order[top.cursors[0].at].as_str()
}

#[test]
fn the_cursor_stays_on_its_lock_when_others_come_and_go() {
    let mut top = top(false);
    top.fit(10);
    see(&mut top, 0, vec![lock("b").held(1, 30), lock("c").held(2, 30)]);
    press(&mut top, KeyCode::Down);
    assert_eq!(under_cursor(&top), "c");
    see(&mut top, 1, vec![lock("a").held(3, 30), lock("b").held(1, 29), lock("c").held(2, 29)]);
    assert_eq!(under_cursor(&top), "c");
    types(&mut top, "s");
    assert_eq!(under_cursor(&top), "c");
    see(&mut top, 2, vec![lock("a").held(3, 29)]);
    assert_eq!(under_cursor(&top), "a");
    see(&mut top, 3, vec![]);
    assert_eq!(top.cursors[0], Cursor::default());
}

#[test]
fn a_filter_is_typed_applied_and_removed() {
    let mut top = top(false);
    see(&mut top, 0, vec![lock("quiet").held(1, 30), lock("other").held(2, 30)]);
    assert_eq!(types(&mut top, "/qui"), Effect::None);
    assert_eq!((top.order.as_slice(), top.types_filter), (&[name("quiet")][..], true));
    press(&mut top, KeyCode::Enter);
    assert!(!top.types_filter);
    assert_eq!(types(&mut top, "q"), Effect::Quit);
    press(&mut top, KeyCode::Esc);
    assert_eq!(top.order.len(), 2);
}

#[test]
fn force_release_sends_the_fence_that_was_seen_when_the_dialog_was_opened() {
    let mut top = top(false);
    see(&mut top, 0, vec![lock("x").held(1, 30)]);
    types(&mut top, "f");
    for second in 1..=20 {
        see(&mut top, second, vec![lock("a").held(9, 30), lock("x").held(second + 1, 30)]);
    }
    assert!(top.dialog_is_stale());
    types(&mut top, "x");
    press(&mut top, KeyCode::Enter);
    types(&mut top, "stuck");
    let release = Release { name: name("x"), fence: Fence::new(1), reason: "stuck".into() };
    assert_eq!(press(&mut top, KeyCode::Enter), Effect::Release(release));
    assert!(top.releasing && top.dialog.is_none());
    types(&mut top, "f");
    assert!(top.dialog.is_none() && top.note.as_ref().is_some_and(|note| note.starts_with("one lock")));
}

#[test]
fn one_of_several_holders_is_chosen_before_it_loses_its_part() {
    let mut top = top(false);
    let shared = || lock("x").held_as(Mode::Shared, 1, 30).held_as(Mode::Shared, 2, 30).waits("w", 3);
    see(&mut top, 0, vec![shared()]);
    types(&mut top, "f");
    assert!(top.dialog.is_none());
    assert!(top.note.as_ref().unwrap().starts_with("2 hold \"x\" together"), "{:?}", top.note);
    assert_eq!(press(&mut top, KeyCode::Enter), Effect::Poll);
    see(&mut top, 1, vec![shared()]);
    press(&mut top, KeyCode::Down);
    types(&mut top, "f");
    assert_eq!(top.dialog.as_ref().unwrap().fence, Fence::new(2));
    press(&mut top, KeyCode::Esc);
    press(&mut top, KeyCode::Down);
    types(&mut top, "f");
    assert!(top.dialog.is_none(), "a waiter has nothing to lose");
}

#[test]
fn nothing_can_be_released_by_readers_or_of_free_locks() {
    let mut reader = top(true);
    see(&mut reader, 0, vec![lock("x").held(1, 30)]);
    types(&mut reader, "f");
    assert!(reader.dialog.is_none() && reader.note.is_none());
    let mut top = top(false);
    see(&mut top, 0, vec![lock("x").waits("w", 1)]);
    types(&mut top, "f");
    assert_eq!(top.note.as_deref(), Some("\"x\" is not held"));
}

#[test]
fn a_store_that_is_gone_is_gone_since_the_first_missing_answer() {
    let mut top = top(false);
    see(&mut top, 0, vec![lock("x").held(1, 30)]);
    for second in ["12:00:01 UTC", "12:00:02 UTC"] {
        top.unanswered("connection refused".into(), second.into());
    }
    assert_eq!(top.gone.as_ref().unwrap().since, "12:00:01 UTC");
    assert_eq!(top.order.len(), 1, "the last picture stays");
    see(&mut top, 3, vec![]);
    assert_eq!(top.gone, None);
}

#[test]
fn a_detail_is_asked_for_and_left_again() {
    let mut top = top(false);
    see(&mut top, 0, vec![lock("x").held(1, 30).waits("w", 1)]);
    assert_eq!(press(&mut top, KeyCode::Enter), Effect::Poll);
    assert_eq!(top.question(secs(1)).detail, Some(name("x")));
    see(&mut top, 1, vec![]);
    assert!(!top.open.as_ref().unwrap().lock.as_ref().unwrap().is_in_use());
    assert_eq!(types(&mut top, "f"), Effect::None);
    press(&mut top, KeyCode::Esc);
    assert!(top.open.is_none());
}

#[test]
fn health_is_asked_for_on_its_page_and_not_at_every_poll() {
    let mut top = top(false);
    see(&mut top, 0, vec![]);
    assert!(!top.question(secs(1)).health);
    assert_eq!(types(&mut top, "4"), Effect::Poll);
    assert!(top.question(secs(1)).health);
    let health = Some(Err("permission denied".into()));
    top.answered(Answered { listing: listing(1, vec![]), detail: None, health }, String::new());
    assert!(!top.question(secs(5)).health);
    assert!(top.question(secs(11)).health);
    assert_eq!(press(&mut top, KeyCode::Tab), Effect::None);
    assert!(!top.question(secs(30)).health);
}

#[test]
fn control_keys_work_in_every_state() {
    let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    let mut top = top(false);
    see(&mut top, 0, vec![lock("x").held(1, 30)]);
    for state in ["", "/", "f", "?"] {
        types(&mut top, state);
        assert_eq!(top.key(control('z')), Effect::Suspend, "{state:?}");
        assert_eq!(top.key(control('c')), Effect::Quit, "{state:?}");
        press(&mut top, KeyCode::Esc);
    }
}
