//! Mistakes with readers, permits and leaders.

use std::sync::Arc;

use leasehold::{
    Name,
    clock::Until,
    engine::{Answer, Claim, Engine, EngineError, Fut, Hold, Leases, Mode, Released, Renewed},
};

use crate::conformance::{Tamper, Wrapped};

/// Admits one more permit than there are: compares with `<=` before it takes.
pub fn one_permit_too_many(inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
    Arc::new(Wrapped::new(inner, OnePermitMore))
}

struct OnePermitMore;

impl Tamper for OnePermitMore {
    fn claim<'a>(&'a self, inner: &'a dyn Leases, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        let Mode::Permits { take, of } = claim.mode else { return inner.claim(claim, until) };
        let claim = Claim { mode: Mode::Permits { take, of: of.saturating_add(1) }, ..claim.clone() };
        Box::pin(async move { inner.claim(&claim, until).await })
    }
}

/// Counts readers under a name of their own, without a look at the writer: a reader comes in beside it.
pub fn readers_apart_from_writers(inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
    Arc::new(Wrapped::new(inner, ReadersApart))
}

struct ReadersApart;

/// Where a holder in this mode is counted.
fn counted_as(name: &Name, mode: Mode) -> Name {
    match mode {
        Mode::Shared => Name::new(format!("{name}:readers")).expect("a short name"),
        _ => name.clone(),
    }
}

fn counted(hold: &Hold) -> Hold {
    Hold { name: counted_as(&hold.name, hold.mode), ..hold.clone() }
}

impl Tamper for ReadersApart {
    fn claim<'a>(&'a self, inner: &'a dyn Leases, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        let claim = Claim { name: counted_as(&claim.name, claim.mode), ..claim.clone() };
        Box::pin(async move { inner.claim(&claim, until).await })
    }

    fn renew<'a>(
        &'a self,
        inner: &'a dyn Leases,
        holds: &'a [Hold],
        until: Until,
    ) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        let holds: Vec<_> = holds.iter().map(counted).collect();
        Box::pin(async move { inner.renew(&holds, until).await })
    }

    fn release<'a>(&'a self, inner: &'a dyn Engine, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        let hold = counted(hold);
        Box::pin(async move { inner.leases().release(&hold, until).await })
    }
}

/// Takes a lock from its holder as soon as somebody waits for it: the next leader begins before the body of the one before it
/// has ended.
pub fn released_before_the_body_ended(inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
    Arc::new(Wrapped::new(inner, GivesWayAtOnce))
}

struct GivesWayAtOnce;

impl Tamper for GivesWayAtOnce {
    fn claim<'a>(&'a self, inner: &'a dyn Leases, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        Box::pin(async move {
            let answer = inner.claim(claim, until).await?;
            if let Answer::Queued { holders, .. } = &answer
                && let Some(held) = holders.first()
            {
                let _taken = inner.force_release(&claim.name, held.fence, until).await?;
            }
            Ok(answer)
        })
    }
}
