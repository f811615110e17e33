//! What an operator sees of a quorum's nodes, and how a new quorum begins.

use std::sync::{Arc, atomic::Ordering};

use super::{
    Shared, list,
    membership::{self, Set, VotingStatus, left},
    no_quorum::is_ours,
    readmission::{nonce, same_server},
};
use crate::{
    clock::Until,
    engine::{
        EngineError, Fault, Member, MemberState, Warning,
        voter::{Abstention, NodeStatus, State},
    },
    fence::Fence,
};

pub(super) fn warning(member: &Member) -> Option<Warning> {
    let cure = match &member.state {
        MemberState::Votes | MemberState::Unreachable { .. } => return None,
        MemberState::Waits { refused: Some(_), .. } => {
            "remove what the node objects to; it then votes again by itself"
        }
        MemberState::Waits { left_ms: 0, .. } => "bring the others back, or run `leasehold quorum admit`",
        MemberState::Waits { .. } => "wait: it votes again by itself while a client watches it",
        MemberState::Abstains { why } => cure(why),
    };
    let found = format!("{}: {}", member.label, member.state);
    Some(Warning { code: "quorum-marker", found, cure: cure.into() })
}

/// What helps a node that abstains.
fn cure(why: &str) -> &'static str {
    let cures = [
        (
            Abstention::Forgot,
            "it comes back by itself while a client watches it; where too many lost their data, run `leasehold quorum admit`",
        ),
        (
            Abstention::NotAdmitted,
            "`leasehold quorum admit --new` makes a new quorum of nodes that never were one",
        ),
        (Abstention::OtherList, "give every client the list that the quorum was admitted with"),
    ];
    let found = cures.into_iter().find(|(abstention, _)| abstention.as_str() == why);
    found.map_or("list servers of one quorum only, each of them once", |(_, cure)| cure)
}

