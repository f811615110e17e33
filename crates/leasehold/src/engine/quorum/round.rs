//! One round of votes: all nodes at once, decided as soon as it can be.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};

use super::{
    Excuse, Excuses, Shared,
    count::{Count, Tally, Verdict},
};
use crate::{
    clock::{BootInstant, Until},
    engine::{
        Answer, Claim, EngineError, Fault, Grant,
        voter::{Ballot, Vote, Voter},
    },
    fence::Fence,
    owner::Holder,
};

/// What each node answers, in the order in which they do.
pub(super) type Answers<T> = FuturesUnordered<BoxFuture<'static, (usize, Result<T, EngineError>)>>;

/// How long those are waited for who cannot change a lost round any more: one that all have answered leaves nothing
/// behind, and its owner value stays good.
const SETTLE_MIN: Duration = Duration::from_millis(5);

impl Shared {
    /// Asks every node.
    pub(super) fn ask_all<T: 'static>(
        &self,
        ask: impl Fn(&dyn Voter) -> BoxFuture<'static, Result<T, EngineError>>,
    ) -> Answers<T> {
        let asked = self.voters.iter().enumerate().map(|(index, voter)| {
            let answer = ask(&**voter);
            Box::pin(async move { (index, answer.await) }) as BoxFuture<'static, _>
        });
        asked.collect()
    }

    pub(super) async fn claim(self: &Arc<Self>, claim: &Claim, until: Until) -> Result<Answer, EngineError> {
        if claim.owner.has_ended() {
            return Err(EngineError::new(Fault::Ended, "this attempt has ended"));
        }
        self.ensure_seats(until).await?;
        let since = self.clock().now();
        let ballot = Arc::new(Ballot { claim: claim.clone(), hint: self.hint(), arrival: arrival(claim) });
        let node_until = self.node_until(claim.ttl, until);
        let mut votes = self.ask_all(|voter| voter.vote(&ballot, node_until));
        let mut round = Round::new(self.n());
        loop {
            match round.count.verdict() {
                Verdict::Open => {}
                Verdict::Granted(fence) => {
                    self.run_on(votes);
                    self.counters.granted.fetch_add(1, Ordering::Relaxed);
                    return Ok(granted(claim, fence, since));
                }
                Verdict::Confirm(fence) => {
                    self.run_on(votes);
                    return self.confirm(claim, fence, since, until).await;
                }
                Verdict::Lost => break,
            }
            // A complete count is always decided.
            let Some((index, vote)) = votes.next().await else { break };
            round.take(self, index, vote);
        }
        let patience = node_until.min(since + self.clock().now().since(since) * 3 + SETTLE_MIN);
        while let Some(Some((index, vote))) = self.clock().bounded(patience, votes.next()).await {
            round.take(self, index, vote);
        }
        self.lost(claim, round, votes)
    }

    /// The second phase: a majority said yes under different fences.
    async fn confirm(
        self: &Arc<Self>,
        claim: &Claim,
        fence: Fence,
        since: BootInstant,
        until: Until,
    ) -> Result<Answer, EngineError> {
        self.counters.confirmed.fetch_add(1, Ordering::Relaxed);
        let hold = Arc::new(claim.hold(fence));
        let node_until = self.node_until(claim.ttl, until);
        // Also where the vote is still on its way: it arrives first.
        let mut confirmed = self.ask_all(|voter| voter.confirm(&hold, node_until));
        let mut tally = Tally::default();
        while tally.decided(self.n()).is_none()
            && let Some((_, answer)) = confirmed.next().await
        {
            match answer {
                Ok(true) => tally.yes += 1,
                Ok(false) => tally.no += 1,
                Err(_) => tally.unknown += 1,
            }
        }
        self.run_on(confirmed);
        if tally.decided(self.n()) == Some(true) {
            self.counters.granted.fetch_add(1, Ordering::Relaxed);
            return Ok(granted(claim, fence, since));
        }
        self.give_back(claim);
        if tally.refuted(self.n()) {
            return Ok(refused(claim, None, None));
        }
        Err(EngineError::new(Fault::NoAnswer, "too few nodes confirmed the fence in time"))
    }

    /// No majority. What some nodes gave is given back, and then the owner value is spent.
    fn lost(
        self: &Arc<Self>,
        claim: &Claim,
        mut round: Round,
        votes: Answers<Vote>,
    ) -> Result<Answer, EngineError> {
        let unanswered = round.unanswered || !votes.is_empty();
        let voting = self.n() - round.excuses.0.len() - votes.len();
        let is_contended = voting >= self.majority();
        // A node where it waits would wake an attempt that has failed.
        let waits_for_nothing = !is_contended && claim.queue_for.is_some() && !round.refusals.is_empty();
        if round.count.any_yes() || unanswered || waits_for_nothing {
            self.give_back(claim);
        }
        for _ in 0..votes.len() {
            round.excuses.0.push(("a node".into(), Excuse::Fails(EngineError::no_answer())));
        }
        self.run_on(votes);
        if !is_contended {
            return Err(round.excuses.into_error(self));
        }
        let (holder, expires_in) = round.holder(self.majority());
        Ok(refused(claim, holder, expires_in))
    }

    /// Lets answers come in that nobody waits for any more.
    pub(super) fn run_on<T: Send + 'static>(&self, mut answers: Answers<T>) {
        if !answers.is_empty() {
            self.background.spawn(async move { while answers.next().await.is_some() {} });
        }
    }
}

