//! All nodes and attempts, and every step that can follow.

use leasehold::{
    Fence,
    engine::quorum::{Count, Verdict, majority},
};

use crate::{
    Flaw, Scope,
    node::{ATTEMPTS_MAX, Bits, Mail, Node},
};

pub(crate) const NODES: usize = 3;
/// The attempt that renews.
pub(crate) const KEEPER: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Unborn,
    Voting,
    Confirming(u8),
    Granted(u8),
    Ended,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    phase: Phase,
    hint: u8,
    /// The highest fence that was granted before it began.
    after: u8,
}

#[derive(Clone)]
pub(crate) struct State {
    pub(crate) nodes: [Node; NODES],
    pub(crate) attempts: [Attempt; ATTEMPTS_MAX],
    pub(crate) forgets: u8,
    pub(crate) renewals: u8,
    /// The highest fence that was granted before the renewal under way began.
    pub(crate) renewed_after: u8,
    /// The keeper has released.
    pub(crate) ended: bool,
    /// Which attempts read, a bit for each. The same in all states.
    pub(crate) readers: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// An attempt begins, and a first node votes.
    Begin {
        attempt: usize,
        hint: u8,
        node: usize,
    },
    Vote {
        attempt: usize,
        node: usize,
    },
    /// Decides on the votes of all nodes but one.
    Decide {
        attempt: usize,
        without: usize,
    },
    Confirm {
        attempt: usize,
        node: usize,
    },
    Confirmed {
        attempt: usize,
    },
    GiveUp {
        attempt: usize,
    },
    Forget {
        node: usize,
    },
    Readmit {
        node: usize,
    },
    AskRenewal,
    Renew {
        node: usize,
        vanished: bool,
    },
    Renewed,
    Repair {
        node: usize,
    },
    /// The keeper releases: nothing of it leaves any more, and what has left still arrives.
    End,
    Withdraw {
        node: usize,
    },
}

/// What comes of a step: a new state, a broken promise, or nothing.
pub(crate) type Outcome = Option<Result<State, &'static str>>;

impl State {
    pub(crate) fn new(scope: &Scope) -> Self {
        let none = [Mail::None; ATTEMPTS_MAX];
        let node = Node {
            key: None,
            fence: 0,
            reading: [0; ATTEMPTS_MAX],
            written: 0,
            votes: true,
            forgot: 0,
            early: 0,
            vote: none,
            confirm: none,
            renew: Mail::None,
            repair: Mail::None,
            withdrawal: Mail::None,
            gone: false,
        };
        let attempt = Attempt { phase: Phase::Unborn, hint: 0, after: 0 };
        let mut start = Self {
            nodes: [node; NODES],
            attempts: [attempt; ATTEMPTS_MAX],
            forgets: scope.forgets,
            renewals: scope.renewals,
            renewed_after: 0,
            ended: false,
            readers: scope.readers,
        };
        if scope.renewals > 0 {
            start.attempts[KEEPER].phase = Phase::Granted(1);
            let mut held = Node { key: Some(KEEPER as u8), fence: 1, written: 1, ..node };
            if start.reads(KEEPER) {
                held = Node { fence: 1, ..node };
                held.reading[KEEPER] = 1;
            }
            start.nodes[1..].fill(held);
        }
        start
    }

    /// The state as numbers. Nodes are alike: their order says nothing.
    pub(crate) fn packed(&self) -> [u128; NODES + 1] {
        let mut rest = Bits::default();
        for Attempt { phase, hint, after } in self.attempts {
            let (kind, fence) = match phase {
                Phase::Unborn => (0, 0),
                Phase::Voting => (1, 0),
                Phase::Confirming(fence) => (2, fence),
                Phase::Granted(fence) => (3, fence),
                Phase::Ended => (4, 0),
            };
            rest.put(3, kind).put(4, fence).put(2, hint).put(4, after);
        }
        rest.put(2, self.forgets).put(2, self.renewals).put(4, self.renewed_after).put(1, self.ended.into());
        let [a, b, c] = self.nodes.map(|node| node.packed());
        let mut packed = [a, b, c, rest.0];
        packed[..NODES].sort_unstable();
        packed
    }

    fn grants(&self) -> impl Iterator<Item = u8> {
        self.grants_that(|_| true)
    }

    /// The fences of granted attempts, if they are such ones.
    fn grants_that(&self, is: impl Fn(usize) -> bool) -> impl Iterator<Item = u8> {
        let granted = self.attempts.iter().enumerate().filter(move |(attempt, _)| is(*attempt));
        granted.filter_map(|(_, attempt)| match attempt.phase {
            Phase::Granted(fence) => Some(fence),
            _ => None,
        })
    }

    fn reads(&self, attempt: usize) -> bool {
        self.readers >> attempt & 1 == 1
    }

    fn is_undecided(&self, attempt: usize) -> bool {
        matches!(self.attempts[attempt].phase, Phase::Voting | Phase::Confirming(_))
    }

    fn count(&self, is: impl Fn(&Node) -> bool) -> usize {
        self.nodes.iter().filter(|node| is(node)).count()
    }

