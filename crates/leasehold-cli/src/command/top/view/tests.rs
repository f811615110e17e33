use std::num::NonZeroU32;

use insta::assert_snapshot;
use leasehold::{
    Health, Mode,
    engine::{Capabilities, Handover, Reach, Warning},
};
use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::Buffer,
    crossterm::event::{KeyCode, KeyEvent},
    style::Modifier,
};

use super::*;
use crate::command::top::{
    model::{About, Answered},
    samples::{Sample, listing, lock},
};

fn top(read_only: bool) -> Top {
    let capabilities = Capabilities::new("redis", Reach::Network, Handover::Push, true, 512);
    Top::new(About { store: "redis://cache".into(), prefix: "deal:".into(), capabilities, read_only })
}

fn see(top: &mut Top, second: u64, locks: Vec<Sample>) {
    let detail = top.open.as_ref().and_then(|open| {
        let found = locks.iter().find(|sample| sample.0.name == open.name);
        found.map(|sample| sample.0.clone())
    });
    let answered = Answered { listing: listing(second, locks), detail, health: None };
    top.answered(answered, format!("12:00:{second:02} UTC"));
}

/// A lock with a queue, a semaphore, one that nobody holds at the moment, and one that was renewed.
fn busy() -> Top {
    let permits = |take| {
        let number = |number| NonZeroU32::new(number).unwrap();
        Mode::Permits { take: number(take), of: number(5) }
    };
    let locks = |second: u64| {
        let fence = 1_753_873_200_000_001;
        vec![
            lock("deal:42")
                .held(fence, 30 - second)
                .waits("payout", second + 1)
                .waits("audit\u{1b}[2J", second),
            lock("deal:free").waits("payout", second),
            lock("deal:gpu").held_as(permits(2), 7, 20).held_as(permits(1), 8, 25),
            lock("deal:old").held(9, 60),
        ]
    };
    let mut top = top(false);
    see(&mut top, 0, locks(0));
    see(&mut top, 26, locks(26));
    top
}

fn press(top: &mut Top, keys: &str) {
    for letter in keys.chars() {
        let code = match letter {
            '\n' => KeyCode::Enter,
            letter => KeyCode::Char(letter),
        };
        let _effect = top.key(KeyEvent::from(code));
    }
}

fn buffer(top: &mut Top, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    top.fit(visible(top, height));
    terminal.draw(|frame| draw(top, Theme::new(true), frame)).unwrap();
    terminal.backend().buffer().clone()
}

/// The screen as text: several empty lines are one.
fn picture(top: &mut Top, width: u16, height: u16) -> String {
    let buffer = buffer(top, width, height);
    let mut lines = Vec::new();
    for cells in buffer.content().chunks(usize::from(width)) {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        let line = line.trim_end().to_owned();
        if !line.is_empty() || lines.last().is_none_or(|last: &String| !last.is_empty()) {
            lines.push(line);
        }
    }
    lines.join("\n")
}