struct Round {
    count: Count,
    /// Who holds it, and for how long, by each node that said no.
    refusals: Vec<(Option<Holder>, Option<Duration>)>,
    excuses: Excuses,
    /// A node may have said yes without our knowing.
    unanswered: bool,
}

impl Round {
    fn new(n: usize) -> Self {
        Self { count: Count::new(n), refusals: Vec::new(), excuses: Excuses(Vec::new()), unanswered: false }
    }

    fn take(&mut self, shared: &Shared, index: usize, vote: Result<Vote, EngineError>) {
        match vote {
            Ok(Vote::Yes(fence)) => {
                shared.saw(fence);
                self.count.yes(fence);
                return;
            }
            Ok(Vote::No { fence, holder, expires_in }) => {
                shared.saw(fence);
                self.refusals.push((holder, expires_in));
            }
            Ok(Vote::Abstains(why)) => {
                shared.counters.abstained.fetch_add(1, Ordering::Relaxed);
                shared.ring();
                self.excuses.0.push((shared.voters[index].label().to_owned(), Excuse::Abstains(why)));
            }
            Err(error) => {
                self.unanswered |= error.fault == Fault::NoAnswer;
                self.excuses.0.push((shared.voters[index].label().to_owned(), Excuse::Fails(error)));
            }
        }
        self.count.other();
    }

    /// Who holds it on most nodes, and when enough of them will be free.
    fn holder(&self, majority: usize) -> (Option<Holder>, Option<Duration>) {
        let times =
            |holder: &Option<Holder>| self.refusals.iter().filter(|(other, _)| other == holder).count();
        let holder = self.refusals.iter().map(|(holder, _)| holder).max_by_key(|holder| times(holder));
        let mut ends: Vec<_> = self.refusals.iter().filter_map(|(_, end)| *end).collect();
        ends.sort_unstable();
        let end = ends.get(majority - 1).or(ends.last()).copied();
        (holder.cloned().flatten(), end)
    }
}

fn granted(claim: &Claim, fence: Fence, since: BootInstant) -> Answer {
    Answer::Granted(Grant { fence, since, ttl: claim.ttl, acks: 0 })
}

fn refused(claim: &Claim, holder: Option<Holder>, expires_in: Option<Duration>) -> Answer {
    match claim.queue_for {
        Some(_) => Answer::Queued { ahead: 0, holder, expires_in },
        None => Answer::Busy { holder, expires_in },
    }
}

/// When the attempt began, by its own clock: the same on every node, so that all wake the same waiter.
fn arrival(claim: &Claim) -> u64 {
    match claim.owner.holder() {
        Holder::Leasehold { since_ms, .. } => since_ms * 1000,
        Holder::Foreign => 0,
    }
}
