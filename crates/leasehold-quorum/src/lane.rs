//! Many votes and withdrawals in few calls, node by node.
//!
//! While a client has little to ask, everything leaves at once, in its caller's own task. Otherwise operations gather and
//! leave together: the cost of a call is then shared. Answers go to the round that asked, whoever carries the call.

use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
};

use futures_util::future::BoxFuture;

use super::{Shared, TURNS, locked, release::Ending, round::Round};
use leasehold_core::clock::{BootInstant, Until};
use leasehold_core::engine::voter::{Abstention, OPS_PER_CALL, Op, Outcome, Vote, Withdrawn};
use leasehold_core::engine::{EngineError, Fault};
use leasehold_core::owner::OwnerId;

/// Calls with gathered operations under way to a node, before others wait for one to end. They carry all turns of votes and
/// withdrawals: on a slow network none waits for another.
pub(super) const CALLS_AT_ONCE: usize = 4;
/// Rounds under way in a quiet client: each leaves alone, and so many to a node.
const QUIET: usize = 4;
/// Operations that wait for a call to a node, and those that left alone. Only one that hangs has as many: those of rounds
/// that others decided.
const WAITING_MAX: usize = 16 * TURNS;

/// What waits for a call to one node.
#[derive(Default)]
pub(super) struct Lane(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Asked>,
    /// Calls with gathered operations.
    calls: usize,
    /// One of them has not left yet and takes what waits.
    gathers: bool,
    /// Operations that left alone.
    alone: usize,
    /// Withdrawals are owed, and the runtime that sent them has ended.
    owes: bool,
    /// Attempts whose vote never left, because their end had begun; the end has not come by yet.
    ended: VecDeque<OwnerId>,
}

impl Queue {
    /// Whether a vote of this attempt was in line, and never leaves.
    fn held_back(&mut self, owner: OwnerId) -> bool {
        let is_vote = |asked: &Asked| matches!(asked, Asked::Vote(round) if round.owner() == owner);
        if let Some(at) = self.waiting.iter().position(is_vote) {
            return self.waiting.remove(at).is_some();
        }
        let at = self.ended.iter().position(|ended| *ended == owner);
        at.and_then(|at| self.ended.remove(at)).is_some()
    }

    /// The next one in line that may leave.
    fn next(&mut self, now: BootInstant) -> Option<Asked> {
        loop {
            match self.waiting.pop_front()? {
                // Nobody needs it any more, and nothing has happened.
                Asked::Vote(round) if round.is_void(now) => {
                    self.ended.push_back(round.owner());
                    if self.ended.len() > WAITING_MAX {
                        self.ended.pop_front();
                    }
                }
                asked => return Some(asked),
            }
        }
    }
}

impl Lane {
    /// Has what is owed sent by the next runtime that asks.
    pub(super) fn owes(&self) {
        locked(&self.0).owes = true;
    }
}

/// What a round asks of a node.
#[derive(Clone)]
pub(super) enum Asked {
    Vote(Arc<Round>),
    Withdraw(Arc<Ending>),
}

impl Asked {
    fn op(&self) -> Op {
        match self {
            Self::Vote(round) => Op::Vote(round.ballot.clone()),
            Self::Withdraw(ending) => Op::Withdraw(ending.lock.clone()),
        }
    }

    fn until(&self) -> Until {
        match self {
            Self::Vote(round) => round.until,
            Self::Withdraw(ending) => ending.until,
        }
    }

    /// What the node did in a call with others; `false` if it must be asked alone.
    fn take(&self, shared: &Arc<Shared>, node: usize, outcome: Outcome) -> bool {
        match (self, outcome) {
            (_, Outcome::Abstained) => {
                // Learnt at once: its attempt may have ended before it is asked why.
                shared.learn(node, &Ok(Vote::Abstains(Abstention::Forgot)));
                return false;
            }
            (Self::Vote(round), Outcome::Voted(fence)) => round.answer(shared, node, Ok(Vote::Yes(fence))),
            (Self::Withdraw(ending), Outcome::Withdrawn | Outcome::Absent) => {
                let was_ours = outcome == Outcome::Withdrawn;
                ending.answer(shared, node, Ok(Withdrawn { was_ours, woke: 0, by: None, by_readers: false }));
            }
            _ => return false,
        }
        true
    }

