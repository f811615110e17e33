//! Claims of locks in Redisson's format.
//!
//! There is no queue: whoever waits asks again, when the channel of the lock says that it is free, or at its next poll. A message
//! wakes one attempt of each client, the one that has waited longest there.

use super::{Redis, keys::Keys, wake::NO_LINK};
use leasehold_core::{
    clock::Until,
    engine::{Acks, Answer, Claim, EngineError},
    fence::Fence,
};

impl Redis {
    pub(super) async fn claim_as_redisson(
        &self,
        claim: &Claim,
        keys: Keys,
        until: Until,
    ) -> Result<Answer, EngineError> {
        let keys = keys.checked_for_redisson(self.topology.in_cluster)?;
        // Nothing of it is queued in the store.
        let once = Claim { queue: None, ..claim.clone() };
        let ask = async || match claim.acks {
            Acks::None => self.claim_over(None, &once, keys.clone(), until).await,
            _ => self.claim_with_acks(&once, until).await,
        };
        if claim.queue.is_none() {
            return ask().await;
        }
        let (owner, channel) = (claim.owner.id(), keys.redisson_channel());
        let _known_meanwhile = self.attempts.registry.enter(owner, self.clock.now())?;
        if !self.attempts.listens(owner) {
            // Most locks are free, and a subscription costs a call.
            match ask().await? {
                Answer::Busy { .. } => {}
                answer => return Ok(answer),
            }
            self.attempts.listen(claim, &channel);
        }
        // Before it asks: a release that comes after the answer is heard of.
        let link = self.topology.subscribe_to(keys.slot(), &channel, until).await?;
        Ok(match ask().await? {
            Answer::Busy { holders } => {
                self.attempts.queued(owner, "0".into(), link.unwrap_or(NO_LINK));
                Answer::Queued { ahead: 0, holders, last: Fence::new(0), link: NO_LINK }
            }
            answer => answer,
        })
    }
}
