//! The votes that the library sends to the nodes of a quorum, sent without the library.

use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use redis::{Cmd, RedisResult, Script, Value, aio::MultiplexedConnection};
use tokio::task::unconstrained;

use crate::{Failure, bare};

/// The same text in the same order as in the library's `leasehold-redis/src/script.rs`; a test here compares the hashes
/// with what the library loaded.
const VOTE: &str = concat!(
    include_str!("../../crates/leasehold-redis/src/scripts/begin.lua"),
    include_str!("../../crates/leasehold-redis/src/scripts/voter/begin.lua"),
    include_str!("../../crates/leasehold-redis/src/scripts/voter/fence.lua"),
    include_str!("../../crates/leasehold-redis/src/scripts/voter/record.lua"),
    include_str!("../../crates/leasehold-redis/src/scripts/voter/waiters.lua"),
    include_str!("../../crates/leasehold-redis/src/scripts/voter/vote.lua"),
);
const WITHDRAW: &str = concat!(
    include_str!("../../crates/leasehold-redis/src/scripts/begin.lua"),
    include_str!("../../crates/leasehold-redis/src/scripts/voter/begin.lua"),
    include_str!("../../crates/leasehold-redis/src/scripts/voter/waiters.lua"),
    include_str!("../../crates/leasehold-redis/src/scripts/voter/withdraw.lua"),
);

const RECORD: &str = "leasehold:quorum";
const HIGHEST: &str = "leasehold:quorum:highest";
const FLOOR: &str = "leasehold:quorum:floor";
const FENCE_KEPT_MS: u32 = 86_400_000;
const TOMBSTONE_MS: u32 = 1_200_000;
const TTL_MS: u32 = 30_000;

/// A lock on all nodes of a quorum.
pub(crate) struct RawVotes {
    nodes: Vec<Node>,
    vote: String,
    withdraw: String,
    keys: [String; 4],
    attempts: u64,
}

/// The grant of a majority, and the outstanding votes.
pub(crate) struct RawGuard {
    owner: String,
    rest: Rest,
}

type Rest = FuturesUnordered<BoxFuture<'static, RedisResult<Value>>>;

/// The driver does not send a request whose future was dropped.
fn run_on(mut rest: Rest) {
    tokio::spawn(async move { while rest.next().await.is_some() {} });
}

struct Node {
    connection: MultiplexedConnection,
    /// The record under which it votes.
    record: String,
}

impl RawVotes {
    /// Nodes that have been admitted.
    pub(crate) async fn connect(urls: impl Iterator<Item = String>, name: &str) -> Result<Self, Failure> {
        let mut nodes = Vec::new();
        for url in urls {
            let mut connection = bare::connection(&url).await?;
            for script in [VOTE, WITHDRAW] {
                connection.send_packed_command(redis::cmd("SCRIPT").arg("LOAD").arg(script)).await?;
            }
            let record = connection.send_packed_command(redis::cmd("GET").arg(RECORD)).await?;
            nodes.push(Node { connection, record: redis::from_redis_value(record)? });
        }
        let tail = format!("{{lock:{name}}}");
        let hash = |script| Script::new(script).get_hash().to_owned();
        Ok(Self {
            nodes,
            vote: hash(VOTE),
            withdraw: hash(WITHDRAW),
            keys: [
                format!("lock:{name}"),
                format!("leasehold:fence:{tail}"),
                format!("leasehold:waiters:{tail}"),
                format!("leasehold:seen:{tail}"),
            ],
            attempts: 0,
        })
    }

    /// Asks all nodes at once; returns when a majority has voted under one fence.
    pub(crate) async fn acquire(&mut self) -> Result<RawGuard, Failure> {
        self.attempts += 1;
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64;
        let owner = format!("{:032x} {} 12345 bench-host ", self.attempts, now_us / 1000);
        let (votes, rest) = self.first_answers(|node| self.vote(node, &owner, now_us)).await?;
        match votes.as_slice() {
            [first @ Value::BulkString(_), others @ ..] if others.iter().all(|vote| vote == first) => {
                Ok(RawGuard { owner, rest })
            }
            _ => Err(format!("the nodes voted {votes:?}").into()),
        }
    }

