//! Giving back what a majority holds.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;

use super::count::{Tally, fence_of};
use super::{Result, Shared, locked};
use leasehold_core::engine::{Claim, EngineError, Fault, Released, voter::Withdrawn};
use leasehold_core::{Name, clock::Until, owner::Owner};

/// First pause before a withdrawal is sent to a node again.
const PAUSE: Duration = Duration::from_millis(50);
/// Withdrawals of one node under way in the background; beyond it the ttl settles the rest.
const WITHDRAWALS_MAX: usize = 10_000;

impl Shared {
    /// Gives the lock back on every node; returns when a majority has.
    pub(super) async fn end(
        self: &Arc<Self>,
        name: &Name,
        owner: &Owner,
        lapses_in: Duration,
        until: Until,
    ) -> Result<Released> {
        locked(&self.ended).insert(owner.id(), ());
        let _turn = self.turn(&self.ends, until).await?;
        let (n, most) = (self.n(), self.majority());
        let lapses_at = self.clock().now() + lapses_in;
        let lock = Arc::new((name.clone(), owner.clone()));
        let mut asked = self.ask_all(&lock, move |voter, lock| voter.withdraw(&lock.0, &lock.1, until));
        let (mut tally, mut woke, mut by, mut failed) = (Tally::default(), false, Vec::new(), Vec::new());
        // Who has it, if it was not ours: a majority must say so.
        while (!tally.settled(n) || tally.refuted(n) && by.len() < most && by.len() + asked.len() >= most)
            && let Some((index, answer)) = asked.next().await
        {
            match answer {
                Ok(Withdrawn { was_ours, woke: waiter, by: other }) => {
                    woke |= waiter;
                    by.extend(other);
                    *if was_ours { &mut tally.yes } else { &mut tally.no } += 1;
                }
                Err(error) => {
                    tally.unknown += 1;
                    failed.push((index, error));
                }
            }
        }
        let is_decided = tally.carried(n) || tally.refuted(n);
        self.ended_round(is_decided);
        if !is_decided {
            // The caller asks again, and all nodes with it.
            let words = format!("{} of {n} nodes gave it back{}", tally.yes, self.blame(failed.last()));
            return Err(EngineError::new(Fault::NoAnswer, words));
        }
        // The caller does not ask again, so the withdrawal is repeated here for nodes that did not answer.
        failed.into_iter().for_each(|(index, _)| self.withdraw_later(index, &lock, lapses_at));
        let shared = self.clone();
        self.late.spawn(async move {
            while let Some((index, answer)) = asked.next().await {
                if answer.is_err() {
                    shared.withdraw_later(index, &lock, lapses_at);
                }
            }
        });
        if tally.carried(n) {
            return Ok(if woke { Released::handed_over(None) } else { Released::Free });
        }
        Ok(fence_of(by, n).map_or(Released::Expired, |fence| Released::Taken { by: Some(fence) }))
    }

    /// Gives back, in the background, whatever a claim got. Its owner value is spent.
    pub(super) fn give_back(self: &Arc<Self>, claim: &Claim) {
        locked(&self.ended).insert(claim.owner.id(), ());
        let lapses_at = self.clock().now() + claim.ttl + claim.lock_delay;
        let lock = Arc::new((claim.name.clone(), claim.owner.clone()));
        (0..self.n()).for_each(|index| self.withdraw_later(index, &lock, lapses_at));
    }

    /// Sends a withdrawal to one node until it is answered, or until its key has lapsed by itself.
    fn withdraw_later(self: &Arc<Self>, index: usize, lock: &Arc<(Name, Owner)>, lapses_at: Until) {
        let withdrawals = &self.withdrawals[index];
        if withdrawals.len() >= WITHDRAWALS_MAX {
            return;
        }
        let (shared, lock) = (self.clone(), lock.clone());
        withdrawals.spawn(async move {
            let mut pause = PAUSE;
            loop {
                let until = shared.clock().now() + shared.options.command_timeout;
                let answer = shared.voters[index].withdraw(&lock.0, &lock.1, until).await;
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
