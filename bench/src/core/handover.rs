//! From just before a release to the next holder's `acquire` returning, between two clients.

use super::Bench;
use crate::{
    Failure,
    pair::{Pair, Publisher},
    report::Figures,
    spread::p50_us,
};

/// Samples of one contestant before the other has its turn.
const PER_TURN: usize = 25;

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let mut pair = Pair::connect(&bench.server.url(), "bench:handover").await?;
    let mut bare = Publisher::connect(&bench.server.url(), "leasehold:wake:bench").await?;
    let [mut handovers, mut messages] = [const { Vec::new() }; 2];
    for now in 0..bench.count(60, 2) {
        for contestant in 0..2 {
            if (contestant + now + turn).is_multiple_of(2) {
                for _ in 0..PER_TURN {
                    handovers.push(pair.hand_over().await?);
                }
            } else {
                for _ in 0..PER_TURN {
                    messages.push(bare.publish().await?);
                }
            }
        }
    }
    pair.close().await?;
    Ok(vec![("handover_us", p50_us(&handovers)), ("publish_us", p50_us(&messages))])
}
