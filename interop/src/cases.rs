//! What is tried with every library, in both directions.

use std::time::{Duration, Instant};

use leasehold::{
    Error, ErrorKind, Fence, Holder,
    blocking::{Attempt, Guard},
    engine::Released,
};

use crate::{
    Failure,
    pair::{LONG, PATIENCE, Pair, SHORT, WAIT, same},
};

/// What was seen, for the report; empty if there is nothing to add.
pub(crate) type Seen = Result<String, Failure>;

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) title: &'static str,
    pub(crate) run: fn(&mut Pair<'_>) -> Seen,
}

/// With every library.
pub(crate) static SHARED: &[Case] = &[
    Case { title: "they hold: we are refused", run: theirs_is_busy },
    Case { title: "we hold: they are refused", run: ours_is_busy },
    Case { title: "with another key both of these fail", run: exclusion_can_fail },
    Case { title: "they hold: our wait ends in time", run: our_wait_ends },
    Case { title: "we hold: their wait ends in time", run: their_wait_ends },
    Case { title: "they release: our waiter gets it", run: we_wait },
    Case { title: "we release: their waiter gets it", run: they_wait },
    Case { title: "their lease ends: we get it", run: their_lease_ends },
    Case { title: "our lease ends: they get it", run: our_lease_ends },
    Case { title: "their late release leaves ours", run: their_late_release },
    Case { title: "our late release leaves theirs", run: our_late_release },
    Case { title: "our late renewal leaves theirs", run: our_late_renewal },
    Case { title: "force-release needs the fence seen", run: forced },
];

/// With libraries whose locks are plain strings.
pub(crate) static OF_STRINGS: &[Case] = &[
    Case { title: "our hand-over passes their waiter", run: we_go_first },
    Case { title: "their late renewal leaves ours", run: their_late_renewal },
];

/// With every library, after everything else: their process is gone then.
pub(crate) static LAST: Case =
    Case { title: "their process ends with ours, also while it waits", run: ends_with_us };

pub(crate) fn theirs_is_busy(pair: &mut Pair<'_>) -> Seen {
    let first = pair.acquire(LONG)?;
    let before = first.fence();
    same("our release", first.release()?, Released::Free)?;

    pair.must("take", &[LONG], "granted")?;
    we_are_refused(pair)?;
    let secret = pair.value().ok_or("their key is not there")?;
    let inspection = pair.inspect()?;
    let held = inspection.held().ok_or("inspect shows nobody")?;
    same("the holder and its fence", (&held.holder, held.fence), (&Holder::Foreign, Fence::new(0)))?;
    let left = held.expires_in.ok_or("inspect shows no expiry")?;
    same("whether it expires within their lease", left <= LONG, true)?;
    same("whether their secret is shown", format!("{inspection:?}").contains(&secret), false)?;

    pair.must("release", &[], "done")?;
    let guard = pair.acquire(LONG)?;
    same("whether our fence grew across their tenure", guard.fence() > before, true)?;
    same("our release", guard.release()?, Released::Free)?;
    Ok(String::new())
}

fn we_are_refused(pair: &Pair<'_>) -> Result<(), Failure> {
    match pair.lock(LONG).try_acquire()? {
        Attempt::Busy { holder, .. } => same("who holds it", holder, Some(Holder::Foreign)),
        Attempt::Held(_) => Err(GRANTED_TWICE.into()),
    }
}

const GRANTED_TWICE: &str = "we were granted a lock that they hold";

pub(crate) fn ours_is_busy(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.acquire(LONG)?;
    pair.must("take", &[LONG], "busy")?;
    still_ours(pair, guard)?;
    pair.must("take", &[LONG], "granted")?;
    pair.must("release", &[], "done")?;
    same("the key after their release", pair.value(), None)?;
    Ok(String::new())
}

