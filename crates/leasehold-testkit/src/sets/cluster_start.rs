//! How nodes are started and made into a cluster.

use std::time::Duration;

use super::cluster::ClusterSet;
use super::slot::SLOTS;
use super::{AGREE_WITHIN, Directives, launch_all, with_directives};
use crate::certificates::Certificates;
use crate::poll::eventually;
use crate::server::{RedisServer, ServerError, skip_if_missing};
use crate::server_builder::Duty;

const NODE: &str = include_str!("../../deploy/cluster/node.conf");

/// Settings of a [`ClusterSet`] before it starts.
///
/// ```no_run
/// # use std::time::Duration;
/// # use leasehold_testkit::ClusterSet;
/// let set = ClusterSet::builder().replicas(0).node_timeout(Duration::from_millis(500)).start()?;
/// # Ok::<(), leasehold_testkit::ServerError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder starts nothing until start() is called"]
pub struct ClusterSetBuilder {
    primaries: usize,
    replicas: usize,
    node_timeout: Duration,
    password: Option<String>,
    directives: Directives,
    tls: Option<Certificates>,
}

impl Default for ClusterSetBuilder {
    fn default() -> Self {
        Self {
            primaries: 3,
            replicas: 1,
            node_timeout: Duration::from_secs(2),
            password: None,
            directives: Vec::new(),
            tls: None,
        }
    }
}

impl ClusterSetBuilder {
    /// How many nodes share the slots; three by default. With fewer than three, no replica can be elected.
    pub fn primaries(mut self, primaries: usize) -> Self {
        assert!(primaries > 0, "a cluster has at least one primary");
        self.primaries = primaries;
        self
    }

    /// How many replicas each primary has; one by default.
    pub fn replicas(mut self, replicas_per_primary: usize) -> Self {
        self.replicas = replicas_per_primary;
        self
    }

    /// How long a node may be unreachable before it is marked as failed; two seconds by default.
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.node_timeout = node_timeout;
        self
    }

    /// The password of every node.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Nodes accept only TLS, with these certificates.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self
    }

    /// A directive of `redis.conf` for every node, as in [`RedisServerBuilder::arg`](crate::RedisServerBuilder::arg).
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.directives.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts all nodes at the same time, makes them a cluster, and waits until it is [ok](ClusterSet::await_ok).
    pub fn start(self) -> Result<ClusterSet, ServerError> {
        let node = RedisServer::builder()
            .duty(Duty::ClusterNode)
            .file(NODE)
            .password_of_all_nodes(self.password.as_deref())
            .arg("cluster-node-timeout", &self.node_timeout.as_millis().to_string())
            // Otherwise a primary waits five seconds for more replicas before it serves the first.
            .arg("repl-diskless-sync-delay", "0");
        let node = match &self.tls {
            Some(certificates) => {
                node.tls(certificates).arg("tls-replication", "yes").arg("tls-cluster", "yes")
            }
            None => node,
        };
        let node = with_directives(node, &self.directives);
        let nodes = launch_all(vec![node; self.primaries * (1 + self.replicas)])?;
        share_slots(&nodes[..self.primaries]);
        introduce(&nodes);
        let set = ClusterSet::new(nodes, self.password);
        eventually(AGREE_WITHIN, "nodes that know each other", || set.all_trust_all());
        let (primaries, replicas) = set.nodes().split_at(self.primaries);
        for (replica, primary) in replicas.iter().zip(primaries.iter().cycle()) {
            ok(replica, &["CLUSTER", "REPLICATE", &id(primary)]);
        }
        set.await_ok();
        Ok(set)
    }

    /// Like [`start`](Self::start), for tests: see [`redis_or_skip`](crate::redis_or_skip).
    #[track_caller]
    pub fn start_or_skip(self) -> Option<ClusterSet> {
        skip_if_missing(self.start())
    }
}

fn share_slots(primaries: &[RedisServer]) {
    let bound = |n: usize| n * usize::from(SLOTS) / primaries.len();
    for (n, primary) in primaries.iter().enumerate() {
        let (first, last) = (bound(n).to_string(), (bound(n + 1) - 1).to_string());
        ok(primary, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
    }
}

/// Every node to every other: gossip alone would take seconds.
fn introduce(nodes: &[RedisServer]) {
    for (n, node) in nodes.iter().enumerate() {
        // Distinct epochs from the start avoid a conflict that the nodes would have to resolve.
        ok(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
    }
    for (n, node) in nodes.iter().enumerate() {
        for other in &nodes[n + 1..] {
            ok(node, &["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
        }
    }
}

/// The name a node has in its cluster.
pub(super) fn id(node: &RedisServer) -> String {
    node.cli(&["CLUSTER", "MYID"]).text().to_owned()
}

#[track_caller]
pub(super) fn ok(node: &RedisServer, words: &[&str]) {
    let reply = node.cli(words);
    assert!(reply.error().is_none(), "{words:?} on {}: {reply:?}", node.addr());
}
