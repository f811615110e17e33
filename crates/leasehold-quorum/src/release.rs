//! Giving back what a majority holds.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::{future::poll_fn, mem, time::Duration};

use super::count::{Tally, fence_of, majority};
use super::lane::{Asked, carrying};
use super::{Result, Shared, locked};
use leasehold_core::engine::voter::{OPS_PER_CALL, Op, Outcome, Withdrawn};
use leasehold_core::engine::{Claim, EngineError, Fault, Mode, Released};
use leasehold_core::{Fence, Name, clock::Until, owner::Owner};

/// First pause before withdrawals are sent to a node again.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Withdrawals that are owed to one node; beyond it the ttl settles the rest.
const OWED_MAX: usize = 10_000;

/// The end of an attempt on all nodes.
pub(super) struct Ending {
    pub(super) lock: Arc<(Name, Owner)>,
    /// How it is held.
    mode: Mode,
    pub(super) until: Until,
    /// When its vote on a node has lapsed by itself.
    lapses_at: Until,
    answers: Mutex<Answers>,
}

/// What the nodes answered to a withdrawal.
#[derive(Default)]
struct Answers {
    n: usize,
    tally: Tally,
    /// How many waiters were woken on the node that woke most.
    woke: u32,
    /// Who has it, if it was not ours.
    by: Vec<Fence>,
    /// Nodes that our vote never left for. One where nobody has the lock is as good as one that gave it back: with those
    /// that did they are a majority, and nobody else can have one.
    never_voted: Vec<usize>,
    failed: Vec<(usize, EngineError)>,
    phase: Phase,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// A majority answered. The caller does not ask again, so the withdrawal is repeated for nodes that did not answer.
    Decided,
    /// The caller asks again, and all nodes with it.
    GivenUp,
}

impl Answers {
    fn is_open(&self) -> bool {
        let (n, most) = (self.n, majority(self.n));
        let unanswered = n - self.tally.yes - self.tally.no - self.tally.unknown;
        // Who has it, if it was not ours: a majority must say so.
        let by_whom = || self.by.len() < most && self.by.len() + unanswered >= most;
        !self.tally.settled(n) || self.tally.refuted(n) && unanswered > 0 && by_whom()
    }

    fn take(&mut self, node: usize, mode: Mode, answer: Result<Withdrawn>) {
        match answer {
            Ok(Withdrawn { was_ours, woke, by, by_readers }) => {
                // Readers have nothing that another reader lost.
                let by = by.filter(|_| mode != Mode::Shared || !by_readers);
                self.woke = self.woke.max(woke);
                self.by.extend(by);
                let is_given_back = was_ours || by.is_none() && self.never_voted.contains(&node);
                *if is_given_back { &mut self.tally.yes } else { &mut self.tally.no } += 1;
            }
            Err(error) => {
                self.tally.unknown += 1;
                self.failed.push((node, error));
            }
        }
    }
}

impl Ending {
    pub(super) fn never_voted(&self, node: usize) {
        locked(&self.answers).never_voted.push(node);
    }

    /// A node answered.
    pub(super) fn answer(&self, shared: &Arc<Shared>, node: usize, answer: Result<Withdrawn>) {
        let mut answers = locked(&self.answers);
        match answers.phase {
            Phase::Open => {
                answers.take(node, self.mode, answer);
                let waker = if answers.is_open() { None } else { answers.waker.take() };
                drop(answers);
                waker.into_iter().for_each(Waker::wake);
            }
            Phase::Decided if answer.is_err() => {
                drop(answers);
                shared.owe(node, &self.lock, self.lapses_at);
            }
            Phase::Decided | Phase::GivenUp => {}
        }
    }

