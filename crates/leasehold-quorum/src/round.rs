//! One round of votes: all nodes at once, decided as soon as it can be.

use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};

use super::count::{Count, Tally, Verdict};
use super::no_quorum::{Report, no_quorum};
use super::{Result, Shared, locked, membership::VotingStatus};
use leasehold_core::engine::voter::{Abstention, Ballot, Vote, Voter};
use leasehold_core::engine::{
    Answer, Claim, EngineError, Fault, Fut, Grant, Holders, MemberState, Mode, Tenure, registry::ended_error,
};
use leasehold_core::{BootInstant, Fence, Holder, clock::Until};

/// What each node answers, in the order in which they do.
pub(super) type Answers<T> = FuturesUnordered<BoxFuture<'static, (usize, Result<T>)>>;

/// How long nodes are waited for that cannot change a lost round any more: one that all have answered leaves nothing
/// behind, and its owner value stays good. A claim in the queue has more time than one that wants an answer now.
const SETTLE: Duration = Duration::from_millis(5);
const SETTLE_IN_QUEUE: Duration = Duration::from_millis(50);

/// The votes on one claim.
struct Round {
    ballot: Arc<Ballot>,
    since: BootInstant,
    votes: Vec<Option<Result<Vote>>>,
}

impl Shared {
    /// Asks every node. The answers outlive the caller.
    pub(super) fn ask_all<A, T>(
        &self,
        about: &A,
        ask: impl for<'a> Fn(&'a dyn Voter, &'a A) -> Fut<'a, T> + Copy + Send + 'static,
    ) -> Answers<T>
    where
        A: Clone + Send + Sync + 'static,
        T: 'static,
    {
        let asked = self.voters.iter().enumerate().map(|(index, voter)| {
            let (voter, about) = (voter.clone(), about.clone());
            Box::pin(async move { (index, ask(&*voter, &about).await) }) as BoxFuture<'static, _>
        });
        asked.collect()
    }

    pub(super) async fn claim(self: &Arc<Self>, claim: &Claim, until: Until) -> Result<Answer> {
        if locked(&self.ended).contains(claim.owner.id()) {
            return Err(ended_error());
        }
        let _turn = self.turn(&self.votes, until).await?;
        let is_known_to_vote = self.has_majority(&locked(&self.members));
        if !is_known_to_vote {
            self.refresh(until).await?;
        }
        let since = self.clock().now();
        // By the attempt's own clock: the same on every node, so that all wake the same waiter.
        let began_ms =
            if let Holder::Leasehold { since_ms, .. } = claim.owner.holder() { since_ms } else { 0 };
        let ballot = Arc::new(Ballot { claim: claim.clone(), hint: self.hint(), arrival: began_ms * 1000 });
        let node_until = self.node_until(claim.ttl, until);
        let mut votes = self.ask_all(&ballot, move |voter, ballot| voter.vote(ballot, node_until));
        let mut round = Round { ballot, since, votes: vec![None; self.n()] };
        loop {
            match round.verdict() {
                Verdict::Open => {}
                Verdict::Granted(fence) => {
                    self.ended_round(true);
                    let shared = self.clone();
                    let late = votes.map(move |(index, vote)| (index, shared.take(index, &vote)));
                    self.replicate_grant(claim.hold(fence), since, round.said_otherwise(), late);
                    return Ok(self.grant(&round, fence));
                }
                Verdict::Confirm(fence) => {
                    self.ended_round(true);
                    self.run_on(votes);
                    return self.confirm(&round, fence, until).await;
                }
                Verdict::Lost => break,
            }
            // A complete count is always decided.
            let Some((index, vote)) = votes.next().await else { break };
            self.take(index, &vote);
            round.votes[index] = Some(vote);
        }
        let settle = if claim.queue.is_some() { SETTLE_IN_QUEUE } else { SETTLE };
        let soon = node_until.min(since + self.clock().now().since(since) * 3 + settle);
        loop {
            // Too few have voted to tell a lock that is held from a store that is down.
            let patience = if round.voted() >= self.majority() { soon } else { node_until };
            let Some(Some((index, vote))) = self.clock().bounded(patience, votes.next()).await else { break };
            self.take(index, &vote);
            round.votes[index] = Some(vote);
        }
        self.run_on(votes);
        self.lost(round, until).await
    }

