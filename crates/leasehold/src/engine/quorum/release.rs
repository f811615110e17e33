//! Giving back what a majority holds.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;

use super::{
    Shared,
    count::{Tally, fence_of},
};
use crate::{
    clock::Until,
    engine::{Claim, EngineError, Fault, Released, voter::Withdrawn},
    name::Name,
    owner::Owner,
};

/// First pause before a withdrawal is sent to a node again.
const PAUSE: Duration = Duration::from_millis(50);
/// Withdrawals of one node under way in the background; beyond it the ttl settles the rest.
const WITHDRAWALS_MAX: usize = 10_000;

impl Shared {
    /// Gives the lock back on every node; answers when a majority has.
    pub(super) async fn end(
        self: &Arc<Self>,
        name: &Name,
        owner: &Owner,
        lapses_in: Duration,
        until: Until,
    ) -> Result<Released, EngineError> {
        self.ended().insert(owner.id());
        // In its turn if that comes in time; what is held must be given back in any case.
        let _turn = self.turn(&self.ends, until).await.ok();
        let n = self.n();
        let lapses_at = self.clock().now() + lapses_in;
        let mut asked = self.ask_all(|voter| voter.withdraw(name, owner, until));
        let (mut tally, mut woke, mut by, mut failed) = (Tally::default(), false, Vec::new(), Vec::new());
        while !tally.settled(n)
            && let Some((index, answer)) = asked.next().await
        {
            match answer {
                Ok(Withdrawn { was_ours, woke: someone, by: other }) => {
                    woke |= someone;
                    by.extend(other);
                    *if was_ours { &mut tally.yes } else { &mut tally.no } += 1;
                }
                Err(error) => {
                    tally.unknown += 1;
                    failed.push((index, error));
                }
            }
        }
        // Who has it, if it was not ours: a majority must say so.
        while tally.refuted(n)
            && by.len() < self.majority()
            && by.len() + asked.len() >= self.majority()
            && let Some((index, answer)) = asked.next().await
        {
            match answer {
                Ok(withdrawn) => by.extend(withdrawn.by),
                Err(error) => failed.push((index, error)),
            }
        }
        let free = if woke { Released::handed_over(None) } else { Released::Free };
        let outcome = match tally {
            tally if tally.carried(n) => Ok(free),
            tally if !tally.refuted(n) => {
                let why = failed.last().map_or_else(String::new, |(index, error)| {
                    format!("; {}: {error}", self.voters[*index].label())
                });
                let words = format!("{} of {n} nodes gave it back{why}", tally.yes);
                Err(EngineError::new(Fault::NoAnswer, words))
            }
            _ => Ok(fence_of(by, n).map_or(Released::Expired, |fence| Released::Taken { by: Some(fence) })),
        };
        // Without an outcome the caller asks again, and all nodes with it. With one nobody does, so those that did not
        // answer are told here.
        if outcome.is_ok() {
            failed.into_iter().for_each(|(index, _)| self.withdraw_later(index, name, owner, lapses_at));
            let (shared, name, owner) = (self.clone(), name.clone(), owner.clone());
            self.late.spawn(async move {
                while let Some((index, answer)) = asked.next().await {
                    if answer.is_err() {
                        shared.withdraw_later(index, &name, &owner, lapses_at);
                    }
                }
            });
        }
        outcome
    }

    /// Gives back, in the background, whatever a claim got. Nothing of its owner counts from here on.
    pub(super) fn give_back(self: &Arc<Self>, claim: &Claim) {
        self.ended().insert(claim.owner.id());
        let lapses_at = self.clock().now() + claim.ttl + claim.lock_delay;
        (0..self.n()).for_each(|index| self.withdraw_later(index, &claim.name, &claim.owner, lapses_at));
    }

    /// Tells one node until it knows, or until its key has lapsed by itself.
    fn withdraw_later(self: &Arc<Self>, index: usize, name: &Name, owner: &Owner, lapses_at: Until) {
        let withdrawals = &self.withdrawals[index];
        if withdrawals.len() >= WITHDRAWALS_MAX {
            return;
        }
        let (shared, name, owner) = (self.clone(), name.clone(), owner.clone());
        withdrawals.spawn(async move {
            let mut pause = PAUSE;
            loop {
                let until = shared.clock().now() + shared.options.command_timeout;
                let answer = shared.voters[index].withdraw(&name, &owner, until).await;
                let again = shared.clock().now() + pause;
                if answer.is_ok() || again >= lapses_at || shared.closed.is_cancelled() {
                    return;
                }
                shared.clock().sleep_until(again).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        });
    }
}
