//! Random histories of one name, compared with a model that spells the rules out.

mod handing;
mod modes;

use proptest::prelude::*;

use super::*;
use crate::{
    engine::{Acks, Queue},
    owner::Holder,
};

const TTL: Duration = Duration::from_secs(10);
const DELAY: Duration = Duration::from_secs(3);
const WAIT: Duration = Duration::from_secs(20);
/// A turn of 2 s, live for 3 s.
const POLL: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_secs(2);
const LIVE: Duration = Duration::from_secs(3);

/// Odd attempts have a lock-delay.
fn attempt(who: u128, waits: bool) -> Claim {
    Claim {
        name: Name::new("x").unwrap(),
        owner: Owner::new(who, &Holder::this_process("", 0)),
        mode: Mode::Exclusive,
        ttl: TTL,
        format: crate::engine::Format::Plain,
        lock_delay: if who % 2 == 1 { DELAY } else { Duration::ZERO },
        queue: waits.then_some(Queue { wait: WAIT, poll_every: POLL }),
        acks: Acks::None,
    }
}

fn start() -> Now {
    Now { boot: BootInstant::from_nanos(1_000_000_000), wall_us: 1_700_000_000_000_000 }
}

fn later(now: Now, by: Duration) -> Now {
    Now { boot: now.boot + by, wall_us: now.wall_us + by.as_micros() as u64 }
}

