//! Keeping and giving back what a majority holds.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::StreamExt;

use super::{
    Shared,
    count::{Tally, fence_of},
    round::Answers,
};
use crate::{
    clock::Until,
    engine::{
        Claim, EngineError, Fault, Hold, Released, Renewed,
        voter::{Kept, RENEWALS_PER_CALL, Withdrawn},
    },
    name::Name,
    owner::Owner,
};

/// First pause before a node is told again that a lock was given back.
const PAUSE: Duration = Duration::from_millis(50);
/// Withdrawals of one node under way in the background; beyond it the ttl settles the rest.
const WITHDRAWALS_MAX: usize = 10_000;

impl Shared {
    pub(super) async fn renew(
        self: &Arc<Self>,
        holds: &[Hold],
        until: Until,
    ) -> Vec<Result<Renewed, EngineError>> {
        let chunks = holds.chunks(RENEWALS_PER_CALL).map(|some| self.renew_some(some.into(), until));
        futures_util::future::join_all(chunks).await.into_iter().flatten().collect()
    }

    async fn renew_some(
        self: &Arc<Self>,
        holds: Arc<[Hold]>,
        until: Until,
    ) -> Vec<Result<Renewed, EngineError>> {
        let n = self.n();
        let since = self.clock().now();
        let shortest = holds.iter().map(|hold| hold.ttl).min().unwrap_or_default();
        let node_until = self.node_until(shortest, until);
        let mut asked = self.ask_all(|voter| voter.renew(&holds, node_until));
        let mut renewal = Renewal {
            tallies: vec![Tally::default(); holds.len()],
            missing: Vec::new(),
            failed: None,
            holds,
        };
        while renewal.tallies.iter().any(|tally| !tally.settled(n))
            && let Some((index, kept)) = asked.next().await
        {
            renewal.take(index, kept);
        }
        let why = renewal
            .failed
            .as_ref()
            .map_or_else(String::new, |(index, error)| format!("; {}: {error}", self.voters[*index].label()));
        let answers = renewal.tallies.iter().map(|tally| match tally {
            tally if tally.carried(n) => Ok(Renewed::Kept { since }),
            tally if tally.refuted(n) => Ok(Renewed::Gone),
            tally => Err(EngineError::new(
                Fault::NoAnswer,
                format!("{} of {n} nodes renewed it and {} must{why}", tally.yes, self.majority()),
            )),
        });
        let answers = answers.collect();
        if !asked.is_empty() || !renewal.missing.is_empty() {
            self.late.spawn(self.clone().repair(renewal, asked));
        }
        answers
    }

    /// Puts a hold back on nodes that have lost it, while a majority holds.
    async fn repair(self: Arc<Self>, mut renewal: Renewal, mut asked: Answers<Vec<Kept>>) {
        while let Some((index, kept)) = asked.next().await {
            renewal.take(index, kept);
        }
        for (index, at) in std::mem::take(&mut renewal.missing) {
            let hold = &renewal.holds[at];
            let is_held = renewal.tallies[at].carried(self.n()) && !self.has_ended(hold.owner.id());
            if !is_held || !self.seats()[index].votes() {
                continue;
            }
            let until = self.node_until(hold.ttl, self.clock().now() + self.options.command_timeout);
            if let Ok(true) = self.voters[index].repair(&Arc::new(hold.clone()), until).await {
                self.counters.repaired.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Gives the lock back on every node; answers when a majority has.
    pub(super) async fn end(
        self: &Arc<Self>,
        name: &Name,
        owner: &Owner,
        lapses_in: Duration,
        until: Until,
    ) -> Result<Released, EngineError> {
        self.ended().insert(owner.id());
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

/// The answers to one renewal.
struct Renewal {
    holds: Arc<[Hold]>,
    tallies: Vec<Tally>,
    /// Node and hold: nobody holds it there.
    missing: Vec<(usize, usize)>,
    /// The last node that failed, and how.
    failed: Option<(usize, EngineError)>,
}

impl Renewal {
    fn take(&mut self, index: usize, kept: Result<Vec<Kept>, EngineError>) {
        let kept = kept.unwrap_or_else(|error| {
            self.failed = Some((index, error));
            Vec::new()
        });
        for (at, tally) in self.tallies.iter_mut().enumerate() {
            match kept.get(at) {
                Some(Kept::Yes) => tally.yes += 1,
                Some(Kept::Taken) => tally.no += 1,
                Some(Kept::Missing) => {
                    tally.no += 1;
                    self.missing.push((index, at));
                }
                None => tally.unknown += 1,
            }
        }
    }
}