    /// Learns from a vote, and returns whether it is a yes.
    fn take(&self, index: usize, vote: &Result<Vote>) -> bool {
        match vote {
            Ok(Vote::Yes(fence) | Vote::No { fence, .. }) => {
                self.highest.fetch_max(fence.get(), Ordering::Relaxed);
            }
            // That is news: it is inspected. Otherwise its time is known.
            Ok(Vote::Abstains(_)) if locked(&self.members)[index].votes() => self.wake.notify_one(),
            Ok(Vote::Abstains(_)) | Err(_) => {}
        }
        matches!(vote, Ok(Vote::Yes(_)))
    }

    fn grant(&self, round: &Round, fence: Fence) -> Answer {
        self.granted.fetch_add(1, Ordering::Relaxed);
        Answer::Granted(Grant { fence, since: round.since, ttl: round.ballot.claim.ttl, acks: 0 })
    }

    /// The second phase: a majority said yes under different fences.
    async fn confirm(self: &Arc<Self>, round: &Round, fence: Fence, until: Until) -> Result<Answer> {
        let claim = &round.ballot.claim;
        self.confirmed.fetch_add(1, Ordering::Relaxed);
        let node_until = self.node_until(claim.ttl, until);
        // Also where the vote is still on its way: it arrives first.
        let hold = Arc::new(claim.hold(fence));
        let mut confirmed = self.ask_all(&hold, move |voter, hold| voter.confirm(hold, node_until));
        let (mut tally, mut lacking) = (Tally::default(), Vec::new());
        while !tally.settled(self.n())
            && let Some((index, answer)) = confirmed.next().await
        {
            match answer {
                Ok(true) => tally.yes += 1,
                Ok(false) => tally.no += 1,
                Err(_) => tally.unknown += 1,
            }
            if !matches!(answer, Ok(true)) {
                lacking.push(index);
            }
        }
        if tally.carried(self.n()) {
            let late = confirmed.map(|(index, raised)| (index, matches!(raised, Ok(true))));
            self.replicate_grant(claim.hold(fence), round.since, lacking, late);
            return Ok(self.grant(round, fence));
        }
        self.run_on(confirmed);
        if !tally.refuted(self.n()) {
            self.give_back(claim);
            return Err(EngineError::new(Fault::NoAnswer, "too few nodes confirmed the fence in time"));
        }
        if claim.queue.is_none() {
            // This claim is not sent again, and a vote that has not left yet would lock for nobody.
            self.give_back(claim);
        } else if !self.take_back(round, round.may_have_given(), until).await {
            return Ok(Answer::Spent);
        }
        Ok(refused(claim, None, None, 0))
    }

    /// No majority: what some nodes gave is given back.
    async fn lost(self: &Arc<Self>, round: Round, until: Until) -> Result<Answer> {
        let claim = &round.ballot.claim;
        let gave = round.said_yes().next().is_some();
        let may_have_given = gave || round.votes.iter().any(is_unanswered);
        let has_majority = round.voted() >= self.majority();
        self.ended_round(has_majority);
        if has_majority {
            // A yes that comes late is kept while the attempt waits, and given back with its end.
            if claim.queue.is_none() && may_have_given {
                self.give_back(claim);
            } else if gave && !self.take_back(&round, round.said_yes().collect(), until).await {
                return Ok(Answer::Spent);
            }
            return Ok(round.refused(self.majority()));
        }
        // A node where it waits would wake an attempt that has failed.
        if may_have_given || claim.queue.is_some() && round.voted() > 0 {
            self.give_back(claim);
        }
        let reported = round.votes.into_iter().enumerate().filter_map(|(index, vote)| match vote {
            Some(Ok(Vote::Yes(_) | Vote::No { .. })) => None,
            Some(Ok(Vote::Abstains(why))) => Some((index, self.report(index, why))),
            Some(Err(error)) => Some((index, Err(error))),
            None => Some((index, Err(EngineError::no_answer()))),
        });
        Err(no_quorum(&self.voters, reported.collect()))
    }

    /// Why a node abstains, by what is known of it.
    fn report(&self, index: usize, why: Abstention) -> Report {
        let status = locked(&self.members)[index].clone();
        match status {
            VotingStatus::Unknown => Err(EngineError::new(Fault::Unreachable, "has not answered yet")),
            VotingStatus::Votes(_) => Ok(MemberState::Abstains { why }),
            status => Ok(self.state(index, &status, None)),
        }
    }