fn is_granted(answer: &Answer) -> bool {
    matches!(answer, Answer::Granted(_))
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Claim { who: u128, waits: bool },
    Renew(u128),
    End(u128),
    Force { is_current: bool },
    Pass(Duration),
    SetWallClockBack(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0..5_u128;
    prop_oneof![
        5 => (who.clone(), prop::bool::weighted(0.8)).prop_map(|(who, waits)| Op::Claim { who, waits }),
        1 => who.clone().prop_map(Op::Renew),
        2 => who.prop_map(Op::End),
        1 => any::<bool>().prop_map(|is_current| Op::Force { is_current }),
        3 => (1..4000_u64).prop_map(|ms| Op::Pass(Duration::from_millis(ms))),
        1 => (1..10_000_000_u64).prop_map(Op::SetWallClockBack),
    ]
}

/// Who holds the lock, until when and under which fence.
type Held = (u128, BootInstant, Fence);

struct Waiting {
    who: u128,
    gives_up: BootInstant,
    live_until: BootInstant,
    /// Nobody behind it got the lock since it last claimed.
    has_turn: bool,
}

struct Model {
    handover: Handover,
    held: Option<Held>,
    free_since: BootInstant,
    waiting: Vec<Waiting>,
    last: Fence,
}

impl Model {
    fn new(handover: Handover) -> Self {
        let free_since = BootInstant::from_nanos(0);
        Self { handover, held: None, free_since, waiting: Vec::new(), last: Fence::new(0) }
    }

    fn expire(&mut self, now: Now) {
        if let Some((_, until, _)) = self.held.take_if(|(_, until, _)| *until <= now.boot) {
            self.free_since = until;
        }
    }

    fn live_before(&self, who: u128, now: Now) -> Vec<&Waiting> {
        let before = self.waiting.iter().take_while(|other| other.who != who);
        before.filter(|other| other.live_until > now.boot).collect()
    }

    fn may_take(&self, who: u128, now: Now) -> bool {
        let before = self.live_before(who, now);
        let turns = before.iter().filter(|other| other.has_turn).count() as u32 * TURN;
        self.held.is_none()
            && match self.handover {
                Handover::Push => before.is_empty(),
                Handover::Pull => self.free_since + turns <= now.boot,
            }
    }

    fn take(&mut self, who: u128, fence: Fence, now: Now) {
        assert!(self.held.is_none(), "two holders");
        assert!(fence > self.last && fence.get() >= now.wall_us, "{fence:?} after {:?}", self.last);
        self.last = fence;
        for passed_over in self.waiting.iter_mut().take_while(|other| other.who != who) {
            passed_over.has_turn = false;
        }
        self.waiting.retain(|other| other.who != who);
        self.refresh(who, now);
    }

    fn refresh(&mut self, who: u128, now: Now) {
        let claim = attempt(who, true);
        self.held = Some((who, now.boot + claim.ttl + claim.lock_delay, self.last));
    }

    fn wait(&mut self, who: u128, now: Now) {
        if !self.waiting.iter().any(|other| other.who == who) {
            let gives_up = now.boot + WAIT;
            self.waiting.push(Waiting { who, gives_up, live_until: gives_up, has_turn: true });
        }
        let waiting = self.waiting.iter_mut().find(|other| other.who == who).unwrap();
        waiting.live_until = waiting.gives_up.min(now.boot + LIVE);
        waiting.has_turn = true;
    }

    fn next(&self, now: Now) -> Option<u128> {
        let first = self.waiting.iter().find(|waiting| waiting.live_until > now.boot);
        first.filter(|_| self.held.is_none()).map(|first| first.who)
    }
}

/// A lock as stores use it, and its model.
struct Pair {
    lock: Lock<u128>,
    model: Model,
    now: Now,
}

impl Pair {
    fn new(handover: Handover) -> Self {
        Self { lock: Lock::new(handover, Fence::new(0)), model: Model::new(handover), now: start() }
    }

    /// What a store that hands over does with a lock that it finds free.
    fn hand_over(&mut self, asks: Option<u128>) -> Option<u128> {
        let next = self.model.next(self.now).filter(|next| Some(*next) != asks);
        if self.model.handover == Handover::Pull || next.is_none() {
            return None;
        }
        let asks = asks.map(|who| attempt(who, true).owner.id());
        let given = self.lock.hand_over(asks, self.now).unwrap().into_iter().map(|(waiter, _)| waiter.wake);
        let given: Vec<_> = given.collect();
        assert_eq!(given, Vec::from_iter(next), "the first live waiter gets it");
        self.model.take(given[0], self.lock.last, self.now);
        next
    }

    fn claim(&mut self, who: u128, waits: bool) {
        self.hand_over(Some(who));
        let ahead = self.model.live_before(who, self.now).len() as u32;
        let is_mine = self.model.held.is_some_and(|(holder, ..)| holder == who);
        match self.lock.claim(&attempt(who, waits), self.now.boot, who, self.now).unwrap() {
            Answer::Granted(grant) if is_mine => {
                assert_eq!(grant.fence, self.model.last, "a repeated claim is the same grant");
                self.model.refresh(who, self.now);
            }
            Answer::Granted(grant) => {
                assert!(self.model.may_take(who, self.now), "{who} overtook");
                self.model.take(who, grant.fence, self.now);
            }
            Answer::Queued { ahead: told, last, holders, .. } => {
                assert!(waits && !is_mine && !self.model.may_take(who, self.now));
                assert_eq!((told, last), (ahead, self.model.last));
                assert_eq!(holders.total == 1, self.model.held.is_some());
                self.model.wait(who, self.now);
            }
            Answer::Busy { holders } => {
                assert!(!waits && !is_mine && !self.model.may_take(who, self.now));
                assert!(holders.free_in.is_some_and(|free_in| !free_in.is_zero()));
            }
            Answer::Spent => panic!("spent"),
        }
    }

    fn end(&mut self, was_ours: bool, is_ours: bool) {
        assert_eq!(was_ours, is_ours, "only the holder ends its lease");
        if is_ours {
            self.model.held = None;
            self.model.free_since = self.now.boot;
        }
        let next = self.hand_over(None);
        let waits = self.model.next(self.now).is_some();
        let expected = match (is_ours, self.model.held) {
            (true, None) if !waits => Released::Free,
            (true, None) => Released::handed_over(None),
            (true, Some((.., fence))) => Released::handed_over(next.map(|_| fence)),
            (false, Some((.., by))) => Released::Taken { by: Some(by) },
            (false, None) => Released::Expired,
        };
        let handed = Vec::from_iter(next.map(|_| self.lock.last));
        assert_eq!(self.lock.released(was_ours, Mode::Exclusive, &handed, self.now.boot), expected);
    }

    fn step(&mut self, op: Op) {
        self.model.expire(self.now);
        let at = self.now.boot;
        match op {
            Op::Claim { who, waits } => self.claim(who, waits),
            Op::Renew(who) => {
                let is_held = self.model.held.is_some_and(|(holder, ..)| holder == who);
                assert_eq!(self.lock.renew(&attempt(who, true).hold(Fence::new(0)), at), is_held);
                if is_held {
                    self.model.refresh(who, self.now);
                }
            }
            Op::End(who) => {
                let is_ours = self.model.held.is_some_and(|(holder, ..)| holder == who);
                self.model.waiting.retain(|other| other.who != who);
                let was_ours = self.lock.end(attempt(who, true).owner.id(), at);
                self.end(was_ours, is_ours);
            }
            Op::Force { is_current } => {
                let seen =
                    Fence::new(self.model.last.get() - u64::from(!is_current).min(self.model.last.get()));
                let is_ours = self.model.held.is_some_and(|(.., fence)| fence == seen);
                let was_ours = self.lock.force(seen, at);
                self.end(was_ours, is_ours);
            }
            Op::Pass(by) => self.now = later(self.now, by),
            Op::SetWallClockBack(by) => self.now.wall_us -= by,
        }
        self.compare();
    }

    fn compare(&mut self) {
        self.model.expire(self.now);
        let at = self.now.boot;
        let shown = self.lock.inspect(&attempt(0, true).name, at);
        let live = self.model.waiting.iter().filter(|waiting| waiting.live_until > at).count();
        assert_eq!(shown.held().map(|held| held.fence), self.model.held.map(|(.., fence)| fence));
        assert_eq!((shown.waiters.len(), shown.waiting as usize), (live, live));
        assert_eq!(shown.is_in_use(), self.lock.is_in_use(at));
        let in_turn: Vec<_> = self.lock.in_turn(at).map(|waiter| waiter.wake).collect();
        let expected: Vec<_> = (self.model.waiting.iter())
            .filter(|waiting| waiting.live_until > at && self.model.may_take(waiting.who, self.now))
            .map(|waiting| waiting.who)
            .collect();
        assert_eq!(in_turn, expected);
    }
}

proptest! {
    #[test]
    fn every_history_is_one_of_the_model(ops in prop::collection::vec(op(), 1..120), pushes: bool) {
        let mut pair = Pair::new(if pushes { Handover::Push } else { Handover::Pull });
        for op in ops {
            pair.step(op);
        }
    }

    #[test]
    fn everybody_who_keeps_polling_gets_the_lock_in_order(
        count in 1..6_u128,
        stopped in prop::collection::vec(any::<bool>(), 6),
        pushes: bool,
    ) {
        let mut pair = Pair::new(if pushes { Handover::Push } else { Handover::Pull });
        for who in 0..=count {
            pair.step(Op::Claim { who, waits: true });
        }
        let polling: Vec<_> = (1..=count).filter(|who| !stopped[*who as usize]).collect();
        pair.step(Op::End(0));
        let mut order = Vec::new();
        for _ in 0..40 {
            for who in polling.iter().filter(|who| !order.contains(*who)).copied().collect::<Vec<_>>() {
                pair.step(Op::Claim { who, waits: true });
                if pair.model.held.is_some_and(|(holder, ..)| holder == who) {
                    order.push(who);
                    pair.step(Op::End(who));
                }
            }
            pair.step(Op::Pass(POLL));
        }
        prop_assert_eq!(order, polling);
    }

    #[test]
    fn a_fence_is_above_the_last_one_and_not_below_the_clock(last in 0..FENCE_LIMIT, wall in 0..FENCE_LIMIT) {
        match next_fence(Fence::new(last), wall) {
            Ok(fence) => prop_assert!(fence.get() > last && fence.get() >= wall),
            Err(_) => prop_assert!(last + 1 == FENCE_LIMIT),
        }
    }
}

#[test]
fn a_silent_waiter_is_passed_over_and_comes_back_to_its_place() {
    for handover in [Handover::Push, Handover::Pull] {
        let mut pair = Pair::new(handover);
        for who in [0, 2, 4] {
            pair.step(Op::Claim { who, waits: true });
        }
        pair.step(Op::Pass(LIVE));
        pair.step(Op::Claim { who: 4, waits: true });
        pair.step(Op::End(0));
        pair.step(Op::Claim { who: 4, waits: true });
        assert_eq!(pair.model.held.map(|(holder, ..)| holder), Some(4), "{handover:?}");
        pair.step(Op::Claim { who: 1, waits: true });
        pair.step(Op::Claim { who: 2, waits: true });
        assert_eq!(pair.lock.position(attempt(2, true).owner.id()), Some(0), "{handover:?}");
    }
}

#[test]
fn the_number_of_waiters_is_bounded() {
    let mut lock = Lock::new(Handover::Push, Fence::new(0));
    let mut claim = |who| lock.claim(&attempt(who, true), start().boot, (), start());
    assert!(is_granted(&claim(0).unwrap()));
    claim(1).unwrap();
    for who in 2..=u128::from(WAITERS_MAX) {
        let waiter = Waiter { owner: attempt(who, true).owner, ..lock.queue[0].clone() };
        lock.queue.push_back(waiter);
    }
    let mut claim = |who| lock.claim(&attempt(who, true), start().boot, (), start());
    let refused = claim(u128::from(WAITERS_MAX) + 1).unwrap_err();
    assert_eq!(refused.fault, Fault::Overloaded);
    assert!(matches!(claim(1).unwrap(), Answer::Queued { ahead: 0, .. }), "those who wait already may poll");
}
