//! Why there is no majority: what each node reported that voted neither yes nor no.

use super::Shared;
use crate::{
    engine::{EngineError, Fault, MemberState, voter::Abstention},
    error::Refusal,
};

/// The nodes that did not vote, and why.
#[derive(Default)]
pub(super) struct NoQuorum(Vec<(String, Result<MemberState, EngineError>)>);

impl NoQuorum {
    pub(super) fn fails(&mut self, label: &str, error: EngineError) {
        self.0.push((label.to_owned(), Err(error)));
    }

    pub(super) fn abstains(&mut self, label: &str, state: MemberState) {
        self.0.push((label.to_owned(), Ok(state)));
    }

    fn errors(&self) -> impl Iterator<Item = &EngineError> {
        self.0.iter().filter_map(|(_, why)| why.as_ref().err())
    }

    /// A refusal that every node would repeat, as of a ttl that is too long: it is reported as it is.
    fn of_all(&self, blocking: usize) -> Option<&EngineError> {
        let is_of_all = |error: &&EngineError| {
            let same =
                self.errors().filter(|other| other.fault == error.fault && other.why == error.why).count();
            is_ours(error)
                || matches!(error.fault, Fault::Refused(_) | Fault::Overloaded | Fault::Busy)
                    && same >= blocking
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
            .map(|(label, why)| match why {
                Ok(state) => format!("{label} {state}"),
                Err(error) => format!("{label}: {error}"),
            })
            .collect();
        let is_blank = |why: &Result<MemberState, _>| matches!(why, Ok(MemberState::Abstains { why }) if *why == Abstention::NotAdmitted.as_str());
        // Where one of them has a record, a new quorum would forget what that stands for.
        let are_blank = self.0.len() == n && self.0.iter().all(|(_, why)| is_blank(why));
        let cure = if are_blank { "; `leasehold quorum admit --new` makes a new quorum of them" } else { "" };
        let voting = n - self.0.len();
        let words = words.join("; ");
        EngineError::new(
            fault,
            format!("only {voting} of {n} nodes can vote; {most} are required: {words}{cure}"),
        )
    }
}

/// Whether it would be the same on every node and at every time.
pub(super) fn is_ours(error: &EngineError) -> bool {
    matches!(
        error.fault,
        Fault::Unsupported | Fault::WrongType | Fault::Ended | Fault::Refused(Refusal::Auth | Refusal::Acl)
    )
}
