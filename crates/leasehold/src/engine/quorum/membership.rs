//! Which nodes vote, from what they say about themselves. Pure.

use std::{collections::HashMap, time::Duration};

use crate::{
    engine::voter::{Abstention, FLOOR_LEAD_MAX, NodeStatus, Record, State},
    fence::Fence,
};

use super::{count::majority, list};

/// What is known about a node's right to vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VotingStatus {
    /// It has not answered yet.
    Unknown,
    /// It votes.
    Votes(Record),
    /// It is watched; `seen` is its record now.
    Waits(Record),
    /// It must be watched before it votes again: this is to be written over what was seen.
    Forgot { seen: Option<Record> },
    /// It does not vote, and time will not change that.
    Abstains(Abstention),
}

impl VotingStatus {
    pub(super) fn votes(&self) -> bool {
        matches!(self, Self::Votes(_))
    }
}

/// The quorum that the nodes belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) id: String,
    pub(super) epoch: u32,
    pub(super) max_ms: u64,
}

impl Set {
    fn of(record: &Record) -> Self {
        Self { id: record.set.clone(), epoch: record.epoch, max_ms: record.max_ms }
    }

    /// Whether a node with this record belongs to it.
    fn has(&self, record: &Record) -> bool {
        record.set == self.id && record.epoch == self.epoch
    }

    /// The record of one of its nodes.
    pub(super) fn record(&self, n: usize, index: usize, identity: &str, state: State) -> Record {
        Record {
            state,
            set: self.id.clone(),
            epoch: self.epoch,
            n: n as u32,
            index: index as u32,
            identity: identity.to_owned(),
            max_ms: self.max_ms,
        }
    }

    /// How long a node is watched: whatever it may have voted for has run out by then, on clocks that differ a little.
    pub(super) fn watch_for(&self) -> Duration {
        let longest = Duration::from_millis(self.max_ms);
        longest + longest / 50 + Duration::from_millis(10)
    }
}

/// How long a node with this record must still be watched, if it has forgotten.
pub(super) fn left(record: &Record) -> Duration {
    let watched_ms = match record.state {
        State::Waits { watched_ms, .. } => watched_ms,
        State::Votes => 0,
    };
    Set::of(record).watch_for().saturating_sub(Duration::from_millis(watched_ms))
}

/// The quorum that most of the nodes belong to: those that vote count first, then those that remember it. One that was
/// admitted with another list of addresses is nobody's here.
pub(super) fn set_of(nodes: &[Option<NodeStatus>], list: &str) -> Option<Set> {
    let mut votes: HashMap<(&str, u32), (usize, usize, &Record)> = HashMap::new();
    for node in nodes.iter().flatten() {
        let Some(record) = &node.record else { continue };
        if record.n as usize != nodes.len() || !list::is_with(&record.set, list) {
            continue;
        }
        let is_voting = record.state == State::Votes && record.identity == node.identity;
        let entry = votes.entry((&record.set, record.epoch)).or_insert((0, 0, record));
        entry.0 += usize::from(is_voting);
        entry.1 += 1;
    }
    let most = votes.into_iter().max_by_key(|((id, epoch), (voting, all, _))| (*voting, *epoch, *all, *id));
    most.map(|(_, (_, _, record))| Set::of(record))
}

/// The quorum of the nodes that are known to vote.
pub(super) fn set_of_voters(statuses: &[VotingStatus]) -> Option<Set> {
    statuses.iter().find_map(|status| match status {
        VotingStatus::Votes(record) => Some(Set::of(record)),
        _ => None,
    })
}

/// Whether a node may vote in a quorum, by what it reports.
pub(super) fn voting_status(node: &NodeStatus, set: Option<&Set>, n: usize) -> VotingStatus {
    if node.unknown_layout {
        return VotingStatus::Abstains(Abstention::UnknownLayout);
    }
    let Some(set) = set else {
        return VotingStatus::Abstains(match &node.record {
            None => Abstention::NotAdmitted,
            Some(record) if record.n as usize != n => Abstention::OtherSet,
            Some(_) => Abstention::OtherList,
        });
    };
    let Some(record) = &node.record else { return VotingStatus::Forgot { seen: None } };
    if !set.has(record) || record.n as usize != n {
        return VotingStatus::Abstains(Abstention::OtherSet);
    }
    if record.identity != node.identity {
        return VotingStatus::Forgot { seen: Some(record.clone()) };
    }
    match record.state {
        State::Votes => VotingStatus::Votes(record.clone()),
        State::Waits { .. } => VotingStatus::Waits(record.clone()),
    }
}