/// What cannot fail proves nothing.
fn exclusion_can_fail(pair: &mut Pair<'_>) -> Seen {
    let they_hold = Case { title: "misled-they-hold", run: theirs_is_busy };
    let we_hold = Case { title: "misled-we-hold", run: ours_is_busy };
    let granted = "their answer to `take` is \"granted\", not \"busy\"";
    for (case, failure) in [(they_hold, GRANTED_TWICE), (we_hold, granted)] {
        // The case before has left a lock behind.
        pair.begin(case.title);
        pair.mislead(true);
        let outcome = (case.run)(pair).map_err(|error| error.to_string());
        pair.mislead(false);
        same(case.title, outcome, Err(failure.to_owned()))?;
    }
    Ok(String::new())
}

fn our_wait_ends(pair: &mut Pair<'_>) -> Seen {
    pair.must("take", &[LONG], "granted")?;
    let begin = Instant::now();
    let error = pair.lock(LONG).wait(SHORT).acquire().map(drop).err();
    let after = begin.elapsed();
    same("how our wait ended", error.map(|error| error.kind()), Some(ErrorKind::TimedOut))?;
    same("whether it was as long as asked", (SHORT..WAIT).contains(&after), true)?;
    pair.must("release", &[], "done")?;
    Ok(format!("after {}", ms(after)))
}

fn their_wait_ends(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.acquire(LONG)?;
    let begin = Instant::now();
    pair.must("wait", &[LONG, SHORT], "busy")?;
    let after = begin.elapsed();
    same("whether it was soon over", after < WAIT, true)?;
    still_ours(pair, guard)?;
    Ok(format!("after {}", ms(after)))
}

/// Proves that a lock is ours by a renewal, and releases it.
pub(crate) fn still_ours(pair: &Pair<'_>, guard: Guard) -> Result<(), Failure> {
    guard.extend()?;
    same("our release", guard.release()?, Released::Free)?;
    same("the key after our release", pair.value(), None)
}

pub(crate) fn we_wait(pair: &mut Pair<'_>) -> Seen {
    pair.must("take", &[LONG], "granted")?;
    let waiter = pair.wait_in_queue()?;
    pair.must("release", &[], "done")?;
    let released = Instant::now();
    let guard = waiter.join().map_err(|_| "our waiter panicked")??;
    let after = released.elapsed();
    still_ours(pair, guard)?;
    Ok(format!("{} after their release", ms(after)))
}

pub(crate) fn they_wait(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.acquire(LONG)?;
    pair.they_wait(LONG)?;
    same("our release", guard.release()?, Released::Free)?;
    let released = Instant::now();
    same("their answer", pair.answer()?.as_str(), "granted")?;
    let after = released.elapsed();
    we_are_refused(pair)?;
    pair.must("release", &[], "done")?;
    Ok(format!("{} after our release", ms(after)))
}

/// A hand-over never frees the key, so a waiter that only asks for free keys is passed by, however long it has waited.
fn we_go_first(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.acquire(LONG)?;
    pair.they_wait(LONG)?;
    let waiter = pair.wait_in_queue()?;
    let released = guard.release()?;
    same("whether our waiter has it", matches!(released, Released::HandedOver { to: 1, .. }), true)?;
    let next = waiter.join().map_err(|_| "our waiter panicked")??;
    same("their answer so far", pair.answered(), None)?;
    same("our second release", next.release()?, Released::Free)?;
    same("their answer", pair.answer()?.as_str(), "granted")?;
    pair.must("release", &[], "done")?;
    Ok(String::new())
}

fn their_lease_ends(pair: &mut Pair<'_>) -> Seen {
    let (guard, after) = we_outwait(pair)?;
    still_ours(pair, guard)?;
    Ok(format!("{} after they asked", ms(after)))
}

/// They take the lock for a short time, and we get it when that is over; returns how long that took.
fn we_outwait(pair: &mut Pair<'_>) -> Result<(Guard, Duration), Failure> {
    let begin = Instant::now();
    pair.must("take", &[SHORT], "granted")?;
    let guard = pair.acquire(LONG)?;
    let after = begin.elapsed();
    same("whether we waited for the end of their lease", after >= SHORT, true)?;
    Ok((guard, after))
}

