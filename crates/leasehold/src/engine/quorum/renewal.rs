//! Renewing what a majority holds.

use std::sync::{Arc, atomic::Ordering};

use futures_util::StreamExt;

use super::{Shared, count::Tally, round::Answers};
use crate::{
    clock::Until,
    engine::{
        EngineError, Fault, Hold, Renewed,
        voter::{Kept, RENEWALS_PER_CALL},
    },
};

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
            self.late.spawn(self.clone().repair_missing(renewal, asked));
        }
        answers
    }

    /// Puts a hold back on nodes that have lost it, while a majority holds.
    async fn repair_missing(self: Arc<Self>, mut renewal: Renewal, mut asked: Answers<Vec<Kept>>) {
        while let Some((index, kept)) = asked.next().await {
            renewal.take(index, kept);
        }
        for (index, at) in std::mem::take(&mut renewal.missing) {
            let hold = &renewal.holds[at];
            let is_held = renewal.tallies[at].carried(self.n()) && !self.has_ended(hold.owner.id());
            if !is_held || !self.members()[index].votes() {
                continue;
            }
            let until = self.node_until(hold.ttl, self.clock().now() + self.options.command_timeout);
            if let Ok(true) = self.voters[index].repair(&Arc::new(hold.clone()), until).await {
                self.counters.repaired.fetch_add(1, Ordering::Relaxed);
            }
        }
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
