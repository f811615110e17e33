//! What an operator sees of a quorum's nodes, and how a new quorum begins.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use serde::Serialize;

use super::{
    Quorum, Shared, list,
    seats::{self, Seat, Set, left},
    warden::{nonce, same_server},
};
use crate::{
    clock::Until,
    engine::{
        EngineError, Fault, Warning,
        voter::{Abstention, Standing, State},
    },
    fence::Fence,
};

/// One node of a quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Member {
    /// Host and port.
    pub label: String,
    /// Whether it votes.
    #[serde(flatten)]
    pub state: MemberState,
    /// The highest fence it gave.
    pub highest: Fence,
}

/// Whether a node votes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemberState {
    /// It does.
    Votes,
    /// It is watched, and votes again after this long if a client keeps watching.
    Waits {
        /// Milliseconds left.
        left_ms: u64,
    },
    /// It does not vote.
    Abstains {
        /// Why.
        why: &'static str,
    },
    /// It does not answer.
    Unreachable {
        /// Why.
        why: String,
    },
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Votes => f.write_str("votes"),
            Self::Waits { left_ms: 0 } => f.write_str("waits: too few others vote to learn the fences from"),
            Self::Waits { left_ms } => write!(f, "waits, {:.1} s left", *left_ms as f64 / 1000.0),
            Self::Abstains { why } => write!(f, "abstains: {why}"),
            Self::Unreachable { why } => write!(f, "unreachable: {why}"),
        }
    }
}

impl Member {
    pub(super) fn warning(&self) -> Option<Warning> {
        let (found, cure) = match &self.state {
            MemberState::Votes | MemberState::Unreachable { .. } => return None,
            MemberState::Waits { left_ms: 0 } => {
                (self.state.to_string(), "bring the others back, or run `leasehold quorum admit`")
            }
            MemberState::Waits { .. } => {
                (self.state.to_string(), "wait: it votes again by itself while a client watches it")
            }
            MemberState::Abstains { .. } => (
                self.state.to_string(),
                "see `leasehold quorum status`; a new quorum takes `leasehold quorum admit --new`",
            ),
        };
        Some(Warning { code: "quorum-marker", found: format!("{}: {found}", self.label), cure: cure.into() })
    }
}

impl Quorum {
    /// Every node and whether it votes.
    pub async fn members(&self, until: Until) -> Vec<Member> {
        self.shared.members(until).await
    }

    /// How often the second phase was needed, and how many grants there were.
    pub fn confirmed_of_granted(&self) -> (u64, u64) {
        let counters = &self.shared.counters;
        (counters.confirmed.load(Ordering::Relaxed), counters.granted.load(Ordering::Relaxed))
    }

    /// Makes all nodes a new quorum at once. Every one must answer. Whoever held a lock on these nodes is forgotten:
    /// only for nodes on which nobody holds anything.
    ///
    /// # Errors
    /// When a node does not answer, or another client changed one at the same time.
    pub async fn admit_new(&self, until: Until) -> Result<(), EngineError> {
        self.shared.admit_new(until).await
    }

    /// Brings back nodes that have forgotten, also when too few others vote to learn the fences from: the clock then
    /// gives them. It takes the longest ttl; ask [`Quorum::members`] how far it is.
    ///
    /// # Errors
    /// When no node remembers that it belonged to a quorum.
    pub async fn admit(&self, until: Until) -> Result<(), EngineError> {
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

    async fn admit_new(&self, until: Until) -> Result<(), EngineError> {
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
        let standings: Vec<_> = self.standings(until).await.into_iter().map(Result::ok).collect();
        if seats::set_of(&standings, &self.list).is_none() {
            let why = "no node remembers this quorum; `leasehold quorum admit --new` makes a new one";
            return Err(EngineError::new(Fault::Unsupported, why));
        }
        self.by_the_clock.store(true, Ordering::Relaxed);
        let _not_yet = self.take_seats(until).await;
        self.ring();
        Ok(())
    }

    fn fresh_set(&self, epoch: u32) -> Set {
        Set { id: list::id_with(&nonce(), &self.list), epoch, max_ms: self.options.max_ttl.as_millis() as u64 }
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
        let by_the_clock = self.by_the_clock.load(Ordering::Relaxed) || self.options.admit_new;
        let voting = seats.iter().filter(|seat| seat.votes()).count();
        (by_the_clock && voting < self.majority())
            .then(|| self.floor_by_the_clock(standings.iter().flatten()))
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
