//! One round of votes: all nodes at once, decided as soon as it can be.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};

use super::{
    Shared,
    count::{Count, Tally, Verdict},
    excuses::Excuses,
    seats::Seat,
};
use crate::{
    clock::{BootInstant, Until},
    engine::{
        Answer, Claim, EngineError, Fault, Grant, Holders, Mode, Tenure,
        registry::ended_error,
        voter::{Ballot, Vote, Voter},
    },
    fence::Fence,
    owner::Holder,
};

/// What each node answers, in the order in which they do.
pub(super) type Answers<T> = FuturesUnordered<BoxFuture<'static, (usize, Result<T, EngineError>)>>;

/// How long those are waited for who cannot change a lost round any more: one that all have answered leaves nothing
/// behind, and its owner value stays good. Who waits in the queue has more time than who wants an answer now.
const SETTLE: Duration = Duration::from_millis(5);
const SETTLE_IN_QUEUE: Duration = Duration::from_millis(50);

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
        if self.has_ended(claim.owner.id()) {
            return Err(ended_error());
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
                    self.counters.granted.fetch_add(1, Ordering::Relaxed);
                    let lacking = round.said_otherwise();
                    self.spread(claim.hold(fence), since, lacking, votes, Self::is_late_yes);
                    return Ok(granted(claim, fence, since));
                }
                Verdict::Confirm(fence) => {
                    self.run_on(votes);
                    return self.confirm(&ballot, &round, fence, since, until).await;
                }
                Verdict::Lost => break,
            }
            // A complete count is always decided.
            let Some((index, vote)) = votes.next().await else { break };
            round.take(self, index, vote);
        }
        let settle = if claim.queue.is_some() { SETTLE_IN_QUEUE } else { SETTLE };
        let soon = node_until.min(since + self.clock().now().since(since) * 3 + settle);
        loop {
            // Too few have voted to tell a lock that is held from a store that is down.
            let patience = if round.voted() >= self.majority() { soon } else { node_until };
            match self.clock().bounded(patience, votes.next()).await {
                Some(Some((index, vote))) => round.take(self, index, vote),
                _ => break,
            }
        }
        self.lost(&ballot, round, votes, since, until).await
    }

    /// The second phase: a majority said yes under different fences.
    async fn confirm(
        self: &Arc<Self>,
        ballot: &Arc<Ballot>,
        round: &Round,
        fence: Fence,
        since: BootInstant,
        until: Until,
    ) -> Result<Answer, EngineError> {
        let claim = &ballot.claim;
        self.counters.confirmed.fetch_add(1, Ordering::Relaxed);
        let hold = Arc::new(claim.hold(fence));
        let node_until = self.node_until(claim.ttl, until);
        // Also where the vote is still on its way: it arrives first.
        let mut confirmed = self.ask_all(|voter| voter.confirm(&hold, node_until));
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
            self.counters.granted.fetch_add(1, Ordering::Relaxed);
            self.spread(claim.hold(fence), since, lacking, confirmed, |_, _, raised| *raised);
            return Ok(granted(claim, fence, since));
        }
        self.run_on(confirmed);
        if !tally.refuted(self.n()) {
            self.give_back(claim);
            return Err(EngineError::new(Fault::NoAnswer, "too few nodes confirmed the fence in time"));
        }
        if claim.queue.is_some() {
            return Ok(match self.take_back(ballot, &round.may_have_given(), since, until).await {
                Taken::Back => refused(claim, Refusal::default()),
                Taken::Perhaps => Answer::Spent,
            });
        }
        // Nobody asks again, and a vote that has not left yet would lock for nobody.
        self.give_back(claim);
        Ok(refused(claim, Refusal::default()))
    }

    /// No majority: what some nodes gave is given back.
    async fn lost(
        self: &Arc<Self>,
        ballot: &Arc<Ballot>,
        mut round: Round,
        votes: Answers<Vote>,
        since: BootInstant,
        until: Until,
    ) -> Result<Answer, EngineError> {
        let (claim, outstanding) = (&ballot.claim, votes.len());
        self.run_on(votes);
        let unanswered = round.unanswered || outstanding > 0;
        if round.voted() >= self.majority() {
            // A yes that comes late is kept while the attempt waits, and given back with its end.
            if claim.queue.is_none() && (unanswered || round.count.any_yes()) {
                self.give_back(claim);
            } else if let Taken::Perhaps = self.take_back(ballot, &round.said_yes, since, until).await {
                return Ok(Answer::Spent);
            }
            return Ok(refused(claim, round.refusal(self.majority())));
        }
        // A node where it waits would wake an attempt that has failed.
        let waits = claim.queue.is_some() && !round.refusals.is_empty();
        if round.count.any_yes() || unanswered || waits {
            self.give_back(claim);
        }
        for (voter, _) in self.voters.iter().zip(&round.heard).filter(|(_, heard)| !**heard) {
            round.excuses.fails(voter.label(), EngineError::no_answer());
        }
        Err(round.excuses.into_error(self))
    }

    /// Takes back what these nodes gave in the round that began at `since`, so that somebody else gets a majority. If one
    /// of them does not answer, the owner value is spent: what was sent may undo a later yes. On a slow network they have
    /// time accordingly, or every round would spend one.
    async fn take_back(
        self: &Arc<Self>,
        ballot: &Arc<Ballot>,
        nodes: &[usize],
        since: BootInstant,
        until: Until,
    ) -> Taken {
        let now = self.clock().now();
        let patience = now.since(since) * 3 + SETTLE_IN_QUEUE;
        let until = self.node_until(ballot.claim.ttl, until).min(now + patience);
        let taken = nodes.iter().map(|index| self.voters[*index].retract(ballot, until));
        if futures_util::future::join_all(taken).await.iter().any(Result::is_err) {
            self.give_back(&ballot.claim);
            return Taken::Perhaps;
        }
        Taken::Back
    }

    /// Lets answers come in that nobody waits for any more.
    pub(super) fn run_on<T: Send + 'static>(&self, mut answers: Answers<T>) {
        if !answers.is_empty() {
            self.late.spawn(async move { while answers.next().await.is_some() {} });
        }
    }
}

