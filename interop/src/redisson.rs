//! Locks in Redisson's format, on servers of every topology.

use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind, engine::Released};

use crate::{
    Failure,
    cases::{Case, Seen, ms, ours_is_busy, said, still_ours, theirs_is_busy, they_wait, we_wait},
    pair::{LONG, PATIENCE, Pair, SHORT, WAIT, same},
};

const WOKEN: Case = Case { title: "a release wakes the other side by a message", run: woken };
const ON_EVERY_PRIMARY: Case = Case { title: "a lock on every primary", run: on_every_primary };
const BRACES: Case = Case { title: "names with braces", run: braces };
const STRANGER: Case = Case { title: "a release by a stranger is refused", run: stranger };
const THEIR_TYPE: Case = Case { title: "their key is an error for a plain lock", run: their_type };
const OUR_TYPE: Case = Case { title: "a plain lock is an error for them", run: our_type };
const CLOSED: Case = Case { title: "a lock that we keep closed is busy for them", run: closed };

/// `RLock`. A plain lock beside it: nobody is granted anything, and both sides say why.
pub(crate) static PLAIN: &[Case] = &[
    WOKEN,
    ON_EVERY_PRIMARY,
    BRACES,
    STRANGER,
    THEIR_TYPE,
    OUR_TYPE,
    CLOSED,
    Case { title: "what they entered twice they release twice", run: re_entered },
];

/// `RFencedLock`.
pub(crate) static FENCED: &[Case] = &[
    WOKEN,
    ON_EVERY_PRIMARY,
    BRACES,
    STRANGER,
    THEIR_TYPE,
    OUR_TYPE,
    CLOSED,
    Case { title: "their tokens and our fences are one sequence", run: tokens },
];

/// Three of nine must be faster, from before the order to release until the other side has the lock: a busy machine only adds to it,
/// and without a message it would be a minute.
const WOKEN_WITHIN: Duration = Duration::from_millis(50);
const TURNS: usize = 9;

/// Nobody polls meanwhile: ours asks again after a minute, theirs when the lease is over.
fn woken(pair: &mut Pair<'_>) -> Seen {
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    pair.begin("they-are-woken");
    for _ in 0..TURNS {
        let guard = pair.acquire(LONG)?;
        pair.they_wait(LONG)?;
        // Nobody else waits for this one.
        pair.until("they listen", || Ok(pair.listeners() == 1))?;
        let begin = Instant::now();
        same("our release", guard.release()?, Released::Free)?;
        same("their answer", pair.answer()?.as_str(), "granted")?;
        theirs.push(begin.elapsed());
        pair.must("release", &[], "done")?;
    }
    pair.begin("we-are-woken");
    for _ in 0..TURNS {
        pair.must("take", &[LONG], "granted")?;
        let waiter = pair.wait_in_queue()?;
        let begin = Instant::now();
        pair.must("release", &[], "done")?;
        let guard = waiter.join().map_err(|_| "our waiter panicked")??;
        ours.push(begin.elapsed());
        same("our release", guard.release()?, Released::Free)?;
    }
    for times in [&mut theirs, &mut ours] {
        times.sort_unstable();
        let third = times[TURNS / 3 - 1];
        same(&format!("whether {} is soon enough", ms(third)), third < WOKEN_WITHIN, true)?;
    }
    let words = |times: &[Duration]| {
        let [first, median, last] = [0, TURNS / 2, TURNS - 1].map(|at| times[at].as_secs_f64() * 1e3);
        format!("{median:.1} ms ({first:.1} to {last:.1})")
    };
    Ok(format!("theirs has it after {}, ours after {}", words(&theirs), words(&ours)))
}

fn on_every_primary(pair: &mut Pair<'_>) -> Seen {
    let names = pair.servers.names(&format!("{}:primary:", pair.library.name()));
    for name in &names {
        pair.rename(name.clone());
        both_ways(pair)?;
    }
    Ok(format!("{} of them", names.len()))
}

fn both_ways(pair: &mut Pair<'_>) -> Result<(), Failure> {
    for case in [theirs_is_busy, ours_is_busy, we_wait, they_wait] {
        case(pair)?;
    }
    Ok(())
}

fn braces(pair: &mut Pair<'_>) -> Seen {
    for name in ["{deal}:42", "a{b}c", "a{b"] {
        pair.rename(format!("{}:{name}", pair.library.name()));
        // Redisson keeps the keys of such a lock in several slots.
        if pair.servers.is_cluster() && !name.contains('}') {
            let error = pair.lock(LONG).try_acquire().map(drop).err();
            same("our refusal", error.map(|error| error.kind()), Some(ErrorKind::Unsupported))?;
            continue;
        }
        both_ways(pair)?;
    }
    Ok(String::new())
}

fn stranger(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.acquire(LONG)?;
    let value = pair.value();
    let answer = pair.ask("release", &[])?;
    same("whether their release of ours was refused", answer.starts_with("refused"), true)?;
    same("the key after it", pair.value(), value)?;
    still_ours(pair, guard)?;

    pair.must("take", &[LONG], "granted")?;
    let value = pair.value();
    let another_thread = pair.ask("@2 release", &[])?;
    same("whether another thread was refused", another_thread.starts_with("refused"), true)?;
    same("the key after it", pair.value(), value)?;
    pair.must("release", &[], "done")?;
    Ok(said(&answer))
}

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
