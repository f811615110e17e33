//! What becomes of a record, given what is there. Pure: for stores that read, decide and write in one transaction.
//! `found` is what is stored and has not run out.

use std::time::Duration;

use super::{Begin, Begun, Content, MARK, MarkOp, Outcome, Settle, Settled, State, Stored};
use crate::{
    engine::{EngineError, Fault},
    fence::Fence,
    owner::Owner,
};

/// What to do about a request to begin.
#[derive(Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Nothing is there: write it down as running, under a new fence.
    Take,
    /// It is the same owner's: its lease begins anew.
    Refresh(Fence),
    /// Nothing to write.
    Answer(Begun),
}

/// Decides about a request to begin; what was found runs out in `expires_in`.
///
/// # Errors
/// `Corrupt` for what cannot be read.
pub fn begin(found: Option<&[u8]>, expires_in: Duration, begin: &Begin) -> Result<Beginning, EngineError> {
    let Some(found) = found else { return Ok(Beginning::Take) };
    let stored = match content(found) {
        Content::Mark => return Ok(Beginning::Answer(Begun::DoneElsewhere)),
        Content::Corrupt => return Err(corrupt(found)),
        Content::Stored(stored) => stored,
    };
    if matches!((&stored.fingerprint, &begin.fingerprint), (Some(theirs), Some(ours)) if theirs != ours) {
        return Ok(Beginning::Answer(Begun::Mismatch));
    }
    Ok(match stored.state {
        State::Running(owner) if owner == begin.owner => Beginning::Refresh(stored.fence),
        State::Running(owner) => Beginning::Answer(Begun::Running { holder: owner.holder(), expires_in }),
        State::Completed(result) => Beginning::Answer(Begun::Completed(result)),
        State::Failed(why) => Beginning::Answer(Begun::Failed(why)),
        State::Quarantined(why) => Beginning::Answer(Begun::Quarantined(why)),
    })
}

/// Decides about a settlement; `last` is the fence of the last execution that began under this key, if that is known.
/// Without an answer it counts: [`Settle::text`] is to be written, for as long as the outcome is kept.
///
/// # Errors
/// `Corrupt` for what cannot be read.
pub fn settle(
    found: Option<&[u8]>,
    last: Option<Fence>,
    settle: &Settle,
) -> Result<Option<Settled>, EngineError> {
    let fence = settle.hold.fence;
    let fenced_off = |by| Some(Settled::FencedOff { by });
    let Some(found) = found else {
        return Ok(match (&settle.outcome, last) {
            (Outcome::Retry, Some(last)) if last > fence => Some(Settled::Stored),
            (_, Some(last)) if last > fence => fenced_off(Some(last)),
            // Late, or the store forgot it; but nobody has begun since.
            _ => None,
        });
    };
    Ok(match content(found) {
        Content::Corrupt => return Err(corrupt(found)),
        Content::Mark => fenced_off(None),
        Content::Stored(_) if is_run_by(Some(found), &settle.hold.owner) => None,
        // A settlement that was sent again: no two executions of a key have one fence.
        Content::Stored(stored) if stored.fence == fence => Some(Settled::Stored),
        Content::Stored(stored) => fenced_off(Some(stored.fence)),
    })
}

/// The answer to an operation on a mark, which is also whether it is to be done.
pub fn mark(found: Option<&[u8]>, op: MarkOp) -> bool {
    match op {
        MarkOp::Set(_) => found.is_none_or(|found| found == MARK),
        MarkOp::SetIfAbsent(_) => found.is_none(),
        MarkOp::Test => found.is_some(),
        MarkOp::Clear => found == Some(MARK),
    }
}

/// Whether a record is running under this owner.
pub fn is_run_by(found: Option<&[u8]>, owner: &Owner) -> bool {
    let stored = found.and_then(Stored::read);
    matches!(stored, Some(Stored { state: State::Running(runs), .. }) if runs == *owner)
}

/// What a text under a key says.
pub fn content(text: &[u8]) -> Content {
    if text == MARK {
        return Content::Mark;
    }
    Stored::read(text).map_or(Content::Corrupt, Content::Stored)
}

