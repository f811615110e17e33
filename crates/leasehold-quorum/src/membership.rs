//! Which nodes vote, from what they report about themselves. Pure.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{Result, count::majority};
use leasehold_core::Fence;
use leasehold_core::engine::voter::{Abstention, FLOOR_LEAD_MAX, NodeStatus, Record, State};

/// What the nodes answered when they were asked for their status, in the order of the URL.
pub(super) type Statuses = [Result<NodeStatus>];

/// A short text that stands for these addresses in this order.
///
/// Two majorities share a node only if all clients count the same nodes. A client with one address that differs would
/// admit a blank node, and find a majority of its own. So the id of a quorum ends with this text.
pub fn list_of<'a>(labels: impl IntoIterator<Item = &'a str>) -> String {
    const DIGEST_BYTES: usize = 8;
    let labels: Vec<_> = labels.into_iter().map(str::to_ascii_lowercase).collect();
    let digest = Sha256::digest(labels.join(","));
    digest[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is known about a node's right to vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VotingStatus {
    /// It has not answered yet.
    Unknown,
    /// It votes.
    Votes(Record),
    /// It is watched; this is its record now.
    Waits(Record),
    /// It lost its data and must be watched before it votes again; `seen` is the record that it has.
    Forgot { seen: Option<Record> },
    /// It does not vote, and time will not change that.
    Abstains(Abstention),
}

impl VotingStatus {
    pub(super) fn votes(&self) -> bool {
        matches!(self, Self::Votes(_))
    }

    /// The record under which the node votes.
    pub(super) fn record(&self) -> Option<&Record> {
        if let Self::Votes(record) = self { Some(record) } else { None }
    }
}

/// How long a node is watched: whatever it may have voted for has run out by then, on clocks that differ a little.
pub(super) fn watch_for(record: &Record) -> Duration {
    let longest = Duration::from_millis(record.max_ms);
    longest + longest / 50 + Duration::from_millis(10)
}

/// How long a node with this record must still be watched.
pub(super) fn left(record: &Record) -> Duration {
    let watched_ms = match record.state {
        State::Waits { watched_ms, .. } => watched_ms,
        State::Votes => 0,
    };
    watch_for(record).saturating_sub(Duration::from_millis(watched_ms))
}

/// The quorum that most of the nodes belong to: those that vote count first, then those that have a record of it. One that
/// was admitted with another list of addresses does not count. Returns the record of one of its nodes.
pub(super) fn quorum_of<'a>(nodes: &'a Statuses, list: &str) -> Option<&'a Record> {
    let is_of_list = |record: &Record| record.set.rsplit_once('.').is_some_and(|(_, of_set)| of_set == list);
    let candidates = || {
        let known = nodes.iter().flatten().filter_map(|node| Some((node, node.record.as_ref()?)));
        known.filter(|(_, record)| record.n as usize == nodes.len() && is_of_list(record))
    };
    let strength = |record: &Record| {
        let same = || candidates().filter(|(_, other)| other.is_same_quorum(record));
        let voting =
            same().filter(|(node, other)| other.state == State::Votes && other.identity == node.identity);
        (voting.count(), record.epoch, same().count(), record.set.clone())
    };
    candidates().map(|(_, record)| record).max_by_key(|record| strength(record))
}

/// Updates what is known with what nodes answered. Those that did not answer keep what they had, unless that was in
/// another quorum: votes of two quorums make no majority. Nor do two addresses of one server.
pub(super) fn update(known: &mut [VotingStatus], nodes: &Statuses, list: &str) {
    let quorum = quorum_of(nodes, list);
    let is_stranger = |status: &VotingStatus| match (status.record(), quorum) {
        (Some(record), Some(quorum)) => !record.is_same_quorum(quorum),
        _ => false,
    };
    known.iter_mut().filter(|status| is_stranger(status)).for_each(|status| *status = VotingStatus::Unknown);
    for (index, node) in nodes.iter().enumerate() {
        let Ok(node) = node else { continue };
        // Of two addresses the first one votes.
        known[index] = VotingStatus::Unknown;
        let status = voting_status(node, quorum, nodes.len());
        let is_same =
            |other: &VotingStatus| other.record().is_some_and(|other| other.identity == node.identity);
        let is_twin = status.votes() && known.iter().any(is_same);
        known[index] = if is_twin { VotingStatus::Abstains(Abstention::SameServer) } else { status };
    }
}

