//! What only one library does, and what its users have to know.

use std::time::{Duration, Instant};

use leasehold::{Error, engine::Released};

use crate::{
    cases::{Case, Seen, ms},
    pair::{LONG, PATIENCE, Pair, SHORT, WAIT, same},
};

/// It waits for an element of a list that only its own release pushes.
pub(crate) static PYTHON_REDIS_LOCK: &[Case] = &[
    Case { title: "our release does not wake its waiter", run: asleep_beside_a_free_lock },
    Case { title: "an element of its list wakes it", run: woken_by_hand },
    Case { title: "its reset and reset_all delete ours", run: reset },
];

const THEIR_TYPE: Case = Case { title: "their key is an error for a plain lock", run: their_type };
const OUR_TYPE: Case = Case { title: "a plain lock is an error for them", run: our_type };
const CLOSED: Case = Case { title: "a lock that we keep closed is busy for them", run: closed };
const RE_ENTERED: Case = Case { title: "what they entered twice they release twice", run: re_entered };

/// A plain lock beside it: nobody is granted anything, and both sides say why.
pub(crate) static REDISSON: &[Case] = &[THEIR_TYPE, OUR_TYPE, CLOSED, RE_ENTERED];
pub(crate) static REDISSON_FENCED: &[Case] = &[
    THEIR_TYPE,
    OUR_TYPE,
    CLOSED,
    Case { title: "their tokens and our fences are one sequence", run: tokens },
];

fn tokens(pair: &mut Pair<'_>) -> Seen {
    for _ in 0..3 {
        let guard = pair.acquire(LONG)?;
        let ours = guard.fence().get();
        same("our release", guard.release()?, Released::Free)?;
        pair.must("take", &[LONG], "granted")?;
        pair.must("token", &[], &format!("token {}", ours + 1))?;
        pair.must("release", &[], "done")?;
    }
    Ok(String::new())
}

fn closed(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.lock(LONG).hold_at_least(SHORT).wait(PATIENCE).acquire()?;
    let released = guard.release()?;
    same("whether it stays closed", matches!(released, Released::Closed { .. }), true)?;
    pair.must("take", &[LONG], "busy")?;
    pair.must("wait", &[LONG, WAIT], "granted")?;
    pair.must("release", &[], "done")?;
    Ok(String::new())
}

fn re_entered(pair: &mut Pair<'_>) -> Seen {
    pair.must("take", &[LONG], "granted")?;
    pair.must("take", &[LONG], "granted")?;
    pair.must("release", &[], "done")?;
    let busy = pair.lock(LONG).try_acquire()?.held().is_none();
    same("whether it is still theirs", busy, true)?;
    pair.must("release", &[], "done")?;
    let guard = pair.acquire(LONG)?;
    same("our release", guard.release()?, Released::Free)?;
    Ok(String::new())
}

fn their_type(pair: &mut Pair<'_>) -> Seen {
    pair.must("take", &[LONG], "granted")?;
    let before = pair.pttl();
    let errors =
        [pair.plain_lock(LONG).try_acquire().err(), pair.plain_lock(LONG).wait(PATIENCE).acquire().err()];
    for error in &errors {
        same("whether we are told of another type", matches!(error, Some(Error::WrongType { .. })), true)?;
    }
    same("whether their lease is as before", (0..=before).contains(&pair.pttl()), true)?;
    pair.must("release", &[], "done")?;
    let guard = pair.plain_lock(LONG).acquire()?;
    same("our release", guard.release()?, Released::Free)?;
    let [error, ..] = errors;
    Ok(error.map(|error| error.to_string()).unwrap_or_default())
}

fn our_type(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.plain_lock(LONG).acquire()?;
    let value = pair.value();
    for (command, times) in [("take", &[LONG][..]), ("wait", &[LONG, WAIT]), ("release", &[])] {
        let error = pair.must_fail(command, times)?;
        same("whether they are told of another type", error.contains("WRONGTYPE"), true)?;
    }
    same("our key", pair.value(), value)?;
    guard.extend()?;
    same("our release", guard.release()?, Released::Free)?;
    Ok("they are told: WRONGTYPE".to_owned())
}

fn asleep_beside_a_free_lock(pair: &mut Pair<'_>) -> Seen {
    let begin = Instant::now();
    let guard = pair.acquire(LONG)?;
    pair.they_wait(LONG)?;
    pair.until("it blocks", || Ok(blocked(pair) == 1))?;
    same("our release", guard.release()?, Released::Free)?;
    same("the key after our release", pair.value(), None)?;
    same("clients that still block", blocked(pair), 1)?;
    same("their answer", pair.answer()?.as_str(), "granted")?;
    let waited = begin.elapsed();
    pair.must("release", &[], "done")?;
    Ok(format!("it asks again when its own wait of {:?} is over: after {}", WAIT, ms(waited)))
}

fn woken_by_hand(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.acquire(LONG)?;
    pair.they_wait(LONG)?;
    pair.until("it blocks", || Ok(blocked(pair) == 1))?;
    same("our release", guard.release()?, Released::Free)?;
    let released = Instant::now();
    pair.server.cli(&["LPUSH", &format!("lock-signal:{}", pair.name()), "1"]);
    same("their answer", pair.answer()?.as_str(), "granted")?;
    let after = released.elapsed();
    same("whether it was woken before its wait was over", after < WAIT, true)?;
    pair.must("release", &[], "done")?;
    Ok(format!("{} after our release", ms(after)))
}

fn reset(pair: &mut Pair<'_>) -> Seen {
    let mut longest = Duration::ZERO;
    for command in ["reset", "reset_all"] {
        let guard = pair.ours.lock(pair.name()).ttl(LONG).keep_alive().acquire()?;
        pair.must(command, &[], "done")?;
        let deleted = Instant::now();
        same("whether we notice", guard.wait_lost(PATIENCE)?, true)?;
        longest = longest.max(deleted.elapsed());
        same("the key", pair.value(), None)?;
        same("our release", guard.release()?, Released::Expired)?;
    }
    Ok(format!("our guard is lost {} later", ms(longest)))
}

fn blocked(pair: &Pair<'_>) -> u64 {
    pair.server.info("blocked_clients").and_then(|count| count.parse().ok()).unwrap_or(0)
}
