//! Which nodes vote, from what they say about themselves. Pure.

use std::{collections::HashMap, time::Duration};

use crate::{
    engine::voter::{Abstention, Record, Standing, State},
    fence::Fence,
};

use super::{count::majority, list};

/// What is known about a node's right to vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seat {
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

impl Seat {
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

    /// Whether that node's quorum has the same list of addresses.
    fn has_list_of(&self, record: &Record) -> bool {
        self.id.rsplit_once('.').is_some_and(|(_, list)| list::is_with(&record.set, list))
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

/// What the nonce of a node begins with that waits to be part of a new quorum and never voted in it.
pub(super) const NEW: &str = "new-";

/// Whether a node with this record waits to be part of a new quorum.
pub(super) fn never_voted(record: &Record) -> bool {
    matches!(&record.state, State::Waits { nonce, .. } if nonce.starts_with(NEW))
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
pub(super) fn set_of(standings: &[Option<Standing>], list: &str) -> Option<Set> {
    let mut votes: HashMap<(&str, u32), (usize, usize, &Record)> = HashMap::new();
    for standing in standings.iter().flatten() {
        let Some(record) = &standing.record else { continue };
        if record.n as usize != standings.len() || !list::is_with(&record.set, list) {
            continue;
        }
        let is_voting = record.state == State::Votes && record.identity == standing.identity;
        let entry = votes.entry((&record.set, record.epoch)).or_insert((0, 0, record));
        entry.0 += usize::from(is_voting);
        entry.1 += 1;
    }
    let most = votes.into_iter().max_by_key(|((id, epoch), (voting, all, _))| (*voting, *epoch, *all, *id));
    most.map(|(_, (_, _, record))| Set::of(record))
}

/// The quorum of the nodes that are known to vote.
pub(super) fn set_of_seats(seats: &[Seat]) -> Option<Set> {
    seats.iter().find_map(|seat| match seat {
        Seat::Votes(record) => Some(Set::of(record)),
        _ => None,
    })
}

/// Where a node stands in a quorum.
///
/// With `adopts`, a node that waits to be part of another quorum is taken over, because two clients may have made one of
/// new nodes at the same time. It may have voted before it began to wait; but it is watched from the beginning again, and
/// whoever counted its votes has the same list of addresses.
pub(super) fn seat(standing: &Standing, set: Option<&Set>, n: usize, adopts: bool) -> Seat {
    if standing.unknown_layout {
        return Seat::Abstains(Abstention::UnknownLayout);
    }
    let Some(set) = set else {
        return Seat::Abstains(match &standing.record {
            None => Abstention::NotAdmitted,
            Some(record) if record.n as usize != n => Abstention::OtherSet,
            Some(_) => Abstention::OtherList,
        });
    };
    let Some(record) = &standing.record else { return Seat::Forgot { seen: None } };
    if !set.has(record) || record.n as usize != n {
        let waits = adopts && matches!(record.state, State::Waits { .. }) && set.has_list_of(record);
        return if waits {
            Seat::Forgot { seen: Some(record.clone()) }
        } else {
            Seat::Abstains(Abstention::OtherSet)
        };
    }
    if record.identity != standing.identity {
        return Seat::Forgot { seen: Some(record.clone()) };
    }
    match record.state {
        State::Votes => Seat::Votes(record.clone()),
        State::Waits { .. } => Seat::Waits(record.clone()),
    }
}

/// Whether some node is part of another quorum. While it is, nobody new is brought into ours: the other one may be the
/// one that counts, and count the same blank nodes.
pub(super) fn are_divided(seats: &[Seat]) -> bool {
    seats.iter().any(|seat| matches!(seat, Seat::Abstains(Abstention::OtherSet | Abstention::OtherList)))
}

/// The nodes that are known to vote in another quorum than this one: votes of two quorums make no majority.
pub(super) fn strangers(seats: &[Seat], set: &Set) -> Vec<usize> {
    let is_stranger = |seat: &Seat| matches!(seat, Seat::Votes(record) if !set.has(record));
    seats.iter().enumerate().filter(|(_, seat)| is_stranger(seat)).map(|(index, _)| index).collect()
}

/// The seat of a node beside those that are taken: two names of one server would count its vote twice.
pub(super) fn beside(seats: &[Seat], index: usize, seat: Seat) -> Seat {
    let Seat::Votes(record) = &seat else { return seat };
    let others = seats.iter().enumerate().filter(|(other, _)| *other != index);
    for (_, other) in others {
        match other {
            Seat::Votes(other) if other.identity == record.identity => {
                return Seat::Abstains(Abstention::SameServer);
            }
            Seat::Votes(other) if !Set::of(other).has(record) => return Seat::Abstains(Abstention::OtherSet),
            _ => {}
        }
    }
    seat
}

/// The floor for the fences of a node that has forgotten its own: the highest of so many other voting nodes that every
/// majority it was part of is among them. `None` if too few of them vote.
pub(super) fn floor(index: usize, standings: &[Option<Standing>], seats: &[Seat]) -> Option<Fence> {
    let n = standings.len();
    let others =
        standings.iter().zip(seats).enumerate().filter(|(other, (_, seat))| *other != index && seat.votes());
    let heights: Vec<_> = others.filter_map(|(_, (standing, _))| Some(standing.as_ref()?.highest)).collect();
    if heights.len() < n - majority(n) + 1 {
        return None;
    }
    let own = standings[index].as_ref().map_or(Fence::default(), |standing| standing.highest);
    heights.into_iter().max().map(|highest| highest.max(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "abc";

    fn record(identity: &str, state: State) -> Record {
        Set { id: "s.abc".into(), epoch: 1, max_ms: 2000 }.record(3, 0, identity, state)
    }

    fn standing(identity: &str, record: Option<Record>, highest: u64) -> Standing {
        Standing { identity: identity.into(), record, unknown_layout: false, highest: Fence::new(highest) }
    }

    fn voting(identity: &str, highest: u64) -> Option<Standing> {
        Some(standing(identity, Some(record(identity, State::Votes)), highest))
    }

    #[test]
    fn a_restarted_node_has_forgotten_and_the_others_vote() {
        let restarted = standing("b2", Some(record("b1", State::Votes)), 0);
        let standings = [voting("a", 5), Some(restarted), voting("c", 7)];
        let set = set_of(&standings, LIST).unwrap();
        let seats: Vec<_> = standings.iter().flatten().map(|node| seat(node, Some(&set), 3, false)).collect();
        assert!(seats[0].votes() && seats[2].votes());
        assert_eq!(seats[1], Seat::Forgot { seen: Some(record("b1", State::Votes)) });
        assert_eq!(floor(1, &standings, &seats), Some(Fence::new(7)));
    }

    #[test]
    fn a_wiped_node_has_forgotten() {
        let set = set_of(&[voting("a", 5), None, None], LIST).unwrap();
        assert_eq!(seat(&standing("b", None, 0), Some(&set), 3, false), Seat::Forgot { seen: None });
    }

    #[test]
    fn too_few_voting_nodes_teach_no_floor() {
        let standings = [voting("a", 5), Some(standing("b", None, 0)), Some(standing("c", None, 0))];
        let seats = [Seat::Votes(record("a", State::Votes)), Seat::Unknown, Seat::Unknown];
        assert_eq!(floor(1, &standings, &seats), None);
    }

    #[test]
    fn nodes_without_records_are_nobodys_quorum() {
        let blank = standing("a", None, 0);
        assert_eq!(set_of(&[Some(blank.clone()), Some(blank.clone()), None], LIST), None);
        assert_eq!(seat(&blank, None, 3, false), Seat::Abstains(Abstention::NotAdmitted));
    }

    #[test]
    fn a_node_of_another_quorum_or_size_does_not_vote() {
        let set = set_of(&[voting("a", 5), None, None], LIST).unwrap();
        let other = Record { set: "t.abc".into(), ..record("b", State::Votes) };
        assert_eq!(
            seat(&standing("b", Some(other), 0), Some(&set), 3, false),
            Seat::Abstains(Abstention::OtherSet)
        );
        assert_eq!(set_of(&[voting("a", 5), None, None, None, None], LIST), None);
    }

    #[test]
    fn of_two_names_of_one_server_the_first_votes() {
        let votes = |identity| Seat::Votes(record(identity, State::Votes));
        let mut seats = [Seat::Unknown, Seat::Unknown, votes("b")];
        seats[0] = beside(&seats, 0, votes("a"));
        seats[1] = beside(&seats, 1, votes("a"));
        assert_eq!(seats, [votes("a"), Seat::Abstains(Abstention::SameServer), votes("b")]);
        assert_eq!(beside(&seats, 0, votes("a")), votes("a"));
    }

    #[test]
    fn nodes_that_vote_do_so_in_one_quorum() {
        let set = Set { id: "s.abc".into(), epoch: 1, max_ms: 2000 };
        let ours = Seat::Votes(record("a", State::Votes));
        for other in [
            Record { set: "t.abc".into(), ..record("b", State::Votes) },
            Record { epoch: 2, ..record("b", State::Votes) },
        ] {
            let seats = [ours.clone(), Seat::Votes(other.clone()), Seat::Unknown];
            assert_eq!(strangers(&seats, &set), [1]);
            let late = beside(&[ours.clone(), Seat::Unknown, Seat::Unknown], 1, Seat::Votes(other));
            assert_eq!(late, Seat::Abstains(Abstention::OtherSet));
        }
    }

    #[test]
    fn a_list_that_differs_finds_no_quorum_and_brings_no_blank_node_in() {
        let unlisted = Record { set: "s".into(), ..record("a", State::Votes) };
        for known in [voting("a", 5), Some(standing("a", Some(unlisted), 5))] {
            let standings = [known.clone(), known, Some(standing("d", None, 0))];
            let set = set_of(&standings, "abd");
            let seats: Vec<_> =
                standings.iter().flatten().map(|node| seat(node, set.as_ref(), 3, true)).collect();
            let other = Seat::Abstains(Abstention::OtherList);
            assert_eq!(seats, [other.clone(), other, Seat::Abstains(Abstention::NotAdmitted)]);
            assert!(are_divided(&seats));
        }
    }

    #[test]
    fn a_node_that_waits_in_another_new_quorum_is_taken_over_only_with_the_same_list() {
        let set = Set { id: "s.abc".into(), epoch: 1, max_ms: 2000 };
        let waits = State::Waits { nonce: "n".into(), watched_ms: 0 };
        for (id, expected) in [("t.abc", true), ("t.abd", false), ("t", false)] {
            let other = Record { set: id.into(), ..record("b", waits.clone()) };
            let seat = seat(&standing("b", Some(other), 0), Some(&set), 3, true);
            assert_eq!(matches!(seat, Seat::Forgot { .. }), expected, "{id}: {seat:?}");
        }
    }

    #[test]
    fn nobody_is_brought_back_while_a_node_is_in_another_quorum() {
        let (votes, forgot) = (Seat::Votes(record("a", State::Votes)), Seat::Forgot { seen: None });
        assert!(!are_divided(&[votes.clone(), forgot.clone(), Seat::Unknown]));
        assert!(are_divided(&[votes, forgot, Seat::Abstains(Abstention::OtherSet)]));
    }

    #[test]
    fn a_quorum_is_the_one_most_nodes_vote_in() {
        let other = Record { set: "t.abc".into(), epoch: 9, ..record("c", State::Votes) };
        let standings = [voting("a", 5), voting("b", 5), Some(standing("c", Some(other), 0))];
        assert_eq!(set_of(&standings, LIST).unwrap().id, "s.abc");
    }
}
