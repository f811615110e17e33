//! Readers, writers and permits in one queue.

use super::*;

const R: Mode = Mode::Shared;
const W: Mode = Mode::Exclusive;

fn permits(take: u32, of: u32) -> Mode {
    Mode::Permits { take: NonZeroU32::new(take).unwrap(), of: NonZeroU32::new(of).unwrap() }
}

/// A lock of a store that hands over, and who was handed something.
struct Store {
    lock: Lock<u128>,
    now: Now,
}

impl Store {
    fn new() -> Self {
        Self { lock: Lock::new(Handover::Push, Fence::new(0)), now: start() }
    }

    fn claim(&mut self, who: u128, mode: Mode) -> Result<bool, Fault> {
        let claim = Claim { mode, ..attempt(who, true) };
        self.lock.hand_over(Some(claim.owner.id()), self.now).unwrap();
        let answer = self.lock.claim(&claim, self.now.boot, who, self.now).map_err(|error| error.fault)?;
        Ok(is_granted(&answer))
    }

    fn hand_over(&mut self) -> Vec<u128> {
        self.lock.hand_over(None, self.now).unwrap().into_iter().map(|(waiter, _)| waiter.wake).collect()
    }

    fn end(&mut self, who: u128) -> Vec<u128> {
        self.lock.end(attempt(who, true).owner.id(), self.now.boot);
        self.hand_over()
    }

    fn convert(&mut self, who: u128, from: Mode, to: Mode) -> Converted {
        let hold = Hold { mode: from, ..attempt(who, true).hold(Fence::new(0)) };
        self.lock.convert(&hold, to, self.now.boot, self.now).unwrap()
    }

    fn set_limit(&mut self, limit: u32) -> Vec<u128> {
        self.lock.set_limit(NonZeroU32::new(limit).unwrap(), self.now).unwrap();
        self.hand_over()
    }
}

#[test]
fn readers_share_and_a_release_admits_the_whole_run_behind_a_writer() {
    let mut store = Store::new();
    assert!(store.claim(0, R).unwrap() && store.claim(2, R).unwrap());
    assert!(!store.claim(4, W).unwrap());
    for who in [6, 8, 10] {
        assert!(!store.claim(who, R).unwrap(), "a reader behind a waiting writer waits");
    }
    assert!(!store.claim(12, W).unwrap() && !store.claim(14, R).unwrap());
    assert_eq!(store.end(0), [0; 0], "another reader is left");
    assert_eq!(store.end(2), [4]);
    assert_eq!(store.end(4), [6, 8, 10], "the readers up to the next writer");
    let fences: Vec<_> = store.lock.holders(store.now.boot).map(|lease| lease.fence).collect();
    assert!(fences.is_sorted() && fences.len() == 3, "{fences:?}");
    assert_eq!([6, 8].map(|who| store.end(who).len()), [0, 0]);
    assert_eq!(store.end(10), [12]);
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let mut store = Store::new();
    assert!(store.claim(0, R).unwrap());
    assert!(!store.claim(2, W).unwrap() && !store.claim(4, R).unwrap());
    assert_eq!(store.end(2), [4]);
}

#[test]
fn a_small_request_does_not_overtake_a_large_one() {
    let mut store = Store::new();
    assert!(store.claim(0, permits(1, 5)).unwrap());
    assert!(!store.claim(2, permits(5, 5)).unwrap(), "4 are free");
    assert!(!store.claim(4, permits(1, 5)).unwrap());
    assert_eq!(store.end(0), [2]);
    assert_eq!(store.end(2), [4]);
}

#[test]
fn a_raised_limit_admits_as_many_as_fit() {
    let mut store = Store::new();
    for who in 0..12 {
        assert_eq!(store.claim(who, permits(1, 3)).unwrap(), who < 3);
    }
    assert_eq!(store.set_limit(10), [3, 4, 5, 6, 7, 8, 9]);
    assert!(!store.claim(12, permits(1, 3)).unwrap(), "what its first user named still works");
    assert!(!store.claim(14, permits(1, 10)).unwrap());
    let [stored, asked] = [10, 4].map(|number| NonZeroU32::new(number).unwrap());
    assert_eq!(store.claim(16, permits(1, 4)), Err(Fault::OtherLimit { stored, asked }));
}

