//! `leasehold quorum`: which nodes vote, and how nodes are admitted.

use std::time::Duration;

use clap::{Args, Subcommand};
use leasehold::{
    Leasehold,
    client::Members,
    engine::{Member, MemberState},
};
use serde::Serialize;

use super::Global;
use crate::{
    exit::{Exit, Failure},
    output::{self, Output},
    store::{self, Store},
};

/// Show the nodes of a quorum, and admit them
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

/// Admit new nodes, and nodes that have lost their data, as voters
///
/// A node that was restarted, wiped or rolled back may have lost a lock that is still held, so it abstains until every lease
/// it might have granted has expired. Every client of the quorum watches such nodes. This command does too, shows the time
/// left, and also readmits nodes when too few others vote to learn the fences from.
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 all nodes vote · 1 a node is still missing · 2 no majority votes · 69 unreachable

Examples:
  leasehold quorum admit --new --store redlock://a,b,c    the first time: nobody holds anything yet
  leasehold quorum admit --store redlock://a,b,c          after too many nodes were lost at once")]
pub(super) struct Admit {
    /// Make all nodes a new quorum at once, without waiting. A lock that the nodes have lost can then be
    /// granted again at once, while its holder continues until its next renewal
    #[arg(long)]
    new: bool,

    /// With --new: also admit nodes that already belong to a quorum
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

/// Time between two polls of nodes that are watched.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Polls without a change after which an unreachable node is given up.
const POLLS_DOWN_MAX: u32 = 20;

impl Quorum {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect_lazy()?;
        let nodes = match self {
            Self::Status(Status {}) => status(&leases, leases.quorum()?).await,
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

async fn status(leases: &Leasehold, members: Members<'_>) -> Nodes {
    let nodes = members.list().await;
    let voting = nodes.iter().filter(|node| node.state == MemberState::Votes).count();
    Nodes { store: leases.store().to_owned(), majority: nodes.len() / 2 + 1, voting, nodes }
}

async fn admit(leases: &Leasehold, how: &Admit, out: Output) -> Result<Nodes, Failure> {
    let members = leases.quorum()?;
    if how.new {
        if how.yes { members.replace().await } else { members.admit_new().await }?;
        return Ok(status(leases, members).await);
    }
    members.admit().await?;
    let (mut said, mut down) = (String::new(), 0);
    loop {
        let nodes = status(leases, members).await;
        let waits = |node: &&Member| {
            matches!(node.state, MemberState::Waits { .. } | MemberState::Unreachable { .. })
        };
        let open: Vec<_> = nodes.nodes.iter().filter(waits).collect();
        let is_watching = open.iter().any(|node| matches!(node.state, MemberState::Waits { .. }));
        down = if is_watching { 0 } else { down + 1 };
        // A node that has just been found to have lost its data is marked within a poll or two.
        if open.is_empty() && down > 4 || down > POLLS_DOWN_MAX || nodes.voting == nodes.nodes.len() {
            return Ok(nodes);
        }
        let words: Vec<_> = open.iter().map(|node| format!("{}: {}", node.label, node.state)).collect();
        let words = words.join(" · ");
        if words != said && !words.is_empty() && !out.json {
            output::say(&words);
            said = words;
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
