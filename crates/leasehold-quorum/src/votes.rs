//! What the nodes voted in one round, and what that means for a claim that lost it.

use std::time::Duration;

use super::Result;
use leasehold_core::engine::voter::Vote;
use leasehold_core::engine::{Answer, Claim, Fault, Holders, Mode, Tenure};
use leasehold_core::{Fence, Holder};

/// What each node voted, if it did.
#[derive(Default)]
pub(super) struct Votes(pub(super) Vec<Option<Result<Vote>>>);

impl Votes {
    pub(super) fn answered(&self) -> usize {
        self.nodes(Option::is_some).count()
    }

    pub(super) fn nodes(&self, which: impl Fn(&Option<Result<Vote>>) -> bool) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(move |(_, vote)| which(vote)).map(|(index, _)| index)
    }

    pub(super) fn said_yes(&self) -> impl Iterator<Item = usize> {
        self.nodes(|vote| matches!(vote, Some(Ok(Vote::Yes(_)))))
    }

    /// The nodes that said yes, or may have.
    pub(super) fn may_have_given(&self) -> Vec<usize> {
        self.nodes(|vote| !matches!(vote, Some(Ok(Vote::No { .. } | Vote::Abstains(_))))).collect()
    }

    /// How many nodes said yes or no.
    pub(super) fn voted(&self) -> usize {
        self.nodes(|vote| matches!(vote, Some(Ok(Vote::Yes(_) | Vote::No { .. })))).count()
    }

    /// Who holds it on most nodes, when enough of them will be free, and the place in the queue.
    pub(super) fn refused(&self, claim: &Claim, majority: usize) -> Answer {
        let refusals = || {
            self.0.iter().filter_map(|vote| match vote {
                Some(Ok(Vote::No { holder, readers, expires_in, ahead, .. })) => {
                    Some(((holder, readers), expires_in, *ahead))
                }
                _ => None,
            })
        };
        let times = |some: &Option<Holder>| refusals().filter(|((holder, _), ..)| *holder == some).count();
        let held = refusals().map(|(held, ..)| held).max_by_key(|(holder, _)| times(holder));
        let mut ends: Vec<_> = refusals().filter_map(|(_, expires_in, _)| *expires_in).collect();
        ends.sort_unstable();
        let expires_in = ends.get(majority - 1).or(ends.last()).copied();
        let ahead = refusals().map(|(.., ahead)| ahead).max().unwrap_or(0);
        let holder = held.and_then(|(holder, readers)| Some((holder.clone()?, *readers)));
        refused(claim, holder, expires_in, ahead)
    }
}

/// Whether a node lacks a grant and may take it now: it said otherwise, or did not answer. One that could not be reached is
/// found by the next renewal.
pub(super) fn lacks(vote: &Result<Vote>) -> bool {
    match vote {
        Ok(vote) => !matches!(vote, Vote::Yes(_)),
        Err(error) => error.fault == Fault::NoAnswer,
    }
}

/// Whether a node may have said yes without our knowing.
pub(super) fn is_unanswered(vote: &Option<Result<Vote>>) -> bool {
    vote.as_ref().is_none_or(|vote| matches!(vote, Err(error) if error.fault == Fault::NoAnswer))
}

pub(super) fn refused(
    claim: &Claim,
    held: Option<(Holder, u32)>,
    expires_in: Option<Duration>,
    ahead: u32,
) -> Answer {
    let holders = held.map_or_else(
        || Holders::none(expires_in),
        |(holder, readers)| {
            let mode = if readers > 0 { Mode::Shared } else { Mode::Exclusive };
            let tenure = Tenure { holder, fence: Fence::new(0), mode, expires_in };
            Holders { total: readers.max(1), ..Holders::one(tenure) }
        },
    );
    match claim.queue {
        // Nobody is handed a lock, so nothing is concluded from a fence.
        Some(_) => Answer::Queued { ahead, holders, last: Fence::new(0), link: 0 },
        None => Answer::Busy { holders },
    }
}
