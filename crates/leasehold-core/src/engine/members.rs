//! The members of a store that decides by majority, as an operator sees them.

use std::fmt;

use futures_util::future::BoxFuture;
use serde::Serialize;

use super::{Fut, voter::Abstention};
use crate::{clock::Until, fence::Fence};

/// The members of a store that decides by majority.
pub trait Members: Send + Sync {
    /// Every member and whether it votes.
    fn list(&self, until: Until) -> BoxFuture<'_, Vec<Member>>;

    /// Makes all members a new quorum at once. Every one must answer. Those that are part of a quorum are refused, unless
    /// `over`.
    fn admit_new(&self, over: bool, until: Until) -> Fut<'_, ()>;

    /// Begins to readmit members that lost their data, also when too few of the others vote to learn from.
    fn admit(&self, until: Until) -> Fut<'_, ()>;

    /// How its grants were decided so far.
    fn rounds(&self) -> Rounds;
}

/// How grants were decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// How many grants there were.
    pub granted: u64,
    /// How often a majority voted with different fences, which takes a second round trip.
    pub confirmed: u64,
}

/// One node of a quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
pub enum MemberState {
    /// It does.
    Votes,
    /// It is watched, and votes again after this long if a client keeps watching.
    Waits {
        /// Milliseconds left.
        left_ms: u64,
        /// Why it cannot be readmitted, if that was tried or can be seen.
        #[serde(skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// It does not vote.
    Abstains {
        /// Why.
        why: Abstention,
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
            Self::Waits { refused: Some(why), .. } => write!(f, "waits: {why}"),
            Self::Waits { left_ms: 0, .. } => f.write_str(
                "waits: too few others vote to learn the fences from; see `leasehold quorum admit`",
            ),
            Self::Waits { left_ms, .. } => write!(f, "waits, {:.1} s left", *left_ms as f64 / 1000.0),
            Self::Abstains { why } => write!(f, "abstains: {why}"),
            Self::Unreachable { why } => write!(f, "unreachable: {why}"),
        }
    }
}
