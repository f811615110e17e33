//! A primary, two replicas and three sentinels.

use std::time::Duration;

use leasehold_testkit::{RedisServer, SentinelSet};

use super::{Cure, Fault, Topology, cut_clients, flush_scripts, index_of, kill_ahead_of_replicas, pick};
use crate::{Failure, fault_loop::Options};

/// Short, so that a fail-over takes less than the longest ttl.
const MISSED_AFTER: Duration = Duration::from_millis(500);

pub(crate) struct Sentinel {
    set: SentinelSet,
    plain: bool,
}

impl Topology for Sentinel {
    const FAULTS: &'static [Fault<Self>] = &[
        Fault::lasting(
            "kill primary",
            Cure::Itself,
            |this: &Self, _| {
                let primary = this.set.primary();
                primary.kill();
                vec![this.index(primary)]
            },
            Self::restart_nodes,
        )
        .that_may_lose_writes(),
        Fault::lasting(
            "kill primary ahead",
            Cure::Itself,
            |this: &Self, _| {
                let primary = this.set.primary();
                kill_ahead_of_replicas(primary, &this.set.replicas());
                vec![this.index(primary)]
            },
            Self::restart_nodes,
        )
        .that_may_lose_writes(),
        // When it continues, it accepts writes until it learns that another node was promoted.
        Fault::lasting(
            "stop primary",
            Cure::Itself,
            |this: &Self, _| {
                let primary = this.set.primary();
                primary.stop();
                vec![this.index(primary)]
            },
            |this, stopped| stopped.iter().for_each(|index| this.set.nodes()[*index].cont()),
        )
        .that_may_lose_writes(),
        // The sentinels do not wait for the old primary: it grants until it is demoted.
        Fault::passing("planned fail-over", |this: &Self, _| {
            this.set.failover();
            Vec::new()
        })
        .that_may_lose_writes(),
        Fault::lasting(
            "kill replica",
            Cure::Itself,
            |this: &Self, dice| {
                let replica = pick(this.set.replicas(), dice);
                replica.kill();
                vec![this.index(replica)]
            },
            Self::restart_nodes,
        ),
        Fault::lasting(
            "kill sentinel",
            Cure::Itself,
            |this: &Self, dice| {
                let sentinel = pick(this.set.sentinels(), dice);
                sentinel.kill();
                vec![index_of(this.set.sentinels(), sentinel)]
            },
            |this, killed| {
                killed.iter().for_each(|index| this.set.sentinels()[*index].restart_with_data());
            },
        ),
        Fault::passing("cut clients", |this: &Self, _| cut_clients(this.set.primary())),
        Fault::passing("flush scripts", |this: &Self, _| flush_scripts(this.set.primary())),
    ];

    const MAX_TTL: Duration = Duration::from_secs(4);

    fn start(options: &Options) -> Result<Self, Failure> {
        Ok(Self { set: SentinelSet::builder().down_after(MISSED_AFTER).start()?, plain: options.plain })
    }

    fn url(&self) -> String {
        let grace = if self.plain { "" } else { "?grace=on" };
        format!("{}{grace}", self.set.url())
    }

    fn await_whole(&self) {
        self.set.await_healthy();
    }

    fn loses_leases(&self) -> bool {
        self.plain
    }
}

impl Sentinel {
    fn index(&self, node: &RedisServer) -> usize {
        index_of(self.set.nodes(), node)
    }

    fn restart_nodes(&self, killed: &[usize]) {
        killed.iter().for_each(|index| self.set.nodes()[*index].restart_with_data());
    }
}