    /// Takes back what these nodes gave in a round, so that another claim gets a majority. If one of them does not answer,
    /// the owner value is spent, and the result is false: what was sent may undo a later yes. On a slow network they have
    /// time accordingly, or every round would spend one.
    async fn take_back(self: &Arc<Self>, round: &Round, nodes: Vec<usize>, until: Until) -> bool {
        let now = self.clock().now();
        let patience = now.since(round.since) * 3 + SETTLE_IN_QUEUE;
        let until = self.node_until(round.ballot.claim.ttl, until).min(now + patience);
        let taken = nodes.into_iter().map(|index| self.voters[index].retract(&round.ballot, until));
        let is_back = futures_util::future::join_all(taken).await.iter().all(Result::is_ok);
        if !is_back {
            self.give_back(&round.ballot.claim);
        }
        is_back
    }

    /// Lets the remaining answers come in without a caller.
    fn run_on<T: Send + 'static>(&self, mut answers: Answers<T>) {
        if !answers.is_empty() {
            self.late.spawn(async move { while answers.next().await.is_some() {} });
        }
    }
}

impl Round {
    fn verdict(&self) -> Verdict {
        let mut count = Count::new(self.votes.len());
        for vote in self.votes.iter().flatten() {
            match vote {
                Ok(Vote::Yes(fence)) => count.yes(*fence),
                _ => count.other(),
            }
        }
        count.verdict()
    }

    fn nodes(&self, which: impl Fn(&Option<Result<Vote>>) -> bool) -> impl Iterator<Item = usize> {
        self.votes.iter().enumerate().filter(move |(_, vote)| which(vote)).map(|(index, _)| index)
    }

    fn said_yes(&self) -> impl Iterator<Item = usize> {
        self.nodes(|vote| matches!(vote, Some(Ok(Vote::Yes(_)))))
    }

    /// The nodes that have answered, or failed to, and did not say yes.
    fn said_otherwise(&self) -> Vec<usize> {
        self.nodes(|vote| !matches!(vote, None | Some(Ok(Vote::Yes(_))))).collect()
    }

    /// The nodes that said yes, or may have.
    fn may_have_given(&self) -> Vec<usize> {
        self.nodes(|vote| !matches!(vote, Some(Ok(Vote::No { .. } | Vote::Abstains(_))))).collect()
    }

    /// How many nodes said yes or no.
    fn voted(&self) -> usize {
        self.nodes(|vote| matches!(vote, Some(Ok(Vote::Yes(_) | Vote::No { .. })))).count()
    }

    /// Who holds it on most nodes, when enough of them will be free, and the place in the queue.
    fn refused(&self, majority: usize) -> Answer {
        let refusals = || {
            self.votes.iter().filter_map(|vote| match vote {
                Some(Ok(Vote::No { holder, expires_in, ahead, .. })) => Some((holder, expires_in, *ahead)),
                _ => None,
            })
        };
        let times = |some: &Option<Holder>| refusals().filter(|(holder, ..)| *holder == some).count();
        let holder = refusals().map(|(holder, ..)| holder).max_by_key(|holder| times(holder));
        let mut ends: Vec<_> = refusals().filter_map(|(_, expires_in, _)| *expires_in).collect();
        ends.sort_unstable();
        let expires_in = ends.get(majority - 1).or(ends.last()).copied();
        let ahead = refusals().map(|(.., ahead)| ahead).max().unwrap_or(0);
        refused(&self.ballot.claim, holder.cloned().flatten(), expires_in, ahead)
    }
}

/// Whether a node may have said yes without our knowing.
fn is_unanswered(vote: &Option<Result<Vote>>) -> bool {
    vote.as_ref().is_none_or(|vote| matches!(vote, Err(error) if error.fault == Fault::NoAnswer))
}

fn refused(claim: &Claim, holder: Option<Holder>, expires_in: Option<Duration>, ahead: u32) -> Answer {
    let tenure = |holder| Tenure { holder, fence: Fence::new(0), mode: Mode::Exclusive, expires_in };
    let holders = holder.map_or_else(|| Holders::none(expires_in), |holder| Holders::one(tenure(holder)));
    match claim.queue {
        // Nobody is handed a lock, so nothing is concluded from a fence.
        Some(_) => Answer::Queued { ahead, holders, last: Fence::new(0), link: 0 },
        None => Answer::Busy { holders },
    }
}
