//! How a primary, its replicas and the sentinels that watch them are started.

use std::path::Path;
use std::time::Duration;

use super::sentinel::SentinelSet;
use super::{Directives, launch_all, with_directives};
use crate::certificates::Certificates;
use crate::server::{RedisServer, ServerError, skip_if_missing};
use crate::server_builder::{Duty, RedisServerBuilder, quote};

const PRIMARY: &str = include_str!("../../deploy/sentinel/primary.conf");
const REPLICA: &str = include_str!("../../deploy/sentinel/replica.conf");
const SENTINEL: &str = include_str!("../../deploy/sentinel/sentinel.conf");
/// The line of [`SENTINEL`] about the primary: the only one that a later line cannot override.
const WATCHED: &str = "127.0.0.1 6379 2";

/// How often sentinels poll, in milliseconds: by default they take ten seconds to find a new replica, and half a minute
/// to trust their own clock after they were stopped. During a fail-over they ask replicas once a second and refuse
/// those whose answer is older than three periods, so a period below a second makes every replica unfit.
const HASTE: [&str; 12] = [
    "SENTINEL",
    "DEBUG",
    "INFO-PERIOD",
    "1000",
    "PUBLISH-PERIOD",
    "100",
    "ASK-PERIOD",
    "100",
    "TILT-PERIOD",
    "1000",
    "MIN-LINK-RECONNECT-PERIOD",
    "1000",
];

/// Settings of a [`SentinelSet`] before it starts.
///
/// ```no_run
/// # use std::time::Duration;
/// # use leasehold_testkit::SentinelSet;
/// let set = SentinelSet::builder().down_after(Duration::from_millis(500)).password("secret").start()?;
/// # Ok::<(), leasehold_testkit::ServerError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder starts nothing until start() is called"]
pub struct SentinelSetBuilder {
    replicas: usize,
    sentinels: usize,
    down_after: Duration,
    failover_timeout: Duration,
    password: Option<String>,
    sentinel_password: Option<String>,
    directives: Directives,
    tls: Option<Certificates>,
}

impl Default for SentinelSetBuilder {
    fn default() -> Self {
        Self {
            replicas: 2,
            sentinels: 3,
            down_after: Duration::from_secs(2),
            failover_timeout: Duration::from_secs(6),
            password: None,
            sentinel_password: None,
            directives: Vec::new(),
            tls: None,
        }
    }
}

impl SentinelSetBuilder {
    /// The number of replicas; two by default.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// The number of sentinels; three by default. A majority of them must find the primary down.
    pub fn sentinels(mut self, sentinels: usize) -> Self {
        self.sentinels = sentinels;
        self
    }

    /// How long the primary may be unreachable before it counts as down; two seconds by default. A shorter time causes
    /// unwanted fail-overs on a busy machine.
    pub fn down_after(mut self, down_after: Duration) -> Self {
        self.down_after = down_after;
        self
    }

    /// After twice this time a fail-over that got stuck is tried again; six seconds by default.
    pub fn failover_timeout(mut self, failover_timeout: Duration) -> Self {
        self.failover_timeout = failover_timeout;
        self
    }

    /// The password of the data nodes.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// The password of the sentinels.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// Nodes and sentinels accept only TLS, with these certificates.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self
    }

    /// A directive of `redis.conf` for every data node, as in
    /// [`RedisServerBuilder::arg`](crate::RedisServerBuilder::arg).
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.directives.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the set and waits until it is [healthy](SentinelSet::await_healthy).
    pub fn start(self) -> Result<SentinelSet, ServerError> {
        let primary = self.node(PRIMARY).start()?;
        let follows = format!("127.0.0.1 {}", primary.port());
        let replicas = launch_all((0..self.replicas).map(|_| self.node(REPLICA).arg("replicaof", &follows)))?;
        let sentinels = launch_all((0..self.sentinels).map(|_| self.sentinel(primary.port())))?;
        let nodes = [primary].into_iter().chain(replicas).collect();
        let set = SentinelSet::new(nodes, sentinels, self.password, self.sentinel_password);
        set.await_healthy();
        Ok(set)
    }

    /// Like [`start`](Self::start), for tests: see [`redis_or_skip`](crate::redis_or_skip).
    #[track_caller]
    pub fn start_or_skip(self) -> Option<SentinelSet> {
        skip_if_missing(self.start())
    }

    fn node(&self, file: &str) -> RedisServerBuilder {
        let node = RedisServer::builder()
            .file(file)
            .password_of_all_nodes(self.password.as_deref())
            // Otherwise a primary waits five seconds for more replicas before it serves the first.
            .arg("repl-diskless-sync-delay", "0");
        with_directives(self.encrypted(node), &self.directives)
    }

    fn encrypted(&self, server: RedisServerBuilder) -> RedisServerBuilder {
        match &self.tls {
            // Also between nodes, and from a sentinel to what it watches.
            Some(certificates) => server.tls(certificates).arg("tls-replication", "yes"),
            None => server,
        }
    }

    fn sentinel(&self, primary: u16) -> RedisServerBuilder {
        assert!(SENTINEL.contains(WATCHED), "deploy/sentinel/sentinel.conf no longer watches {WATCHED}");
        let quorum = self.sentinels / 2 + 1;
        let mut sentinel = RedisServer::builder()
            .duty(Duty::Sentinel)
            .file(SENTINEL.replace(WATCHED, &format!("127.0.0.1 {primary} {quorum}")))
            .once_up(&HASTE);
        let mut set = |what: &str, value: &str| {
            sentinel = sentinel.clone().arg("sentinel", &format!("{what} {} {value}", SentinelSet::NAME));
        };
        set("down-after-milliseconds", &self.down_after.as_millis().to_string());
        set("failover-timeout", &self.failover_timeout.as_millis().to_string());
        if let Some(password) = &self.password {
            set("auth-pass", &quote(Path::new(password)));
        }
        let sentinel = self.encrypted(sentinel);
        match &self.sentinel_password {
            Some(password) => sentinel
                .password(password)
                .arg("sentinel", &format!("sentinel-pass {}", quote(Path::new(password)))),
            None => sentinel,
        }
    }
}
