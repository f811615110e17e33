//! What an operator should know about a quorum and its nodes.

use futures_util::future::{join, join_all};

use super::{Result, Shared};
use leasehold_core::clock::Until;
use leasehold_core::engine::{Health, Member, MemberState, Warning, nodes, voter::Abstention};

/// Every code that a [`Warning`] can have because a node is one of a quorum.
pub const WARNING_CODES: [&str; 3] = ["quorum-marker", "node-down", "quorum-replicas"];

impl Shared {
    pub(super) async fn inspect_health(&self, until: Until) -> Result<Health> {
        let each = join_all(self.voters.iter().map(|voter| voter.health(until)));
        let (members, each) = join(self.list_members(until), each).await;
        let majority = format!("{}, of which {} must agree", self.n(), self.majority());
        let mut health = Health {
            facts: vec![("engine".into(), "redlock".into()), ("nodes".into(), majority)],
            warnings: Vec::new(),
        };
        let (mut of_nodes, mut clocks) = (Vec::new(), Vec::new());
        for (member, found) in members.iter().zip(each) {
            let label = &member.label;
            health.facts.push((label.clone(), member.state.to_string()));
            health.warnings.extend(warning(member));
            match found {
                Ok((found, clock)) => {
                    let about = |(fact, value): (String, String)| (format!("{label} {fact}"), value);
                    let facts = found.facts.into_iter().filter(|(fact, _)| fact != "engine");
                    health.facts.extend(facts.map(about));
                    of_nodes.extend(found.warnings.into_iter().map(|warning| (label.clone(), warning)));
                    clocks.extend(clock.map(|clock| (label.as_str(), clock)));
                }
                Err(error) => health.warnings.push(Warning {
                    code: "node-down",
                    found: format!("{label} does not answer: {error}"),
                    cure: "bring it back: with more than half of the nodes gone no lock can be granted"
                        .into(),
                }),
            }
        }
        health.warnings.extend(nodes::gather(of_nodes));
        health.warnings.extend(nodes::clocks_differ(
            &clocks,
            "a node refuses votes of clients whose clocks are more than 60 s away from its own",
            "soon one of them gives no votes to most clients, and cannot be brought back after a restart, until the clocks agree",
        ));
        Ok(health)
    }
}

fn warning(member: &Member) -> Option<Warning> {
    let cure = match &member.state {
        MemberState::Votes | MemberState::Unreachable { .. } => return None,
        MemberState::Waits { refused: Some(_), .. } => {
            "remove what the node objects to; it then votes again by itself"
        }
        MemberState::Waits { left_ms: 0, .. } => "bring the others back, or run `leasehold quorum admit`",
        MemberState::Waits { .. } => "wait: it votes again by itself while a client watches it",
        MemberState::Abstains { why: Abstention::Forgot } => {
            "it comes back by itself while a client watches it; where too many lost their data, run `leasehold quorum admit`"
        }
        MemberState::Abstains { why: Abstention::NotAdmitted } => {
            "`leasehold quorum admit --new` makes a new quorum of nodes that never were one"
        }
        MemberState::Abstains { why: Abstention::OtherList } => {
            "give every client the list that the quorum was admitted with"
        }
        MemberState::Abstains { .. } => "list servers of one quorum only, each of them once",
    };
    let found = format!("{}: {}", member.label, member.state);
    Some(Warning { code: "quorum-marker", found, cure: cure.into() })
}
