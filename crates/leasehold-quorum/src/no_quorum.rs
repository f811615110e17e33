//! Why there is no majority: what each node reported that voted neither yes nor no.

use std::sync::Arc;

use super::{Result, count::majority};
use leasehold_core::Refusal;
use leasehold_core::engine::voter::{Abstention, Voter};
use leasehold_core::engine::{EngineError, Fault, MemberState};

/// What a node reported that did not vote: its state, or why it did not answer.
pub(super) type Report = Result<MemberState>;

/// Why there is no majority, node by node. `reported` has the nodes that did not vote, by index.
pub(super) fn no_quorum(voters: &[Arc<dyn Voter>], reported: Vec<(usize, Report)>) -> EngineError {
    let (n, most) = (voters.len(), majority(voters.len()));
    let errors = || reported.iter().filter_map(|(_, report)| report.as_ref().err());
    // What every node would repeat, as that of a ttl that is too long, is reported as it is.
    let is_of_all = |error: &&EngineError| {
        let same = || errors().filter(|other| other.fault == error.fault && other.why == error.why);
        let is_refusal = matches!(error.fault, Fault::Refused(_) | Fault::Overloaded | Fault::Busy);
        is_ours(error) || is_refusal && same().count() > n - most
    };
    if let Some(error) = errors().find(is_of_all) {
        return error.clone();
    }
    // Where an answer of the others would have been enough, it is an outage, which may pass at any moment.
    let abstaining = reported.len() - errors().count();
    let fault = if n - abstaining < most {
        Fault::Refused(Refusal::Abstention)
    } else if errors().any(|error| error.fault == Fault::NoAnswer) {
        Fault::NoAnswer
    } else {
        Fault::Unreachable
    };
    let is_blank = |(_, report): &(usize, Report)| {
        matches!(report, Ok(MemberState::Abstains { why: Abstention::NotAdmitted }))
    };
    // Where one of them has a record, a new quorum would forget what that stands for.
    let are_blank = reported.len() == n && reported.iter().all(is_blank);
    let cure = if are_blank { "; `leasehold quorum admit --new` makes a new quorum of them" } else { "" };
    let voting = n - reported.len();
    let words = words(voters, &reported);
    let why = format!("only {voting} of {n} nodes can vote; {most} are required: {words}{cure}");
    EngineError::new(fault, why)
}

/// What each of these nodes reported.
pub(super) fn words(voters: &[Arc<dyn Voter>], reported: &[(usize, Report)]) -> String {
    let words = reported.iter().map(|(index, report)| match report {
        Ok(state) => format!("{} {state}", voters[*index].label()),
        Err(error) => format!("{}: {error}", voters[*index].label()),
    });
    words.collect::<Vec<_>>().join("; ")
}

/// Whether it would be the same on every node and at every time.
pub(super) fn is_ours(error: &EngineError) -> bool {
    matches!(
        error.fault,
        Fault::Unsupported | Fault::WrongType | Fault::Ended | Fault::Refused(Refusal::Auth | Refusal::Acl)
    )
}