    fn fail(&self, shared: &Arc<Shared>, node: usize, error: EngineError) {
        match self {
            Self::Vote(round) => round.answer(shared, node, Err(error)),
            Self::Withdraw(ending) => ending.answer(shared, node, Err(error)),
        }
    }

    /// Asks in a call of its own, whatever the case.
    async fn alone(&self, shared: &Arc<Shared>, node: usize) {
        let voter = &shared.voters[node];
        match self {
            Self::Vote(round) => {
                let vote = voter.vote(&round.ballot, round.until).await;
                round.answer(shared, node, vote);
            }
            Self::Withdraw(ending) => {
                let (name, owner) = &*ending.lock;
                let withdrawn = voter.withdraw(name, owner, ending.until).await;
                ending.answer(shared, node, withdrawn);
            }
        }
    }
}

/// Calls that their caller carries, each to a node.
pub(super) type Calls = Vec<(usize, BoxFuture<'static, ()>)>;

/// Carries calls while it waits for a decision.
pub(super) async fn carrying<T>(calls: &mut Calls, decision: impl Future<Output = T>) -> T {
    let mut decision = pin!(decision);
    poll_fn(|context| {
        calls.retain_mut(|(_, call)| call.as_mut().poll(context).is_pending());
        decision.as_mut().poll(context)
    })
    .await
}

impl Shared {
    /// Asks every node; returns the calls that the caller carries.
    pub(super) fn ask_each(self: &Arc<Self>, asked: &Asked) -> Calls {
        (0..self.n()).filter_map(|node| Some((node, self.ask(node, asked.clone())?))).collect()
    }

    fn ask(self: &Arc<Self>, node: usize, asked: Asked) -> Option<BoxFuture<'static, ()>> {
        let mut queue = locked(&self.lanes[node].0);
        if mem::take(&mut queue.owes) {
            drop(queue);
            self.send_owed(node);
            queue = locked(&self.lanes[node].0);
        }
        if let Asked::Withdraw(ending) = &asked
            && queue.held_back(ending.lock.1.id())
        {
            ending.never_voted(node);
        }
        if queue.waiting.is_empty() && queue.alone < QUIET && self.under_way() <= QUIET {
            let mut call = self.call_alone(queue, node, asked);
            return Some(Box::pin(async move { call.run().await }));
        }
        queue.waiting.push_back(asked);
        // The oldest, so that a withdrawal which is owed instead finds no vote of its attempt here.
        let passed_over = if queue.waiting.len() > WAITING_MAX { queue.waiting.pop_front() } else { None };
        drop(queue);
        if let Some(asked) = passed_over {
            asked.fail(self, node, busy());
        }
        self.gather(node);
        None
    }

    fn call_alone(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>, node: usize, asked: Asked) -> Call {
        queue.alone += 1;
        Call { shared: self.clone(), node, is_alone: true, gathers: false, batch: vec![asked] }
    }

    /// Rounds of votes and of withdrawals.
    fn under_way(&self) -> usize {
        2 * TURNS - self.votes.available_permits() - self.ends.available_permits()
    }

    /// Starts a call for what waits, if one may.
    fn gather(self: &Arc<Self>, node: usize) {
        let mut queue = locked(&self.lanes[node].0);
        if queue.gathers || queue.calls >= CALLS_AT_ONCE || queue.waiting.is_empty() {
            return;
        }
        queue.calls += 1;
        queue.gathers = true;
        drop(queue);
        // Before the task: a runtime that ends drops it without having run it.
        let mut call = Call { shared: self.clone(), node, is_alone: false, gathers: true, batch: Vec::new() };
        self.spawn(node, async move {
            while call.gathers {
                // Those who are about to ask come along: the answers of one call wake many tasks, and most of them ask
                // again at once.
                tokio::task::yield_now().await;
                call.take();
                // More may wait than one call carries.
                call.shared.gather(node);
                call.run().await;
                call.go_on();
            }
        });
    }

    /// Lets calls go on without their caller.
    pub(super) fn run_on(&self, calls: Calls) {
        calls.into_iter().for_each(|(node, call)| self.spawn(node, call));
    }

    /// Runs a task where the connection to a node is. Closing the client waits for it.
    pub(super) fn spawn(&self, node: usize, task: impl Future<Output = ()> + Send + 'static) {
        self.voters[node].spawn(Box::pin(self.late.track_future(task)));
    }
}

