//! Real servers for one run, some of which are killed on stage. They end with it, and their folders with them.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use leasehold::{Leasehold, engine::MemberState};
use leasehold_testkit::{ClusterSet, EtcdMember, EtcdSet, PostgresServer, QuorumSet, SentinelSet, poll};
use serde::{Deserialize, Serialize};

use crate::{Result, show::Show, supervisor::Supervisor, worker::QUORUM_TTL_MAX};

const NODES: usize = 5;
/// Nodes of a quorum that go together.
const MINORITY: usize = 2;
/// Of etcd.
const MEMBERS: usize = 3;
/// A key whose primary is killed.
const KEY: &str = "leasehold";
/// The database of PostgreSQL that everything is in.
const DATABASE: &str = "postgres";
const PATIENCE: Duration = Duration::from_secs(60);

/// Servers that a demo can start for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Topology {
    /// A primary, two replicas and three sentinels; the primary is killed
    Sentinel,
    /// Three primaries with a replica each; a primary is replaced and killed
    Cluster,
    /// Five independent servers; two are killed and come back empty, then two others are killed
    Quorum,
    /// Three members of etcd; the leader is killed and comes back, then another member is killed
    Etcd,
    /// A PostgreSQL; its connections are ended, then it crashes and is started again
    Postgres,
}

impl Topology {
    /// Its word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Quorum => "quorum",
            Self::Etcd => "etcd",
            Self::Postgres => "postgres",
        }
    }
}

/// Servers of one run.
pub(crate) struct Stage {
    set: Arc<Set>,
    /// The acts to come, each with the progress at which it begins, in percent, and the servers that it kills.
    acts: Vec<(u64, u32, Act)>,
    killed: u32,
    playing: Option<JoinHandle<()>>,
}

enum Set {
    Sentinel(SentinelSet),
    Cluster(ClusterSet),
    Quorum(QuorumSet),
    Etcd(EtcdSet),
    Postgres(Box<PostgresServer>),
}

type Act = fn(&Set, &Show);

impl Stage {
    /// Starts the servers.
    pub(crate) fn start(topology: Topology) -> Result<Self> {
        let set = match topology {
            Topology::Sentinel => Set::Sentinel(SentinelSet::builder().start()?),
            Topology::Cluster => Set::Cluster(ClusterSet::builder().start()?),
            Topology::Quorum => Set::Quorum(QuorumSet::builder(NODES).arg("appendfsync", "no").start()?),
            Topology::Etcd => Set::Etcd(EtcdSet::builder(MEMBERS).start()?),
            Topology::Postgres => Set::Postgres(Box::new(PostgresServer::start()?)),
        };
        // The last is the first.
        let few = MINORITY as u32;
        let acts: Vec<(u64, u32, Act)> = match topology {
            Topology::Sentinel => vec![(30, 1, kill_primary)],
            Topology::Cluster => vec![(30, 1, replace_and_kill)],
            Topology::Quorum => {
                vec![(65, few, kill_others), (35, 0, bring_back_empty), (15, few, kill_minority)]
            }
            Topology::Etcd => vec![(65, 1, kill_member), (40, 0, bring_back), (15, 1, kill_leader)],
            Topology::Postgres => vec![(55, 0, crash), (25, 0, end_connections)],
        };
        Ok(Self { set: Arc::new(set), acts, killed: 0, playing: None })
    }

    pub(crate) fn url(&self) -> String {
        match &*self.set {
            Set::Sentinel(set) => set.url(),
            Set::Cluster(set) => set.url(),
            Set::Quorum(set) => set.url(),
            Set::Etcd(set) => set.url(),
            Set::Postgres(server) => server.url(DATABASE),
        }
    }

    /// What was started, in words.
    pub(crate) fn words(&self) -> String {
        match &*self.set {
            Set::Sentinel(set) => format!(
                "redis-server: a primary on port {}, {} replicas, {} sentinels",
                set.primary().port(),
                set.replicas().len(),
                set.sentinels().len()
            ),
            Set::Cluster(set) => format!("redis-server: a cluster of {} nodes", set.nodes().len()),
            Set::Quorum(set) => format!("redis-server: {} independent nodes", set.nodes().len()),
            Set::Etcd(set) => format!("etcd: {} members", set.members().len()),
            Set::Postgres(server) => format!("PostgreSQL: one server on port {}", server.addr().port()),
        }
    }

    /// A quorum is formed once, before its first use, and a database gets its schema.
    pub(crate) async fn form(&self) -> Result<()> {
        match &*self.set {
            Set::Quorum(set) => Ok(client_of(set)?.quorum()?.admit_new().await?),
            Set::Postgres(_) => {
                Leasehold::builder(self.url()).connect_lazy()?.schema()?.install().await?;
                Ok(())
            }
            Set::Sentinel(_) | Set::Cluster(_) | Set::Etcd(_) => Ok(()),
        }
    }

    /// Begins the act that is due, if the one before has ended.
    fn go_on(&mut self, percent: u64, show: &Show) {
        let is_due = self.acts.last().is_some_and(|(at, ..)| percent >= *at);
        if !is_due || self.playing.as_ref().is_some_and(|playing| !playing.is_finished()) {
            return;
        }
        if let Some((_, kills, act)) = self.acts.pop() {
            self.killed += kills;
            let (set, show) = (self.set.clone(), show.clone());
            self.playing = Some(thread::spawn(move || act(&set, &show)));
        }
    }

    /// Servers that were killed.
    pub(crate) fn killed(&self) -> u32 {
        self.killed
    }

