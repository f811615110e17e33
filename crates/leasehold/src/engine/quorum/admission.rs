//! What an operator sees of a quorum's nodes, and how a new quorum begins.

use std::sync::{Arc, atomic::Ordering};

use super::{
    Quorum, Shared,
    excuses::is_ours,
    list,
    seats::{self, Seat, Set, left},
    warden::{nonce, same_server},
};
use crate::{
    clock::Until,
    engine::{
        EngineError, Fault, Member, MemberState, Warning,
        voter::{Abstention, Record, Standing, State},
    },
    fence::Fence,
};

pub(super) fn warning(member: &Member) -> Option<Warning> {
    let state = &member.state;
    let (found, cure) = match state {
        MemberState::Votes | MemberState::Unreachable { .. } => return None,
        MemberState::Waits { left_ms: 0 } => {
            (state.to_string(), "bring the others back, or run `leasehold quorum admit`")
        }
        MemberState::Waits { .. } => {
            (state.to_string(), "wait: it votes again by itself while a client watches it")
        }
        MemberState::Abstains { why } => (state.to_string(), cure(why)),
    };
    Some(Warning { code: "quorum-marker", found: format!("{}: {found}", member.label), cure: cure.into() })
}

/// What helps a node that abstains.
fn cure(why: &str) -> &'static str {
    let cures = [
        (
            Abstention::Forgot,
            "it comes back by itself while a client watches it; where too many forgot, run `leasehold quorum admit`",
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

impl Quorum {
    /// Makes all nodes a new quorum at once. Every one must answer. What they still know stays held; what they have
    /// forgotten can be granted again at once, while its holder goes on until its next renewal.
    ///
    /// # Errors
    /// When a node does not answer, or another client changed one at the same time; and when one is part of a quorum,
    /// unless `over` that.
    pub(super) async fn admit_all(&self, over: bool, until: Until) -> Result<(), EngineError> {
        self.shared.admit_new(over, until).await
    }

    /// Brings back nodes that have forgotten, also when too few others vote to learn the fences from: the clock then
    /// gives them. It takes the longest ttl; ask [`Quorum::members`] how far it is.
    ///
    /// # Errors
    /// When no node remembers that it belonged to a quorum.
    pub(super) async fn admit_forgotten(&self, until: Until) -> Result<(), EngineError> {
        self.shared.admit(until).await
    }
}

impl Shared {
    pub(super) async fn members(&self, until: Until) -> Vec<Member> {
        let answers = self.standings(until).await;
        let standings: Vec<_> = answers.iter().map(|answer| answer.as_ref().ok().cloned()).collect();
        let set = seats::set_of(&standings, &self.list);
        let mut taken = vec![Seat::Unknown; self.n()];
        for (index, standing) in standings.iter().enumerate() {
            let Some(standing) = standing else { continue };
            let seat = seats::seat(standing, set.as_ref(), self.n(), false);
            taken[index] = seats::beside(&taken, index, seat);
        }
        let mut members = Vec::with_capacity(self.n());
        for ((answer, voter), seat) in answers.into_iter().zip(&self.voters).zip(&taken) {
            let (state, highest) = match answer {
                Ok(standing) => (state(seat), standing.highest),
                Err(error) => (MemberState::Unreachable { why: error.to_string() }, Fence::default()),
            };
            members.push(Member { label: voter.label().to_owned(), state, highest });
        }
        members
    }

    async fn admit_new(&self, over: bool, until: Until) -> Result<(), EngineError> {
        let mut standings = Vec::with_capacity(self.n());
        for (answer, voter) in self.standings(until).await.into_iter().zip(&self.voters) {
            let standing = answer.map_err(|error| EngineError {
                why: format!("{}: {error}; all nodes of a new quorum must answer", voter.label()),
                ..error
            })?;
            if standing.unknown_layout {
                let why = format!("{}: {}", voter.label(), Abstention::UnknownLayout.as_str());
                return Err(EngineError::new(Fault::Unsupported, why));
            }
            if standing.record.is_some() && !over {
                let why = format!(
                    "{} is part of a quorum already, and locks that its nodes have forgotten could be granted a second \
                     time at once; `leasehold quorum admit` brings nodes back safely, after the longest ttl, and `leasehold \
                     quorum admit --new --yes` makes a new quorum all the same",
                    voter.label()
                );
                return Err(EngineError::new(Fault::Unsupported, why));
            }
            standings.push(Some(standing));
        }
        same_server(self, &standings)?;
        let standings: Vec<_> = standings.into_iter().flatten().collect();
        let epoch = standings.iter().filter_map(|node| node.record.as_ref()).map(|record| record.epoch).max();
        let set = self.fresh_set(epoch.unwrap_or(0) + 1);
        let floor = self.floor_by_the_clock(standings.iter());
        for (index, (standing, voter)) in standings.iter().zip(&self.voters).enumerate() {
            let record = set.record(self.n(), index, &standing.identity, State::Votes);
            if !voter.mark(standing.record.as_ref(), &record, floor, until).await? {
                let why = format!(
                    "{} was changed by another client at the same time; look and try again",
                    voter.label()
                );
                return Err(EngineError::new(Fault::Unreachable, why));
            }
        }
        Ok(())
    }

    async fn admit(self: &Arc<Self>, until: Until) -> Result<(), EngineError> {
        let answers = self.standings(until).await;
        let standings: Vec<_> = answers.iter().map(|answer| answer.as_ref().ok().cloned()).collect();
        if seats::set_of(&standings, &self.list).is_none() {
            return Err(self.no_set(&answers));
        }
        self.by_the_clock.store(true, Ordering::Relaxed);
        let _not_yet = self.take_seats(until).await;
        self.ring();
        Ok(())
    }

    /// Why there is no quorum to bring nodes back into.
    fn no_set(&self, answers: &[Result<Standing, EngineError>]) -> EngineError {
        let records = answers.iter().flatten().filter_map(|standing| standing.record.as_ref());
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

    fn fresh_set(&self, epoch: u32) -> Set {
        Set {
            id: list::id_with(&nonce(), &self.list),
            epoch,
            max_ms: self.options.max_ttl.as_millis() as u64,
        }
    }

    /// The quorum that `admit=new` makes of nodes without records. All must answer: a rack that lost its power while
    /// holders elsewhere live on looks the same.
    pub(super) fn new_set(&self, standings: &[Option<Standing>]) -> Option<Set> {
        let all_blank = standings
            .iter()
            .all(|node| node.as_ref().is_some_and(|node| node.record.is_none() && !node.unknown_layout));
        (self.options.admit_new && all_blank).then(|| self.fresh_set(1))
    }

    /// The floor where too few nodes vote to learn it from: all are on their way back, and an operator said so or the
    /// quorum is new. No fence is further ahead of the time than a node lets a hint be.
    pub(super) fn floor_of_new(&self, standings: &[Option<Standing>], seats: &[Seat]) -> Option<Fence> {
        let voting = seats.iter().filter(|seat| seat.votes()).count();
        (voting < self.majority()).then(|| self.floor_by_the_clock(standings.iter().flatten()))
    }

    /// Whether the clock may give a node with this record its floor. `admit=new` may have been left in a URL: it makes a
    /// new quorum of blank nodes, and never brings one back that has forgotten.
    pub(super) fn goes_by_the_clock(&self, record: &Record) -> bool {
        self.by_the_clock.load(Ordering::Relaxed) || self.options.admit_new && seats::never_voted(record)
    }

    /// Above every fence that these nodes can have given, also those that they forgot: no node follows a hint that is
    /// further ahead of its time than a minute. Not rounded: fences grow by less than one in a microsecond, so the floor
    /// of a later admission is above all that was granted upon an earlier one.
    fn floor_by_the_clock<'a>(&self, standings: impl Iterator<Item = &'a Standing>) -> Fence {
        const LEAD_US: u64 = 120_000_000;
        let ahead = self.clock().wall_us() + LEAD_US;
        standings.map(|standing| standing.highest).fold(Fence::new(ahead), Fence::max)
    }
}

fn state(seat: &Seat) -> MemberState {
    match seat {
        Seat::Votes(_) => MemberState::Votes,
        Seat::Waits(record) => MemberState::Waits { left_ms: left(record).as_millis() as u64 },
        Seat::Forgot { .. } => MemberState::Abstains { why: Abstention::Forgot.as_str() },
        Seat::Abstains(why) => MemberState::Abstains { why: why.as_str() },
        Seat::Unknown => MemberState::Abstains { why: Abstention::NotAdmitted.as_str() },
    }
}