#[test]
fn a_lowered_limit_takes_nothing_away() {
    let mut store = Store::new();
    for who in 0..10 {
        assert!(store.claim(who, permits(1, 10)).unwrap());
    }
    assert!(!store.claim(10, permits(1, 10)).unwrap());
    assert_eq!(store.set_limit(3), [0; 0]);
    for who in 0..7 {
        assert_eq!(store.end(who), [0; 0], "{} are held", 9 - who);
    }
    assert_eq!(store.end(7), [10]);
    let [limit, asked] = [3, 4].map(|number| NonZeroU32::new(number).unwrap());
    assert_eq!(store.claim(20, permits(4, 10)), Err(Fault::AboveLimit { limit, asked }));
}

#[test]
fn a_name_is_a_read_write_lock_or_a_semaphore() {
    let mut store = Store::new();
    assert!(store.claim(0, R).unwrap());
    assert_eq!(store.claim(2, permits(1, 3)), Err(Fault::OtherMode));
    store.end(0);
    assert!(store.claim(2, permits(1, 3)).unwrap(), "once nobody uses it");
    assert_eq!(store.claim(4, W), Err(Fault::OtherMode));
}

#[test]
fn after_a_downgrade_readers_come_in_and_writers_stay_out() {
    let mut store = Store::new();
    assert!(store.claim(0, W).unwrap());
    let fence = store.lock.last;
    assert!(!store.claim(2, R).unwrap() && !store.claim(4, W).unwrap() && !store.claim(6, R).unwrap());
    assert_eq!(store.convert(0, W, R), Converted::Done { fence, since: store.now.boot });
    assert_eq!(store.hand_over(), [2]);
    assert_eq!(store.end(2), [0; 0], "the one that was the writer still reads");
    assert_eq!(store.end(0), [4]);
}

#[test]
fn only_the_only_reader_is_upgraded_and_its_fence_is_above_all_before() {
    let mut store = Store::new();
    assert!(store.claim(0, R).unwrap() && store.claim(2, R).unwrap());
    assert!(!store.claim(4, W).unwrap());
    assert_eq!(store.convert(0, R, W), Converted::Busy);
    store.end(2);
    let last = store.lock.last;
    assert!(matches!(store.convert(0, R, W), Converted::Done { fence, .. } if fence > last));
    assert_eq!(store.hand_over(), [0; 0]);
    assert_eq!(store.convert(2, R, W), Converted::Gone);
}

