//! `leasehold quorum`: which nodes vote, and how they begin to.

use std::time::Duration;

use clap::{Args, Subcommand};
use leasehold::{
    Leasehold, Members,
    engine::{Member, MemberState},
};
use serde::Serialize;

use super::Global;
use crate::{
    exit::{Exit, Failure},
    output::{self, Output},
    store::{self, Store},
};

/// Look at the nodes of a quorum, and admit them
#[derive(Subcommand)]
pub(super) enum Quorum {
    Status(Status),
    Admit(Admit),
}

/// Show every node, and whether it votes
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 all vote · 1 some do not · 2 no majority votes

Examples:
  leasehold quorum status --store redlock://a,b,c
  leasehold quorum status --store redlock://a,b,c --json")]
pub(super) struct Status {}

/// Let nodes vote that are new, or that have forgotten what they voted for
///
/// A node that was restarted, wiped or rolled back may have forgotten a lock that is still held, so it does not vote until
/// the longest lease is over. Every client of the quorum watches such nodes by itself; this command does too, shows how far
/// it is, and also brings nodes back when so many have forgotten that the others cannot teach them.
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 all nodes vote · 1 a node is still missing · 2 no majority votes · 69 unreachable

Examples:
  leasehold quorum admit --new --store redlock://a,b,c    the first time: nobody holds anything yet
  leasehold quorum admit --store redlock://a,b,c          after too many nodes were lost at once")]
pub(super) struct Admit {
    /// Make a new quorum of all nodes at once, without waiting. A lock that they have forgotten can then be
    /// granted again at once, while its holder goes on until its next renewal
    #[arg(long)]
    new: bool,

    /// With --new: also if nodes are part of a quorum already
    #[arg(long, requires = "new")]
    yes: bool,
}

#[derive(Serialize)]
struct Nodes {
    store: String,
    majority: usize,
    voting: usize,
    nodes: Vec<Member>,
}

/// Time between two looks at nodes that are watched.
const LOOK: Duration = Duration::from_millis(500);
/// Looks without a change after which a node that cannot be reached is given up.
const LOOKS_DOWN_MAX: u32 = 20;

impl Quorum {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect_lazy()?;
        let nodes = match self {
            Self::Status(Status {}) => look(&leases, leases.quorum()?).await,
            Self::Admit(how) => match admit(&leases, &how, global.output()).await {
                Ok(nodes) => nodes,
                Err(failure) => {
                    store::close(&leases).await;
                    return Err(failure);
                }
            },
        };
        store::close(&leases).await;
        let exit = match nodes.voting {
            voting if voting == nodes.nodes.len() => Exit::OK,
            voting if voting >= nodes.majority => Exit::NO,
            _ => Exit::NO_MAJORITY,
        };
        let out = global.output();
        let rows: Vec<_> = nodes.nodes.iter().map(row).collect();
        out.print(nodes, || out.table(&["NODE", "STATE", "HIGHEST FENCE"], &rows))?;
        Ok(exit)
    }
}

fn row(member: &Member) -> Vec<String> {
    vec![member.label.clone(), member.state.to_string(), member.highest.to_string()]
}

async fn look(leases: &Leasehold, members: Members<'_>) -> Nodes {
    let nodes = members.list().await;
    let voting = nodes.iter().filter(|node| node.state == MemberState::Votes).count();
    Nodes { store: leases.store().to_owned(), majority: nodes.len() / 2 + 1, voting, nodes }
}

async fn admit(leases: &Leasehold, how: &Admit, out: Output) -> Result<Nodes, Failure> {
    let members = leases.quorum()?;
    if how.new {
        if how.yes { members.replace().await } else { members.admit_new().await }?;
        return Ok(look(leases, members).await);
    }
    members.admit().await?;
    let (mut said, mut down) = (String::new(), 0);
    loop {
        let nodes = look(leases, members).await;
        let waits = |node: &&Member| {
            matches!(node.state, MemberState::Waits { .. } | MemberState::Unreachable { .. })
        };
        let open: Vec<_> = nodes.nodes.iter().filter(waits).collect();
        let is_watching = open.iter().any(|node| matches!(node.state, MemberState::Waits { .. }));
        down = if is_watching { 0 } else { down + 1 };
        // A node that was just found out to have forgotten is marked within a look or two.
        if open.is_empty() && down > 4 || down > LOOKS_DOWN_MAX || nodes.voting == nodes.nodes.len() {
            return Ok(nodes);
        }
        let words: Vec<_> = open.iter().map(|node| format!("{}: {}", node.label, node.state)).collect();
        let words = words.join(" · ");
        if words != said && !words.is_empty() && !out.json {
            output::say(&words);
            said = words;
        }
        tokio::time::sleep(LOOK).await;
    }
}
