//! Watching locks: they are inspected again and again, and what changed between two inspections (pure) is reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde::Serialize;

use super::{EngineError, Fault, Inspect, Inspection, Mode, Page, Tenure};
use crate::{
    clock::{BootInstant, Clock},
    name::Name,
    owner::Holder,
};

/// What to watch, and how.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Which locks.
    pub locks: Watched,
    /// How often the store is asked.
    pub poll_every: Duration,
    /// Longest wait for the answer to one command.
    pub command_timeout: Duration,
    /// Where the time comes from.
    pub clock: Clock,
}

/// Which locks are watched.
#[derive(Clone, Debug)]
pub enum Watched {
    /// One.
    Name(Name),
    /// Those whose name begins like this; at most [`WATCHED_MAX`].
    Prefix(String),
}

/// Most locks of one watch. With more in use it reports [`Fault::Overloaded`].
pub const WATCHED_MAX: usize = 100_000;

/// The changes of a watch, as many at a time as were seen together. The first item has what is in use at the start, as
/// [`Present`](ChangeKind::Present), and may be empty; later ones are not.
///
/// An error does not end the stream: the next item has what has changed since the last one that was good. Dropping the
/// stream ends the watch and leaves nothing behind in the store. Dropping a future of `next` loses no change.
pub type Changes<'a, E = EngineError> = BoxStream<'a, Result<Vec<Change>, E>>;

/// A change of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The lock.
    pub name: Name,
    /// What happened.
    pub kind: ChangeKind,
    /// Who held it before and does not any more.
    pub before: Option<Tenure>,
    /// Who holds it now and did not before; of what is present or waited for, the first holder.
    pub now: Option<Tenure>,
    /// How many wait for it.
    pub waiting: u32,
}

/// What happened to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ChangeKind {
    /// In use when the watch began.
    Present,
    /// Somebody has it.
    Acquired,
    /// Somebody else has it. A release and another acquire between two inspections look the same. Readers and holders of
    /// permits come and go beside each other: of them it is told who released it and who acquired it.
    HandedOver,
    /// A writer became a reader, or the only reader a writer.
    Converted,
    /// Its holder gave it back. On a store without marks (a quorum) also: an operator took it from its holder.
    Released,
    /// An operator took it from its holder, which may still be at work.
    ForceReleased,
    /// Its lease ran out. A release at the end of a lease looks the same.
    Expired,
    /// More wait for it.
    Waiting,
}

/// The word for it on the command line and in JSON.
impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

type Locks = BTreeMap<Name, Inspection>;

/// The locks in use, not before the time that comes with them.
async fn snapshot(
    inspect: &(impl Inspect + ?Sized),
    watch: &Watch,
) -> Result<(BootInstant, Locks), EngineError> {
    let (taken_at, mut locks, mut from) = (watch.clock.now(), Locks::new(), None);
    loop {
        let until = watch.clock.now() + watch.command_timeout;
        let page = match &watch.locks {
            Watched::Prefix(prefix) => inspect.page(prefix, from, PAGE, until).await?,
            Watched::Name(name) => Page { items: vec![inspect.inspect(name, until).await?], next: None },
        };
        let in_use = page.items.into_iter().filter(Inspection::is_in_use);
        locks.extend(in_use.map(|lock| (lock.name.clone(), lock)));
        if locks.len() > WATCHED_MAX {
            let why = format!("more than {WATCHED_MAX} locks are in use; watch a longer prefix");
            return Err(EngineError::new(Fault::Overloaded, why));
        }
        if page.next.is_none() {
            return Ok((taken_at, locks));
        }
        from = page.next;
    }
}

/// Locks asked for at a time.
const PAGE: u32 = 500;

/// Watches by inspecting again and again.
pub(super) fn poll(inspect: &(impl Inspect + ?Sized), watch: Watch) -> Changes<'_> {
    let start = (None::<(BootInstant, Locks)>, watch.clock.now(), watch);
    stream::unfold(start, move |(mut before, mut next_at, watch)| async move {
        loop {
            watch.clock.sleep_until(next_at).await;
            next_at = watch.clock.now() + watch.poll_every;
            let now = match snapshot(inspect, &watch).await {
                Ok(now) => now,
                Err(error) => return Some((Err(error), (before, next_at, watch))),
            };
            let ended_at = watch.clock.now();
            let found = match &before {
                None => {
                    now.1.values().map(|lock| change(ChangeKind::Present, None, lock.held(), lock)).collect()
                }
                Some((taken_at, before)) => changes(before, &now.1, ended_at.since(*taken_at)),
            };
            if before.replace(now).is_none() || !found.is_empty() {
                return Some((Ok(found), (before, next_at, watch)));
            }
        }
    })
    .boxed()
}

