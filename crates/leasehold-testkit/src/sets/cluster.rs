//! Primaries that share the slots, each with a replica that can be promoted.

use std::time::Duration;

use super::cluster_map::ClusterMap;
use super::cluster_start::ClusterSetBuilder;
use super::slot::slot_of;
use super::{AGREE_WITHIN, ask, has_info, hosts, login, streams_to, with_port};
use crate::poll::{eventually, poll};
use crate::server::RedisServer;

/// A planned fail-over gives up by itself after five seconds.
const FAILOVER_WITHIN: Duration = Duration::from_secs(8);
const FAILOVERS_TRIED_MAX: usize = 5;

/// Three primaries with a replica each, by default. Nodes are [`RedisServer`]s; a restart keeps their role in the cluster.
///
/// ```no_run
/// # use leasehold_testkit::ClusterSet;
/// let Some(set) = ClusterSet::builder().start_or_skip() else { return };
/// let primary = set.primary_of("lock:job");
/// primary.kill();
/// let successor = set.await_new_primary_of("lock:job", primary);
/// assert_ne!(successor.port(), primary.port());
/// ```
#[derive(Debug)]
pub struct ClusterSet {
    nodes: Vec<RedisServer>,
    password: Option<String>,
}

impl ClusterSet {
    /// Settings for a set.
    pub fn builder() -> ClusterSetBuilder {
        ClusterSetBuilder::default()
    }

    pub(super) fn new(nodes: Vec<RedisServer>, password: Option<String>) -> Self {
        Self { nodes, password }
    }

    /// `redis[s]-cluster://[:PASSWORD@]HOST:PORT,…`: three nodes, from which a client has to find the others.
    pub fn url(&self) -> String {
        let seeds = &self.nodes[..self.nodes.len().min(3)];
        format!("{}-cluster://{}{}", seeds[0].scheme(), login(self.password()), hosts(seeds))
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// All nodes, always in the same order; the first ones were the first primaries.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The nodes that own slots now, as all running nodes agree; one may be down and not replaced.
    #[track_caller]
    pub fn primaries(&self) -> Vec<&RedisServer> {
        self.map().primaries().map(|port| with_port(&self.nodes, port)).collect()
    }

    /// The slot of `key`, by its hash tag if it has one.
    pub fn slot(key: &str) -> u16 {
        slot_of(key)
    }

    /// The node that owns the slot of `key` now, as all running nodes agree; it may be down.
    ///
    /// # Panics
    /// When nobody owns it.
    #[track_caller]
    pub fn primary_of(&self, key: &str) -> &RedisServer {
        self.owner_of(Self::slot(key))
    }

    /// A running replica of `primary`.
    ///
    /// # Panics
    /// When it has none.
    #[track_caller]
    pub fn replica_of(&self, primary: &RedisServer) -> &RedisServer {
        let map = self.map();
        let mut replicas = map.replicas_of(primary.port()).map(|port| with_port(&self.nodes, port));
        match replicas.find(|replica| replica.is_up()) {
            Some(replica) => replica,
            None => panic!("{} has no running replica", primary.addr()),
        }
    }

    /// The first of `{stem}0`, `{stem}1`, … whose slot `primary` owns.
    #[track_caller]
    pub fn key_on(&self, primary: &RedisServer, stem: &str) -> String {
        key_owned_by(primary.port(), &self.map(), stem)
    }

    /// Like [`key_on`](Self::key_on), for a lock: the key of the name is `lock:` and the name.
    #[track_caller]
    pub fn name_on(&self, primary: &RedisServer, stem: &str) -> String {
        self.key_on(primary, &format!("lock:{stem}"))["lock:".len()..].to_owned()
    }

    /// Waits until every running node reports that the cluster is ok, all of them agree on the slot map, none marks a
    /// running node as failed, and every replica gets the writes of its primary. Writes and deletes a key on each primary.
    /// A node that was just killed is not detected yet: see [`await_new_primary_of`](Self::await_new_primary_of).
    ///
    /// # Panics
    /// When that takes longer than a minute.
    #[track_caller]
    pub fn await_ok(&self) {
        eventually(AGREE_WITHIN, "a cluster that is ok", || {
            self.all_trust_all()
                && self.agreed_map().is_some_and(|map| {
                    self.running().all(|node| self.is_in_place(node, &map)) && self.all_stream(&map)
                })
        });
    }

    /// Waits until another node than `old` owns the slot of `key`, works, and is known to all running nodes.
    ///
    /// # Panics
    /// When that takes longer than a minute.
    #[track_caller]
    pub fn await_new_primary_of(&self, key: &str, old: &RedisServer) -> &RedisServer {
        let found = poll(AGREE_WITHIN, || {
            let map = self.agreed_map()?;
            let new = map.owner_of(Self::slot(key)).filter(|port| *port != old.port())?;
            Some(with_port(&self.nodes, new)).filter(|new| new.is_up() && self.is_in_place(new, &map))
        });
        found.unwrap_or_else(|| panic!("{} was not replaced as the primary of {key:?}", old.addr()))
    }

    /// Promotes a replica of `primary` while `primary` is up; returns the new primary when all running nodes have learned
    /// of it.
    ///
    /// # Panics
    /// When `primary` has no replica, or it does not succeed.
    #[track_caller]
    pub fn failover_of(&self, primary: &RedisServer) -> &RedisServer {
        let replica = self.replica_of(primary);
        let replaced = || {
            let map = self.agreed_map()?;
            let took_over = map.is_primary(replica.port()) && !map.is_primary(primary.port());
            (took_over && self.is_in_place(replica, &map)).then_some(replica)
        };
        let attempt = |_| {
            // Refused if the last attempt succeeded after all.
            replica.cli(&["CLUSTER", "FAILOVER"]);
            poll(FAILOVER_WITHIN, replaced)
        };
        let new = (0..FAILOVERS_TRIED_MAX).find_map(attempt);
        new.unwrap_or_else(|| panic!("{} did not replace {}", replica.addr(), primary.addr()))
    }

    #[track_caller]
    pub(super) fn owner_of(&self, slot: u16) -> &RedisServer {
        match self.map().owner_of(slot) {
            Some(port) => with_port(&self.nodes, port),
            None => panic!("nobody owns slot {slot}"),
        }
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_up())
    }

