//! A primary, its replicas, and sentinels that promote a replica when the primary is down.

use super::sentinel_start::SentinelSetBuilder;
use super::{AGREE_WITHIN, HARMLESS_WRITE, ask, encode, has_info, hosts, login, streams_to, with_port};
use crate::poll::{eventually, poll};
use crate::resp::Reply;
use crate::server::RedisServer;

/// One primary, two replicas and three sentinels, by default.
///
/// Nodes and sentinels are [`RedisServer`]s: each can be killed, stopped and restarted by itself. They rewrite their
/// own configuration, and a restart keeps it.
///
/// ```no_run
/// # use leasehold_testkit::SentinelSet;
/// let Some(set) = SentinelSet::builder().start_or_skip() else { return };
/// let old = set.primary().port();
/// set.primary().kill();
/// let new = set.await_primary_other_than(old);
/// assert_ne!(new.port(), old);
/// ```
#[derive(Debug)]
pub struct SentinelSet {
    nodes: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    password: Option<String>,
    sentinel_password: Option<String>,
}

impl SentinelSet {
    /// The name of the primary at the sentinels.
    pub const NAME: &str = "leasehold";

    /// Settings for a set.
    pub fn builder() -> SentinelSetBuilder {
        SentinelSetBuilder::default()
    }

    pub(super) fn new(
        nodes: Vec<RedisServer>,
        sentinels: Vec<RedisServer>,
        password: Option<String>,
        sentinel_password: Option<String>,
    ) -> Self {
        Self { nodes, sentinels, password, sentinel_password }
    }

    /// `redis[s]-sentinel://[:PASSWORD@]HOST:PORT,…/NAME[?sentinel-password=PASSWORD]`, all sentinels; the first password
    /// is that of the data nodes.
    pub fn url(&self) -> String {
        let query = self.sentinel_password.as_deref().map(encode);
        format!(
            "{}-sentinel://{}{}/{}{}",
            self.nodes[0].scheme(),
            login(self.password.as_deref()),
            hosts(&self.sentinels),
            Self::NAME,
            query.map(|password| format!("?sentinel-password={password}")).unwrap_or_default(),
        )
    }

    /// The data nodes, always in the same order; the first one was the first primary.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The sentinels, always in the same order.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The primary that all running sentinels report now; it may be down.
    ///
    /// # Panics
    /// When they do not agree within a minute.
    #[track_caller]
    pub fn primary(&self) -> &RedisServer {
        match poll(AGREE_WITHIN, || self.named_primary()) {
            Some(port) => with_port(&self.nodes, port),
            None => panic!("the sentinels do not agree on a primary"),
        }
    }

    /// The data nodes that are not the [`primary`](Self::primary).
    #[track_caller]
    pub fn replicas(&self) -> Vec<&RedisServer> {
        let primary = self.primary().port();
        self.nodes.iter().filter(|node| node.port() != primary).collect()
    }

    /// Makes the sentinels fail over while the old primary is up; returns the new one when all running sentinels report it
    /// and it accepts writes.
    ///
    /// # Panics
    /// When that takes longer than a minute.
    #[track_caller]
    pub fn failover(&self) -> &RedisServer {
        let old = self.primary().port();
        eventually(AGREE_WITHIN, "a sentinel that begins a fail-over", || {
            // It refuses during a fail-over, or while no replica is suitable.
            let mut running = self.running_sentinels();
            running.any(|sentinel| ask(sentinel, &["SENTINEL", "FAILOVER", Self::NAME]).is_some())
        });
        self.await_primary_other_than(old)
    }

    /// Waits until all running sentinels report a primary with another port, and it accepts writes.
    ///
    /// # Panics
    /// When that takes longer than a minute.
    #[track_caller]
    pub fn await_primary_other_than(&self, port: u16) -> &RedisServer {
        let found = poll(AGREE_WITHIN, || {
            let named = self.named_primary().filter(|named| *named != port)?;
            Some(with_port(&self.nodes, named))
                .filter(|node| node.is_up() && ask(node, &HARMLESS_WRITE).is_some())
        });
        found.unwrap_or_else(|| panic!("no primary other than that on port {port}"))
    }

    /// Waits until every node runs, all replicas follow the primary and get its writes, and every sentinel sees all
    /// of them and every other sentinel. Writes and deletes a key.
    ///
    /// # Panics
    /// When that takes longer than a minute.
    #[track_caller]
    pub fn await_healthy(&self) {
        eventually(AGREE_WITHIN, "a healthy set", || {
            self.named_primary().is_some_and(|primary| {
                self.nodes.iter().all(|node| self.is_in_place(node, primary))
                    && self.sentinels.iter().all(|sentinel| self.sees_all(sentinel))
            })
        });
    }

    fn running_sentinels(&self) -> impl Iterator<Item = &RedisServer> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_up())
    }

    /// The port on which all running sentinels agree.
    fn named_primary(&self) -> Option<u16> {
        let mut named = self.running_sentinels().map(|sentinel| {
            match ask(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME])? {
                Reply::List(addr) => addr.get(1)?.text().parse().ok(),
                _ => None,
            }
        });
        let first: u16 = named.next()??;
        named.all(|port| port == Some(first)).then_some(first)
    }

    fn is_in_place(&self, node: &RedisServer, primary: u16) -> bool {
        if !node.is_up() {
            return false;
        }
        if node.port() == primary {
            let replicas = self.nodes.len() - 1;
            has_info(node, &[("role", "master"), ("connected_slaves", &replicas.to_string())])
                && streams_to(node, replicas, "leasehold-testkit:probe")
        } else {
            has_info(node, &[("master_link_status", "up"), ("master_port", &primary.to_string())])
        }
    }

    fn sees_all(&self, sentinel: &RedisServer) -> bool {
        // The last view another sentinel had of the primary; Valkey 9 keeps it after the fail-over.
        let harmless = "master_down";
        let sees = |what: &str, flag: &str, length: usize| {
            ask(sentinel, &["SENTINEL", what, Self::NAME]).is_some_and(|seen| {
                let sound = |one: &Reply| {
                    let link = field(one, "master-link-status");
                    let is_sound = |flags: &str| flags.split(',').all(|one| one == flag || one == harmless);
                    field(one, "flags").is_some_and(is_sound) && link.is_none_or(|link| link == "ok")
                };
                seen.list().len() == length && seen.list().iter().all(sound)
            })
        };
        let primary = || ask(sentinel, &["SENTINEL", "MASTER", Self::NAME]);
        sentinel.is_up()
            && primary().is_some_and(|primary| field(&primary, "flags") == Some("master"))
            && sees("REPLICAS", "slave", self.nodes.len() - 1)
            && sees("SENTINELS", "sentinel", self.sentinels.len() - 1)
    }
}

/// A value in a flat list of names and values.
fn field<'a>(list: &'a Reply, name: &str) -> Option<&'a str> {
    let Reply::List(list) = list else { return None };
    list.chunks_exact(2).find(|pair| pair[0].text() == name).map(|pair| pair[1].text())
}