    /// Waits for the end of an act. Those that have not begun are left out.
    pub(crate) fn end(&mut self) -> Result<()> {
        match self.playing.take().map(JoinHandle::join) {
            Some(Err(_panic)) => Err("the servers did not do what was expected of them".into()),
            _ => Ok(()),
        }
    }
}

impl Supervisor {
    /// Lets servers fail as the work goes on.
    pub(crate) fn play_stage(&mut self, done: u64, total: u64) {
        if let Some(stage) = &mut self.stage {
            stage.go_on(done * 100 / total, &self.show);
        }
    }
}

fn client_of(set: &QuorumSet) -> leasehold::Result<Leasehold> {
    let builder = Leasehold::builder(set.url());
    builder.configure(|config| (config.ttl, config.max_ttl) = (QUORUM_TTL_MAX, QUORUM_TTL_MAX)).connect_lazy()
}

fn kill_primary(set: &Set, show: &Show) {
    let Set::Sentinel(set) = set else { return };
    let (primary, began) = (set.primary(), Instant::now());
    show.fault(format!("kill -9 the primary (port {})", primary.port()), "clients wait for its successor");
    primary.kill();
    let successor = set.await_primary_other_than(primary.port());
    show.print(format!(
        "the sentinels promoted port {} after {:.1} s; a lock that was granted in the last moment may be lost, and the \
         fence in the database refuses whoever lost it",
        successor.port(),
        began.elapsed().as_secs_f64()
    ));
}

fn replace_and_kill(set: &Set, show: &Show) {
    let Set::Cluster(set) = set else { return };
    let primary = set.primary_of(KEY);
    let successor = set.failover_of(primary);
    show.fault(
        format!("a planned fail-over from port {} to {}", primary.port(), successor.port()),
        "clients follow the slots, and nothing is lost",
    );
    primary.kill();
    show.fault(
        format!("kill -9 the node on port {}", primary.port()),
        "it is a replica by now, and nobody asks it",
    );
}

fn kill_minority(set: &Set, show: &Show) {
    kill(set, show, ..MINORITY, "three of five are still a majority, so locks are granted on");
}

fn kill_others(set: &Set, show: &Show) {
    kill(set, show, NODES - MINORITY.., "every majority now needs the two that had forgotten, and they vote");
}

fn kill<R>(set: &Set, show: &Show, which: R, then: &str)
where
    R: std::slice::SliceIndex<[leasehold_testkit::RedisServer], Output = [leasehold_testkit::RedisServer]>,
{
    let Set::Quorum(set) = set else { return };
    let nodes = &set.nodes()[which];
    nodes.iter().for_each(|node| node.kill());
    let ports: Vec<_> = nodes.iter().map(|node| node.port().to_string()).collect();
    show.fault(format!("kill -9 the nodes on ports {}", ports.join(" and ")), then);
}

fn bring_back_empty(set: &Set, show: &Show) {
    let Set::Quorum(set) = set else { return };
    set.nodes()[..MINORITY].iter().for_each(|node| node.restart());
    show.fault(
        "both come back empty",
        format!("what they granted is forgotten, so they do not vote for {} s", QUORUM_TTL_MAX.as_secs()),
    );
    let began = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let voted = runtime.map(|runtime| runtime.block_on(all_vote(set)));
    match voted {
        Ok(Ok(true)) => {
            show.print(format!("all five vote again after {:.1} s", began.elapsed().as_secs_f64()));
        }
        _ => show.print("they do not vote again yet"),
    }
}

async fn all_vote(set: &QuorumSet) -> Result<bool> {
    let leases = client_of(set)?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let members = leases.quorum()?.list().await;
        if members.iter().all(|member| member.state == MemberState::Votes) {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(false)
}

fn leader_of(set: &EtcdSet) -> &EtcdMember {
    poll(PATIENCE, || set.leader()).expect("a majority is up and has a leader")
}

fn kill_leader(set: &Set, show: &Show) {
    let Set::Etcd(set) = set else { return };
    let (leader, began) = (leader_of(set), Instant::now());
    show.fault(
        format!("kill -9 the leader (port {})", leader.addr().port()),
        "no lock is granted until the two others have elected one of them",
    );
    leader.kill();
    let next = leader_of(set);
    show.print(format!(
        "port {} leads after {:.1} s, and has every lock: a grant counts once a majority has it",
        next.addr().port(),
        began.elapsed().as_secs_f64()
    ));
}

fn bring_back(set: &Set, show: &Show) {
    let Set::Etcd(set) = set else { return };
    for member in set.members().iter().filter(|member| !member.runs()) {
        member.restart();
        member.wait();
        show.fault(format!("the member on port {} comes back", member.addr().port()), "it catches up");
    }
}

fn kill_member(set: &Set, show: &Show) {
    let Set::Etcd(set) = set else { return };
    let leader = leader_of(set).addr();
    let Some(member) = set.members().iter().find(|member| member.addr() != leader) else { return };
    member.kill();
    show.fault(
        format!("kill -9 the member on port {}", member.addr().port()),
        "its clients go on with another one",
    );
}

fn end_connections(set: &Set, show: &Show) {
    let Set::Postgres(server) = set else { return };
    server.terminate_backends(DATABASE);
    show.fault(
        "end all connections to the database",
        "clients connect again; what was not committed is rolled back, and tried again",
    );
}

fn crash(set: &Set, show: &Show) {
    let Set::Postgres(server) = set else { return };
    server.crash();
    show.fault("crash the database server", "clients wait for it: there is no copy");
    let began = Instant::now();
    server.start_again();
    show.print(format!(
        "it is back after {:.1} s with all that was committed, locks and fences included; the transaction of whoever lost a \
         lock meanwhile is refused",
        began.elapsed().as_secs_f64()
    ));
}
