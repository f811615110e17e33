//! What an operator sees of a quorum's nodes, and how a new quorum begins.

use std::sync::{Arc, atomic::Ordering};

use super::membership::{self, Statuses, VotingStatus, left};
use super::no_quorum::{is_ours, words};
use super::readmission::{ALL, nonce};
use super::{Result, Shared, locked};
use leasehold_core::engine::voter::{Abstention, NodeStatus, Record, State};
use leasehold_core::engine::{EngineError, Fault, Member, MemberState};
use leasehold_core::{Fence, clock::Until};

impl Shared {
    pub(super) async fn list_members(&self, until: Until) -> Vec<Member> {
        let nodes = self.statuses(ALL, until).await;
        let mut statuses = vec![VotingStatus::Unknown; self.n()];
        membership::update(&mut statuses, &nodes, &self.list);
        let member = |(index, node): (usize, &Result<NodeStatus>)| {
            let (state, highest) = match node {
                Ok(node) => {
                    let floor = membership::floor(index, &nodes, &statuses);
                    let behind = floor.and_then(|floor| membership::is_behind(node, floor));
                    (self.state(index, &statuses[index], behind), node.highest)
                }
                Err(error) => (MemberState::Unreachable { why: error.to_string() }, Fence::default()),
            };
            Member { label: self.voters[index].label().to_owned(), state, highest }
        };
        nodes.iter().enumerate().map(member).collect()
    }

    /// What people read about a node: the same in lists, in `doctor` and in errors.
    pub(super) fn state(&self, index: usize, status: &VotingStatus, refused: Option<String>) -> MemberState {
        match status {
            VotingStatus::Votes(_) => MemberState::Votes,
            VotingStatus::Waits(record) => MemberState::Waits {
                left_ms: left(record).as_millis() as u64,
                refused: refused.or_else(|| locked(&self.refusals)[index].clone()),
            },
            VotingStatus::Forgot { .. } => MemberState::Abstains { why: Abstention::Forgot },
            VotingStatus::Abstains(why) => MemberState::Abstains { why: *why },
            VotingStatus::Unknown => MemberState::Abstains { why: Abstention::NotAdmitted },
        }
    }

    /// Makes all nodes a new quorum at once. What they still know stays held; what they have lost can be granted again at
    /// once, while its holder goes on until its next renewal.
    pub(super) async fn admit_new(&self, over: bool, until: Until) -> Result<()> {
        let nodes = self.statuses(ALL, until).await;
        let mut epoch = 0;
        for (node, voter) in nodes.iter().zip(&self.voters) {
            let label = voter.label();
            let refused = |why| EngineError::new(Fault::Unsupported, format!("{label}{why}"));
            let node = node.as_ref().map_err(|error| EngineError {
                why: format!("{label}: {error}; all nodes of a new quorum must answer"),
                ..error.clone()
            })?;
            if node.unknown_layout {
                return Err(refused(format!(": {}", Abstention::UnknownLayout)));
            }
            if node.record.is_some() && !over {
                return Err(refused(
                    " is part of a quorum already, and locks that its nodes have lost could be granted a second time \
                     at once; `leasehold quorum admit` brings nodes back safely, after the longest ttl, and `leasehold \
                     quorum admit --new --yes` makes a new quorum all the same"
                        .into(),
                ));
            }
            epoch = epoch.max(node.record.as_ref().map_or(0, |record| record.epoch));
        }
        self.check_independent(&nodes)?;
        let quorum = Record {
            state: State::Votes,
            set: format!("{}.{}", nonce(), self.list),
            epoch: epoch + 1,
            n: self.n() as u32,
            index: 0,
            identity: String::new(),
            max_ms: self.options.max_ttl.as_millis() as u64,
        };
        let floor = membership::floor_by_the_clock(&nodes);
        for ((index, voter), mut node) in self.voters.iter().enumerate().zip(nodes.into_iter().flatten()) {
            let record = quorum.of_node(index, &node.identity, State::Votes);
            // Other clients may have read the set from an earlier node and begun to watch this one: their record of the same
            // set is replaced.
            while !voter.write_record(node.record.as_ref(), &record, floor, until).await? {
                node = voter.status(until).await?;
                let is_ours = node.record.as_ref().is_some_and(|record| record.set == quorum.set);
                if !is_ours || node.identity != record.identity {
                    let why =
                        "was changed by another client at the same time; check its status and try again";
                    return Err(EngineError::new(Fault::Unreachable, format!("{} {why}", voter.label())));
                }
            }
        }
        Ok(())
    }

    /// Readmits nodes that lost their data, also when too few others vote to learn the fences from: the nodes' clocks
    /// then give them.
    pub(super) async fn admit(self: &Arc<Self>, until: Until) -> Result<()> {
        let nodes = self.statuses(ALL, until).await;
        if membership::quorum_of(&nodes, &self.list).is_none() {
            return Err(self.no_set(&nodes));
        }
        self.by_the_clock.store(true, Ordering::Relaxed);
        let _not_yet = self.refresh(until).await;
        Ok(())
    }

    /// Why there is no quorum to readmit nodes to.
    fn no_set(&self, nodes: &Statuses) -> EngineError {
        let records = nodes.iter().flatten().filter_map(|node| node.record.as_ref());
        let errors = || nodes.iter().filter_map(|node| node.as_ref().err());
        let first = errors().find(|error| is_ours(error)).or(errors().next());
        let why = match (records.max_by_key(|record| record.epoch), first) {
            (Some(record), _) if record.n as usize == self.n() => Abstention::OtherList.to_string(),
            (Some(record), _) => {
                let (there, here) = (record.n, self.n());
                format!("the nodes remember a quorum of {there} nodes, and the store URL names {here}")
            }
            (None, None) => {
                "no node remembers this quorum; `leasehold quorum admit --new` makes a new one".to_owned()
            }
            (None, Some(first)) => {
                let failed = |(index, node): (usize, &Result<NodeStatus>)| {
                    Some((index, Err(node.as_ref().err()?.clone())))
                };
                let failed: Vec<_> = nodes.iter().enumerate().filter_map(failed).collect();
                let words = words(&self.voters, &failed);
                let why = format!("no node that answers remembers this quorum; {words}");
                return EngineError { why, ..first.clone() };
            }
        };
        EngineError::new(Fault::Unsupported, why)
    }
}
