//! Renewing leases, many at once.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{Redis, Servers, answer, batch::Lane, cluster::Cluster, lane_of, script::Op, slots};
use crate::{
    clock::Until,
    engine::{EngineError, Fault, Hold, Renewed, voter::RENEWALS_PER_CALL},
};

impl Redis {
    /// One result per lease. Servers are asked at the same time: a silent one fails its own leases only.
    pub(super) async fn renew(&self, holds: &[Hold], until: Until) -> Vec<Result<Renewed, EngineError>> {
        // A hand-over was believed: it waits no longer.
        holds.iter().for_each(|hold| self.attempts.leave(hold.owner.id()));
        let lanes = match &self.servers {
            Servers::One(lanes, _) => {
                holds.iter().map(|hold| Ok(lane_of(lanes, &hold.name).clone())).collect()
            }
            Servers::Cluster(cluster) => self.lanes_of(cluster, holds, until).await,
        };
        let mut answers: Vec<_> = holds.iter().map(|_| Err(EngineError::no_answer())).collect();
        let mut groups: Vec<(Arc<Lane>, Vec<usize>)> = Vec::new();
        for (at, lane) in lanes.into_iter().enumerate() {
            match lane {
                Err(error) => answers[at] = Err(error),
                Ok(lane) => match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &lane)) {
                    Some((_, places)) => places.push(at),
                    None => groups.push((lane, vec![at])),
                },
            }
        }
        let calls = groups.iter().flat_map(|(lane, places)| {
            places.chunks(RENEWALS_PER_CALL).map(|some| self.renew_some(lane, holds, some, until))
        });
        for (place, answer) in join_all(calls).await.into_iter().flatten() {
            answers[place] = answer;
        }
        answers
    }

    async fn renew_some(
        &self,
        lane: &Arc<Lane>,
        holds: &[Hold],
        places: &[usize],
        until: Until,
    ) -> Vec<(usize, Result<Renewed, EngineError>)> {
        let ops: Vec<_> = places.iter().map(|at| Op::renew(self.keys_of(&holds[*at]), &holds[*at])).collect();
        let since = self.clock.now();
        let values = lane.run_together(&ops, until).await;
        let results = values.into_iter().map(|value| value.and_then(|value| answer::renewed(value, since)));
        let again = places.iter().zip(results).map(async |(at, result)| match result {
            Err(error) if self.is_elsewhere(&error) => (*at, self.renew_one(&holds[*at], until).await),
            result => (*at, result),
        });
        join_all(again).await
    }

    /// The connection for each lease.
    async fn lanes_of(
        &self,
        cluster: &Arc<Cluster>,
        holds: &[Hold],
        until: Until,
    ) -> Vec<Result<Arc<Lane>, EngineError>> {
        let map = match cluster.map(until).await {
            Ok(map) => map,
            Err(error) => return vec![Err(error); holds.len()],
        };
        let lane = |hold: &Hold| match map.shard(self.keys_of(hold).slot()) {
            Some(shard) => Ok(shard.lane(&hold.name).clone()),
            None => Err(EngineError::new(Fault::Unreachable, "its slot of the cluster has no primary")),
        };
        holds.iter().map(lane).collect()
    }

    /// Whether another node may have the lease: nothing happened where it was asked for.
    fn is_elsewhere(&self, error: &EngineError) -> bool {
        matches!(self.servers, Servers::Cluster(_))
            && (slots::points_elsewhere(error) || error.fault == Fault::Unreachable)
    }

    /// Follows a lease to where it is.
    async fn renew_one(&self, hold: &Hold, until: Until) -> Result<Renewed, EngineError> {
        let since = self.clock.now();
        // In a call of its own it takes one key, which can be found while the slot is moving.
        let op = || Op::renew(self.keys_of(hold), hold).alone();
        let (value, _) = self.run(&hold.name, op, until).await?;
        answer::renewed(value, since)
    }
}