/// What changed between two snapshots, by name.
fn changes(before: &Locks, now: &Locks, elapsed: Duration) -> Vec<Change> {
    let mut found = Vec::new();
    for name in before.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
        let unused = Inspection::unused(name.clone());
        let of = |locks| Locks::get(locks, name).unwrap_or(&unused);
        changes_of(of(before), of(now), elapsed, &mut found);
    }
    found
}

/// What became of one lock in this time. `elapsed` is not shorter than it was, so that no expiry looks like a release.
fn changes_of(before: &Inspection, now: &Inspection, elapsed: Duration, found: &mut Vec<Change>) {
    let ran_out = |held: &Tenure| held.expires_in.is_some_and(|left| left <= elapsed);
    let (gone, came) = (missing(before, now), missing(now, before));
    // Beyond those that were listed nobody knows who holds it: one that moved up on the list looks like a newcomer.
    let came = if before.holders.is_complete() { came } else { Vec::new() };
    // A writer that becomes a reader keeps its fence.
    for was in before.holders.shown.iter().filter(|was| was.mode == Mode::Exclusive) {
        let is_reader = |held: &&Tenure| held.mode == Mode::Shared && is_same(held, was);
        let is = now.holders.shown.iter().find(is_reader);
        found.extend(is.map(|is| change(ChangeKind::Converted, Some(was), Some(is), now)));
    }
    match (&gone[..], &came[..]) {
        ([was], [is]) if !ran_out(was) && !can_be_together(was, is) => {
            let kind = if is_upgrade(was, is) { ChangeKind::Converted } else { ChangeKind::HandedOver };
            found.push(change(kind, Some(was), Some(is), now));
        }
        _ => {
            for was in gone {
                let kind = if ran_out(was) { ChangeKind::Expired } else { ChangeKind::Released };
                found.push(change(kind, Some(was), None, now));
            }
            found.extend(came.iter().map(|is| change(ChangeKind::Acquired, None, Some(is), now)));
        }
    }
    if now.waiting > before.waiting {
        found.push(change(ChangeKind::Waiting, now.held(), now.held(), now));
    }
}

/// Whether neither had to wait for the other.
fn can_be_together(one: &Tenure, other: &Tenure) -> bool {
    one.mode != Mode::Exclusive && other.mode != Mode::Exclusive
}

/// Whether a reader became a writer, under a new fence.
fn is_upgrade(was: &Tenure, is: &Tenure) -> bool {
    was.mode == Mode::Shared && was.holder == is.holder && was.holder != Holder::Foreign
}

fn is_same(one: &Tenure, other: &Tenure) -> bool {
    (one.fence, &one.holder) == (other.fence, &other.holder)
}

/// The holders of one inspection that the other one does not have.
fn missing<'a>(of: &'a Inspection, from: &Inspection) -> Vec<&'a Tenure> {
    let shown = of.holders.shown.iter();
    shown.filter(|held| !from.holders.shown.iter().any(|other| is_same(held, other))).collect()
}

