//! Renewing leases, many at once.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{
    Redis, reply,
    script::{Op, Step},
    topology::Shard,
};
use leasehold_core::{
    clock::Until,
    engine::{EngineError, Hold, Renewed, voter::RENEWALS_PER_CALL},
};

impl Redis {
    /// One result per lease. Servers are asked at the same time: a silent one fails its own leases only.
    pub(super) async fn renew(&self, holds: &[Hold], until: Until) -> Vec<Result<Renewed, EngineError>> {
        let slots = holds.iter().map(|hold| self.keys_of(hold).slot());
        let together = |shard, places| self.renew_at(shard, holds, places, until);
        self.topology.send_each(slots, until, together, |at| self.renew_one(&holds[at], until)).await
    }

    /// All that one server has, over the connections of their names.
    async fn renew_at(
        &self,
        shard: Arc<Shard>,
        holds: &[Hold],
        places: Vec<usize>,
        until: Until,
    ) -> Vec<Result<Renewed, EngineError>> {
        let hold = |nth: usize| &holds[places[nth]];
        let lane = |nth: usize| shard.lane(&hold(nth).name);
        let mut order: Vec<_> = (0..places.len()).collect();
        order.sort_by_key(|nth| Arc::as_ptr(lane(*nth)));
        let of_lanes = order.chunk_by(|one, other| Arc::ptr_eq(lane(*one), lane(*other)));
        let calls = of_lanes.flat_map(|some| some.chunks(RENEWALS_PER_CALL)).map(async |some| {
            let op = |nth: &usize| Op::new(self.keys_of(hold(*nth)), Step::Renew(hold(*nth).clone()));
            let ops: Vec<_> = some.iter().map(op).collect();
            let since = self.clock.now();
            let (values, _) = lane(some[0]).call(&ops, until).await;
            let renewed = values.into_iter().map(|value| reply::renewed(value?, since));
            some.iter().copied().zip(renewed).collect::<Vec<_>>()
        });
        let mut results: Vec<_> = places.iter().map(|_| Err(EngineError::no_answer())).collect();
        for (nth, result) in join_all(calls).await.into_iter().flatten() {
            results[nth] = result;
        }
        results
    }

    /// Follows a lease to where it is.
    async fn renew_one(&self, hold: &Hold, until: Until) -> Result<Renewed, EngineError> {
        let since = self.clock.now();
        // In a call of its own it takes one key, which can be found while the slot is moving.
        let op = || Op::new(self.keys_of(hold), Step::Renew(hold.clone())).alone();
        let (value, _) = self.topology.send(&hold.name, op, until).await?;
        reply::renewed(value, since)
    }
}