    pub(crate) fn steps(&self, scope: &Scope) -> Vec<Step> {
        let mut steps = Vec::new();
        for attempt in 0..scope.attempts {
            match self.attempts[attempt].phase {
                // They are alike, too: the first one begins first.
                Phase::Unborn => {
                    let begin = |&hint: &u8| (0..NODES).map(move |node| Step::Begin { attempt, hint, node });
                    steps.extend(scope.hints.iter().flat_map(begin));
                    break;
                }
                Phase::Voting => steps.extend((0..NODES).map(|without| Step::Decide { attempt, without })),
                Phase::Confirming(_) => steps.push(Step::Confirmed { attempt }),
                Phase::Granted(_) | Phase::Ended => {}
            }
            // Only a node that waits for it makes a difference between giving up and never going on.
            if self.is_undecided(attempt) && self.nodes.iter().any(|node| node.forgot >> attempt & 1 == 1) {
                steps.push(Step::GiveUp { attempt });
            }
            for node in 0..NODES {
                if self.nodes[node].vote[attempt] == Mail::OnItsWay {
                    steps.push(Step::Vote { attempt, node });
                }
                if self.nodes[node].confirm[attempt] == Mail::OnItsWay {
                    steps.push(Step::Confirm { attempt, node });
                }
            }
        }
        for node in 0..NODES {
            steps.extend([Step::Forget { node }, Step::Readmit { node }, Step::Repair { node }]);
            steps.extend([false, true].map(|vanished| Step::Renew { node, vanished }));
        }
        steps.extend([Step::AskRenewal, Step::Renewed]);
        if scope.renewals > 0 {
            steps.push(Step::End);
            steps.extend((0..NODES).map(|node| Step::Withdraw { node }));
        }
        steps
    }

    pub(crate) fn after(&self, step: Step, flaw: Option<Flaw>) -> Outcome {
        let mut next = self.clone();
        match step {
            Step::Begin { attempt, hint, node } => {
                let after = self.grants().max().unwrap_or(0);
                next.attempts[attempt] = Attempt { phase: Phase::Voting, hint, after };
                next.nodes.iter_mut().for_each(|node| node.vote[attempt] = Mail::OnItsWay);
                return next.after(Step::Vote { attempt, node }, flaw);
            }
            Step::Vote { attempt, node } => {
                let Attempt { hint, .. } = self.attempts[attempt];
                let vote = next.nodes[node].take_vote(attempt, self.reads(attempt), hint, flaw)?;
                next.nodes[node].vote[attempt] = if self.is_undecided(attempt) { vote } else { Mail::None };
            }
            Step::Decide { attempt, without } => return self.decide(attempt, without, flaw),
            Step::Confirm { attempt, node } => {
                let fence = self.fence(attempt)?;
                next.nodes[node].take_confirm(attempt, fence, flaw)?;
                let counts = self.is_undecided(attempt);
                next.nodes[node].confirm[attempt] = if counts { Mail::Yes(fence) } else { Mail::None };
            }
            Step::Confirmed { attempt } => {
                let confirmed = self.count(|node| matches!(node.confirm[attempt], Mail::Yes(_)));
                let fence = self.fence(attempt)?;
                return (confirmed >= majority(NODES)).then(|| next.grant(attempt, fence));
            }
            Step::GiveUp { attempt } => next.settle(attempt, Phase::Ended),
            Step::Forget { node } => {
                next.forgets = self.forgets.checked_sub(1)?;
                next.forget(node, flaw)?;
            }
            Step::Readmit { node } => next.readmit(node, flaw)?,
            Step::AskRenewal => {
                let is_idle = self.count(|node| node.renew == Mail::None) == NODES;
                self.fence(KEEPER).filter(|_| is_idle && !self.is_undecided(KEEPER) && !self.ended)?;
                next.renewals = self.renewals.checked_sub(1)?;
                // Other readers do not end a reader's lease.
                let excludes = |attempt| !self.reads(KEEPER) || !self.reads(attempt);
                next.renewed_after = self.grants_that(excludes).max().unwrap_or(0);
                next.nodes.iter_mut().for_each(|node| node.renew = Mail::OnItsWay);
            }
            Step::Renew { node, vanished } => next.nodes[node].take_renewal(vanished)?,
            Step::Renewed => {
                let renewed = self.count(|node| matches!(node.renew, Mail::Yes(_)));
                if renewed < majority(NODES) {
                    return None;
                }
                if self.renewed_after > self.fence(KEEPER)? {
                    return Some(Err("a lease was renewed although a later one had been granted before"));
                }
                for node in &mut next.nodes {
                    if node.renew == Mail::Missing && !self.ended {
                        node.repair = Mail::OnItsWay;
                    }
                    node.renew = Mail::None;
                }
            }
            Step::Repair { node } => {
                next.nodes[node].take_repair(self.reads(KEEPER), self.fence(KEEPER)?, flaw)?;
                if self.ended && self.nodes[node].withdrawal == Mail::None {
                    return Some(Err("a node holds a lock after its end"));
                }
            }
            Step::End => {
                if self.ended {
                    return None;
                }
                next.ended = true;
                next.nodes.iter_mut().for_each(|node| node.withdrawal = Mail::OnItsWay);
            }
            Step::Withdraw { node } => next.nodes[node].take_withdrawal(flaw)?,
        }
        Some(Ok(next))
    }

