//! Locks whose slot is moving to another node, while their keys are on both.
//!
//! A script that names several keys is refused there until the whole slot has arrived, which may take longer than a
//! lease. What takes one key works all the time: a renewal does, and an end goes key by key. Everything else waits.

use super::{
    Redis, answer,
    script::{EndPart, Op},
};
use crate::{
    clock::Until,
    engine::{Claim, EngineError, Released},
    name::Name,
    owner::Owner,
};

impl Redis {
    /// Ends an attempt key by key, the lock last. Nobody is handed the lock: who waits finds it free at its next poll.
    pub(super) async fn end_by_single_keys(
        &self,
        name: &Name,
        owner: &Owner,
        claim: Option<&Claim>,
        may_come_late: bool,
        until: Until,
    ) -> Result<Released, EngineError> {
        let run = async |part: EndPart| {
            let op = || Op::end_part(self.keys(name), owner, part.clone());
            self.topology.send(name, op, until).await.map(|(value, _)| value)
        };
        if may_come_late {
            run(EndPart::Tombstone).await?;
        }
        if let Some(claim) = claim.filter(|claim| claim.queue.is_some()) {
            run(EndPart::LeaveQueue(claim.clone())).await?;
            run(EndPart::ForgetSeen).await?;
        }
        Ok(answer::released(run(EndPart::Release).await?)?.unwrap_or(Released::Free))
    }
}