#[test]
fn locks_on_80_columns() {
    assert_snapshot!(picture(&mut busy(), 80, 24), @r"
    leasehold top  redis://cache  prefix deal:                                  live
    held 3  waiting 3  expiring 1  names 4                        as of 12:00:26 UTC
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    NAME               STATE    MODE      HOLDERS      AGE    TTL            WAITERS
    deal:42            expiring exclusive holder 1     >26s   ██░░░░░░ 4.0s  2
    deal:free          waiting  -         -            -      -              1
    deal:gpu           held     3 of 5    holder 7 +1  >26s   ████████ 20s   0
    deal:old           held     exclusive holder 9     >26s   ████████ 60s   0

    ? help  q quit  p pause  f force-release  Enter detail  / filter  s sort: name
    ");
}

#[test]
fn locks_on_120_columns() {
    assert_snapshot!(picture(&mut busy(), 120, 40), @r"
    leasehold top  redis://cache  prefix deal:                                                                          live
    held 3  waiting 3  expiring 1  names 4                                                                as of 12:00:26 UTC
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    NAME                        STATE    MODE      HOLDERS            FENCE            AGE    TTL            RENEWED WAITERS
    deal:42                     expiring exclusive holder 1           1753873200000001 >26s   ██░░░░░░ 4.0s  0       2
    deal:free                   waiting  -         -                  -                -      -              -       1
    deal:gpu                    held     3 of 5    holder 7 +1        7                >26s   ████████ 20s   1       0
    deal:old                    held     exclusive holder 9           9                >26s   ████████ 60s   1       0

    ? help  q quit  p pause  f force-release  Enter detail  / filter  s sort: name
    ");
}

#[test]
fn locks_on_40_columns() {
    assert_snapshot!(picture(&mut busy(), 40, 12), @r"
    leasehold top  redis://cache  prefi live
    held 3  waiting 3  expiring 1  names 4
    1 Locks  2 Hot  3 Waits  4 Nodes
    NAME             STATE    TTL
    deal:42          expiring ██░░░░░░ 4.0s
    deal:free        waiting  -
    deal:gpu         held     ████████ 20s
    deal:old         held     ████████ 60s

    ? help  q quit  p pause  f force-release
    ");
}

#[test]
fn one_lock_with_its_queue() {
    let mut top = busy();
    press(&mut top, "\n");
    assert_snapshot!(picture(&mut top, 80, 24), @r"
    leasehold top  redis://cache  prefix deal:                                  live
    held 3  waiting 3  expiring 1  names 4                        as of 12:00:26 UTC
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    deal:42
    state    held, exclusive
    fence    1753873200000001
    ttl      ██░░░░░░ 4.0s, renewed 0 times, held for >26s
    people   holders 1, waiters 2
    command  leasehold force-release deal:42 --fence 1753873200000001

    ROLE         WHO                          TIME       MODE       FENCE
    holder       holder 1 (web1 pid 7)        4.0s left  exclusive  1753873200000001
    next in line payout (web1 pid 7)          waits 27s  exclusive  -
    waiter 2     audit�[2J (web1 pid 7)       waits 26s  exclusive  -

    ? help  q quit  p pause  f force-release  Esc back
    ");
    assert_snapshot!(picture(&mut top, 40, 14), @r"
    leasehold top  redis://cache  prefi live
    held 3  waiting 3  expiring 1  names 4
    1 Locks  2 Hot  3 Waits  4 Nodes
    deal:42
    state    held, exclusive
    fence    1753873200000001
    ttl      ██░░░░░░ 4.0s, renewed 0 times,
    people   holders 1, waiters 2
    command  leasehold force-release deal:42

    ROLE         WHO              TIME
    holder       holder 1 (web1 p 4.0s left
    next in line payout (web1 pid waits 27s
    ? help  q quit  p pause  f force-release
    ");
}

#[test]
fn a_semaphore_lists_all_holders() {
    let mut top = busy();
    press(&mut top, "jj\n");
    assert_snapshot!(picture(&mut top, 80, 24), @r"
    leasehold top  redis://cache  prefix deal:                                  live
    held 3  waiting 3  expiring 1  names 4                        as of 12:00:26 UTC
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    deal:gpu
    state    held, 3 of 5 permits
    fence    7
    ttl      ████████ 20s, renewed 1 times, held for >26s
    people   holders 2, waiters 0
    command  leasehold inspect deal:gpu

    ROLE         WHO                          TIME       MODE       FENCE
    holder 1     holder 7 (web1 pid 7)        20s left   2 permits  7
    holder 2     holder 8 (web1 pid 7)        25s left   1 permit   8

    ? help  q quit  p pause  f force-release  Esc back
    ");
}

#[test]
fn the_dialog_keeps_its_holder_and_says_when_that_has_changed() {
    let mut top = busy();
    press(&mut top, "f");
    assert_snapshot!(picture(&mut top, 80, 24), @r"
    leasehold top  redis://cache  prefix deal:                                  live
    held 3  waiting 3  expiring 1  names 4                        as of 12:00:26 UTC
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    NAME               STATE    MODE      HOLDERS      AGE    TTL            WAITERS
    deal:┌ force-release deal:42 ─────────────────────────────────────────────┐
    deal:│The holder may still be running.                                    │
    deal:│It notices the loss at its next renewal; until then only a check of │
    deal:│the fence stops its writes.                                         │
         │holder  holder 1 (web1 pid 7)                                       │
         │fence   1753873200000001                                            │
         │                                                                    │
         │name    _                                                           │
         │reason                                                              │
         │                                                                    │
         │type the name of the lock, then Enter; Esc cancels                  │
         │                                                                    │
         │                                                                    │
         │                                                                    │
         └────────────────────────────────────────────────────────────────────┘

    ? help  q quit  p pause  f force-release  Enter detail  / filter  s sort: name
    ");
    see(&mut top, 27, vec![lock("deal:42").held(99, 30)]);
    press(&mut top, "deal:42\n\n");
    assert_snapshot!(picture(&mut top, 80, 24), @r"
    leasehold top  redis://cache  prefix deal:                                  live
    held 1  waiting 0  expiring 0  names 1                        as of 12:00:27 UTC
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    NAME               STATE    MODE      HOLDERS      AGE    TTL            WAITERS
    deal:┌ force-release deal:42 ─────────────────────────────────────────────┐
         │The holder may still be running.                                    │
         │It notices the loss at its next renewal; until then only a check of │
         │the fence stops its writes.                                         │
         │holder  holder 1 (web1 pid 7)                                       │
         │fence   1753873200000001                                            │
         │This holder does not have it any more: nothing would be done.       │
         │                                                                    │
         │name    deal:42                                                     │
         │reason  _                                                           │
         │                                                                    │
         │a reason is required                                                │
         │                                                                    │
         │                                                                    │
         └────────────────────────────────────────────────────────────────────┘

    ? help  q quit  p pause  f force-release  Enter detail  / filter  s sort: name
    ");
}

#[test]
fn hot_names_and_who_waited_for_whom() {
    let mut top = busy();
    press(&mut top, "2");
    assert_snapshot!(picture(&mut top, 80, 24), @r"
    leasehold top  redis://cache  prefix deal:                                  live
    held 3  waiting 3  expiring 1  names 4                        as of 12:00:26 UTC
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    NAME                                                 ACQUIRED WAITED WAITERS MAX
    deal:42                                              0        52s    2
    deal:free                                            0        26s    1

    ? help  q quit  p pause  Enter detail
    ");
    press(&mut top, "3");
    assert_snapshot!(picture(&mut top, 80, 24), @r"
    leasehold top  redis://cache  prefix deal:                                  live
    held 3  waiting 3  expiring 1  names 4                        as of 12:00:26 UTC
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    HOLDER         WAITER         WAITED LONGEST EPISODES NOW  LOCKS
    holder 1       audit�[2J      26s    26s     1        1    deal:42
    holder 1       payout         26s    27s     1        1    deal:42

    ? help  q quit  p pause  Enter detail
    ");
    assert_snapshot!(picture(&mut top, 40, 12), @r"
    leasehold top  redis://cache  prefi live
    held 3  waiting 3  expiring 1  names 4
    1 Locks  2 Hot  3 Waits  4 Nodes
    HOLDER       WAITER       WAITED LONGEST
    holder 1     audit�[2J    26s    26s
    holder 1     payout       26s    27s

    ? help  q quit  p pause  Enter detail
    ");
}

#[test]
fn nodes_show_health_warnings_and_what_is_missing() {
    let mut top = busy();
    press(&mut top, "4");
    let facts = vec![("server".to_owned(), "redis 7.0.15".to_owned())];
    let warning = Warning {
        code: "eviction",
        found: "allkeys-lru removes locks".into(),
        cure: "set noeviction".into(),
    };
    let health = Some(Ok(Health { facts, warnings: vec![warning] }));
    top.answered(Answered { listing: listing(27, vec![]), detail: None, health }, "12:00:27 UTC".into());
    assert_snapshot!(picture(&mut top, 80, 24), @r"
    leasehold top  redis://cache  prefix deal:                                  live
    held 0  waiting 0  expiring 0  names 0                        as of 12:00:27 UTC
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    WHAT             VALUE
    store            redis://cache
    server           redis 7.0.15
    warning eviction allkeys-lru removes locks; set noeviction
    verdict          1 warning
    shared by        every host that reaches the store
    next waiter      is handed the lock
    ttl              50ms to 24h
    several locks    one after the other
    read-write       no: this store has exclusive locks only
    semaphores       no: this store has exclusive locks only
    conversion       no: this store has exclusive locks only
    redisson         no: it takes a redis://, redis-sentinel:// or redis-cluster://
    acks             yes
    named successor  no: this store hands a lock to the first in the queue only

    ? help  q quit  p pause
    ");
}

#[test]
fn nothing_to_show_says_how_to_begin() {
    let mut top = top(true);
    assert_snapshot!(picture(&mut top, 80, 10), @r"
    leasehold top  redis://cache  prefix deal:                     asking  read-only
    held 0  waiting 0  expiring 0  names 0
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    NAME               STATE    MODE      HOLDERS      AGE    TTL            WAITERS

    ? help  q quit  p pause  Enter detail  / filter  s sort: name
    ");
    see(&mut top, 1, vec![]);
    assert_snapshot!(picture(&mut top, 80, 10), @r"
    leasehold top  redis://cache  prefix deal:                       live  read-only
    held 0  waiting 0  expiring 0  names 0                        as of 12:00:01 UTC
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    no locks are held and nobody waits

    leasehold run NAME -- CMD runs a command under a lock

    ? help  q quit  p pause  Enter detail  / filter  s sort: name
    ");
    press(&mut top, "?");
    assert_snapshot!(picture(&mut top, 80, 24), @r"
    leasehold top  redis://cache  prefix deal:                       live  read-only
    held 0  waiting 0  expiring 0  names 0                        as of 12:00:01 UTC
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    arrows j k   up and down; PgUp PgDn, Home End
    Enter        one lock: its holders and its queue
    Esc          back; removes the filter
    1 2 3 4 Tab  locks, hot names, who waited for whom, nodes
    /            filter by name, holder or state
    s            sort by name, waiting, age, expires
    p            pause and go on
    Ctrl-Z       stop; fg goes on
    ?            this help; any key closes it
    q Ctrl-C     quit

    Ages, renewals and sums are what was seen since this began.
    > before an age: held already when this began.

    ? help  q quit  p pause  Enter detail  / filter  s sort: name
    ");
}

#[test]
fn a_store_that_is_gone_leaves_the_last_picture_greyed() {
    let mut top = busy();
    let style = |top: &mut Top| buffer(top, 80, 24)[(0, 5)].modifier;
    assert!(!style(&mut top).contains(Modifier::DIM));
    top.unanswered("connection refused".into(), "12:00:30 UTC".into());
    assert!(style(&mut top).contains(Modifier::DIM));
    assert_snapshot!(picture(&mut top, 80, 12), @r"
    leasehold top  redis://cache  prefix deal:                            store gone
    no answer since 12:00:30 UTC: connection refused
    1 Locks  2 Hot names  3 Who waited for whom  4 Nodes
    NAME               STATE    MODE      HOLDERS      AGE    TTL            WAITERS
    deal:42            expiring exclusive holder 1     >26s   ██░░░░░░ 4.0s  2
    deal:free          waiting  -         -            -      -              1
    deal:gpu           held     3 of 5    holder 7 +1  >26s   ████████ 20s   0
    deal:old           held     exclusive holder 9     >26s   ████████ 60s   0

    ? help  q quit  p pause  f force-release  Enter detail  / filter  s sort: name
    ");
}

#[test]
fn no_screen_is_too_small() {
    for (width, height) in [(1, 1), (5, 3), (200, 2), (3, 60)] {
        for page in ["", "2", "3", "4", "1\n", "\u{8}?"] {
            let mut top = busy();
            press(&mut top, page);
            picture(&mut top, width, height);
            press(&mut top, "1f");
            picture(&mut top, width, height);
        }
    }
}

#[test]
fn durations_fit_their_column() {
    use std::time::Duration;
    for (millis, text) in [
        (0, "0ms"),
        (999, "999ms"),
        (9_950, "9.9s"),
        (119_000, "119s"),
        (120_000, "2m"),
        (7_200_000, "2h"),
        (172_800_000, "2d"),
    ] {
        assert_eq!(short(Duration::from_millis(millis)), text);
    }
}
