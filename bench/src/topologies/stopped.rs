//! The same lock while one of three nodes is stopped.

use std::time::Duration;

use leasehold::{Leasehold, engine::MemberState};
use leasehold_testkit::{RedisServer, eventually_async};

use super::{Bench, quorum::acquires};
use crate::{Failure, report::Figures, spread::p50_us};

/// Acquires after each change that are not counted.
const WARM_UP: usize = 10;
const PER_TURN: usize = 100;
/// What a node may take to answer again, on a busy machine.
const BACK_WITHIN: Duration = Duration::from_secs(60);

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let set = bench.quorum().await?;
    let leases = Leasehold::connect(set.url()).await?;
    // The client is connected when a majority has replied; the last node must have replied, too, before another is stopped.
    all_vote(&leases).await?;
    acquires(&leases, WARM_UP, &mut Vec::new()).await?;
    let [mut healthy, mut one_stopped] = [const { Vec::new() }; 2];
    for now in 0..bench.count(12, 1) {
        for contestant in 0..2 {
            let stands_still = (contestant + now + turn).is_multiple_of(2);
            let stopped = stands_still.then(|| Stopped::new(&set.nodes()[now % 3]));
            acquires(&leases, WARM_UP, &mut Vec::new()).await?;
            let samples = if stands_still { &mut one_stopped } else { &mut healthy };
            acquires(&leases, PER_TURN, samples).await?;
            drop(stopped);
            all_vote(&leases).await?;
        }
    }
    leases.close().await?;
    Ok(vec![("one_stopped_acquire_us", p50_us(&one_stopped)), ("healthy_acquire_us", p50_us(&healthy))])
}

/// A stopped node; continued when this is dropped, also on an error.
struct Stopped<'a>(&'a RedisServer);

impl<'a> Stopped<'a> {
    fn new(node: &'a RedisServer) -> Self {
        node.stop();
        Self(node)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.cont();
    }
}

async fn all_vote(leases: &Leasehold) -> Result<(), Failure> {
    let members = leases.quorum()?;
    eventually_async(BACK_WITHIN, "all nodes vote", async || {
        members.list().await.iter().all(|member| member.state == MemberState::Votes)
    })
    .await;
    Ok(())
}
