//! The decider, with hand-set time and a store that is a list.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{engine::Fault, owner::Owner};

const TTL: Duration = Duration::from_secs(10);
const WALL_US: u64 = 1_700_000_000_000_000;

/// One latch as a store has it.
struct Host {
    latch: Option<Latch>,
    parties: Vec<(u128, Party)>,
    now: Now,
    told: u32,
}

impl Host {
    fn new() -> Self {
        let now = Now { boot: BootInstant::from_nanos(1_000_000_000), wall_us: WALL_US };
        Self { latch: None, parties: Vec::new(), now, told: 0 }
    }

    fn pass(&mut self, time: Duration) {
        self.now.boot = self.now.boot + time;
        self.now.wall_us += time.as_micros() as u64;
    }

    fn found(&self, number: u128) -> Found {
        let me = self.parties.iter().find(|(known, _)| *known == number).map(|(_, party)| *party);
        let ends = self.parties.iter().filter_map(|(number, party)| Some((party.ends?, *number)));
        let first = ends.min().map(|(ends, number)| (ends, owner(number).holder()));
        Found { latch: self.latch.clone(), me, first }
    }

    fn ask(&mut self, number: u128, request: &Request) -> Result<Answer, EngineError> {
        let decided = decide(self.found(number), request, self.now)?;
        if decided.clears {
            self.parties.clear();
        }
        self.parties.retain(|(known, _)| *known != number);
        self.parties.extend(decided.me.map(|me| (number, me)));
        self.latch = decided.latch;
        self.told += u32::from(decided.tells);
        let joined = self.latch.as_ref().map_or(0, |latch| latch.joined);
        assert_eq!(joined as usize, self.parties.len());
        Ok(decided.answer)
    }

    fn of(&mut self, kind: Kind, count: u32, number: u128, op: Op) -> Answer {
        self.ask(number, &request(kind, count, number, op)).unwrap()
    }

    /// A latch of two.
    fn said(&mut self, number: u128, op: Op) -> Said {
        self.of(Kind::Latch, 2, number, op).said
    }

    fn generation(&self) -> u64 {
        self.latch.as_ref().map_or(0, |latch| latch.generation)
    }

    fn count(&mut self, number: u128) -> Said {
        let generation = self.generation();
        self.said(number, Op::CountDown { generation })
    }
}

fn owner(number: u128) -> Owner {
    let label = format!("participant {number}");
    Owner::new(number, &Holder::Leasehold { host: "host".into(), pid: 1, since_ms: 0, label })
}

fn request(kind: Kind, count: u32, number: u128, op: Op) -> Request {
    let (name, count) = (Name::new("migration").unwrap(), count.try_into().unwrap());
    Request { name, kind, count, owner: owner(number), op }
}

const JOIN: Op = Op::Join { ttl: TTL };

fn look(generation: u64) -> Op {
    Op::Look { generation: Some(generation), wake: true }
}

fn broken(number: u128) -> Said {
    Said::Stands(Standing::Broken { who: Some(owner(number).holder()) })
}

fn armed(missing: u32) -> Said {
    Said::Stands(Standing::Armed { missing })
}

const OPENED: Said = Said::Stands(Standing::Opened);
const FORGOTTEN: Said = Said::Stands(Standing::Broken { who: None });

#[test]
fn it_opens_at_the_last_count_and_not_before() {
    let mut host = Host::new();
    assert_eq!([host.said(1, JOIN), host.said(2, JOIN)], [Said::Joined, Said::Joined]);
    let generation = host.generation();
    assert_eq!(host.count(1), Said::Counted { index: 0, again: false, missing: 1 });
    assert_eq!(host.count(1), Said::Counted { index: 0, again: true, missing: 1 });
    assert_eq!((host.said(9, look(generation)), host.told), (armed(1), 0));
    assert_eq!(host.count(2), Said::Counted { index: 1, again: false, missing: 0 });
    assert_eq!((host.said(9, look(generation)), host.told), (OPENED, 1));
    // Sent again, and by one who comes late.
    assert_eq!([host.count(2), host.said(3, JOIN)], [OPENED, OPENED]);
}

#[test]
fn one_that_has_counted_down_needs_no_lease() {
    let mut host = Host::new();
    host.said(1, JOIN);
    host.count(1);
    host.pass(TTL * 3);
    assert_eq!(host.said(9, look(host.generation())), armed(1));
    host.said(2, JOIN);
    assert_eq!(host.count(2), Said::Counted { index: 1, again: false, missing: 0 });
}