    /// Whether every running node knows every running node and marks none as failed.
    pub(super) fn all_trust_all(&self) -> bool {
        let running: Vec<u16> = self.running().map(RedisServer::port).collect();
        self.running().all(|node| map_of(node).is_some_and(|map| map.trusts_all(running.iter().copied())))
    }

    /// The map of all running nodes, once they agree.
    #[track_caller]
    fn map(&self) -> ClusterMap {
        poll(AGREE_WITHIN, || self.agreed_map())
            .unwrap_or_else(|| panic!("the running nodes of the cluster do not agree"))
    }

    pub(super) fn agreed_map(&self) -> Option<ClusterMap> {
        let mut maps = self.running().map(map_of);
        let first = maps.next()??;
        maps.all(|map| map.as_ref() == Some(&first)).then_some(first)
    }

    fn is_in_place(&self, node: &RedisServer, map: &ClusterMap) -> bool {
        let works =
            ask(node, &["CLUSTER", "INFO"]).is_some_and(|info| info.text().contains("cluster_state:ok"));
        let role =
            if map.is_primary(node.port()) { ("role", "master") } else { ("master_link_status", "up") };
        works && has_info(node, &[role])
    }

    /// Whether the running replicas of every running primary get its writes.
    fn all_stream(&self, map: &ClusterMap) -> bool {
        let running = |port: &u16| with_port(&self.nodes, *port).is_up();
        map.primaries().filter(running).all(|port| {
            let replicas = map.replicas_of(port).filter(running).count();
            let key = key_owned_by(port, map, "leasehold-testkit:probe");
            replicas == 0 || streams_to(with_port(&self.nodes, port), replicas, &key)
        })
    }
}

fn map_of(node: &RedisServer) -> Option<ClusterMap> {
    ClusterMap::parse(ask(node, &["CLUSTER", "NODES"])?.text())
}

fn key_owned_by(port: u16, map: &ClusterMap, stem: &str) -> String {
    let mut keys = (0..u32::MAX).map(|n| format!("{stem}{n}"));
    let found = keys.find(|key| map.owner_of(slot_of(key)) == Some(port));
    found.expect("a primary that owns slots gets one of so many keys")
}
