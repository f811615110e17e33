//! Independent nodes.

use super::{Directives, hosts, launch_all, login, with_directives};
use crate::certificates::Certificates;
use crate::server::{RedisServer, ServerError, skip_if_missing};

const NODE: &str = include_str!("../../deploy/quorum/node.conf");

/// Independent nodes, for locks by majority. They keep their votes on disk:
/// [`restart_with_data`](RedisServer::restart_with_data) brings a node back as it was,
/// [`restart`](RedisServer::restart) brings it back empty.
///
/// ```no_run
/// # use leasehold_testkit::QuorumSet;
/// let Some(set) = QuorumSet::builder(3).start_or_skip() else { return };
/// assert!(set.url().starts_with("redlock://127.0.0.1:"));
/// set.nodes()[0].kill();
/// ```
#[derive(Debug)]
pub struct QuorumSet {
    nodes: Vec<RedisServer>,
    password: Option<String>,
}

/// Settings of a [`QuorumSet`] before it starts.
#[derive(Debug, Clone)]
#[must_use = "a builder starts nothing until start() is called"]
pub struct QuorumSetBuilder {
    nodes: usize,
    password: Option<String>,
    directives: Directives,
    tls: Option<Certificates>,
}

impl QuorumSet {
    /// Settings for a set of `nodes`.
    pub fn builder(nodes: usize) -> QuorumSetBuilder {
        QuorumSetBuilder { nodes, password: None, directives: Vec::new(), tls: None }
    }

    /// `redlock[s]://[:PASSWORD@]HOST:PORT,…`, all nodes.
    pub fn url(&self) -> String {
        let scheme = if self.nodes[0].scheme() == "rediss" { "redlocks" } else { "redlock" };
        format!("{scheme}://{}{}", login(self.password.as_deref()), hosts(&self.nodes))
    }

    /// The nodes, always in the same order.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }
}

impl QuorumSetBuilder {
    /// A directive of `redis.conf` for every node, as in [`RedisServerBuilder::arg`](crate::RedisServerBuilder::arg).
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.directives.push((name.to_owned(), value.to_owned()));
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

    /// Starts all nodes at the same time and waits until they answer.
    pub fn start(self) -> Result<QuorumSet, ServerError> {
        let mut node = RedisServer::builder().file(NODE);
        if let Some(password) = &self.password {
            node = node.password(password);
        }
        if let Some(certificates) = &self.tls {
            node = node.tls(certificates);
        }
        let node = with_directives(node, &self.directives);
        Ok(QuorumSet { nodes: launch_all(vec![node; self.nodes])?, password: self.password })
    }

    /// Like [`start`](Self::start), for tests: see [`redis_or_skip`](crate::redis_or_skip).
    #[track_caller]
    pub fn start_or_skip(self) -> Option<QuorumSet> {
        skip_if_missing(self.start())
    }
}
