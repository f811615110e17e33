//! Deadlines at hand-set times.

use super::*;
use crate::engine::deadlines::Placement;

fn at(ms: u64) -> Now {
    Now { boot: BootInstant::from_nanos(ms * 1_000_000), wall_us: ms * 1_000 }
}

fn pool() -> Pool {
    let layout = PoolLayout { buckets: 4, placement: Placement::Spread };
    Pool { name: Name::new("payments").unwrap(), layout }
}

fn due_at(id: &str, ms: u64) -> Deadline {
    Deadline { id: id.into(), due: DueTime::AtMs(ms), context: Some(Bytes::from(id.to_owned())) }
}

fn ids(claimed: &Batch) -> Vec<&str> {
    claimed.due.iter().map(|due| &*due.receipt.id).collect()
}

fn settle(state: &mut PoolState, settlements: &[(Receipt, Settle)], now: Now) -> Vec<bool> {
    settlements.iter().map(|(receipt, settle)| state.settle(receipt, settle, now)).collect()
}

const VISIBILITY: Duration = Duration::from_millis(100);

#[test]
fn what_is_due_is_claimed_oldest_first_and_hidden_for_its_visibility() {
    let (mut state, mut pool) = (PoolState::default(), pool());
    pool.layout.buckets = 1;
    state.set(&pool, &[due_at("late", 30), due_at("early", 10), due_at("next", 51)], at(0));
    assert_eq!(ids(&state.claim_due(&pool, 10, VISIBILITY, at(50))), ["early", "late"]);
    assert_eq!(ids(&state.claim_due(&pool, 10, VISIBILITY, at(149))), ["next"]);
    let again = state.claim_due(&pool, 10, VISIBILITY, at(150));
    assert_eq!(ids(&again), ["early", "late"]);
    assert!(again.due.iter().all(|due| due.attempt == 2 && due.overdue.is_zero()));
}

#[test]
fn a_step_of_the_wall_clock_shows_no_claimed_deadline_too_early() {
    let (mut state, pool) = (PoolState::default(), pool());
    let stepped = |ms| Now { wall_us: (ms + 3_600_000) * 1_000, ..at(ms) };
    state.set(&pool, &[due_at("a", 0)], at(0));
    let claimed = state.claim_due(&pool, 10, VISIBILITY, at(0)).due.remove(0);
    let nobodys = |state: &mut PoolState, ms| {
        assert!(state.claim_due(&pool, 10, VISIBILITY, stepped(ms)).due.is_empty());
        assert!(state.peek(&pool, 10, stepped(ms)).is_empty());
        let stats = PoolStats { pending: 1, tried: 1, ..PoolStats::default() };
        assert_eq!(state.stats(&pool, stepped(ms)), stats);
    };
    nobodys(&mut state, 99);
    assert_eq!(settle(&mut state, &[(claimed.receipt, Settle::Postpone(VISIBILITY))], at(99)), [true]);
    nobodys(&mut state, 198);
    assert_eq!(state.claim_due(&pool, 10, VISIBILITY, stepped(199)).due[0].attempt, 2);
}

#[test]
fn a_limit_counts_per_bucket_and_more_is_told() {
    let (mut state, pool) = (PoolState::default(), pool());
    let many: Vec<_> = (0..40).map(|n| due_at(&format!("tx:{n}"), n)).collect();
    state.set(&pool, &many, at(0));
    let first = state.claim_due(&pool, 3, VISIBILITY, at(50));
    assert_eq!((first.due.len(), first.more), (12, true));
    let rest = state.claim_due(&pool, 100, VISIBILITY, at(50));
    assert_eq!((rest.due.len(), rest.more), (28, false));
}

#[test]
fn an_old_receipt_is_good_for_nothing() {
    let (mut state, pool) = (PoolState::default(), pool());
    let claim =
        |state: &mut PoolState, ms| state.claim_due(&pool, 10, VISIBILITY, at(ms)).due.remove(0).receipt;
    state.set(&pool, &[due_at("a", 0)], at(0));
    let claimed_again_since = claim(&mut state, 0);
    let set_again_since = claim(&mut state, 100);
    state.set(&pool, &[due_at("a", 0)], at(150));
    for old in [claimed_again_since, set_again_since] {
        let every =
            [Settle::Done, Settle::Postpone(VISIBILITY), Settle::GiveBack, Settle::Bury("why".into())];
        let every = every.map(|settle| (old.clone(), settle));
        assert_eq!(settle(&mut state, &every, at(150)), [false; 4]);
    }
    let postponed = (claim(&mut state, 150), Settle::Postpone(VISIBILITY));
    assert_eq!(settle(&mut state, &[postponed.clone(), postponed], at(150)), [true, true], "sent again");
    assert_eq!(state.stats(&pool, at(150)), PoolStats { pending: 1, tried: 1, ..PoolStats::default() });
    let good = claim(&mut state, 250);
    let done = [(good.clone(), Settle::Done), (good, Settle::Done)];
    assert_eq!(settle(&mut state, &done, at(250)), [true, false]);
    assert_eq!(state.stats(&pool, at(999)), PoolStats::default());
}

#[test]
fn the_dead_keep_their_context_until_they_are_set_again_or_cancelled() {
    let (mut state, pool) = (PoolState::default(), pool());
    state.set(&pool, &[due_at("a", 0), due_at("b", 0), due_at("c", 0)], at(0));
    let claimed = state.claim_due(&pool, 10, VISIBILITY, at(7));
    let dead: Vec<_> =
        claimed.due.iter().map(|due| (due.receipt.clone(), Settle::Bury("gave up".into()))).collect();
    assert_eq!(settle(&mut state, &dead, at(8)), [true; 3]);
    let first = state.dead(None, 2);
    let last = state.dead(first.next.as_ref(), 2);
    assert_eq!((first.items.len(), last.items.len(), last.next), (2, 1, None));
    let c = &last.items[0];
    assert_eq!((&*c.id, c.attempts, c.buried_at_ms, &*c.why), ("c", 1, 8, "gave up"));
    assert_eq!(c.context.as_deref(), Some(b"c".as_slice()));
    state.set(&pool, &[due_at("a", 500)], at(9));
    assert_eq!(["b", "a", "x"].map(|id| state.cancel(&id.into())), [true, true, false]);
    assert_eq!(state.stats(&pool, at(999)), PoolStats { dead: 1, ..PoolStats::default() });
}

#[test]
fn peeking_claims_nothing_and_orders_over_all_buckets() {
    let (mut state, pool) = (PoolState::default(), pool());
    let many: Vec<_> = (0..20).map(|n| due_at(&format!("tx:{n}"), 100 - n)).collect();
    state.set(&pool, &many, at(0));
    let seen = state.peek(&pool, 3, at(90));
    let seen: Vec<_> = seen.iter().map(|pending| (&*pending.id, pending.overdue.as_millis())).collect();
    assert_eq!(seen, [("tx:19", 9), ("tx:18", 8), ("tx:17", 7)]);
    assert_eq!(state.stats(&pool, at(90)).due, 10);
    assert_eq!(state.stats(&pool, at(90)).overdue, Duration::from_millis(9));
}

#[test]
fn the_first_layout_of_a_pool_stays() {
    let (mut state, mut pool) = (PoolState::default(), pool());
    let first = state.layout(&pool);
    pool.layout = PoolLayout { buckets: 8, placement: Placement::Together };
    assert_eq!((first.buckets, state.layout(&pool)), (4, first));
}
