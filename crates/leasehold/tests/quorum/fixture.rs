//! Nodes, clients of them, and what the nodes know.

use std::time::Duration;

use leasehold::{
    Builder, Guard, Leasehold,
    engine::{Member, MemberState},
};
use leasehold_testkit::{QuorumSet, QuorumSetBuilder, RedisServer, eventually_async};

/// For things that take a moment on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Nodes that do not wait for the disk: what is tested here forgets or does not, whatever the disk does.
pub(crate) fn nodes(n: usize) -> QuorumSetBuilder {
    QuorumSet::builder(n).arg("appendfsync", "no")
}

/// A client to be, with this longest ttl, which is also that of its locks.
pub(crate) fn builder(url: impl AsRef<str>, max_ttl: Duration) -> Builder {
    Leasehold::builder(url).configure(|config| (config.ttl, config.max_ttl) = (max_ttl, max_ttl))
}

pub(crate) fn client(set: &QuorumSet, max_ttl: Duration) -> Leasehold {
    builder(set.url(), max_ttl).connect_lazy().unwrap()
}

/// Makes the nodes a quorum: nobody holds anything on them yet.
pub(crate) async fn admit(set: &QuorumSet, max_ttl: Duration) {
    // Servers that have just started on a busy machine may take a while to answer.
    let leases = builder(set.url(), max_ttl).command_timeout(LONG / 2).connect_lazy().unwrap();
    leases.quorum().unwrap().admit_new().await.unwrap();
    leases.close().await.unwrap();
}

/// Nodes that are a quorum, for leases of at most `max_ttl`.
pub(crate) async fn quorum(n: usize, max_ttl: Duration) -> Option<QuorumSet> {
    let set = nodes(n).start_or_skip()?;
    admit(&set, max_ttl).await;
    Some(set)
}

pub(crate) async fn held(leases: &Leasehold, name: &str) -> Guard {
    leases.lock(name).keep_alive().wait(LONG).acquire().await.unwrap()
}

pub(crate) async fn states(leases: &Leasehold) -> Vec<MemberState> {
    leases.quorum().unwrap().list().await.into_iter().map(|Member { state, .. }| state).collect()
}

/// Waits until every node votes.
pub(crate) async fn all_vote(leases: &Leasehold) {
    let vote = || async { states(leases).await.iter().all(|state| *state == MemberState::Votes) };
    eventually_async(LONG, "all nodes to vote", vote).await;
}

/// Whether somebody holds the name on that node.
pub(crate) fn has(node: &RedisServer, name: &str) -> bool {
    node.cli(&["EXISTS", &format!("lock:{name}")]).int() == 1
}

/// How often a command has run on that node, also in scripts.
pub(crate) fn calls(node: &RedisServer, command: &str) -> u64 {
    let stats = node.cli(&["INFO", "commandstats"]);
    let calls = || {
        let (_, rest) = stats.text().split_once(&format!("cmdstat_{command}:calls="))?;
        rest.split(',').next()?.parse().ok()
    };
    calls().unwrap_or(0)
}

/// Every key of a lock that is held or waited for on that node.
pub(crate) fn leftovers(node: &RedisServer) -> Vec<String> {
    let keys =
        |pattern| node.cli(&["KEYS", pattern]).list().iter().map(|key| key.text().to_owned()).collect();
    let all: [Vec<String>; 3] = [keys("lock:*"), keys("leasehold:waiters:*"), keys("leasehold:seen:*")];
    all.concat()
}

/// Waits until nobody holds or waits for anything on any node that runs.
pub(crate) async fn nothing_is_left(set: &QuorumSet) {
    let left =
        || async { set.nodes().iter().filter(|node| node.is_up()).all(|node| leftovers(node).is_empty()) };
    eventually_async(LONG, "no lock and no waiter to be left on any node", left).await;
}
