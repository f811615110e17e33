//! Renewing what a majority holds.

use std::sync::Arc;

use futures_util::StreamExt;

use super::{Result, Shared, count::Tally};
use leasehold_core::clock::Until;
use leasehold_core::engine::voter::{Kept, RENEWALS_PER_CALL};
use leasehold_core::engine::{EngineError, Fault, Hold, Renewed};

/// The answers to one renewal.
struct Renewal {
    tallies: Vec<Tally>,
    /// Node and hold, where nobody holds it.
    missing: Vec<(usize, usize)>,
    /// The last node that failed, and how.
    failed: Option<(usize, EngineError)>,
}

impl Shared {
    pub(super) async fn renew(self: &Arc<Self>, holds: &[Hold], until: Until) -> Vec<Result<Renewed>> {
        let chunks = holds.chunks(RENEWALS_PER_CALL).map(|some| self.renew_some(some.into(), until));
        futures_util::future::join_all(chunks).await.into_iter().flatten().collect()
    }

    async fn renew_some(self: &Arc<Self>, holds: Arc<[Hold]>, until: Until) -> Vec<Result<Renewed>> {
        let n = self.n();
        let since = self.clock().now();
        let shortest = holds.iter().map(|hold| hold.ttl).min().unwrap_or_default();
        let node_until = self.node_until(shortest, until);
        let mut asked = self.ask_all(&holds, move |voter, holds| voter.renew(holds, node_until));
        let tallies = vec![Tally::default(); holds.len()];
        let mut renewal = Renewal { tallies, missing: Vec::new(), failed: None };
        while renewal.tallies.iter().any(|tally| !tally.settled(n))
            && let Some((index, kept)) = asked.next().await
        {
            renewal.take(index, kept);
        }
        let why = self.blame(renewal.failed.as_ref());
        let answers = renewal.tallies.iter().map(|tally| match tally {
            tally if tally.carried(n) => Ok(Renewed::Kept { since }),
            tally if tally.refuted(n) => Ok(Renewed::Gone),
            tally => Err(EngineError::new(
                Fault::NoAnswer,
                format!("{} of {n} nodes renewed it and {} must{why}", tally.yes, self.majority()),
            )),
        });
        let answers = answers.collect();
        let shared = self.clone();
        self.late.spawn(async move {
            while let Some((index, kept)) = asked.next().await {
                renewal.take(index, kept);
            }
            // A node that has lost a hold gets it back while a majority holds.
            for (index, at) in renewal.missing {
                if renewal.tallies[at].carried(n) {
                    let until = shared.node_until(holds[at].ttl, since + holds[at].ttl / 2);
                    let _repaired_or_refused = shared.voters[index].repair(&holds[at], until).await;
                }
            }
        });
        answers
    }
}

impl Renewal {
    fn take(&mut self, index: usize, kept: Result<Vec<Kept>>) {
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