impl Shared {
    pub(super) async fn list_members(&self, until: Until) -> Vec<Member> {
        let answers = self.statuses(until).await;
        let nodes: Vec<_> = answers.iter().map(|answer| answer.as_ref().ok().cloned()).collect();
        let set = membership::set_of(&nodes, &self.list);
        let mut statuses = vec![VotingStatus::Unknown; self.n()];
        for (index, node) in nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            let status = membership::voting_status(node, set.as_ref(), self.n());
            statuses[index] = membership::beside(&statuses, index, status);
        }
        let mut members = Vec::with_capacity(self.n());
        for (index, (answer, voter)) in answers.into_iter().zip(&self.voters).enumerate() {
            let (state, highest) = match answer {
                Ok(node) => {
                    let floor = membership::floor(index, &nodes, &statuses);
                    let behind = floor.and_then(|floor| membership::is_behind(&node, floor));
                    (self.state(index, &statuses[index], behind), node.highest)
                }
                Err(error) => (MemberState::Unreachable { why: error.to_string() }, Fence::default()),
            };
            members.push(Member { label: voter.label().to_owned(), state, highest });
        }
        members
    }

    /// What people read about a node: the same in lists, in `doctor` and in errors.
    pub(super) fn state(&self, index: usize, status: &VotingStatus, refused: Option<String>) -> MemberState {
        match status {
            VotingStatus::Votes(_) => MemberState::Votes,
            VotingStatus::Waits(record) => MemberState::Waits {
                left_ms: left(record).as_millis() as u64,
                refused: refused.or_else(|| self.refusals()[index].clone()),
            },
            VotingStatus::Forgot { .. } => MemberState::Abstains { why: Abstention::Forgot.as_str() },
            VotingStatus::Abstains(why) => MemberState::Abstains { why: why.as_str() },
            VotingStatus::Unknown => MemberState::Abstains { why: Abstention::NotAdmitted.as_str() },
        }
    }

    /// Makes all nodes a new quorum at once. What they still know stays held; what they have forgotten can be granted again
    /// at once, while its holder goes on until its next renewal.
    pub(super) async fn admit_new(&self, over: bool, until: Until) -> Result<(), EngineError> {
        let mut nodes = Vec::with_capacity(self.n());
        for (answer, voter) in self.statuses(until).await.into_iter().zip(&self.voters) {
            let node = answer.map_err(|error| EngineError {
                why: format!("{}: {error}; all nodes of a new quorum must answer", voter.label()),
                ..error
            })?;
            if node.unknown_layout {
                let why = format!("{}: {}", voter.label(), Abstention::UnknownLayout.as_str());
                return Err(EngineError::new(Fault::Unsupported, why));
            }
            if node.record.is_some() && !over {
                let why = format!(
                    "{} is part of a quorum already, and locks that its nodes have forgotten could be granted a second \
                     time at once; `leasehold quorum admit` brings nodes back safely, after the longest ttl, and `leasehold \
                     quorum admit --new --yes` makes a new quorum all the same",
                    voter.label()
                );
                return Err(EngineError::new(Fault::Unsupported, why));
            }
            nodes.push(Some(node));
        }
        same_server(self, &nodes)?;
        let floor = self.floor_by_the_clock(&nodes);
        let epoch = nodes.iter().flatten().filter_map(|node| Some(node.record.as_ref()?.epoch)).max();
        let set = Set {
            id: list::id_with(&nonce(), &self.list),
            epoch: epoch.unwrap_or(0) + 1,
            max_ms: self.options.max_ttl.as_millis() as u64,
        };
        for (index, node) in nodes.into_iter().flatten().enumerate() {
            self.admit_to(&set, index, node, floor, until).await?;
        }
        Ok(())
    }

    /// Makes a node part of a new quorum. Other clients may have read the set from an earlier node and begun to watch this
    /// one: their record of the same set is replaced.
    async fn admit_to(
        &self,
        set: &Set,
        index: usize,
        mut node: NodeStatus,
        floor: Fence,
        until: Until,
    ) -> Result<(), EngineError> {
        let voter = &self.voters[index];
        let identity = node.identity.clone();
        loop {
            let record = set.record(self.n(), index, &identity, State::Votes);
            if voter.write_record(node.record.as_ref(), &record, floor, until).await? {
                return Ok(());
            }
            node = voter.status(until).await?;
            let is_ours = node.record.as_ref().is_some_and(|record| record.set == set.id);
            if !is_ours || node.identity != identity {
                let why = format!(
                    "{} was changed by another client at the same time; look and try again",
                    voter.label()
                );
                return Err(EngineError::new(Fault::Unreachable, why));
            }
        }
    }

    /// Brings back nodes that lost their data, also when too few others vote to learn the fences from: the nodes' clocks
    /// then give them.
    pub(super) async fn admit(self: &Arc<Self>, until: Until) -> Result<(), EngineError> {
        let answers = self.statuses(until).await;
        let nodes: Vec<_> = answers.iter().map(|answer| answer.as_ref().ok().cloned()).collect();
        if membership::set_of(&nodes, &self.list).is_none() {
            return Err(self.no_set(&answers));
        }
        self.by_the_clock.store(true, Ordering::Relaxed);
        let _not_yet = self.refresh(until).await;
        Ok(())
    }

    /// Why there is no quorum to bring nodes back into.
    fn no_set(&self, answers: &[Result<NodeStatus, EngineError>]) -> EngineError {
        let records = answers.iter().flatten().filter_map(|node| node.record.as_ref());
        if let Some(record) = records.max_by_key(|record| record.epoch) {
            let why = if record.n as usize == self.n() {
                Abstention::OtherList.as_str().to_owned()
            } else {
                format!(
                    "the nodes remember a quorum of {} nodes, and the store URL names {}",
                    record.n,
                    self.n()
                )
            };
            return EngineError::new(Fault::Unsupported, why);
        }
        let failed: Vec<_> = self
            .voters
            .iter()
            .zip(answers)
            .filter_map(|(voter, answer)| Some((voter.label(), answer.as_ref().err()?)))
            .collect();
        let Some((_, first)) = failed.iter().find(|(_, error)| is_ours(error)).or(failed.first()) else {
            let why = "no node remembers this quorum; `leasehold quorum admit --new` makes a new one";
            return EngineError::new(Fault::Unsupported, why);
        };
        let words: Vec<_> = failed.iter().map(|(label, error)| format!("{label}: {error}")).collect();
        let why = format!("no node that answers remembers this quorum; {}", words.join("; "));
        EngineError { why, ..(*first).clone() }
    }

    /// Above every fence that these nodes can have given, also those that they forgot: no node follows a hint that is
    /// further ahead of its time than a minute. By the nodes' clocks, not by ours, which may be behind that of an earlier
    /// admission. Not rounded: fences grow by less than one in a microsecond, so the floor of a later admission is above all
    /// that was granted upon an earlier one.
    pub(super) fn floor_by_the_clock(&self, nodes: &[Option<NodeStatus>]) -> Fence {
        const LEAD_US: u64 = 120_000_000;
        let known = nodes.iter().flatten().map(|node| node.highest.max(Fence::new(node.time_us + LEAD_US)));
        known.max().unwrap_or_default()
    }
}