fn change(kind: ChangeKind, before: Option<&Tenure>, is: Option<&Tenure>, lock: &Inspection) -> Change {
    let name = lock.name.clone();
    Change { name, kind, before: before.cloned(), now: is.cloned(), waiting: lock.waiting }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine::Holders, fence::Fence};

    /// Name, fence of the holder, time it has left in seconds, waiters.
    type Seen = (&'static str, Option<u64>, u64, u32);

    fn locks(seen: &[Seen]) -> Locks {
        let lock = |&(name, fence, left, waiting): &Seen| {
            let expires_in = Some(Duration::from_secs(left));
            let held = |fence| Tenure {
                holder: Holder::Foreign,
                fence: Fence::new(fence),
                mode: Mode::Exclusive,
                expires_in,
            };
            let name = Name::new(name).unwrap();
            let holders = Holders::from(fence.map(held));
            (name.clone(), Inspection { holders, waiting, ..Inspection::unused(name) })
        };
        seen.iter().map(lock).collect()
    }

    /// What a poll after one second finds.
    fn found(before: &[Seen], now: &[Seen]) -> Vec<(String, ChangeKind, Option<u64>, Option<u64>)> {
        let fence = |held: Option<Tenure>| held.map(|held| held.fence.get());
        changes(&locks(before), &locks(now), Duration::from_secs(1))
            .into_iter()
            .map(|change| (change.name.to_string(), change.kind, fence(change.before), fence(change.now)))
            .collect()
    }

    #[test]
    fn each_change_has_its_kind_and_fences() {
        use ChangeKind::{Acquired, Expired, HandedOver, Released, Waiting};
        let one = |before: &[Seen], now: &[Seen]| {
            let found = found(before, now);
            found.into_iter().map(|(_, kind, before, now)| (kind, before, now)).collect::<Vec<_>>()
        };
        assert_eq!(one(&[], &[("a", Some(1), 9, 0)]), [(Acquired, None, Some(1))]);
        assert_eq!(one(&[("a", Some(1), 9, 0)], &[]), [(Released, Some(1), None)]);
        assert_eq!(one(&[("a", Some(1), 1, 0)], &[]), [(Expired, Some(1), None)]);
        assert_eq!(one(&[("a", Some(1), 9, 1)], &[("a", Some(2), 9, 0)]), [(HandedOver, Some(1), Some(2))]);
        assert_eq!(one(&[("a", Some(1), 9, 0)], &[("a", Some(1), 9, 2)]), [(Waiting, Some(1), Some(1))]);
        assert_eq!(one(&[("a", Some(1), 9, 1)], &[("a", None, 0, 1)]), [(Released, Some(1), None)]);
        let passed_on = one(&[("a", Some(1), 1, 1)], &[("a", Some(2), 9, 0)]);
        assert_eq!(passed_on, [(Expired, Some(1), None), (Acquired, None, Some(2))]);
        assert!(one(&[("a", Some(1), 1, 2)], &[("a", Some(1), 9, 1)]).is_empty(), "renewed");
    }

    /// One name with holders of these fences and modes.
    fn holders(of: &[(u64, Mode)], total: u32) -> Locks {
        let tenure = |&(fence, mode): &(u64, Mode)| Tenure {
            holder: Holder::this_process("one", fence / 10),
            fence: Fence::new(fence),
            mode,
            expires_in: Some(Duration::from_secs(9)),
        };
        let name = Name::new("a").unwrap();
        let holders = Holders { shown: of.iter().map(tenure).collect(), total, free_in: None };
        Locks::from([(name.clone(), Inspection { holders, ..Inspection::unused(name) })])
    }

    fn kinds(before: &[(u64, Mode)], now: &[(u64, Mode)]) -> Vec<ChangeKind> {
        let all = |of: &[_]| holders(of, of.len() as u32);
        let found = changes(&all(before), &all(now), Duration::from_secs(1));
        found.into_iter().map(|change| change.kind).collect()
    }

    #[test]
    fn those_who_hold_it_together_come_and_go_one_by_one() {
        use ChangeKind::{Acquired, HandedOver, Released};
        let one = std::num::NonZeroU32::MIN;
        for mode in [Mode::Shared, Mode::Permits { take: one, of: one.saturating_add(4) }] {
            let kinds = |before: &[u64], now: &[u64]| {
                let of = |fences: &[u64]| fences.iter().map(|fence| (*fence, mode)).collect::<Vec<_>>();
                kinds(&of(before), &of(now))
            };
            assert_eq!(kinds(&[1], &[1, 2]), [Acquired]);
            assert_eq!(kinds(&[1, 2], &[2]), [Released]);
            assert_eq!(kinds(&[1, 2], &[2, 3]), [Released, Acquired], "nobody waited for the first");
            assert_eq!(kinds(&[1, 2], &[3, 4]), [[Released; 2], [Acquired; 2]].concat());
        }
        // A writer waits for readers, and they for it.
        assert_eq!(kinds(&[(1, Mode::Shared)], &[(20_000, Mode::Exclusive)]), [HandedOver]);
        assert_eq!(kinds(&[(1, Mode::Exclusive)], &[(20_000, Mode::Shared)]), [HandedOver]);
    }

    #[test]
    fn a_mode_that_changes_is_no_other_holder() {
        let (reader, writer) = (Mode::Shared, Mode::Exclusive);
        assert_eq!(kinds(&[(1, writer)], &[(1, reader)]), [ChangeKind::Converted]);
        assert_eq!(kinds(&[(1, reader)], &[(2, writer)]), [ChangeKind::Converted]);
        let read_too = kinds(&[(1, writer)], &[(1, reader), (2, reader)]);
        assert_eq!(read_too, [ChangeKind::Converted, ChangeKind::Acquired]);
    }

    #[test]
    fn one_that_moved_up_on_the_list_has_not_just_come() {
        let shared = |fence| (fence, Mode::Shared);
        let before = holders(&[shared(1), shared(2)], 3);
        let found = changes(&before, &holders(&[shared(2), shared(3)], 2), Duration::from_secs(1));
        assert_eq!(found.iter().map(|change| change.kind).collect::<Vec<_>>(), [ChangeKind::Released]);
    }

    #[test]
    fn changes_come_by_name() {
        let now = [("b", Some(2), 9, 1), ("a", Some(1), 9, 0)];
        let found = found(&[("c", Some(3), 9, 0)], &now);
        assert_eq!(found.into_iter().map(|(name, ..)| name).collect::<Vec<_>>(), ["a", "b", "b", "c"]);
    }
}