#[test]
fn a_store_whose_waiters_claim_for_themselves_wakes_the_whole_run() {
    let mut lock = Lock::new(Handover::Pull, Fence::new(0));
    let mut now = start();
    let claim = |lock: &mut Lock<u128>, who, mode, now: Now| {
        let claim = Claim { mode, ..attempt(who, true) };
        is_granted(&lock.claim(&claim, now.boot, who, now).unwrap())
    };
    assert!(claim(&mut lock, 0, W, now));
    for (who, mode) in [(2, R), (4, R), (6, W)] {
        assert!(!claim(&mut lock, who, mode, now));
    }
    lock.end(attempt(0, true).owner.id(), now.boot);
    assert_eq!(lock.in_turn(now.boot).map(|waiter| waiter.wake).collect::<Vec<_>>(), [2, 4]);
    let released = lock.released(true, W, &[], now.boot);
    assert_eq!(released, Released::HandedOver { to: 2, next: None });
    assert!(claim(&mut lock, 4, R, now), "the second reader need not wait for the first");
    assert!(!claim(&mut lock, 6, W, now));
    assert!(claim(&mut lock, 2, R, now));
    now = later(now, TURN);
    assert!(!claim(&mut lock, 6, W, now), "no turn helps while others hold it");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Claim { who: u128 },
    End(u128),
    Pass(u64),
    Limit(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..6_u128;
    prop_oneof![
        6 => who.clone().prop_map(|who| Step::Claim { who }),
        3 => who.prop_map(Step::End),
        2 => (1..5000_u64).prop_map(Step::Pass),
        1 => (1..6_u32).prop_map(Step::Limit),
    ]
}

fn check(store: &Store, before: Fence) {
    let at = store.now.boot;
    let modes: Vec<_> = store.lock.holders(at).map(|lease| lease.mode).collect();
    assert!(!modes.contains(&W) || modes.len() == 1, "a writer and {modes:?}");
    assert!(store.lock.last >= before);
    let fences: Vec<_> = store.lock.held.iter().map(|lease| lease.fence).collect();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    assert_eq!(store.lock.in_turn(at).count(), 0, "what fits was handed over");
}

proptest! {
    #[test]
    fn no_history_lets_in_who_does_not_fit_or_overtakes(
        steps in prop::collection::vec(step(), 1..100),
        is_semaphore: bool,
    ) {
        let mut store = Store::new();
        for step in steps {
            let before = store.lock.last;
            match step {
                Step::Claim { who } => {
                    // An attempt asks for the same each time.
                    let kind = (who % 3) as usize;
                    let limit = store.lock.limit.map_or(4, |limit| limit.first.get());
                    let mode = match is_semaphore {
                        true => permits([1, 2, 4][kind].min(limit), limit),
                        false => [R, R, W][kind],
                    };
                    let (at, owner) = (store.now.boot, attempt(who, true).owner);
                    let was_held = store.lock.holders(at).any(|lease| lease.owner == owner);
                    let before = store.lock.queue.iter().take_while(|waiter| waiter.owner != owner);
                    let before: Vec<_> =
                        before.filter(|waiter| waiter.live_until > at).map(|waiter| waiter.wake).collect();
                    if let Ok(true) = store.claim(who, mode)
                        && !was_held
                    {
                        let permits = |lease: &Lease| match lease.mode {
                            Mode::Permits { take, .. } => take.get(),
                            _ => 0,
                        };
                        let taken: u32 = store.lock.holders(at).map(permits).sum();
                        prop_assert!(taken <= store.lock.limit.map_or(0, |limit| limit.now.get()));
                        let overtaken = |waiter: &&Waiter<u128>| before.contains(&waiter.wake);
                        prop_assert_eq!(store.lock.queue.iter().find(overtaken).map(|waiter| waiter.wake), None);
                    }
                }
                Step::End(who) => drop(store.end(who)),
                Step::Pass(ms) => {
                    store.now = later(store.now, Duration::from_millis(ms));
                    store.hand_over();
                }
                Step::Limit(limit) if is_semaphore => drop(store.set_limit(limit)),
                Step::Limit(_) => {}
            }
            check(&store, before);
        }
    }
}

#[test]
fn nobody_is_overtaken_when_a_limit_is_raised_and_waiters_claim_for_themselves() {
    let (mut lock, mut now) = (Lock::new(Handover::Pull, Fence::new(0)), start());
    let claim = |lock: &mut Lock<u128>, who: u128, now: Now| {
        let claim = Claim { mode: permits(1, 1), ..attempt(who, true) };
        is_granted(&lock.claim(&claim, now.boot, who, now).unwrap())
    };
    assert!(claim(&mut lock, 0, now));
    now = later(now, TURN * 2);
    assert!((1..=3).all(|who| !claim(&mut lock, who, now)));
    lock.set_limit(NonZeroU32::new(3).unwrap(), now).unwrap();
    assert!(!claim(&mut lock, 3, now), "two are before it, and there is room for two");
    assert!(claim(&mut lock, 2, now) && claim(&mut lock, 1, now));
    assert!(!claim(&mut lock, 3, now));
}