/// A call to a node. Its end, also by a dropped future, answers what it carries and lets go what waits.
struct Call {
    shared: Arc<Shared>,
    node: usize,
    is_alone: bool,
    /// It is about to take what waits.
    gathers: bool,
    batch: Vec<Asked>,
}

impl Call {
    fn queue(shared: &Shared, node: usize) -> MutexGuard<'_, Queue> {
        locked(&shared.lanes[node].0)
    }

    /// Takes what one call carries of what waits.
    fn take(&mut self) {
        let now = self.shared.clock().now();
        let mut queue = Self::queue(&self.shared, self.node);
        self.gathers = false;
        queue.gathers = false;
        while self.batch.len() < OPS_PER_CALL
            && let Some(asked) = queue.next(now)
        {
            self.batch.push(asked);
        }
    }

    /// Gathers again, unless nothing waits or another call does.
    fn go_on(&mut self) {
        let mut queue = Self::queue(&self.shared, self.node);
        self.gathers = !queue.gathers && !queue.waiting.is_empty();
        queue.gathers |= self.gathers;
    }

    /// Sends the batch and answers it.
    async fn run(&mut self) {
        let Some(until) = self.batch.iter().map(Asked::until).max() else { return };
        let (shared, node) = (self.shared.clone(), self.node);
        let ops: Vec<_> = self.batch.iter().map(Asked::op).collect();
        match shared.voters[node].do_ordinary(&ops, until).await {
            Ok(outcomes) => {
                let mut outcomes = outcomes.into_iter();
                self.batch.retain(|asked| {
                    outcomes.next().is_none_or(|outcome| !asked.take(&shared, node, outcome))
                });
            }
            Err(error) => self.fail(&error),
        }
        if self.is_alone {
            return self.run_alone().await;
        }
        for asked in mem::take(&mut self.batch) {
            let queue = Self::queue(&shared, node);
            if queue.alone >= WAITING_MAX {
                drop(queue);
                asked.fail(&shared, node, busy());
                continue;
            }
            let mut call = shared.call_alone(queue, node, asked);
            shared.spawn(node, async move { call.run_alone().await });
        }
    }

    /// Asks for what is not ordinary.
    async fn run_alone(&mut self) {
        if let Some(asked) = self.batch.first().cloned() {
            asked.alone(&self.shared, self.node).await;
            self.batch.clear();
        }
    }

    fn fail(&mut self, error: &EngineError) {
        for asked in mem::take(&mut self.batch) {
            asked.fail(&self.shared, self.node, error.clone());
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.fail(&EngineError::no_answer());
        let mut queue = Self::queue(&self.shared, self.node);
        if self.is_alone {
            queue.alone -= 1;
            return;
        }
        queue.calls -= 1;
        if !self.gathers {
            drop(queue);
            return self.shared.gather(self.node);
        }
        queue.gathers = false;
        let unsent = mem::take(&mut queue.waiting);
        drop(queue);
        self.batch = unsent.into();
        self.fail(&EngineError::new(
            Fault::Unreachable,
            "the runtime of this client ended before it was sent",
        ));
    }
}

fn busy() -> EngineError {
    EngineError::new(Fault::Busy, format!("{WAITING_MAX} operations wait for this node already"))
}
