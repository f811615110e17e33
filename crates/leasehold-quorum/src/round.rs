//! One round of votes: all nodes at once, decided as soon as it can be.

use std::sync::{Arc, Mutex, MutexGuard, atomic::Ordering};
use std::task::{Poll, Waker};
use std::{future::poll_fn, mem, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};

use super::count::{Count, Tally, Verdict, majority};
use super::lane::{Asked, Calls, carrying};
use super::no_quorum::{Report, no_quorum};
use super::votes::{Votes, is_unanswered, lacks, refused};
use super::{Attempt, Result, Shared, locked, membership::VotingStatus};
use leasehold_core::engine::voter::{Abstention, Ballot, Vote, Voter};
use leasehold_core::engine::{
    Answer, Claim, EngineError, Fault, Fut, Grant, Hold, MemberState, registry::ended_error,
};
use leasehold_core::{BootInstant, Fence, clock::Until, owner::OwnerId};

/// What each node answers, in the order in which they do.
pub(super) type Answers<T> = FuturesUnordered<BoxFuture<'static, (usize, Result<T>)>>;

/// How long nodes are waited for that cannot change a lost round any more: one that all have answered leaves nothing
/// behind, and its owner value stays good. A claim in the queue has more time than one that wants an answer now.
const SETTLE: Duration = Duration::from_millis(5);
const SETTLE_IN_QUEUE: Duration = Duration::from_millis(50);

/// The votes on one claim.
pub(super) struct Round {
    pub(super) ballot: Arc<Ballot>,
    attempt: Attempt,
    /// Until when nodes are waited for.
    pub(super) until: Until,
    since: BootInstant,
    state: Mutex<State>,
}

struct State {
    votes: Votes,
    count: Count,
    phase: Phase,
    /// Wake the caller at every vote, not only when a majority has voted.
    settles: bool,
    waker: Option<Waker>,
}

enum Phase {
    Open,
    /// Granted; nodes that did not say yes get it by a repair.
    Granted(Arc<Hold>),
    /// Nobody waits for votes any more.
    Over,
}

impl Round {
    fn new(ballot: Ballot, attempt: Attempt, n: usize, since: BootInstant, until: Until) -> Arc<Self> {
        let (votes, count) = (Votes(vec![None; n]), Count::new(n));
        let state = State { votes, count, phase: Phase::Open, settles: false, waker: None };
        Arc::new(Self { ballot: Arc::new(ballot), attempt, until, since, state: Mutex::new(state) })
    }

