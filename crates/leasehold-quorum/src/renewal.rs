//! Renewing what a majority holds, and replicating a grant to all nodes, not only to the majority that decided it.
//!
//! A bare majority is enough to hold a lock and too little to keep it: one node that hangs would cost it. So the grant is
//! sent to the other nodes in the background.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;

use super::{Result, Shared, count::Tally};
use leasehold_core::clock::{BootInstant, Until};
use leasehold_core::engine::voter::{Kept, RENEWALS_PER_CALL};
use leasehold_core::engine::{EngineError, Fault, Hold, Renewed};

/// How often it is sent to a node that does not take it: one that does not vote yet, or has voted for a claim that gives it
/// back.
const TIMES_MAX: u32 = 6;
/// Pause before it is sent again; doubles.
const PAUSE: Duration = Duration::from_millis(20);
/// Grants under way to nodes in the background; beyond it the next renewal settles the rest.
const UNDER_WAY_MAX: usize = 10_000;

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
        let answer = |tally: &Tally| match tally.yes {
            _ if tally.carried(n) => Ok(Renewed::Kept { since, link: None }),
            _ if tally.refuted(n) => Ok(Renewed::Gone),
            yes => {
                let why = format!("{yes} of {n} nodes renewed it and {} must{why}", self.majority());
                Err(EngineError::new(Fault::NoAnswer, why))
            }
        };
        let answers = renewal.tallies.iter().map(answer).collect();
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

    /// Puts a hold back on a node, only in the first half of the lease: until then the majority that granted it has it,
    /// whatever its holder does.
    pub(super) fn repair_node(self: &Arc<Self>, index: usize, hold: Arc<Hold>, since: BootInstant) {
        if self.late.len() >= UNDER_WAY_MAX {
            return;
        }
        let Ok(attempt) = self.attempts.enter(hold.owner.id(), self.clock().now()) else { return };
        let (shared, last) = (self.clone(), since + hold.ttl / 2);
        let repair = async move {
            let mut pause = PAUSE;
            for _ in 0..TIMES_MAX {
                if attempt.has_ended() || shared.clock().now() >= last {
                    return;
                }
                // One that has it needs no more. One that is down or hangs is found again by the next renewal, and one
                // whose lease was given back meanwhile fails.
                let until = shared.node_until(hold.ttl, last);
                if !matches!(shared.voters[index].repair(&hold, until).await, Ok(false)) {
                    return;
                }
                shared.clock().sleep_until(shared.clock().now() + pause).await;
                pause *= 2;
            }
        };
        let closed = self.closed.clone();
        self.spawn(index, async move { _ = closed.run_until_cancelled(repair).await });
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