#[test]
fn a_lease_that_ends_breaks_it_for_all() {
    let mut host = Host::new();
    host.said(1, JOIN);
    host.pass(TTL / 2);
    host.said(2, JOIN);
    host.pass(TTL / 2);
    let generation = host.generation();
    let looked = host.of(Kind::Latch, 2, 9, look(generation));
    assert_eq!((looked.said, looked.first_ends_in, host.told), (broken(1), None, 1));
    assert_eq!([host.count(2), host.count(1), host.said(3, JOIN)], [broken(1), broken(1), broken(1)]);
    assert!(renew(&host.found(2), host.now.boot + TTL, host.now.boot).is_none());
}

#[test]
fn a_renewal_brings_nothing_back_and_prolongs_only_what_lives() {
    let mut host = Host::new();
    host.said(1, JOIN);
    host.pass(TTL - Duration::from_nanos(1));
    let renewed = renew(&host.found(1), host.now.boot + TTL, host.now.boot).unwrap();
    assert_eq!(renewed.ends, Some(host.now.boot + TTL));
    host.pass(Duration::from_nanos(1));
    assert!(renew(&host.found(1), host.now.boot + TTL, host.now.boot).is_none());
}

#[test]
fn a_participant_may_leave_and_another_takes_its_place() {
    let mut host = Host::new();
    host.said(1, JOIN);
    host.said(2, JOIN);
    assert_eq!(host.said(3, JOIN), Said::Full);
    assert_eq!(host.said(2, Op::Leave { breaks: false }), Said::Left);
    assert_eq!([host.count(2), host.said(3, JOIN)], [Said::Stranger, Said::Joined]);
    // Once counted, it stays counted.
    host.count(1);
    assert_eq!(host.said(1, Op::Leave { breaks: true }), Said::Left);
    assert_eq!(host.count(3), Said::Counted { index: 1, again: false, missing: 0 });
    let mut host = Host::new();
    host.said(1, JOIN);
    assert_eq!(host.said(1, Op::Leave { breaks: true }), Said::Left);
    assert_eq!((host.said(9, look(host.generation())), host.told), (broken(1), 1));
}

#[test]
fn nothing_of_an_old_generation_counts_in_a_new_one() {
    let mut host = Host::new();
    host.said(1, JOIN);
    let first = host.generation();
    assert_eq!(host.said(9, Op::Rearm { generation: first }), armed(2));
    host.said(1, Op::Leave { breaks: true });
    assert_eq!(host.said(9, Op::Rearm { generation: first + 1 }), Said::OtherGeneration);
    assert_eq!(host.said(9, Op::Rearm { generation: first }), Said::Rearmed);
    let second = host.generation();
    assert!(second > first);
    assert_eq!((host.said(9, Op::Rearm { generation: first }), host.generation()), (Said::Rearmed, second));
    assert_eq!(host.said(1, Op::CountDown { generation: first }), broken(1));
    assert_eq!(host.said(1, Op::CountDown { generation: second }), Said::Stranger);
    assert_eq!([host.said(9, look(first)), host.said(9, look(second))], [broken(1), armed(2)]);
    for number in [1, 2] {
        host.said(number, JOIN);
        host.count(number);
    }
    assert_eq!(host.said(9, Op::Rearm { generation: second }), Said::Rearmed);
    assert_eq!([host.said(9, look(second)), host.said(2, Op::CountDown { generation: second })], [OPENED; 2]);
    assert_eq!(host.said(9, look(first)), broken(1));
}

#[test]
fn a_latch_that_was_forgotten_opens_for_nobody_who_waited_for_it() {
    let mut host = Host::new();
    host.said(1, JOIN);
    let old = host.generation();
    host.latch = None;
    host.parties.clear();
    assert_eq!([host.said(9, look(old)), host.said(1, Op::CountDown { generation: old })], [FORGOTTEN; 2]);
    assert_eq!(host.said(9, Op::Rearm { generation: old }), Said::OtherGeneration);
    assert_eq!((host.said(1, Op::Leave { breaks: true }), host.latch.is_none()), (Said::Left, true));
    host.pass(Duration::from_secs(1));
    for number in [2, 3] {
        host.said(number, JOIN);
        host.count(number);
    }
    assert_eq!([host.said(9, look(old)), host.said(1, Op::CountDown { generation: old })], [FORGOTTEN; 2]);
}

#[test]
fn another_count_and_another_kind_are_refused_and_change_nothing() {
    let mut host = Host::new();
    host.said(1, JOIN);
    let before = host.latch.clone();
    let number = |number: u32| NonZeroU32::new(number).unwrap();
    for op in [JOIN, look(host.generation()), Op::CountDown { generation: host.generation() }] {
        let fault = host.ask(2, &request(Kind::Latch, 3, 2, op)).unwrap_err().fault;
        assert_eq!(fault, Fault::OtherCount { stored: number(2), asked: number(3) });
        let error = host.ask(2, &request(Kind::Barrier, 2, 2, op)).unwrap_err();
        assert_eq!(
            (error.fault, &*error.why),
            (Fault::OtherMode, "it is in use as a latch, not as a barrier")
        );
    }
    assert_eq!(host.latch, before);
    // Once it is over, the next one may have another count.
    host.said(1, Op::Leave { breaks: true });
    let generation = host.generation();
    assert_eq!(host.of(Kind::Latch, 3, 9, Op::Rearm { generation }).said, Said::Rearmed);
    assert_eq!(host.of(Kind::Latch, 3, 9, look(host.generation())).said, armed(3));
}