fn our_lease_ends(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.acquire(SHORT)?;
    let begin = Instant::now();
    pair.must("wait", &[LONG, WAIT], "granted")?;
    let after = begin.elapsed();
    same("whether we still believe in it", guard.is_held(), false)?;
    same("our release", guard.release()?, Released::Taken { by: None })?;
    pair.must("release", &[], "done")?;
    Ok(format!("{} after our grant", ms(after)))
}

fn their_late_release(pair: &mut Pair<'_>) -> Seen {
    let (guard, _) = we_outwait(pair)?;
    let value = pair.value();
    let answer = pair.ask("release", &[])?;
    same("the key after their release", pair.value(), value)?;
    still_ours(pair, guard)?;
    Ok(said(&answer))
}

fn our_late_release(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.acquire(SHORT)?;
    pair.until("our lease ends", || Ok(pair.value().is_none()))?;
    pair.must("take", &[LONG], "granted")?;
    let value = pair.value();
    same("our release", guard.release()?, Released::Taken { by: None })?;
    same("the key after our release", pair.value(), value)?;
    pair.must("release", &[], "done")?;
    Ok(String::new())
}

/// They still believe in their lease, so that their library asks the store instead of its own clock.
fn their_late_renewal(pair: &mut Pair<'_>) -> Seen {
    pair.must("take", &[LONG], "granted")?;
    pair.take_away()?;
    let guard = pair.acquire(PATIENCE)?;
    let value = pair.value();
    let answer = pair.ask("extend", &[LONG])?;
    same("whether their renewal was refused", answer.starts_with("refused"), true)?;
    same("the key after their renewal", pair.value(), value)?;
    same("whether our lease is no longer than before", pair.pttl() <= ms_of(PATIENCE), true)?;
    still_ours(pair, guard)?;
    Ok(said(&answer))
}

/// As above: we still believe in our lease.
fn our_late_renewal(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.acquire(LONG)?;
    pair.delete();
    pair.must("take", &[PATIENCE], "granted")?;
    let (value, left) = (pair.value(), pair.pttl());
    match guard.extend() {
        Err(Error::Lost { .. }) => {}
        other => return Err(format!("our renewal of their lock answered {other:?}").into()),
    }
    same("the key after our renewal", pair.value(), value)?;
    same("whether their lease is no longer than before", pair.pttl() <= left, true)?;
    same("our release", guard.release()?, Released::Taken { by: None })?;
    pair.must("release", &[], "done")?;
    Ok(String::new())
}

/// A holder of another library has no fence: who takes its lock away says so by the fence 0, as inspect shows it.
fn forced(pair: &mut Pair<'_>) -> Seen {
    pair.must("take", &[LONG], "granted")?;
    let value = pair.value();
    let guessed = pair.ours.force_release(pair.name(), Fence::new(7))?;
    same("a forced release with another fence", guessed, Released::Taken { by: None })?;
    same("the key after it", pair.value(), value)?;
    pair.take_away()?;
    same("the key after the forced release", pair.value(), None)?;
    let answer = pair.ask("release", &[])?;
    Ok(said(&answer))
}

fn ends_with_us(pair: &mut Pair<'_>) -> Seen {
    let guard = pair.acquire(LONG)?;
    pair.they_wait(LONG)?;
    let begin = Instant::now();
    pair.hang_up()?;
    let after = begin.elapsed();
    same("whether it still waited", after < WAIT / 2, true)?;
    still_ours(pair, guard)?;
    Ok(format!("{} later", ms(after)))
}

/// How a library answers when there is nothing of it: some raise an error, some say nothing.
pub(crate) fn said(answer: &str) -> String {
    match answer.strip_prefix("refused ") {
        Some(why) => format!("they are told: {why}"),
        None => "they are told nothing".to_owned(),
    }
}

pub(crate) fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

fn ms_of(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
