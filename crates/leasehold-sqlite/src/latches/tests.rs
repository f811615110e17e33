//! The operations with hand-set time.

use std::time::Duration;

use super::*;
use crate::tests::host::Host;
use leasehold_core::engine::latches::{Said, Standing};

const TTL: Duration = Duration::from_secs(10);
const JOIN: Op = Op::Join { ttl: TTL };
const DAY: Duration = Duration::from_secs(86_400);

impl Host {
    fn ask(&mut self, name: &str, number: u128, op: Op) -> Answer {
        let request = request(name, number, op);
        self.run(|store| store.ask_latch(&request, "engine")).unwrap()
    }

    /// How a latch of two stands, for one who waits.
    fn stands(&mut self, name: &str, generation: u64) -> Standing {
        match self.ask(name, 99, Op::Look { generation: Some(generation), wake: true }).said {
            Said::Stands(standing) => standing,
            other => panic!("{other:?}"),
        }
    }
}

fn request(name: &str, number: u128, op: Op) -> Request {
    let holder = Holder::Leasehold { host: "host".into(), pid: 1, since_ms: 0, label: number.to_string() };
    let (name, owner) = (Name::new(name).unwrap(), Owner::new(number, &holder));
    Request { name, kind: Kind::Latch, count: 2.try_into().unwrap(), owner, op }
}

fn broken_by(number: u128) -> Standing {
    Standing::Broken { who: Some(request("x", number, JOIN).owner.holder()) }
}

#[test]
fn a_restart_keeps_counts_and_ends_leases() {
    let mut host = Host::new();
    let generation = host.ask("migration", 1, JOIN).generation;
    host.ask("migration", 1, Op::CountDown { generation });
    host.restart(Duration::from_secs(5));
    assert_eq!(host.stands("migration", generation), Standing::Armed { missing: 1 });
    host.ask("migration", 2, JOIN);
    host.ask("migration", 2, Op::CountDown { generation });
    assert_eq!(host.stands("migration", generation), Standing::Opened);

    let mut host = Host::new();
    let generation = host.ask("migration", 1, JOIN).generation;
    host.restart(Duration::from_secs(1));
    assert_eq!(host.stands("migration", generation), broken_by(1));
}

#[test]
fn those_who_wait_are_told_once_when_it_opens_or_breaks() {
    let mut host = Host::new();
    for (name, breaks) in [("opens", false), ("breaks", true)] {
        let generation = host.ask(name, 1, JOIN).generation;
        host.ask(name, 2, JOIN);
        for _ in 0..2 {
            host.stands(name, generation);
        }
        host.ask(name, 2, Op::CountDown { generation });
        assert!(host.hints.is_empty());
        let last = if breaks { Op::Leave { breaks } } else { Op::CountDown { generation } };
        host.ask(name, 1, last);
        assert_eq!(host.hints, ["99@engine"], "{name}");
        host.ask(name, 1, last);
        assert!(host.hints.is_empty());
        assert_eq!((host.rows("party"), host.rows("watcher")), (0, 0));
    }
}

#[test]
fn a_lease_is_renewed_until_it_has_ended() {
    let mut host = Host::new();
    let joined = request("migration", 1, JOIN);
    let generation = host.ask("migration", 1, JOIN).generation;
    let hold = joined.hold(generation, TTL);
    let renew = |host: &mut Host| {
        let since = host.now();
        host.run(|store| store.renew_party(&hold, since)).unwrap()
    };
    for _ in 0..3 {
        host.pass(TTL * 9 / 10);
        assert!(matches!(renew(&mut host), Renewed::Kept { .. }));
    }
    host.pass(TTL);
    assert_eq!(renew(&mut host), Renewed::Gone);
    assert_eq!(host.stands("migration", generation), broken_by(1));
}

#[test]
fn what_is_over_is_swept_two_days_later_and_nothing_that_is_in_use() {
    let mut host = Host::new();
    let generation = host.ask("over", 1, JOIN).generation;
    host.ask("over", 1, Op::Leave { breaks: true });
    host.ask("in use", 1, Op::Join { ttl: DAY * 4 });
    host.pass(DAY);
    host.ask("one more", 1, Op::Look { generation: None, wake: false });
    assert_eq!(host.stands("over", generation), broken_by(1));
    host.pass(DAY * 2);
    host.ask("another", 1, Op::Look { generation: None, wake: false });
    assert_eq!(host.rows("latch"), 2, "that one and the one in use");
    assert_eq!(host.rows("party"), 1);
}

#[test]
fn all_that_is_known_of_a_latch_is_read_back() {
    let mut host = Host::new();
    for _ in 0..3 {
        let generation = host.ask("migration", 1, JOIN).generation;
        host.ask("migration", 1, Op::Leave { breaks: true });
        host.ask("migration", 1, Op::Rearm { generation });
    }
    host.ask("migration", 1, JOIN);
    let name = Name::new("migration").unwrap();
    let found = host.run(|store| store.found_latch(&name, None)).unwrap().latch.unwrap();
    assert_eq!((found.broken.len(), found.joined, found.previous), (3, 1, found.broken[0]));
    assert_eq!(Standing::Broken { who: found.broken_by }, broken_by(1));
    let seen = host.run(|store| store.inspect_latch(&name)).unwrap().unwrap();
    assert_eq!((seen.joined, seen.participants.len(), seen.standing), (1, 1, Standing::Armed { missing: 2 }));
    assert_eq!(seen.participants[0].expires_in, Some(TTL));
}