    fn decide(&self, attempt: usize, without: usize, flaw: Option<Flaw>) -> Outcome {
        let counted = self.nodes.iter().enumerate().filter(|(node, _)| *node != without);
        let mut count = Count::new(NODES);
        for (_, node) in counted {
            if let Mail::Yes(fence) = node.vote[attempt] {
                count.yes(Fence::new(fence.into()));
            }
        }
        let mut next = self.clone();
        match count.verdict() {
            Verdict::Granted(fence) => Some(next.grant(attempt, fence.get() as u8)),
            Verdict::Confirm(fence) if flaw == Some(Flaw::NoSecondPhase) => {
                Some(next.grant(attempt, fence.get() as u8))
            }
            Verdict::Confirm(fence) => {
                next.attempts[attempt].phase = Phase::Confirming(fence.get() as u8);
                next.nodes.iter_mut().for_each(|node| node.confirm[attempt] = Mail::OnItsWay);
                Some(Ok(next))
            }
            Verdict::Open | Verdict::Lost => None,
        }
    }

    /// The fence that an attempt confirms or holds.
    fn fence(&self, attempt: usize) -> Option<u8> {
        match self.attempts[attempt].phase {
            Phase::Confirming(fence) | Phase::Granted(fence) => Some(fence),
            Phase::Unborn | Phase::Voting | Phase::Ended => None,
        }
    }

    fn grant(mut self, attempt: usize, fence: u8) -> Result<Self, &'static str> {
        if fence <= self.attempts[attempt].after {
            return Err("a fence is not above one that was granted before its attempt began");
        }
        let excludes = |other| !self.reads(attempt) || !self.reads(other);
        if self.grants_that(excludes).any(|other| other == fence) {
            return Err("a fence was granted twice");
        }
        self.settle(attempt, Phase::Granted(fence));
        Ok(self)
    }

    /// Forgets the answers to a decided attempt; what is on its way still arrives.
    fn settle(&mut self, attempt: usize, phase: Phase) {
        // A fence that nobody confirms any more is not asked about.
        let is_over = phase == Phase::Ended;
        self.attempts[attempt].phase = phase;
        for node in &mut self.nodes {
            if node.vote[attempt] != Mail::OnItsWay {
                node.vote[attempt] = Mail::None;
            }
            if node.confirm[attempt] != Mail::OnItsWay || is_over {
                node.confirm[attempt] = Mail::None;
            }
        }
    }

    fn forget(&mut self, at: usize, flaw: Option<Flaw>) -> Option<()> {
        let undecided: Vec<_> = (0..ATTEMPTS_MAX).map(|attempt| self.is_undecided(attempt)).collect();
        let early = self.highest_of_others(at);
        let node = &mut self.nodes[at];
        if !node.votes {
            return None;
        }
        let is_lost = |attempt: usize| undecided[attempt] && matches!(node.vote[attempt], Mail::Yes(_));
        let forgot = (0..ATTEMPTS_MAX).filter(|&attempt| is_lost(attempt)).fold(0, |all, one| all | 1 << one);
        // Connections do not outlive a run; answers that have arrived do.
        let broken = |mail: Mail| if mail == Mail::OnItsWay { Mail::None } else { mail };
        *node = Node {
            key: None,
            fence: 0,
            reading: [0; ATTEMPTS_MAX],
            written: 0,
            votes: flaw == Some(Flaw::NoAbstention),
            forgot,
            early,
            vote: node.vote.map(broken),
            confirm: node.confirm.map(broken),
            renew: broken(node.renew),
            repair: Mail::None,
            withdrawal: node.withdrawal,
            gone: false,
        };
        Some(())
    }

    /// A node that forgot was watched: whoever had its vote is done. Now it learns the others' fences, and votes.
    fn readmit(&mut self, at: usize, flaw: Option<Flaw>) -> Option<()> {
        let highest = self.highest_of_others(at);
        let is_over = (0..ATTEMPTS_MAX)
            .all(|attempt| self.nodes[at].forgot >> attempt & 1 == 0 || !self.is_undecided(attempt));
        let others_vote = self.count(|node| node.votes) == NODES - 1;
        let node = &mut self.nodes[at];
        if node.votes || !is_over || !others_vote {
            return None;
        }
        let floor = if flaw == Some(Flaw::LearnsAtTheStart) { node.early } else { highest };
        *node = Node { fence: floor, written: floor, votes: true, forgot: 0, early: 0, ..*node };
        Some(())
    }

    fn highest_of_others(&self, at: usize) -> u8 {
        let others = self.nodes.iter().enumerate().filter(|(node, _)| *node != at);
        others.map(|(_, node)| node.fence).max().unwrap_or(0)
    }
}