/// Whether some node is part of another quorum. While it is, nobody new is brought into ours: the other one may be the
/// one that counts, and count the same blank nodes.
pub(super) fn are_divided(statuses: &[VotingStatus]) -> bool {
    statuses
        .iter()
        .any(|status| matches!(status, VotingStatus::Abstains(Abstention::OtherSet | Abstention::OtherList)))
}

/// The nodes that are known to vote in another quorum than this one: votes of two quorums make no majority.
pub(super) fn strangers(statuses: &[VotingStatus], set: &Set) -> Vec<usize> {
    let is_stranger =
        |status: &VotingStatus| matches!(status, VotingStatus::Votes(record) if !set.has(record));
    statuses.iter().enumerate().filter(|(_, status)| is_stranger(status)).map(|(index, _)| index).collect()
}

/// The status of a node beside those that are taken: two names of one server would count its vote twice.
pub(super) fn beside(statuses: &[VotingStatus], index: usize, status: VotingStatus) -> VotingStatus {
    let VotingStatus::Votes(record) = &status else { return status };
    let others = statuses.iter().enumerate().filter(|(other, _)| *other != index);
    for (_, other) in others {
        match other {
            VotingStatus::Votes(other) if other.identity == record.identity => {
                return VotingStatus::Abstains(Abstention::SameServer);
            }
            VotingStatus::Votes(other) if !Set::of(other).has(record) => {
                return VotingStatus::Abstains(Abstention::OtherSet);
            }
            _ => {}
        }
    }
    status
}

/// The floor for the fences of a node that has forgotten its own: the highest of so many other voting nodes that every
/// majority it was part of is among them. `None` if too few of them vote.
pub(super) fn floor(index: usize, nodes: &[Option<NodeStatus>], statuses: &[VotingStatus]) -> Option<Fence> {
    let n = nodes.len();
    let others = nodes
        .iter()
        .zip(statuses)
        .enumerate()
        .filter(|(other, (_, status))| *other != index && status.votes());
    let heights: Vec<_> = others.filter_map(|(_, (node, _))| Some(node.as_ref()?.highest)).collect();
    if heights.len() < n - majority(n) + 1 {
        return None;
    }
    let own = nodes[index].as_ref().map_or(Fence::default(), |node| node.highest);
    heights.into_iter().max().map(|highest| highest.max(own))
}