    /// Waits until no further answer is needed.
    async fn decided(&self) {
        poll_fn(|context| {
            let mut answers = locked(&self.answers);
            if !answers.is_open() {
                return Poll::Ready(());
            }
            answers.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Ends the round; what comes from here on comes late.
    fn close(&self) -> Answers {
        let mut answers = locked(&self.answers);
        let is_decided = answers.tally.carried(answers.n) || answers.tally.refuted(answers.n);
        let phase = if is_decided { Phase::Decided } else { Phase::GivenUp };
        mem::replace(&mut *answers, Answers { phase, ..Answers::default() })
    }
}

impl Shared {
    /// Gives the lock back on every node; returns when a majority has.
    pub(super) async fn end(
        self: &Arc<Self>,
        (name, owner, mode): (&Name, &Owner, Mode),
        lapses_in: Duration,
        until: Until,
    ) -> Result<Released> {
        self.attempts.end(owner.id());
        let _turn = self.turn(&self.ends, until).await?;
        let n = self.n();
        let ending = Arc::new(Ending {
            lock: Arc::new((name.clone(), owner.clone())),
            mode,
            until,
            lapses_at: self.clock().now() + lapses_in,
            answers: Mutex::new(Answers { n, ..Answers::default() }),
        });
        let mut calls = self.ask_each(&Asked::Withdraw(ending.clone()));
        let _in_time = self.clock().bounded(until, carrying(&mut calls, ending.decided())).await;
        let Answers { tally, woke, by, failed, .. } = ending.close();
        self.run_on(calls);
        let is_decided = tally.carried(n) || tally.refuted(n);
        self.ended_round(is_decided);
        if !is_decided {
            let words = format!("{} of {n} nodes gave it back{}", tally.yes, self.blame(failed.last()));
            return Err(EngineError::new(Fault::NoAnswer, words));
        }
        failed.iter().for_each(|(node, _)| self.owe(*node, &ending.lock, ending.lapses_at));
        if tally.carried(n) {
            return Ok(if woke > 0 { Released::HandedOver { to: woke, next: None } } else { Released::Free });
        }
        Ok(fence_of(by, n).map_or(Released::Expired, |fence| Released::Taken { by: Some(fence) }))
    }

    /// Gives back, in the background, whatever a claim got. Its owner value is spent.
    pub(super) fn give_back(self: &Arc<Self>, claim: &Claim) {
        self.attempts.end(claim.owner.id());
        let lapses_at = self.clock().now() + claim.ttl + claim.lock_delay;
        let lock = Arc::new((claim.name.clone(), claim.owner.clone()));
        (0..self.n()).for_each(|node| self.owe(node, &lock, lapses_at));
    }

    /// Sends a withdrawal to one node in the background, until it is answered or the vote has lapsed by itself.
    fn owe(self: &Arc<Self>, node: usize, lock: &Arc<(Name, Owner)>, lapses_at: Until) {
        let mut owed = locked(&self.owed[node]);
        if owed.list.len() >= OWED_MAX {
            return;
        }
        owed.list.push((lock.clone(), lapses_at));
        drop(owed);
        self.send_owed(node);
    }

    /// Starts the task that sends what is owed to a node, unless it runs.
    pub(super) fn send_owed(self: &Arc<Self>, node: usize) {
        if !mem::replace(&mut locked(&self.owed[node]).is_sent, true) {
            let mut sending = Sending { shared: self.clone(), node, batch: Vec::new(), is_over: false };
            self.spawn(node, async move { sending.run().await });
        }
    }
}

/// The withdrawals that a node must still hear of.
#[derive(Default)]
pub(super) struct Owed {
    list: Vec<(Arc<(Name, Owner)>, Until)>,
    /// A task sends them.
    is_sent: bool,
}

/// The task that sends what is owed to a node.
struct Sending {
    shared: Arc<Shared>,
    node: usize,
    batch: Vec<(Arc<(Name, Owner)>, Until)>,
    is_over: bool,
}

impl Sending {
    async fn run(&mut self) {
        let shared = self.shared.clone();
        let mut pause = PAUSE;
        while self.take() {
            if self.send().await {
                pause = PAUSE;
                continue;
            }
            if shared.closed.is_cancelled() {
                return;
            }
            shared.clock().sleep_until(shared.clock().now() + pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Takes what one call carries, besides what failed before. False when nothing is owed any more.
    fn take(&mut self) -> bool {
        let now = self.shared.clock().now();
        let mut owed = locked(&self.shared.owed[self.node]);
        owed.list.retain(|(_, lapses_at)| *lapses_at > now);
        let count = owed.list.len().min(OPS_PER_CALL);
        self.batch = owed.list.drain(..count).collect();
        owed.is_sent = count > 0;
        self.is_over = count == 0;
        count > 0
    }

    /// Whether the node answered them all; the others are owed again.
    async fn send(&mut self) -> bool {
        let Self { shared, node, batch, .. } = self;
        let until = shared.clock().now() + shared.options.command_timeout;
        let voter = &shared.voters[*node];
        let ops: Vec<_> = batch.iter().map(|(lock, _)| Op::Withdraw(lock.clone())).collect();
        if let Ok(outcomes) = voter.do_ordinary(&ops, until).await {
            let mut outcomes = outcomes.into_iter();
            batch.retain(|_| outcomes.next() == Some(Outcome::NotOrdinary));
            let alone = batch.iter().map(|(lock, _)| voter.withdraw(&lock.0, &lock.1, until));
            let mut answers = futures_util::future::join_all(alone).await.into_iter();
            batch.retain(|_| answers.next().is_none_or(|answer| answer.is_err()));
        }
        let is_done = batch.is_empty();
        locked(&shared.owed[*node]).list.append(batch);
        is_done
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.is_over {
            let mut owed = locked(&self.shared.owed[self.node]);
            owed.list.append(&mut self.batch);
            owed.is_sent = false;
            drop(owed);
            self.shared.lanes[self.node].owes();
        }
    }
}