    pub(super) fn owner(&self) -> OwnerId {
        self.ballot.claim.owner.id()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// A node voted, or failed to.
    pub(super) fn answer(&self, shared: &Arc<Shared>, node: usize, vote: Result<Vote>) {
        shared.learn(node, &vote);
        let mut state = self.state();
        match &state.phase {
            Phase::Open => {
                state.take(node, vote);
                let is_wanted = state.settles || state.is_voted();
                let waker = if is_wanted { state.waker.take() } else { None };
                drop(state);
                waker.into_iter().for_each(Waker::wake);
            }
            Phase::Granted(hold) if lacks(&vote) => {
                let hold = hold.clone();
                drop(state);
                shared.repair_node(node, hold, self.since);
            }
            Phase::Granted(_) | Phase::Over => {}
        }
    }

    /// Whether a vote that has not left need not leave: nothing depends on it, or its attempt has ended.
    pub(super) fn is_void(&self, now: BootInstant) -> bool {
        match self.state().phase {
            _ if now >= self.until => true,
            Phase::Open => false,
            Phase::Granted(_) => self.attempt.has_ended(),
            Phase::Over => true,
        }
    }

    /// Waits for a decision.
    async fn decided(&self) -> Verdict {
        self.poll(|state| Some(state.count.verdict()).filter(|verdict| *verdict != Verdict::Open)).await
    }

    /// Waits for a decision, or for the votes of a majority.
    async fn voted(&self) -> Verdict {
        self.poll(|state| state.is_voted().then(|| state.count.verdict())).await
    }

    /// Waits for more than so many votes.
    async fn more_than(&self, seen: usize) {
        self.state().settles = true;
        self.poll(|state| (state.votes.answered() > seen).then_some(())).await;
    }

    async fn poll<T>(&self, read: impl Fn(&State) -> Option<T>) -> T {
        poll_fn(|context| {
            let mut state = self.state();
            if let Some(outcome) = read(&state) {
                return Poll::Ready(outcome);
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Ends the round: what comes from here on comes late.
    fn close(&self, phase: Phase) -> Votes {
        let mut state = self.state();
        state.phase = phase;
        mem::take(&mut state.votes)
    }
}

impl State {
    /// Whether it is decided, or a majority has voted.
    fn is_voted(&self) -> bool {
        self.count.verdict() != Verdict::Open || self.votes.voted() >= majority(self.votes.0.len())
    }

    fn take(&mut self, node: usize, vote: Result<Vote>) {
        match &vote {
            Ok(Vote::Yes(fence)) => self.count.yes(*fence),
            _ => self.count.other(),
        }
        self.votes.0[node] = Some(vote);
    }
}

/// Closes a round whose caller is gone: its votes need not leave.
struct Caller(Arc<Round>);

impl Drop for Caller {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if let Phase::Open = state.phase {
            state.phase = Phase::Over;
        }
    }
}

impl Shared {
    /// Asks every node, each in a call of its own. The answers outlive the caller.
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
        let attempt = self.attempts.enter(claim.owner.id(), self.clock().now())?;
        if attempt.has_ended() {
            return Err(ended_error());
        }
        let _turn = self.turn(&self.votes, until).await?;
        let is_known_to_vote = self.has_majority(&locked(&self.members));
        if !is_known_to_vote {
            self.refresh(until).await?;
        }
        let since = self.clock().now();
        // By the attempt's own clock: the same on every node, so that all wake the same waiter.
        let arrival = claim.owner.since_ms().unwrap_or(0) * 1000;
        let ballot = Ballot { claim: claim.clone(), hint: self.hint(), arrival };
        let round = Round::new(ballot, attempt, self.n(), since, self.node_until(claim.ttl, until));
        let _caller = Caller(round.clone());
        let mut calls = self.ask_each(&Asked::Vote(round.clone()));
        match self.counted(&round, &mut calls).await {
            Some(Verdict::Granted(fence)) => {
                self.ended_round(true);
                self.replicate_grant(&round, fence);
                self.run_on(calls);
                Ok(self.grant(&round, fence))
            }
            Some(Verdict::Confirm(fence)) => {
                self.ended_round(true);
                let votes = round.close(Phase::Over);
                self.run_on(calls);
                self.confirm(&round, &votes, fence, until).await
            }
            lost => {
                let votes = match lost {
                    Some(_) => self.settled(&round, &mut calls).await,
                    None => round.close(Phase::Over),
                };
                self.run_on(calls);
                self.lost(&round, votes, until).await
            }
        }
    }

    /// Waits for a decision. When a majority has voted and is divided, the others have a little more time: one that hangs
    /// must not keep the votes of a round that others wait behind.
    async fn counted(&self, round: &Round, calls: &mut Calls) -> Option<Verdict> {
        let verdict = self.clock().bounded(round.until, carrying(calls, round.voted())).await?;
        if verdict != Verdict::Open {
            return Some(verdict);
        }
        let took = self.clock().now().since(round.since);
        let soon = round.until.min(round.since + took * 3 + SETTLE_IN_QUEUE);
        self.clock().bounded(soon, carrying(calls, round.decided())).await
    }

    /// The votes of a lost round, after the other nodes had a little time to answer.
    async fn settled(&self, round: &Round, calls: &mut Calls) -> Votes {
        let settle = if round.ballot.claim.queue.is_some() { SETTLE_IN_QUEUE } else { SETTLE };
        let took = self.clock().now().since(round.since);
        let soon = round.until.min(round.since + took * 3 + settle);
        loop {
            let (answered, voted) = {
                let state = round.state();
                (state.votes.answered(), state.votes.voted())
            };
            // Too few have voted to tell a lock that is held from a store that is down.
            let patience = if voted >= self.majority() { soon } else { round.until };
            let another = carrying(calls, round.more_than(answered));
            if answered == self.n() || self.clock().bounded(patience, another).await.is_none() {
                return round.close(Phase::Over);
            }
        }
    }

    /// Learns from a vote.
    pub(super) fn learn(&self, node: usize, vote: &Result<Vote>) {
        match vote {
            Ok(Vote::Yes(fence) | Vote::No { fence, .. }) => {
                self.highest.fetch_max(fence.get(), Ordering::Relaxed);
            }
            // That is news: it is inspected. Otherwise its time is known.
            Ok(Vote::Abstains(_)) if locked(&self.members)[node].votes() => self.wake.notify_one(),
            Ok(Vote::Abstains(_)) | Err(_) => {}
        }
    }

    fn grant(&self, round: &Round, fence: Fence) -> Answer {
        self.granted.fetch_add(1, Ordering::Relaxed);
        Answer::Granted(Grant { fence, since: round.since, ttl: round.ballot.claim.ttl, acks: 0 })
    }

    /// Sends a grant to the nodes that lack it, also to those whose late votes turn out not to be a yes.
    fn replicate_grant(self: &Arc<Self>, round: &Round, fence: Fence) {
        let hold = Arc::new(round.ballot.claim.hold(fence));
        let votes = round.close(Phase::Granted(hold.clone()));
        let lacking = votes.nodes(|vote| vote.as_ref().is_some_and(lacks));
        lacking.for_each(|node| self.repair_node(node, hold.clone(), round.since));
    }

    /// The second phase: a majority said yes under different fences.
    async fn confirm(
        self: &Arc<Self>,
        round: &Round,
        votes: &Votes,
        fence: Fence,
        until: Until,
    ) -> Result<Answer> {
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
            let (shared, since) = (self.clone(), round.since);
            lacking.into_iter().for_each(|node| self.repair_node(node, hold.clone(), since));
            self.late.spawn(async move {
                while let Some((node, raised)) = confirmed.next().await {
                    if !matches!(raised, Ok(true)) {
                        shared.repair_node(node, hold.clone(), since);
                    }
                }
            });
            return Ok(self.grant(round, fence));
        }
        self.late.spawn(async move { while confirmed.next().await.is_some() {} });
        if !tally.refuted(self.n()) {
            self.give_back(claim);
            return Err(EngineError::new(Fault::NoAnswer, "too few nodes confirmed the fence in time"));
        }
        if claim.queue.is_none() {
            // This claim is not sent again, and a vote that has not left yet would lock for nobody.
            self.give_back(claim);
        } else if !self.take_back(round, votes.may_have_given(), until).await {
            return Ok(Answer::Spent);
        }
        Ok(refused(claim, None, None, 0))
    }

    /// No majority: what some nodes gave is given back.
    async fn lost(self: &Arc<Self>, round: &Round, votes: Votes, until: Until) -> Result<Answer> {
        let claim = &round.ballot.claim;
        let gave = votes.said_yes().next().is_some();
        let may_have_given = gave || votes.0.iter().any(is_unanswered);
        let has_majority = votes.voted() >= self.majority();
        self.ended_round(has_majority);
        if has_majority {
            // A yes that comes late is kept while the attempt waits, and given back with its end.
            if claim.queue.is_none() && may_have_given {
                self.give_back(claim);
            } else if gave && !self.take_back(round, votes.said_yes().collect(), until).await {
                return Ok(Answer::Spent);
            }
            return Ok(votes.refused(claim, self.majority()));
        }
        // A node where it waits would wake an attempt that has failed.
        if may_have_given || claim.queue.is_some() && votes.voted() > 0 {
            self.give_back(claim);
        }
        let reported = votes.0.into_iter().enumerate().filter_map(|(index, vote)| match vote {
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
}
