//! Several locks at once: one transaction under the conditions of all of them.

use futures_util::future::{join, join_all, try_join_all};
use leasehold_core::{
    clock::Until,
    engine::{AnswerAll, Claim, EngineError, Fault, Grant, registry::ended_error},
    fence::Fence,
};

use super::{
    Etcd, Result,
    channel::Again,
    keys::Keys,
    leases::{Seen, check_fence, reads, writes},
    reply::is_no_lease,
};

/// How often the claims are sent again because others came in between.
const TRIES_MAX: u32 = 32;

impl Etcd {
    pub(crate) async fn claim_locks(&self, claims: &[Claim], until: Until) -> Result<AnswerAll> {
        let since = self.clock.now();
        for claim in claims {
            self.capabilities.check(claim)?;
        }
        let calls = claims.iter().map(|claim| self.registry.enter(claim.owner.id(), since));
        let calls = calls.collect::<Result<Vec<_>>>()?;
        let keys: Vec<_> = claims.iter().map(|claim| self.keys(&claim.name)).collect();
        let mut seen: Option<Vec<Seen>> = None;
        for _ in 0..TRIES_MAX {
            // Those that an earlier copy has written are not written again.
            let missing: Vec<_> =
                (0..claims.len()).filter(|at| !is_there(&seen, *at, &keys, claims)).collect();
            if let (true, Some(seen)) = (missing.is_empty(), &seen) {
                return self.granted_before(claims, &keys, seen, until).await;
            }
            if let Some(seen) = &seen
                && let Some(answer) = refused(claims, &keys, seen, &missing)?
            {
                claims.iter().for_each(|claim| self.keep_for_next(claim));
                return Ok(answer);
            }
            let leases = missing.iter().map(|at| self.lease_of_claim(&claims[*at], until));
            let leases = try_join_all(leases).await?;
            let (mut compare, mut success) = (Vec::new(), Vec::new());
            for (at, lease) in missing.iter().zip(&leases) {
                let before = seen.as_ref().map(|seen| &seen[*at]);
                let (conditions, puts) = writes(&keys[*at], &claims[*at], lease.id, before);
                compare.extend(conditions);
                success.extend(puts);
            }
            let failure = keys.iter().zip(claims).flat_map(|(keys, claim)| reads(keys, claim.mode)).collect();
            let covers = missing.iter().zip(&leases);
            let covers = join_all(covers.map(|(at, lease)| self.cover(&claims[*at], *lease, since, until)));
            let txn = self.txn(compare, success, failure, Again::Claim(&calls), until);
            let (replies, covers) = join(txn, covers).await;
            let mut replies = match replies {
                Err(error) if is_no_lease(&error) => {
                    for at in &missing {
                        self.forget_lease(claims[*at].owner.id());
                    }
                    continue;
                }
                replies => replies?,
            };
            if replies.succeeded {
                if !covers.into_iter().collect::<Result<Vec<_>>>()?.into_iter().all(|is_covered| is_covered) {
                    return Err(EngineError::new(Fault::NoAnswer, "a lease ended while it was claimed"));
                }
                if missing.len() == claims.len() {
                    // All keys of a transaction have its revision.
                    let fence = Fence::new(replies.revision.unsigned_abs());
                    check_fence(fence)?;
                    let grant = |claim: &Claim| Grant { fence, since, ttl: claim.ttl, acks: 0 };
                    return Ok(AnswerAll::Granted(claims.iter().map(grant).collect()));
                }
            }
            let again = if replies.succeeded {
                self.look(&keys, claims, until).await?
            } else {
                let each = keys.iter().zip(claims);
                each.map(|(keys, claim)| Seen::take(keys, claim.mode, &mut replies)).collect::<Result<_>>()?
            };
            seen = Some(again);
        }
        Err(EngineError::new(Fault::Overloaded, format!("others came in between {TRIES_MAX} times")))
    }

    async fn look(&self, keys: &[Keys], claims: &[Claim], until: Until) -> Result<Vec<Seen>> {
        let all = keys.iter().zip(claims).flat_map(|(keys, claim)| reads(keys, claim.mode)).collect();
        let mut replies = self.txn(Vec::new(), all, Vec::new(), Again::Same, until).await?;
        keys.iter().zip(claims).map(|(keys, claim)| Seen::take(keys, claim.mode, &mut replies)).collect()
    }

    /// The same claims again: their leases begin anew.
    async fn granted_before(
        &self,
        claims: &[Claim],
        keys: &[Keys],
        seen: &[Seen],
        until: Until,
    ) -> Result<AnswerAll> {
        let since = self.clock.now();
        let mut grants = Vec::with_capacity(claims.len());
        for ((claim, keys), seen) in claims.iter().zip(keys).zip(seen) {
            let place = seen.line.place(&keys.attempt(&claim.owner)).ok_or_else(ended_error)?;
            let entry = &seen.line.entries[place];
            let is_held = place < seen.line.holding();
            if !is_held || !self.adopt(claim, entry.lease, since, until).await? {
                return Err(ended_error());
            }
            grants.push(Grant { fence: entry.fence(), since, ttl: claim.ttl, acks: 0 });
        }
        Ok(AnswerAll::Granted(grants))
    }
}

fn is_there(seen: &Option<Vec<Seen>>, at: usize, keys: &[Keys], claims: &[Claim]) -> bool {
    seen.as_ref().is_some_and(|seen| seen[at].line.place(&keys[at].attempt(&claims[at].owner)).is_some())
}

/// The first claim that cannot be granted.
fn refused(claims: &[Claim], keys: &[Keys], seen: &[Seen], missing: &[usize]) -> Result<Option<AnswerAll>> {
    for at in missing {
        let (claim, line) = (&claims[*at], &seen[*at].line);
        let kind = line.check_kind(claim, &keys[*at].attempt(&claim.owner));
        let limit = line.limit.map_or(Ok(()), |limit| limit.check(claim.mode, true));
        let answer = match kind.and(limit) {
            Err(error) => AnswerAll::Refused { claim: *at, error },
            Ok(()) if line.has_room(claim.mode) => continue,
            Ok(()) => AnswerAll::Busy { claim: *at, holders: line.holders() },
        };
        // What a part of them got is given back by the end of each attempt.
        return if missing.len() == claims.len() { Ok(Some(answer)) } else { Err(ended_error()) };
    }
    Ok(None)
}