/// Whether a node may vote in a quorum, by what it reports.
fn voting_status(node: &NodeStatus, quorum: Option<&Record>, n: usize) -> VotingStatus {
    if node.unknown_layout {
        return VotingStatus::Abstains(Abstention::UnknownLayout);
    }
    let Some(quorum) = quorum else {
        return VotingStatus::Abstains(match &node.record {
            None => Abstention::NotAdmitted,
            Some(record) if record.n as usize != n => Abstention::OtherSet,
            Some(_) => Abstention::OtherList,
        });
    };
    let Some(record) = &node.record else { return VotingStatus::Forgot { seen: None } };
    if !record.is_same_quorum(quorum) {
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

/// Whether some node is part of another quorum. While it is, no node is admitted to ours: the other one may be the one
/// that counts, and count the same blank nodes.
pub(super) fn are_divided(statuses: &[VotingStatus]) -> bool {
    statuses
        .iter()
        .any(|status| matches!(status, VotingStatus::Abstains(Abstention::OtherSet | Abstention::OtherList)))
}

/// The floor for the fences of a node that has lost its own: the highest of so many other voting nodes that every
/// majority it was part of is among them. `None` if too few of them vote.
pub(super) fn floor(index: usize, nodes: &Statuses, statuses: &[VotingStatus]) -> Option<Fence> {
    let n = nodes.len();
    let is_teacher = |other: usize| other != index && statuses[other].votes();
    let others = nodes.iter().enumerate().filter(|(other, _)| is_teacher(*other));
    let heights: Vec<_> = others.filter_map(|(_, node)| Some(node.as_ref().ok()?.highest)).collect();
    if heights.len() < n - majority(n) + 1 {
        return None;
    }
    let own = nodes[index].as_ref().map_or(Fence::default(), |node| node.highest);
    heights.into_iter().max().map(|highest| highest.max(own))
}

/// Above every fence that these nodes can have given, also those that they lost: no node follows a hint that is further
/// ahead of its time than a minute. By the nodes' clocks, not by ours, which may be behind that of an earlier admission.
/// Not rounded: fences grow by less than one in a microsecond, so the floor of a later admission is above all that was
/// granted upon an earlier one.
pub(super) fn floor_by_the_clock(nodes: &Statuses) -> Fence {
    const LEAD_US: u64 = 120_000_000;
    let known = nodes.iter().flatten().map(|node| node.highest.max(Fence::new(node.time_us + LEAD_US)));
    known.max().unwrap_or_default()
}

/// Why a node refuses this floor, if it does: a floor is never lowered, and a node votes for nothing far below it.
pub(super) fn is_behind(node: &NodeStatus, floor: Fence) -> Option<String> {
    let ahead = Duration::from_micros(floor.get().saturating_sub(node.time_us));
    let s = ahead.as_secs_f64();
    let why = "behind the fences of the other nodes; it cannot vote until it is in time";
    (ahead > FLOOR_LEAD_MAX).then(|| format!("its clock is {s:.0} s {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::engine::EngineError;

    const LIST: &str = "abc";

    fn record(identity: &str, state: State) -> Record {
        let (set, identity) = ("s.abc".into(), identity.into());
        Record { state, set, epoch: 1, n: 3, index: 0, identity, max_ms: 2000 }
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

    fn voting(identity: &str, highest: u64) -> Result<NodeStatus> {
        Ok(node(identity, Some(record(identity, State::Votes)), highest))
    }

    fn silent() -> Result<NodeStatus> {
        Err(EngineError::no_answer())
    }

    #[test]
    fn another_address_or_order_is_another_list() {
        let list = list_of(["a:1", "b:1", "c:1"]);
        assert_eq!(list, list_of(["A:1", "b:1", "C:1"]));
        for other in
            [&["a:1", "b:1", "d:1"][..], &["b:1", "a:1", "c:1"], &["a:1", "b:1"], &["a:1,b:1,c:1", ""]]
        {
            assert_ne!(list, list_of(other.iter().copied()), "{other:?}");
        }
        let of_set =
            |set: &str| Ok(node("a", Some(Record { set: set.into(), ..record("a", State::Votes) }), 5));
        assert!(quorum_of(&[of_set(&format!("0f.{list}")), silent(), silent()], &list).is_some());
        for other in ["0f", &*list, "0f.x"] {
            assert_eq!(quorum_of(&[of_set(other), silent(), silent()], &list), None, "{other}");
        }
    }

    #[test]
    fn a_restarted_node_has_forgotten_and_the_others_vote() {
        let restarted = node("b2", Some(record("b1", State::Votes)), 0);
        let nodes = [voting("a", 5), Ok(restarted), voting("c", 7)];
        let quorum = quorum_of(&nodes, LIST).unwrap();
        let statuses: Vec<_> =
            nodes.iter().flatten().map(|node| voting_status(node, Some(quorum), 3)).collect();
        assert!(statuses[0].votes() && statuses[2].votes());
        assert_eq!(statuses[1], VotingStatus::Forgot { seen: Some(record("b1", State::Votes)) });
        assert_eq!(floor(1, &nodes, &statuses), Some(Fence::new(7)));
    }

    #[test]
    fn a_wiped_node_has_forgotten() {
        let nodes = [voting("a", 5), silent(), silent()];
        let quorum = quorum_of(&nodes, LIST).unwrap();
        assert_eq!(voting_status(&node("b", None, 0), Some(quorum), 3), VotingStatus::Forgot { seen: None });
    }

    #[test]
    fn too_few_voting_nodes_teach_no_floor() {
        let nodes = [voting("a", 5), Ok(node("b", None, 0)), Ok(node("c", None, 0))];
        let statuses =
            [VotingStatus::Votes(record("a", State::Votes)), VotingStatus::Unknown, VotingStatus::Unknown];
        assert_eq!(floor(1, &nodes, &statuses), None);
    }

    #[test]
    fn nodes_without_records_are_nobodys_quorum() {
        let blank = node("a", None, 0);
        assert_eq!(quorum_of(&[Ok(blank.clone()), Ok(blank.clone()), silent()], LIST), None);
        assert_eq!(voting_status(&blank, None, 3), VotingStatus::Abstains(Abstention::NotAdmitted));
    }

    #[test]
    fn a_node_of_another_quorum_or_size_does_not_vote() {
        let nodes = [voting("a", 5), silent(), silent()];
        let quorum = quorum_of(&nodes, LIST).unwrap();
        let other = Record { set: "t.abc".into(), ..record("b", State::Votes) };
        assert_eq!(
            voting_status(&node("b", Some(other), 0), Some(quorum), 3),
            VotingStatus::Abstains(Abstention::OtherSet)
        );
        assert_eq!(quorum_of(&[voting("a", 5), silent(), silent(), silent(), silent()], LIST), None);
    }

    #[test]
    fn of_two_names_of_one_server_the_first_votes() {
        let votes = |identity| VotingStatus::Votes(record(identity, State::Votes));
        let mut statuses = [VotingStatus::Unknown, VotingStatus::Unknown, votes("b")];
        update(&mut statuses, &[voting("a", 5), voting("a", 5), silent()], LIST);
        assert_eq!(statuses, [votes("a"), VotingStatus::Abstains(Abstention::SameServer), votes("b")]);
        update(&mut statuses, &[voting("a", 5), silent(), silent()], LIST);
        assert_eq!(statuses[0], votes("a"));
        update(&mut statuses, &[silent(), silent(), voting("a", 5)], LIST);
        assert_eq!(statuses[2], VotingStatus::Abstains(Abstention::SameServer));
    }

    #[test]
    fn nodes_that_vote_do_so_in_one_quorum() {
        let ours = VotingStatus::Votes(record("a", State::Votes));
        for other in [
            Record { set: "t.abc".into(), ..record("b", State::Votes) },
            Record { epoch: 2, ..record("b", State::Votes) },
        ] {
            let theirs = VotingStatus::Votes(other.clone());
            let mut statuses = [VotingStatus::Unknown, theirs.clone(), VotingStatus::Unknown];
            update(&mut statuses, &[voting("a", 5), silent(), silent()], LIST);
            assert_eq!(statuses, [ours.clone(), VotingStatus::Unknown, VotingStatus::Unknown]);
            update(&mut statuses, &[silent(), Ok(node("b", Some(other), 5)), silent()], LIST);
            assert_eq!(statuses, [VotingStatus::Unknown, theirs, VotingStatus::Unknown]);
        }
    }

    #[test]
    fn a_list_that_differs_finds_no_quorum_and_brings_no_blank_node_in() {
        let unlisted = Record { set: "s".into(), ..record("a", State::Votes) };
        for known in [voting("a", 5), Ok(node("a", Some(unlisted), 5))] {
            let nodes = [known.clone(), known, Ok(node("d", None, 0))];
            let quorum = quorum_of(&nodes, "abd");
            let statuses: Vec<_> =
                nodes.iter().flatten().map(|node| voting_status(node, quorum, 3)).collect();
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
        let nodes = [voting("a", 5), voting("b", 5), Ok(node("c", Some(other), 0))];
        assert_eq!(quorum_of(&nodes, LIST).unwrap().set, "s.abc");
    }
}