/// The error for a text that cannot be read.
pub fn corrupt(text: &[u8]) -> EngineError {
    let why = if text.starts_with(b"leasehold:") {
        "a record of another version, or a damaged one".to_owned()
    } else {
        format!("{} bytes that another program wrote", text.len())
    };
    EngineError::new(Fault::Corrupt, why)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        engine::records::Fingerprint,
        name::Name,
        owner::{Holder, Owner},
    };

    const LEFT: Duration = Duration::from_secs(7);

    fn wish(random: u128, fingerprint: Option<&str>) -> Begin {
        Begin {
            key: Name::new("idempotency:payout:42").unwrap(),
            owner: Owner::new(random, &Holder::this_process("", 1)),
            fingerprint: fingerprint.map(Fingerprint::of),
            lease: Duration::from_secs(30),
            wake: false,
        }
    }

    fn running(of: &Begin, fence: u64) -> Vec<u8> {
        let state = State::Running(of.owner.clone());
        Stored { state, fence: Fence::new(fence), fingerprint: of.fingerprint.clone() }.write()
    }

    fn end(of: &Begin, fence: u64, outcome: Outcome) -> Settle {
        let hold = of.hold(Fence::new(fence));
        Settle { hold, fingerprint: of.fingerprint.clone(), outcome, keep: Duration::from_secs(60) }
    }

    fn done() -> Outcome {
        Outcome::Completed(Bytes::from_static(b"paid"))
    }

    fn written(found: Option<&[u8]>, last: Option<Fence>, ending: &Settle) -> Vec<u8> {
        assert_eq!(settle(found, last, ending).unwrap(), None);
        ending.text().unwrap()
    }

    #[test]
    fn only_one_executes_and_the_others_see_how_it_stands() {
        let (first, second) = (wish(1, Some("a")), wish(2, Some("a")));
        assert_eq!(begin(None, LEFT, &first).unwrap(), Beginning::Take);
        let text = running(&first, 5);
        assert_eq!(begin(Some(&text), LEFT, &first).unwrap(), Beginning::Refresh(Fence::new(5)));
        let seen = begin(Some(&text), LEFT, &second).unwrap();
        assert!(matches!(seen, Beginning::Answer(Begun::Running { expires_in: LEFT, .. })), "{seen:?}");
        let text = written(Some(&text), None, &end(&first, 5, done()));
        let seen = begin(Some(&text), LEFT, &second).unwrap();
        assert_eq!(seen, Beginning::Answer(Begun::Completed(Bytes::from_static(b"paid"))));
        assert_eq!(begin(Some(MARK), LEFT, &first).unwrap(), Beginning::Answer(Begun::DoneElsewhere));
    }

    #[test]
    fn another_request_under_the_same_key_is_a_mismatch_also_after_completion() {
        let (first, other) = (wish(1, Some("a")), wish(2, Some("b")));
        let text = running(&first, 5);
        assert_eq!(begin(Some(&text), LEFT, &other).unwrap(), Beginning::Answer(Begun::Mismatch));
        let text = written(Some(&text), None, &end(&first, 5, done()));
        assert_eq!(begin(Some(&text), LEFT, &other).unwrap(), Beginning::Answer(Begun::Mismatch));
        // Who gives none compares none.
        assert_ne!(begin(Some(&text), LEFT, &wish(3, None)).unwrap(), Beginning::Answer(Begun::Mismatch));
    }

    #[test]
    fn a_slow_execution_never_overwrites_a_later_one() {
        let (slow, later) = (wish(1, None), wish(2, None));
        let text = running(&later, 9);
        for outcome in [done(), Outcome::Retry, Outcome::Quarantined(Bytes::new())] {
            let said = settle(Some(&text), Some(Fence::new(9)), &end(&slow, 5, outcome)).unwrap();
            assert_eq!(said, Some(Settled::FencedOff { by: Some(Fence::new(9)) }));
        }
        // Also when the later one has ended without leaving anything.
        let said = settle(None, Some(Fence::new(9)), &end(&slow, 5, done())).unwrap();
        assert_eq!(said, Some(Settled::FencedOff { by: Some(Fence::new(9)) }));
        let said = settle(Some(MARK), Some(Fence::new(5)), &end(&slow, 5, done())).unwrap();
        assert_eq!(said, Some(Settled::FencedOff { by: None }));
    }

    #[test]
    fn an_execution_that_nobody_followed_counts_although_it_is_late_or_forgotten() {
        let late = wish(1, Some("a"));
        for last in [Some(Fence::new(5)), Some(Fence::new(4)), None] {
            let text = written(None, last, &end(&late, 5, done()));
            let other = begin(Some(&text), LEFT, &wish(2, Some("b"))).unwrap();
            assert_eq!(other, Beginning::Answer(Begun::Mismatch));
        }
    }

    #[test]
    fn a_settlement_that_is_sent_again_says_the_same() {
        let one = wish(1, None);
        let text = written(Some(&running(&one, 5)), None, &end(&one, 5, done()));
        let again = settle(Some(&text), Some(Fence::new(5)), &end(&one, 5, done())).unwrap();
        assert_eq!(again, Some(Settled::Stored));
        let retry = end(&one, 5, Outcome::Retry);
        assert_eq!(settle(Some(&running(&one, 5)), None, &retry).unwrap(), None);
        assert_eq!(settle(None, None, &retry).unwrap(), None);
        assert_eq!(retry.text(), None);
        let followed = settle(None, Some(Fence::new(6)), &retry).unwrap();
        assert_eq!(followed, Some(Settled::Stored));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_left_alone() {
        let one = wish(1, None);
        for text in [&b"2"[..], b"", b"leasehold:9 running", b"\xff\0"] {
            assert_eq!(begin(Some(text), LEFT, &one).unwrap_err().fault, Fault::Corrupt);
            assert_eq!(settle(Some(text), None, &end(&one, 5, done())).unwrap_err().fault, Fault::Corrupt);
        }
    }
}
