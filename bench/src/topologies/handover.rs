//! From just before a release to the next holder's `acquire` returning, on one server, a cluster and a quorum.

use super::Bench;
use crate::{Failure, pair::Pair, report::Figures, spread::p50_us};

/// Samples of one contestant before the next has its turn.
const PER_TURN: usize = 25;

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let mut pairs = [
        Pair::connect(&bench.one.url(), "bench:handover").await?,
        Pair::connect(&bench.cluster().await?.url(), "bench:handover").await?,
        Pair::connect(&bench.quorum().await?.url(), "bench:handover").await?,
    ];
    let mut samples = [const { Vec::new() }; 3];
    for now in 0..bench.count(30, 1) {
        for contestant in 0..pairs.len() {
            let who = (contestant + now + turn) % pairs.len();
            for _ in 0..PER_TURN {
                samples[who].push(pairs[who].hand_over().await?);
            }
        }
    }
    for pair in pairs {
        pair.close().await?;
    }
    let [one, cluster, quorum] = samples.map(|samples| p50_us(&samples));
    Ok(vec![
        ("standalone_handover_us", one),
        ("cluster_handover_us", cluster),
        ("quorum_handover_us", quorum),
    ])
}
