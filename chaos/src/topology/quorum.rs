//! Five nodes that vote. They write nothing to disk: a node that restarts has lost everything.

use std::{thread, time::Duration};

use leasehold_testkit::{QuorumSet, RedisServer, eventually};

use super::{Cure, Fault, Topology, Victims, cut_clients, flush_scripts, pick};
use crate::{Failure, fault_loop::Options, load};

const NODES: usize = 5;
/// Where a node keeps its record; the text ends with its state.
const RECORD: &str = "leasehold:quorum";
/// Long enough for some votes that the rolled back node will lack.
const VOTED_FOR: Duration = Duration::from_millis(500);
const VOTE_AGAIN_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Quorum {
    set: QuorumSet,
}

impl Topology for Quorum {
    const FAULTS: &'static [Fault<Self>] = &[
        Fault::lasting(
            "kill one node",
            Cure::Itself,
            |this: &Self, dice| this.kill(1, dice),
            Self::restart_empty,
        ),
        Fault::lasting(
            "kill two nodes",
            Cure::Itself,
            |this: &Self, dice| this.kill(2, dice),
            Self::restart_empty,
        ),
        Fault::lasting("stop one node", Cure::Itself, |this: &Self, dice| this.stop(1, dice), Self::cont),
        Fault::lasting("stop two nodes", Cure::Itself, |this: &Self, dice| this.stop(2, dice), Self::cont),
        Fault::lasting(
            "cut two nodes off",
            Cure::Itself,
            |this: &Self, dice| this.cut_off(Self::victims(2, dice)),
            Self::join,
        ),
        // A majority of the other nodes has the locks granted meanwhile, until one of them loses its data. If that node
        // voted, it and the nodes that were cut off would be a majority without those locks.
        Fault::passing("cut two nodes off, empty a third", |this: &Self, dice| {
            let mut victims = Self::victims(3, dice);
            let third = victims.pop();
            let cut_off = this.cut_off(victims);
            thread::sleep(VOTED_FOR);
            third.iter().for_each(|index| this.set.nodes()[*index].restart());
            this.join(&cut_off);
            Vec::new()
        }),
        Fault::passing("empty a node", |this: &Self, dice| {
            this.node(dice).cli(&["FLUSHALL"]);
            Vec::new()
        }),
        Fault::passing("roll a node back", |this: &Self, dice| {
            let node = this.node(dice);
            node.cli(&["SAVE"]);
            // Votes cast meanwhile are lost.
            thread::sleep(VOTED_FOR);
            node.restart_with_dump();
            Vec::new()
        }),
        Fault::passing("flush scripts", |this: &Self, dice| flush_scripts(this.node(dice))),
    ];

    /// How long a node that lost its data abstains.
    const MAX_TTL: Duration = Duration::from_secs(2);

    fn start(_: &Options) -> Result<Self, Failure> {
        let set = QuorumSet::builder(NODES).arg("appendonly", "no").start()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let leases = load::connect(&set.url(), Self::MAX_TTL)?;
            leases.quorum()?.admit_new().await?;
            leases.close().await
        })?;
        Ok(Self { set })
    }

    fn url(&self) -> String {
        self.set.url()
    }

    fn await_whole(&self) {
        eventually(VOTE_AGAIN_WITHIN, "every node of the quorum to vote", || {
            self.set.nodes().iter().all(votes)
        });
    }
}

impl Quorum {
    fn node(&self, dice: u64) -> &RedisServer {
        pick(self.set.nodes(), dice)
    }

    /// Neighbours, starting with the node chosen by the dice.
    fn victims(number: usize, dice: u64) -> Victims {
        (0..number).map(|offset| (dice % NODES as u64) as usize + offset).map(|index| index % NODES).collect()
    }

    fn kill(&self, number: usize, dice: u64) -> Victims {
        let victims = Self::victims(number, dice);
        victims.iter().for_each(|index| self.set.nodes()[*index].kill());
        victims
    }

    fn restart_empty(&self, killed: &[usize]) {
        killed.iter().for_each(|index| self.set.nodes()[*index].restart());
    }

    fn stop(&self, number: usize, dice: u64) -> Victims {
        let victims = Self::victims(number, dice);
        victims.iter().for_each(|index| self.set.nodes()[*index].stop());
        victims
    }

    /// The nodes keep running, and nobody can reach them.
    fn cut_off(&self, victims: Victims) -> Victims {
        for node in victims.iter().map(|index| &self.set.nodes()[*index]) {
            node.cli(&["CONFIG", "SET", "port", "0"]);
            cut_clients(node);
        }
        victims
    }

    fn join(&self, cut_off: &[usize]) {
        for node in cut_off.iter().map(|index| &self.set.nodes()[*index]) {
            eventually(VOTE_AGAIN_WITHIN, "the port of a node to be free again", || {
                node.cli(&["CONFIG", "SET", "port", &node.port().to_string()]).error().is_none()
            });
        }
    }

    fn cont(&self, stopped: &[usize]) {
        stopped.iter().for_each(|index| self.set.nodes()[*index].cont());
    }
}

/// Whether it was admitted, in this run of the server.
fn votes(node: &RedisServer) -> bool {
    let record = node.cli(&["GET", RECORD]);
    let run = node.info("run_id").unwrap_or_default();
    !record.is_nil() && record.text().ends_with(" votes") && record.text().contains(&run)
}