/// Why a node refuses this floor, if it does: a floor is never lowered, and a node votes for nothing far below it.
pub(super) fn is_behind(node: &NodeStatus, floor: Fence) -> Option<String> {
    let ahead = Duration::from_micros(floor.get().saturating_sub(node.time_us));
    (ahead > FLOOR_LEAD_MAX).then(|| {
        format!(
            "its clock is {:.0} s behind the fences of the other nodes; it cannot vote until it is in time",
            ahead.as_secs_f64()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "abc";

    fn record(identity: &str, state: State) -> Record {
        Set { id: "s.abc".into(), epoch: 1, max_ms: 2000 }.record(3, 0, identity, state)
    }

    fn node(identity: &str, record: Option<Record>, highest: u64) -> NodeStatus {
        NodeStatus {
            identity: identity.into(),
            record,
            unknown_layout: false,
            highest: Fence::new(highest),
            time_us: highest,
        }
    }

    fn voting(identity: &str, highest: u64) -> Option<NodeStatus> {
        Some(node(identity, Some(record(identity, State::Votes)), highest))
    }

    #[test]
    fn a_restarted_node_has_forgotten_and_the_others_vote() {
        let restarted = node("b2", Some(record("b1", State::Votes)), 0);
        let nodes = [voting("a", 5), Some(restarted), voting("c", 7)];
        let set = set_of(&nodes, LIST).unwrap();
        let statuses: Vec<_> =
            nodes.iter().flatten().map(|node| voting_status(node, Some(&set), 3)).collect();
        assert!(statuses[0].votes() && statuses[2].votes());
        assert_eq!(statuses[1], VotingStatus::Forgot { seen: Some(record("b1", State::Votes)) });
        assert_eq!(floor(1, &nodes, &statuses), Some(Fence::new(7)));
    }

    #[test]
    fn a_wiped_node_has_forgotten() {
        let set = set_of(&[voting("a", 5), None, None], LIST).unwrap();
        assert_eq!(voting_status(&node("b", None, 0), Some(&set), 3), VotingStatus::Forgot { seen: None });
    }

    #[test]
    fn too_few_voting_nodes_teach_no_floor() {
        let nodes = [voting("a", 5), Some(node("b", None, 0)), Some(node("c", None, 0))];
        let statuses =
            [VotingStatus::Votes(record("a", State::Votes)), VotingStatus::Unknown, VotingStatus::Unknown];
        assert_eq!(floor(1, &nodes, &statuses), None);
    }

    #[test]
    fn nodes_without_records_are_nobodys_quorum() {
        let blank = node("a", None, 0);
        assert_eq!(set_of(&[Some(blank.clone()), Some(blank.clone()), None], LIST), None);
        assert_eq!(voting_status(&blank, None, 3), VotingStatus::Abstains(Abstention::NotAdmitted));
    }

    #[test]
    fn a_node_of_another_quorum_or_size_does_not_vote() {
        let set = set_of(&[voting("a", 5), None, None], LIST).unwrap();
        let other = Record { set: "t.abc".into(), ..record("b", State::Votes) };
        assert_eq!(
            voting_status(&node("b", Some(other), 0), Some(&set), 3),
            VotingStatus::Abstains(Abstention::OtherSet)
        );
        assert_eq!(set_of(&[voting("a", 5), None, None, None, None], LIST), None);
    }

    #[test]
    fn of_two_names_of_one_server_the_first_votes() {
        let votes = |identity| VotingStatus::Votes(record(identity, State::Votes));
        let mut statuses = [VotingStatus::Unknown, VotingStatus::Unknown, votes("b")];
        statuses[0] = beside(&statuses, 0, votes("a"));
        statuses[1] = beside(&statuses, 1, votes("a"));
        assert_eq!(statuses, [votes("a"), VotingStatus::Abstains(Abstention::SameServer), votes("b")]);
        assert_eq!(beside(&statuses, 0, votes("a")), votes("a"));
    }

    #[test]
    fn nodes_that_vote_do_so_in_one_quorum() {
        let set = Set { id: "s.abc".into(), epoch: 1, max_ms: 2000 };
        let ours = VotingStatus::Votes(record("a", State::Votes));
        for other in [
            Record { set: "t.abc".into(), ..record("b", State::Votes) },
            Record { epoch: 2, ..record("b", State::Votes) },
        ] {
            let statuses = [ours.clone(), VotingStatus::Votes(other.clone()), VotingStatus::Unknown];
            assert_eq!(strangers(&statuses, &set), [1]);
            let late = beside(
                &[ours.clone(), VotingStatus::Unknown, VotingStatus::Unknown],
                1,
                VotingStatus::Votes(other),
            );
            assert_eq!(late, VotingStatus::Abstains(Abstention::OtherSet));
        }
    }

    #[test]
    fn a_list_that_differs_finds_no_quorum_and_brings_no_blank_node_in() {
        let unlisted = Record { set: "s".into(), ..record("a", State::Votes) };
        for known in [voting("a", 5), Some(node("a", Some(unlisted), 5))] {
            let nodes = [known.clone(), known, Some(node("d", None, 0))];
            let set = set_of(&nodes, "abd");
            let statuses: Vec<_> =
                nodes.iter().flatten().map(|node| voting_status(node, set.as_ref(), 3)).collect();
            let other = VotingStatus::Abstains(Abstention::OtherList);
            assert_eq!(statuses, [other.clone(), other, VotingStatus::Abstains(Abstention::NotAdmitted)]);
            assert!(are_divided(&statuses));
        }
    }

    #[test]
    fn nobody_is_brought_back_while_a_node_is_in_another_quorum() {
        let (votes, forgot) =
            (VotingStatus::Votes(record("a", State::Votes)), VotingStatus::Forgot { seen: None });
        assert!(!are_divided(&[votes.clone(), forgot.clone(), VotingStatus::Unknown]));
        assert!(are_divided(&[votes, forgot, VotingStatus::Abstains(Abstention::OtherSet)]));
    }

    #[test]
    fn a_quorum_is_the_one_most_nodes_vote_in() {
        let other = Record { set: "t.abc".into(), epoch: 9, ..record("c", State::Votes) };
        let nodes = [voting("a", 5), voting("b", 5), Some(node("c", Some(other), 0))];
        assert_eq!(set_of(&nodes, LIST).unwrap().id, "s.abc");
    }
}
