//! Notes of locks that an operator took from their holders, so that a watch can tell that from a release.
//!
//! A note is a mark with the lock's name and fence. It is set before the lock is taken, or a watch could see the lock free
//! and no note. Nothing else of a lock's life reads or writes one. Notes are not worth a failure: without one, a release by
//! force looks like a release, as it does on stores without marks (a quorum).

use std::time::Duration;

use crate::{
    core::Core,
    engine::{
        Change, ChangeKind,
        records::{FORCED_PREFIX, MarkOp},
    },
    fence::Fence,
    marker::MARKS_MAX,
    name::Name,
};

/// How long a note stays: as long as a watch may sleep between two inspections, and a little more.
const NOTED_FOR: Duration = Duration::from_secs(2 * 3600);

/// The key of a note; `None` if it is too long for one.
fn key(name: &Name, fence: Fence) -> Option<Name> {
    Name::new(format!("{FORCED_PREFIX}{name}:{fence}")).ok()
}

/// Notes that this holder is about to lose the lock by force.
pub(crate) async fn note(core: &Core, name: &Name, fence: Fence) {
    let (Ok(records), Some(key)) = (core.engine.records(), key(name, fence)) else { return };
    if let Err(error) = records.on_marks(&[key], MarkOp::SetIfAbsent(NOTED_FOR), core.command_until()).await {
        tracing::warn!(%name, %error, "a watch will report this as a release");
    }
}

/// Tells those that were released by force from those that were released.
pub(crate) async fn tell_apart(core: &Core, seen: Vec<Change>) -> Vec<Change> {
    let keys: Vec<_> = seen.iter().map(|change| key(&change.name, noted_fence(change)?)).collect();
    let asked: Vec<_> = keys.iter().flatten().cloned().collect();
    let Ok(records) = core.engine.records() else { return seen };
    if asked.is_empty() {
        return seen;
    }
    let mut noted = Vec::with_capacity(asked.len());
    for some in asked.chunks(MARKS_MAX) {
        match records.on_marks(some, MarkOp::Test, core.command_until()).await {
            Ok(found) => noted.extend(found),
            Err(_) => return seen,
        }
    }
    let mut noted = noted.into_iter();
    let mut told = Vec::with_capacity(seen.len());
    for (change, key) in seen.into_iter().zip(keys) {
        if key.and_then(|_| noted.next()) == Some(true) {
            let next = change.now.clone();
            told.push(Change { kind: ChangeKind::ForceReleased, now: None, ..change.clone() });
            told.extend(next.map(|_| Change { kind: ChangeKind::Acquired, before: None, ..change }));
        } else {
            told.push(change);
        }
    }
    told
}

/// The fence of a holder that may have lost the lock by force.
fn noted_fence(change: &Change) -> Option<Fence> {
    let may_be_forced = matches!(change.kind, ChangeKind::Released | ChangeKind::HandedOver);
    change.before.as_ref().filter(|_| may_be_forced).map(|held| held.fence)
}
