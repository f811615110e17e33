//! The contract of latches and barriers: who takes part, how many have counted down, and who waits for the others.
//!
//! A latch opens when as many participants have counted down as it has parties. A barrier is a latch that arms itself again
//! when it opens, with the same parties. Each time it is armed it is a new *generation*, under a number that grows like a
//! fence: what belongs to an earlier generation counts for nothing in a later one, also if the store forgot the latch in
//! between.
//!
//! A participant is a lease, renewed as [`Leases`](super::Leases) says. If it ends before the participant has counted down or
//! left, the latch is broken for everybody of that generation. Whoever asks next finds that, and all who wait are told. A party
//! of a barrier has its lease in every generation; a participant of a latch needs none once it has counted down.

use std::{num::NonZeroU32, time::Duration};

use serde::Serialize;

use super::{EngineError, Fault, Format, Fut, Held, Hold, Mode};
use crate::{
    clock::Until,
    fence::Fence,
    name::Name,
    owner::{Holder, Owner},
};

/// Most parties of one latch.
pub const PARTIES_MAX: u32 = 10_000;
/// Participants that an inspection lists.
pub const PARTIES_SHOWN: u32 = 100;
/// How long a latch is remembered after its last use: longer than any lease.
pub const KEPT: Duration = Duration::from_secs(2 * 86_400);

/// Latches and barriers. Every operation is atomic per name.
pub trait Latches: Send + Sync {
    /// Does one thing with a latch, and says how it stands. The same request of the same owner again counts once.
    fn ask<'a>(&'a self, request: &'a Request, until: Until) -> Fut<'a, Answer>;

    /// What people may see of a latch; `None` if there is none.
    fn state<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Option<Snapshot>>;
}

/// What a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// It opens once, and stays open until it is armed again.
    Latch,
    /// It arms itself again when it opens.
    Barrier,
}

impl Kind {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Latch => "latch",
            Self::Barrier => "barrier",
        }
    }

    /// Reads the word for it.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Latch, Self::Barrier].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// One request about a latch.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which latch.
    pub name: Name,
    /// What it is.
    pub kind: Kind,
    /// How many parties it has.
    pub count: NonZeroU32,
    /// The participant, or the one who waits.
    pub owner: Owner,
    /// What is asked.
    pub op: Op,
}

impl Request {
    /// The lease of a participant that joined this generation.
    pub fn hold(&self, generation: u64, ttl: Duration) -> Hold {
        let Self { name, owner, .. } = self.clone();
        let (mode, format, lock_delay) = (Mode::Exclusive, Format::Plain, Duration::ZERO);
        let (fence, of) = (Fence::new(generation), Held::Latch);
        Hold { name, owner, fence, mode, format, ttl, lock_delay, of, watch: false }
    }

    /// Whether its owner is to be told when there is something new.
    pub fn wake(&self) -> bool {
        matches!(self.op, Op::Look { wake: true, .. })
    }
}

/// What is asked of a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// To take part. Arms a latch that is not there.
    Join {
        /// How long the lease lasts unless renewed.
        ttl: Duration,
    },
    /// To count down, once per participant and generation.
    CountDown {
        /// In which generation.
        generation: u64,
    },
    /// To take part no longer. A participant of a latch that has counted down stays counted.
    Leave {
        /// Whether that breaks the latch. It does in any case for a party of a barrier that has arrived: others count on it.
        breaks: bool,
    },
    /// To be told how it stands. Arms a latch that is not there, if no generation is named.
    Look {
        /// Which generation; the present one if none is named.
        generation: Option<u64>,
        /// Whether to be woken ([`Wake::LookAgain`](super::Wake::LookAgain)) when it opens or breaks. Such hints may be lost.
        wake: bool,
    },
    /// To arm it again, with the number of parties of the request: only if it is open or broken, in this generation.
    Rearm {
        /// The generation that was seen.
        generation: u64,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The present generation; 0 if there is no latch.
    pub generation: u64,
    /// What became of the request.
    pub said: Said,
    /// When the first lease of a participant ends, unless it is renewed: whoever waits asks again by then.
    pub first_ends_in: Option<Duration>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// [`Op::Join`]: it takes part in the present generation.
    Joined,
    /// [`Op::Join`]: as many take part as there are parties.
    Full,
    /// [`Op::CountDown`]: it is counted.
    Counted {
        /// How many were counted before it.
        index: u32,
        /// Whether it was counted before.
        again: bool,
        /// How many are missing; 0 if its generation is open.
        missing: u32,
    },
    /// [`Op::Leave`]: it does not take part (any more).
    Left,
    /// [`Op::Rearm`]: it is armed again, by this request or by the same one before.
    Rearmed,
    /// [`Op::Rearm`]: the generation is another one.
    OtherGeneration,
    /// [`Op::CountDown`]: the latch does not know this participant.
    Stranger,
    /// How the generation stands that was asked about, or that is in the way.
    Stands(Standing),
}

/// How a generation stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Standing {
    /// It is not open yet.
    Armed {
        /// How many have not counted down.
        missing: u32,
    },
    /// All have counted down.
    #[serde(rename = "open")]
    Opened,
    /// It never opens.
    Broken {
        /// The participant that broke it; unknown of a generation that the store has forgotten.
        who: Option<Holder>,
    },
}

/// What people may see of a latch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: Name,
    /// What it is.
    pub kind: Kind,
    /// How many parties it has.
    pub count: u32,
    /// The present generation.
    pub generation: u64,
    /// How that stands.
    pub standing: Standing,
    /// How many take part in it.
    pub joined: u32,
    /// Some of those, at most [`PARTIES_SHOWN`].
    pub participants: Vec<ParticipantInfo>,
}

/// What people may see of a participant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ParticipantInfo {
    /// Who.
    pub holder: Holder,
    /// Whether it has counted down in the present generation.
    pub counted: bool,
    /// When its lease ends unless it is renewed; `None` once it needs none.
    #[serde(rename = "expires_in_ms", serialize_with = "millis")]
    pub expires_in: Option<Duration>,
}

impl ParticipantInfo {
    /// What a store knows of a participant.
    pub fn new(holder: Holder, counted: bool, expires_in: Option<Duration>) -> Self {
        Self { holder, counted, expires_in }
    }
}

fn millis<S: serde::Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_millis() as u64).serialize(to)
}

impl EngineError {
    /// The name is a latch and was to be a barrier, or the other way round.
    pub fn other_kind(stored: Kind, asked: Kind) -> Self {
        let why = format!("it is in use as a {}, not as a {}", stored.as_str(), asked.as_str());
        Self::new(Fault::OtherMode, why)
    }

    /// The latch is armed for another number of parties.
    pub fn other_count(stored: NonZeroU32, asked: NonZeroU32) -> Self {
        Self::new(
            Fault::OtherCount { stored, asked },
            format!("it is armed for {stored} parties, not {asked}"),
        )
    }
}