#[test]
fn a_barrier_begins_its_next_generation_at_once() {
    let mut host = Host::new();
    let mut barrier = |number, op| host.of(Kind::Barrier, 2, number, op);
    let mut generation = barrier(1, JOIN).generation;
    barrier(2, JOIN);
    for _ in 0..5 {
        let arrive = Op::CountDown { generation };
        assert_eq!(barrier(1, arrive).said, Said::Counted { index: 0, again: false, missing: 1 });
        let last = barrier(2, arrive);
        assert_eq!(last.said, Said::Counted { index: 1, again: false, missing: 0 });
        assert!(last.generation > generation);
        // Sent again, and asked about late.
        let again = barrier(1, arrive);
        assert_eq!(again.said, Said::Counted { index: 0, again: true, missing: 0 });
        assert_eq!(barrier(9, look(generation)).said, OPENED);
        generation = again.generation;
        assert_eq!(barrier(9, look(generation)).said, armed(2));
    }
    assert_eq!(host.told, 5);
}

#[test]
fn a_party_that_dies_or_leaves_after_it_arrived_breaks_the_barrier() {
    for leaves in [true, false] {
        let mut host = Host::new();
        let generation = host.of(Kind::Barrier, 2, 1, JOIN).generation;
        host.of(Kind::Barrier, 2, 1, Op::CountDown { generation });
        if leaves {
            host.of(Kind::Barrier, 2, 1, Op::Leave { breaks: false });
        } else {
            host.pass(TTL);
        }
        assert_eq!(host.of(Kind::Barrier, 2, 2, JOIN).said, broken(1));
    }
}

#[test]
fn only_the_last_generations_that_broke_are_known_as_such() {
    let mut host = Host::new();
    let mut generations = Vec::new();
    for _ in 0..=BROKEN_MAX {
        host.said(1, JOIN);
        generations.push(host.generation());
        host.said(1, Op::Leave { breaks: true });
        assert_eq!(host.said(9, Op::Rearm { generation: host.generation() }), Said::Rearmed);
    }
    for (nth, generation) in generations.iter().enumerate() {
        let who = if nth == BROKEN_MAX { broken(1) } else { FORGOTTEN };
        assert_eq!(host.said(9, look(*generation)), who);
    }
    assert_eq!((host.latch.as_ref().unwrap().floor, generations.len()), (generations[0], BROKEN_MAX + 1));
}

/// What is asked next, of one of six participants.
fn steps() -> impl Strategy<Value = Vec<(u128, u8, bool)>> {
    prop::collection::vec((1..=6_u128, 0..12_u8, any::<bool>()), 1..3 * BROKEN_MAX)
}

proptest! {
    /// A generation opens only if as many as there are parties have counted down in it, each once; and what a generation has
    /// come to never changes.
    #[test]
    fn a_generation_opens_once_all_have_counted_and_stays_what_it_is(steps in steps(), is_barrier in any::<bool>()) {
        let kind = if is_barrier { Kind::Barrier } else { Kind::Latch };
        let mut host = Host::new();
        let mut counts = std::collections::BTreeMap::<u64, std::collections::BTreeSet<u128>>::new();
        let mut over = std::collections::BTreeMap::<u64, bool>::new();
        for (number, step, old) in steps {
            let present = host.generation();
            let generation = if old { counts.keys().next_back().copied().unwrap_or(present) } else { present };
            let op = match step {
                0..=2 => JOIN,
                3..=6 => Op::CountDown { generation },
                7 => Op::Leave { breaks: old },
                8 | 9 => Op::Look { generation: None, wake: false },
                10 => Op::Rearm { generation },
                _ => {
                    host.pass(TTL / 3);
                    continue;
                }
            };
            let answer = host.of(kind, 3, number, op);
            if let (Op::CountDown { generation }, Said::Counted { .. }) = (op, &answer.said) {
                counts.entry(generation).or_default().insert(number);
            }
            for (generation, counted) in &counts {
                let opened = match host.of(kind, 3, 99, look(*generation)).said {
                    Said::Stands(Standing::Armed { .. }) => continue,
                    said => said == OPENED,
                };
                prop_assert!(!opened || counted.len() == 3);
                prop_assert_eq!(*over.entry(*generation).or_insert(opened), opened);
            }
        }
    }
}
