//! A holder that names the next one, and claims that are only weighed.

use proptest::prelude::*;

use super::*;

fn labelled(who: u128, label: &str, mode: Mode) -> Claim {
    let owner = Owner::new(who, &Holder::this_process(label, 0));
    Claim { owner, mode, ..attempt(who, true) }
}

/// One that holds the lock in that mode, and `a`, `b` and `c` that wait to write.
fn held(handover: Handover, mode: Mode) -> (Lock<u128>, Hold) {
    let (mut lock, now) = (Lock::new(handover, Fence::default()), start());
    let mine = labelled(0, "holder", mode);
    let Ok(Answer::Granted(grant)) = lock.claim(&mine, now.boot, 0, now) else { panic!("it is free") };
    for (who, label) in [(1, "a"), (2, "b"), (3, "c")] {
        let waits = labelled(who, label, Mode::Exclusive);
        assert!(matches!(lock.claim(&waits, now.boot, who, now), Ok(Answer::Queued { .. })));
    }
    (lock, mine.hold(grant.fence))
}

fn seen(label: &str) -> Holder {
    Holder::this_process(label, 0)
}

#[test]
fn the_one_that_is_named_holds_the_lock_and_the_others_keep_their_places() {
    for handover in [Handover::Push, Handover::Pull] {
        let ((mut lock, hold), now) = (held(handover, Mode::Exclusive), later(start(), POLL));
        let (handed, waiter) = lock.hand_to(&hold, &seen("b"), now).unwrap();
        let HandedTo::Done { fence } = handed else { panic!("it waits") };
        assert!(fence > hold.fence && fence == lock.last);
        assert_eq!(waiter.expect("it left the queue").wake, 2);
        let holders: Vec<_> = lock.holders(now.boot).map(|lease| lease.owner.holder()).collect();
        assert_eq!(holders, [seen("b")], "nobody else, and not nobody");
        let waiting: Vec<_> = lock.queue.iter().map(|waiter| waiter.wake).collect();
        assert_eq!(waiting, [1, 3]);
        assert!(!lock.renew(&hold, now.boot), "its lease is over");
        let again = lock.claim(&labelled(2, "b", Mode::Exclusive), now.boot, 2, now).unwrap();
        assert!(matches!(again, Answer::Granted(grant) if grant.fence == fence), "it is its own");
    }
}

#[test]
fn one_who_does_not_wait_changes_nothing() {
    let (mut lock, hold) = held(Handover::Push, Mode::Exclusive);
    let now = later(start(), POLL);
    let (handed, waiter) = lock.hand_to(&hold, &seen("nobody"), now).unwrap();
    assert!(handed == HandedTo::NotWaiting && waiter.is_none());
    assert!(lock.renew(&hold, now.boot) && lock.queue.len() == 3);
    let silent = later(now, LIVE);
    assert_eq!(lock.hand_to(&hold, &seen("b"), silent).unwrap().0, HandedTo::NotWaiting, "it is not live");
}

#[test]
fn only_the_holder_of_an_exclusive_lock_names_the_next_one() {
    let (mut lock, hold) = held(Handover::Push, Mode::Exclusive);
    let now = later(start(), POLL);
    let stranger = attempt(9, false).hold(hold.fence);
    assert_eq!(lock.hand_to(&stranger, &seen("b"), now).unwrap().0, HandedTo::Gone);
    let expired = later(now, TTL + DELAY);
    assert_eq!(lock.hand_to(&hold, &seen("b"), expired).unwrap().0, HandedTo::Gone);
    let (mut shared, reader) = held(Handover::Push, Mode::Shared);
    let refused = shared.hand_to(&reader, &seen("b"), now).unwrap_err();
    assert_eq!(refused.fault, Fault::Unsupported, "other readers may be there");
}

#[test]
fn a_lease_that_is_handed_on_lasts_as_long_as_its_own_ttl_or_that_of_the_one_before() {
    let (mut lock, hold) = held(Handover::Push, Mode::Exclusive);
    let now = later(start(), POLL);
    // A store that hands nothing over by itself does not keep it.
    lock.queue[1].lasts = Duration::ZERO;
    lock.queue[2].lasts = TTL * 2;
    for (label, lasts) in [("b", hold.ttl + hold.lock_delay), ("c", TTL * 2)] {
        let mut lock = lock.clone();
        lock.hand_to(&hold, &seen(label), now).unwrap();
        assert_eq!(lock.holders(now.boot).next().unwrap().closed_until, now.boot + lasts);
    }
}

fn mode() -> impl Strategy<Value = Mode> {
    let permits =
        |take: u32| Mode::Permits { take: NonZeroU32::new(take).unwrap(), of: NonZeroU32::new(3).unwrap() };
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared), (1..=3_u32).prop_map(permits)]
}

proptest! {
    #[test]
    fn a_claim_is_refused_exactly_when_it_was_said_to_be(
        steps in prop::collection::vec((0..5_u128, mode(), any::<bool>(), 0..1500_u64), 1..40),
        pushes in any::<bool>(),
    ) {
        let mut lock = Lock::new(if pushes { Handover::Push } else { Handover::Pull }, Fence::default());
        let mut now = start();
        for (who, mode, ends, pass_ms) in steps {
            now = later(now, Duration::from_millis(pass_ms));
            if ends {
                lock.end(Owner::new(who, &Holder::Foreign).id(), now.boot);
                continue;
            }
            let asks = Claim { mode, queue: None, ..attempt(who, false) };
            let weighed = lock.refuses(&asks, now).map(|holders| holders.is_none());
            let asked = lock.clone().claim(&asks, now.boot, who, now).map(|answer| is_granted(&answer));
            prop_assert_eq!(weighed.map_err(|error| error.fault), asked.map_err(|error| error.fault));
            let _entered = lock.claim(&Claim { mode, ..attempt(who, true) }, now.boot, who, now);
        }
    }
}
