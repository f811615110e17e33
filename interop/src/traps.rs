//! What only one library does, and what its users have to know.

use std::time::{Duration, Instant};

use leasehold::engine::Released;

use crate::{
    cases::{Case, Seen, ms},
    pair::{LONG, PATIENCE, Pair, WAIT, same},
};

/// It waits for an element of a list that only its own release pushes.
pub(crate) static PYTHON_REDIS_LOCK: &[Case] = &[
    Case { title: "our release does not wake its waiter", run: asleep_beside_a_free_lock },
    Case { title: "an element of its list wakes it", run: woken_by_hand },
    Case { title: "its reset and reset_all delete ours", run: reset },
];

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
    pair.server().cli(&["LPUSH", &format!("lock-signal:{}", pair.name()), "1"]);
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
    pair.server().info("blocked_clients").and_then(|count| count.parse().ok()).unwrap_or(0)
}