    /// Withdraws all votes; returns when a majority has replied.
    pub(crate) async fn release(&self, RawGuard { owner, rest }: RawGuard) -> Result<(), Failure> {
        run_on(rest);
        let (withdrawn, rest) = self.first_answers(|_| self.withdrawal(&owner)).await?;
        run_on(rest);
        let was_ours = |answer: &Value| matches!(answer, Value::Array(parts) if parts[0] == Value::Int(1));
        if !withdrawn.iter().all(was_ours) {
            return Err(format!("the nodes answered {withdrawn:?} to a withdrawal").into());
        }
        Ok(())
    }

    /// Sends to every node and waits for a majority.
    async fn first_answers(&self, command: impl Fn(&Node) -> Cmd) -> Result<(Vec<Value>, Rest), Failure> {
        let mut asked: Rest = self
            .nodes
            .iter()
            .map(|node| {
                let (mut connection, command) = (node.connection.clone(), command(node));
                // A task's budget must not hold a vote back until its withdrawal has left.
                unconstrained(async move { connection.send_packed_command(&command).await }).boxed()
            })
            .collect();
        let majority = self.nodes.len() / 2 + 1;
        let mut answers = Vec::with_capacity(majority);
        while answers.len() < majority {
            answers.push(asked.next().await.ok_or("too few nodes")??);
        }
        Ok((answers, asked))
    }

    fn vote(&self, node: &Node, owner: &str, now_us: u64) -> Cmd {
        let [lock, fence, waiters, seen] = &self.keys;
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.vote).arg(8).arg(lock).arg(fence).arg(waiters).arg(seen);
        cmd.arg(format!("leasehold:gone:{{{lock}}}:{}", &owner[..32]));
        cmd.arg(RECORD).arg(HIGHEST).arg(FLOOR);
        cmd.arg(FENCE_KEPT_MS).arg(owner).arg(TTL_MS).arg(now_us).arg(&node.record);
        // A single attempt: no entry in the queue.
        cmd.arg("").arg(now_us / 1000 * 1000);
        cmd
    }

    fn withdrawal(&self, owner: &str) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.withdraw).arg(4);
        for key in &self.keys {
            cmd.arg(key);
        }
        cmd.arg(FENCE_KEPT_MS).arg(owner).arg("").arg(TOMBSTONE_MS);
        cmd
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use leasehold_testkit::{QuorumSet, RedisServer, eventually_async, resp::Reply};

    const PATIENCE: Duration = Duration::from_secs(30);

    /// How many nodes answer 1, alone or as the only part of a list.
    fn agreeing(set: &QuorumSet, words: &[&str]) -> usize {
        let agrees = |node: &&RedisServer| {
            let reply = node.cli(words);
            reply == Reply::Int(1) || reply == Reply::List(vec![Reply::Int(1)])
        };
        set.nodes().iter().filter(agrees).count()
    }

    #[tokio::test]
    async fn the_library_sends_the_very_same_votes() {
        let Some(set) = QuorumSet::builder(3).arg("appendonly", "no").start_or_skip() else { return };
        let leases = leasehold::Leasehold::connect_lazy(set.url()).unwrap();
        leases.quorum().unwrap().admit_new().await.unwrap();
        let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
        for script in [VOTE, WITHDRAW] {
            let hash = Script::new(script).get_hash().to_owned();
            // A majority was enough; the last node may not have been asked.
            assert!(agreeing(&set, &["SCRIPT", "EXISTS", &hash]) >= 2);
        }
    }

    #[tokio::test]
    async fn what_bare_votes_hold_is_busy_until_they_are_withdrawn() {
        let Some(set) = QuorumSet::builder(3).arg("appendonly", "no").start_or_skip() else { return };
        let leases = leasehold::Leasehold::connect_lazy(set.url()).unwrap();
        leases.quorum().unwrap().admit_new().await.unwrap();
        let urls = set.nodes().iter().map(|node| node.url());
        let mut raw = RawVotes::connect(urls, "x").await.unwrap();
        let guard = raw.acquire().await.unwrap();
        let held = async || agreeing(&set, &["EXISTS", "lock:x"]) == 3;
        eventually_async(PATIENCE, "all nodes voted", held).await;
        assert!(leases.lock("x").try_acquire().await.unwrap().held().is_none());
        let _ = raw.release(guard).await.unwrap();
        assert!(leases.lock("x").acquire().await.is_ok());
    }
}
