//! A voter and its scripts, on real servers.

mod ending;
mod faults;
mod forgetting;
mod ordinary;
mod sharing;
mod voting;

use std::{net::SocketAddr, sync::Mutex, time::Duration};

use leasehold_testkit::{RedisServer, redis_or_skip};

use super::{super::reply, *};
use leasehold_core::{
    clock::Clock,
    engine::{Acks, Claim, LinkChange, Wake},
    owner::{Holder, OwnerId},
};

const PATIENCE: Duration = Duration::from_secs(60);
const MAX_MS: u64 = 60_000;

fn options() -> EngineOptions {
    EngineOptions {
        clock: Clock::system(),
        command_timeout: Duration::from_secs(10),
        prefix: "lock:".into(),
        connections: 1,
        max_in_flight: 100,
        client_name: String::new(),
        max_ttl: Duration::from_secs(300),
    }
}

fn soon() -> Until {
    Clock::system().now() + Duration::from_secs(30)
}

/// A voter of a client of its own.
fn voter_at(addr: SocketAddr) -> Arc<RedisVoter> {
    let url = StoreUrl::parse(&format!("redis://{addr}")).unwrap();
    RedisVoter::new(
        &url.hosts[0],
        &url.login().unwrap(),
        channel(random_process(), 0),
        &options(),
        Tasks::here(),
    )
}

/// A server and a voter that was admitted to it.
async fn admitted() -> Option<(RedisServer, Arc<RedisVoter>, Record)> {
    let server = redis_or_skip()?;
    let voter = voter_at(server.addr());
    let record = admit(&voter).await;
    Some((server, voter, record))
}

/// Admits a node to a quorum and lets it vote.
async fn admit(voter: &RedisVoter) -> Record {
    let status = voter.status(soon()).await.unwrap();
    let record = Record {
        state: State::Votes,
        set: "5e7".into(),
        epoch: 1,
        n: 3,
        index: 0,
        identity: status.identity,
        max_ms: MAX_MS,
    };
    assert!(voter.write_record(status.record.as_ref(), &record, Fence::new(0), soon()).await.unwrap());
    voter.vote_under(Some(record.clone()));
    record
}

fn claim(random: u128) -> Claim {
    Claim {
        name: Name::new("x").unwrap(),
        owner: Owner::new(random, &Holder::this_process("tests", 1)),
        ttl: Duration::from_secs(30),
        format: leasehold_core::engine::Format::Plain,
        lock_delay: Duration::ZERO,
        mode: leasehold_core::engine::Mode::Exclusive,
        queue: None,
        acks: Acks::None,
    }
}

fn waiting(random: u128) -> Claim {
    Claim {
        queue: Some(leasehold_core::engine::Queue {
            wait: Duration::from_secs(30),
            poll_every: Duration::from_secs(5),
        }),
        ..claim(random)
    }
}

fn ballot(claim: Claim) -> Arc<Ballot> {
    let now = Clock::system().wall_us();
    Arc::new(Ballot { claim, hint: Fence::new(now), arrival: now })
}

/// A vote that a task waits for.
fn voting(
    voter: &Arc<RedisVoter>,
    claim: Claim,
) -> impl Future<Output = std::result::Result<Vote, EngineError>> + use<> {
    let voter = voter.clone();
    async move { voter.vote(&ballot(claim), soon()).await }
}

async fn vote(voter: &RedisVoter, claim: Claim) -> Vote {
    voter.vote(&ballot(claim), soon()).await.unwrap()
}

#[track_caller]
fn yes(vote: Vote) -> Fence {
    match vote {
        Vote::Yes(fence) => fence,
        other => panic!("not a yes: {other:?}"),
    }
}

/// The hold of a claim that was granted under `fence`.
fn hold(claim: &Claim, fence: u64) -> Hold {
    claim.hold(Fence::new(fence))
}

/// What the node says its fence of the name is.
fn fence_of(server: &RedisServer) -> u64 {
    let reply = server.cli(&["GET", "leasehold:fence:{lock:x}"]);
    if reply.is_nil() { 0 } else { reply.int() as u64 }
}

fn holds(server: &RedisServer, claim: &Claim) -> bool {
    let reply = server.cli(&["GET", "lock:x"]);
    !reply.is_nil() && reply::owner_text(reply.text()) == claim.owner.expose()
}

#[derive(Default)]
struct Heard(Mutex<Vec<Wake>>);

impl Heard {
    fn hints(&self) -> Vec<OwnerId> {
        let hint = |wake: &Wake| if let Wake::LookAgain { owner } = wake { Some(*owner) } else { None };
        self.0.lock().unwrap().iter().filter_map(hint).collect()
    }

    fn heard_all(&self) -> bool {
        self.0.lock().unwrap().iter().any(|wake| matches!(wake, Wake::LookAgainAll))
    }
}

impl WakeSink for Heard {
    fn wake(&self, wake: Wake) {
        self.0.lock().unwrap().push(wake);
    }
    fn link(&self, _: LinkChange) {}
}

fn listen_to(voter: &RedisVoter) -> Arc<Heard> {
    let heard = Arc::new(Heard::default());
    let sink: Arc<dyn WakeSink> = heard.clone();
    voter.set_wake_sink(Arc::downgrade(&sink));
    heard
}