/// Whether what nodes gave was taken back.
enum Taken {
    Back,
    /// A node did not answer, so the attempt was ended: its owner value is spent.
    Perhaps,
}

/// Why a node, or the quorum, said no.
#[derive(Default)]
struct Refusal {
    holder: Option<Holder>,
    expires_in: Option<Duration>,
    ahead: u32,
}

struct Round {
    count: Count,
    /// What each node said that said no.
    refusals: Vec<Refusal>,
    excuses: Excuses,
    /// Which nodes have answered, or failed to.
    heard: Vec<bool>,
    said_yes: Vec<usize>,
    /// Which nodes said that they gave nothing.
    gave_nothing: Vec<bool>,
    /// A node may have said yes without our knowing.
    unanswered: bool,
}

impl Round {
    fn new(n: usize) -> Self {
        Self {
            count: Count::new(n),
            refusals: Vec::new(),
            excuses: Excuses::default(),
            heard: vec![false; n],
            said_yes: Vec::new(),
            gave_nothing: vec![false; n],
            unanswered: false,
        }
    }

    fn take(&mut self, shared: &Shared, index: usize, vote: Result<Vote, EngineError>) {
        self.heard[index] = true;
        let label = shared.voters[index].label();
        match vote {
            Ok(Vote::Yes(fence)) => {
                shared.saw(fence);
                self.count.yes(fence);
                self.said_yes.push(index);
                return;
            }
            Ok(Vote::No { fence, holder, expires_in, ahead }) => {
                self.gave_nothing[index] = true;
                shared.saw(fence);
                self.refusals.push(Refusal { holder, expires_in, ahead });
            }
            Ok(Vote::Abstains(why)) => {
                self.gave_nothing[index] = true;
                shared.counters.abstained.fetch_add(1, Ordering::Relaxed);
                let seat = shared.seats()[index].clone();
                match seat {
                    // Its record could not be read so far.
                    Seat::Unknown => {
                        self.excuses
                            .fails(label, EngineError::new(Fault::Unreachable, "has not answered yet"));
                    }
                    seat => self.excuses.abstains(label, &seat, why),
                }
                shared.lost_seat(index);
            }
            Err(error) => {
                self.unanswered |= error.fault == Fault::NoAnswer;
                self.excuses.fails(label, error);
            }
        }
        self.count.other();
    }

    /// The nodes that have answered, or failed to, and did not say yes.
    fn said_otherwise(&self) -> Vec<usize> {
        (0..self.heard.len()).filter(|index| self.heard[*index] && !self.said_yes.contains(index)).collect()
    }

    /// The nodes that said yes, or may have.
    fn may_have_given(&self) -> Vec<usize> {
        (0..self.heard.len()).filter(|index| !self.gave_nothing[*index]).collect()
    }

    /// How many nodes said yes or no.
    fn voted(&self) -> usize {
        self.said_yes.len() + self.refusals.len()
    }

    /// Who holds it on most nodes, when enough of them will be free, and the place in the queue.
    fn refusal(&self, majority: usize) -> Refusal {
        let times =
            |some: &Option<Holder>| self.refusals.iter().filter(|other| other.holder == *some).count();
        let holder = self.refusals.iter().map(|refusal| &refusal.holder).max_by_key(|holder| times(holder));
        let mut ends: Vec<_> = self.refusals.iter().filter_map(|refusal| refusal.expires_in).collect();
        ends.sort_unstable();
        Refusal {
            holder: holder.cloned().flatten(),
            expires_in: ends.get(majority - 1).or(ends.last()).copied(),
            ahead: self.refusals.iter().map(|refusal| refusal.ahead).max().unwrap_or(0),
        }
    }
}

fn granted(claim: &Claim, fence: Fence, since: BootInstant) -> Answer {
    Answer::Granted(Grant { fence, since, ttl: claim.ttl, acks: 0 })
}

fn refused(claim: &Claim, refusal: Refusal) -> Answer {
    let Refusal { holder, expires_in, ahead } = refusal;
    let tenure = |holder| Tenure { holder, fence: Fence::new(0), mode: Mode::Exclusive, expires_in };
    let holders = holder.map_or_else(|| Holders::none(expires_in), |holder| Holders::one(tenure(holder)));
    match claim.queue {
        // Nobody is handed a lock, so nothing is concluded from a fence.
        Some(_) => Answer::Queued { ahead, holders, last: Fence::new(0), link: 0 },
        None => Answer::Busy { holders },
    }
}

/// When the attempt began, by its own clock: the same on every node, so that all wake the same waiter.
fn arrival(claim: &Claim) -> u64 {
    match claim.owner.holder() {
        Holder::Leasehold { since_ms, .. } => since_ms * 1000,
        Holder::Foreign => 0,
    }
}
