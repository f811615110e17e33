//! The votes that the library sends to the nodes of a quorum, sent without the library.

use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use leasehold::Leasehold;
use leasehold_testkit::QuorumSet;
use redis::{Cmd, RedisResult, Script, Value, aio::MultiplexedConnection};
use tokio::task::unconstrained;

use crate::{Failure, bare};

/// A test here compares its hash with what the library loaded.
const ORDINARY: &str = include_str!("../../crates/leasehold-redis/src/scripts/voter/ordinary.lua");

const RECORD: &str = "leasehold:quorum";
const HIGHEST: &str = "leasehold:quorum:highest";
const FLOOR: &str = "leasehold:quorum:floor";
const TTL_MS: u32 = 30_000;

/// Nodes that vote and write nothing to disk: the disk would hide what the libraries do.
pub(crate) async fn admitted(nodes: usize) -> Result<QuorumSet, Failure> {
    let set = QuorumSet::builder(nodes).arg("appendonly", "no").start()?;
    let leases = Leasehold::connect_lazy(set.url())?;
    leases.quorum()?.admit_new().await?;
    leases.close().await?;
    // For two minutes the fences of a new quorum are ahead of the clock, and a vote costs half as much again. These nodes
    // have given none, so theirs may follow the clock at once, as those of any older quorum do.
    for node in set.nodes() {
        node.cli(&["DEL", HIGHEST, FLOOR]);
    }
    Ok(set)
}

/// A lock on all nodes of a quorum.
pub(crate) struct RawVotes {
    nodes: Vec<Node>,
    script: String,
    keys: [String; 3],
    attempts: u64,
}

/// The grant of a majority, and the outstanding votes.
pub(crate) struct RawGuard {
    id: String,
    rest: Rest,
}

type Rest = FuturesUnordered<BoxFuture<'static, RedisResult<Value>>>;

/// The driver does not send a request whose future was dropped.
fn run_on(mut rest: Rest) {
    tokio::spawn(async move { while rest.next().await.is_some() {} });
}

struct Node {
    connection: MultiplexedConnection,
    /// The record under which it votes: its text up to the data set, the data set, and the longest ttl.
    record: [String; 3],
}

impl RawVotes {
    /// Nodes that have been admitted.
    pub(crate) async fn connect(urls: impl Iterator<Item = String>, name: &str) -> Result<Self, Failure> {
        let mut nodes = Vec::new();
        for url in urls {
            let mut connection = bare::connection(&url).await?;
            connection.send_packed_command(redis::cmd("SCRIPT").arg("LOAD").arg(ORDINARY)).await?;
            let record = connection.send_packed_command(redis::cmd("GET").arg(RECORD)).await?;
            let record = parts(&redis::from_redis_value::<String>(record)?).ok_or("not a record")?;
            nodes.push(Node { connection, record });
        }
        let tail = format!("{{lock:{name}}}");
        let keys =
            [format!("lock:{name}"), format!("leasehold:waiters:{tail}"), format!("leasehold:fence:{tail}")];
        Ok(Self { nodes, script: Script::new(ORDINARY).get_hash().to_owned(), keys, attempts: 0 })
    }

    /// Asks all nodes at once; returns when a majority has voted under one fence.
    pub(crate) async fn acquire(&mut self) -> Result<RawGuard, Failure> {
        self.attempts += 1;
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64;
        let id = format!("{:032x}", self.attempts);
        let (votes, rest) = self.first_answers(|node| self.vote(node, &id, now_us)).await?;
        if votes.iter().any(|vote| *vote != DONE) {
            return Err(format!("the nodes voted {votes:?}").into());
        }
        Ok(RawGuard { id, rest })
    }

    /// Withdraws all votes; returns when a majority has replied.
    pub(crate) async fn release(&self, RawGuard { id, rest }: RawGuard) -> Result<(), Failure> {
        run_on(rest);
        let (withdrawn, rest) = self.first_answers(|_| self.withdrawal(&id)).await?;
        run_on(rest);
        if withdrawn.iter().any(|answer| *answer != DONE) {
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

    fn vote(&self, node: &Node, id: &str, now_us: u64) -> Cmd {
        let [lock, waiters, fence] = &self.keys;
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.script).arg(7).arg(RECORD).arg(HIGHEST).arg(FLOOR).arg(waiters);
        cmd.arg(format!("leasehold:gone:{{{lock}}}:{id}")).arg(lock).arg(fence);
        cmd.arg(0).arg(&node.record).arg(TTL_MS);
        cmd.arg(format!("{id} {now_us} {} 12345 bench-host ", now_us / 1000)).arg(now_us);
        cmd
    }

    fn withdrawal(&self, id: &str) -> Cmd {
        let [lock, waiters, _] = &self.keys;
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.script).arg(2).arg(lock).arg(waiters).arg(1).arg(format!("{id} "));
        cmd
    }
}

/// What the script answers if it did its only operation.
const DONE: Value = Value::Int(1);

/// A record as the script takes it. It ends in the data set, the longest ttl and the word that says that the node votes.
fn parts(record: &str) -> Option<[String; 3]> {
    let (head, most) = record.strip_suffix(" votes")?.rsplit_once(' ')?;
    let (_, data) = head.rsplit_once('-')?;
    Some([head.strip_suffix(data)?, data, most].map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use leasehold_testkit::{RedisServer, eventually_async, resp::Reply};

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
        let Some(_installed) = RedisServer::shared_or_skip() else { return };
        let set = admitted(3).await.unwrap();
        let leases = Leasehold::connect(set.url()).await.unwrap();
        let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
        // A majority was enough; the last node may not have been asked.
        assert!(agreeing(&set, &["SCRIPT", "EXISTS", Script::new(ORDINARY).get_hash()]) >= 2);
    }

    #[tokio::test]
    async fn what_bare_votes_hold_is_busy_until_they_are_withdrawn() {
        let Some(_installed) = RedisServer::shared_or_skip() else { return };
        let set = admitted(3).await.unwrap();
        let leases = Leasehold::connect(set.url()).await.unwrap();
        let urls = set.nodes().iter().map(|node| node.url());
        let mut raw = RawVotes::connect(urls, "x").await.unwrap();
        let guard = raw.acquire().await.unwrap();
        let held = async || agreeing(&set, &["EXISTS", "lock:x"]) == 3;
        eventually_async(PATIENCE, "all nodes voted", held).await;
        assert!(leases.lock("x").try_acquire().await.unwrap().held().is_none());
        raw.release(guard).await.unwrap();
        assert!(leases.lock("x").acquire().await.is_ok());
    }
}
