//! Three primaries that share the slots, with a replica each.

use std::{collections::BTreeSet, time::Duration};

use leasehold_testkit::{ClusterSet, RedisServer};

use super::{Cure, Fault, Topology, cut_clients, flush_scripts, index_of, kill_ahead_of_replicas, pick};
use crate::{
    Failure,
    fault_loop::Options,
    load::{self, QUICK_NAMES},
};

pub(crate) struct Cluster {
    set: ClusterSet,
    /// Names that begin with it are on every shard.
    stem: String,
}

impl Topology for Cluster {
    const FAULTS: &'static [Fault<Self>] = &[
        Fault::lasting(
            "kill primary",
            Cure::Itself,
            |this: &Self, dice| {
                let primary = this.primary(dice);
                primary.kill();
                vec![this.index(primary)]
            },
            Self::restart,
        )
        .that_may_lose_writes(),
        Fault::lasting(
            "kill primary ahead",
            Cure::Itself,
            |this: &Self, dice| {
                let primary = this.primary(dice);
                kill_ahead_of_replicas(primary, &[this.set.replica_of(primary)]);
                vec![this.index(primary)]
            },
            Self::restart,
        )
        .that_may_lose_writes(),
        // When it continues, it accepts writes until it learns that its replica was promoted.
        Fault::lasting(
            "stop primary",
            Cure::Itself,
            |this: &Self, dice| {
                let primary = this.primary(dice);
                primary.stop();
                vec![this.index(primary)]
            },
            |this, stopped| stopped.iter().for_each(|index| this.set.nodes()[*index].cont()),
        )
        .that_may_lose_writes(),
        // The old primary stops first and waits for its replica: no write may be lost.
        Fault::passing("planned fail-over", |this: &Self, dice| {
            this.set.failover_of(this.primary(dice));
            Vec::new()
        }),
        Fault::passing("move a slot", |this: &Self, dice| {
            let name = load::quick(&this.stem, "").name((dice % QUICK_NAMES as u64) as usize);
            let key = format!("lock:{name}");
            let from = this.set.primary_of(&key).port();
            let others = this.set.primaries().into_iter().filter(|primary| primary.port() != from);
            let to = pick(others, dice / QUICK_NAMES as u64);
            this.set.move_slot(ClusterSet::slot(&key), to);
            Vec::new()
        }),
        Fault::lasting(
            "kill replica",
            Cure::Itself,
            |this: &Self, dice| {
                let replica = this.set.replica_of(this.primary(dice));
                replica.kill();
                vec![this.index(replica)]
            },
            Self::restart,
        ),
        Fault::passing("cut clients", |this: &Self, dice| cut_clients(this.primary(dice))),
        Fault::passing("flush scripts", |this: &Self, dice| flush_scripts(this.primary(dice))),
    ];

    const MAX_TTL: Duration = Duration::from_secs(6);

    fn start(_: &Options) -> Result<Self, Failure> {
        let set = ClusterSet::builder().start()?;
        let mut stems = ('a'..='z').map(|letter| format!("chaos-{letter}"));
        let stem = stems.find(|stem| is_everywhere(&set, stem));
        Ok(Self { set, stem: stem.ok_or("no stem has names on every shard")? })
    }

    fn url(&self) -> String {
        self.set.url()
    }

    fn stem(&self) -> String {
        self.stem.clone()
    }

    fn await_whole(&self) {
        self.set.await_ok();
    }

    fn loses_leases(&self) -> bool {
        true
    }
}

impl Cluster {
    fn primary(&self, dice: u64) -> &RedisServer {
        pick(self.set.primaries(), dice)
    }

    fn index(&self, node: &RedisServer) -> usize {
        index_of(self.set.nodes(), node)
    }

    fn restart(&self, killed: &[usize]) {
        killed.iter().for_each(|index| self.set.nodes()[*index].restart_with_data());
    }
}

fn is_everywhere(set: &ClusterSet, stem: &str) -> bool {
    let quick = load::quick(stem, "");
    let owners =
        (0..quick.names).map(|number| set.primary_of(&format!("lock:{}", quick.name(number))).port());
    owners.collect::<BTreeSet<_>>().len() == set.primaries().len()
}
