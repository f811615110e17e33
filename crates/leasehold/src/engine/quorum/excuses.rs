//! Why there is no majority: what each node said that said neither yes nor no.

use std::time::Duration;

use super::{
    Shared,
    seats::{Seat, left},
};
use crate::{
    engine::{EngineError, Fault, voter::Abstention},
    error::Refusal,
};

/// The nodes that did not vote, and why.
#[derive(Default)]
pub(super) struct Excuses(Vec<(String, Excuse)>);

enum Excuse {
    /// In words.
    Abstains(String),
    /// It has no record.
    IsBlank,
    Fails(EngineError),
}

impl Excuses {
    pub(super) fn fails(&mut self, label: &str, error: EngineError) {
        self.0.push((label.to_owned(), Excuse::Fails(error)));
    }

    /// The node does not vote; `why` is what it said itself, the seat what is known of it.
    pub(super) fn abstains(&mut self, label: &str, seat: &Seat, why: Abstention) {
        let words = match seat {
            Seat::Waits(record) | Seat::Forgot { seen: Some(record) } => waits(left(record)),
            Seat::Votes(record) if why == Abstention::Forgot => waits(left(record)),
            Seat::Forgot { seen: None } => Abstention::Forgot.as_str().into(),
            Seat::Abstains(Abstention::NotAdmitted) => {
                self.0.push((label.to_owned(), Excuse::IsBlank));
                return;
            }
            Seat::Abstains(why) => why.as_str().into(),
            Seat::Votes(_) | Seat::Unknown => why.as_str().into(),
        };
        self.0.push((label.to_owned(), Excuse::Abstains(words)));
    }

    fn errors(&self) -> impl Iterator<Item = &EngineError> {
        self.0.iter().filter_map(|(_, excuse)| match excuse {
            Excuse::Fails(error) => Some(error),
            Excuse::Abstains(_) | Excuse::IsBlank => None,
        })
    }

    /// A refusal that every node would repeat, as of a ttl that is too long: it is told as it is.
    fn of_all(&self, blocking: usize) -> Option<&EngineError> {
        let is_of_all = |error: &&EngineError| {
            let same =
                self.errors().filter(|other| other.fault == error.fault && other.why == error.why).count();
            is_ours(error) || matches!(error.fault, Fault::Refused(_) | Fault::Overloaded) && same >= blocking
        };
        self.errors().find(is_of_all)
    }

    /// Why there is no majority, node by node.
    pub(super) fn into_error(self, shared: &Shared) -> EngineError {
        let (n, most) = (shared.n(), shared.majority());
        if let Some(error) = self.of_all(n - most + 1) {
            return error.clone();
        }
        // Where an answer of the others would have been enough, it is an outage, which may pass at any moment.
        let abstaining = self.0.len() - self.errors().count();
        let fault = if n - abstaining < most {
            Fault::Refused(Refusal::Abstention)
        } else if self.errors().any(|error| error.fault == Fault::NoAnswer) {
            Fault::NoAnswer
        } else {
            Fault::Unreachable
        };
        let words: Vec<_> = self
            .0
            .iter()
            .map(|(label, excuse)| match excuse {
                Excuse::Abstains(why) => format!("{label} abstains ({why})"),
                Excuse::IsBlank => format!("{label} abstains ({})", Abstention::NotAdmitted.as_str()),
                Excuse::Fails(error) => format!("{label}: {error}"),
            })
            .collect();
        let voting = n - self.0.len();
        // Where one of them has a record, a new quorum would forget what that stands for.
        let blank = self.0.iter().filter(|(_, excuse)| matches!(excuse, Excuse::IsBlank)).count();
        let cure =
            if blank == n { "; `leasehold quorum admit --new` makes a new quorum of them" } else { "" };
        let words = words.join("; ");
        EngineError::new(fault, format!("{voting} of {n} nodes vote and {most} must: {words}{cure}"))
    }
}

fn waits(left: Duration) -> String {
    if left.is_zero() {
        return "restarted or wiped; it waited long enough, and too few others vote to learn the fences from: see \
                `leasehold quorum admit`"
            .into();
    }
    format!("{}, {:.1} s left", Abstention::Forgot.as_str(), left.as_secs_f64())
}

/// Whether it would be the same on every node and at every time.
pub(super) fn is_ours(error: &EngineError) -> bool {
    matches!(
        error.fault,
        Fault::Unsupported | Fault::WrongType | Fault::Ended | Fault::Refused(Refusal::Auth | Refusal::Acl)
    )
}
