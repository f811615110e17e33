//! Renewals: a keep-alive and a read of the key for each lease, sent together.
//!
//! The keep-alive alone proves too little: a leader that was deposed may answer it, and the key may be gone while its lease
//! lives. The read needs a majority after the renewal began, and whichever leader comes after that gives every lease its
//! full time again.

use futures_util::future::join;
use leasehold_core::{
    clock::{BootInstant, Until},
    engine::{Held, Hold, Renewed},
};

use super::{
    Etcd, Result,
    channel::Again,
    entry::text,
    reply::{get, put, read, written},
    spare::{StoreLease, seconds_for},
    store::OPS_MAX,
    watch::Watcher,
};

impl Etcd {
    pub(crate) async fn renew_all(&self, holds: &[Hold], until: Until) -> Result<Vec<Result<Renewed>>> {
        let mut answers = Vec::with_capacity(holds.len());
        for some in holds.chunks(OPS_MAX) {
            answers.extend(self.renew_some(some, until).await);
        }
        Ok(answers)
    }

    async fn renew_some(&self, holds: &[Hold], until: Until) -> Vec<Result<Renewed>> {
        let since = self.clock.now();
        let own: Vec<_> = holds.iter().map(|hold| self.key_of(hold)).collect();
        let known: Vec<_> = holds.iter().map(|hold| self.lease_of(hold.owner.id())).collect();
        let reads = own.iter().map(|key| read(get(key.clone()))).collect();
        // A member that answers both had a majority after `since`: whichever comes after it extends all leases.
        let (replies, kept) = join(
            self.txn(Vec::new(), reads, Vec::new(), Again::Same, until),
            self.keep_alive.renew(known.iter().flatten().map(|lease| lease.id), until),
        )
        .await;
        let mut replies = match replies {
            Ok(replies) => replies,
            Err(error) => return vec![Err(error); holds.len()],
        };
        let (revision, mut kept) = (replies.revision, kept.into_iter());
        let mut answers = Vec::with_capacity(holds.len());
        for ((hold, own), known) in holds.iter().zip(own).zip(known) {
            let kept = known.and_then(|lease| kept.next().map(|kept| (lease, kept)));
            let answer = match replies.key() {
                Err(error) => Err(error),
                Ok(None) => Ok(Renewed::Gone),
                Ok(Some(kv)) if !self.is_ours(hold, &kv) => Ok(Renewed::Gone),
                Ok(Some(kv)) => {
                    let kept = match kept {
                        Some((lease, kept)) if lease.id == kv.lease => kept,
                        // It was taken by another client of this attempt.
                        _ => self.keep_alive.renew_one(kv.lease, until).await,
                    };
                    self.renewed_one(hold, (own, kv.mod_revision, kv.lease), kept, since, revision, until)
                        .await
                }
            };
            if matches!(answer, Ok(Renewed::Gone)) {
                self.watches.forget(&Watcher::Holder(hold.owner.id(), hold.name.clone()));
                self.forget_lease(hold.owner.id());
            }
            answers.push(answer);
        }
        answers
    }

    async fn renewed_one(
        &self,
        hold: &Hold,
        (own, mod_revision, lease): (Vec<u8>, i64, i64),
        kept: Result<i64>,
        since: BootInstant,
        revision: i64,
        until: Until,
    ) -> Result<Renewed> {
        let (owner, lasts) = (hold.owner.id(), hold.ttl + hold.lock_delay);
        let seconds = kept?;
        if seconds <= 0 {
            return Ok(Renewed::Gone);
        }
        let renewed = StoreLease { id: lease, seconds, since };
        if hold.of == Held::Closed || !renewed.covers(lasts, since) {
            return self.move_to_new_lease(hold, own, (mod_revision, lease), since, until).await;
        }
        self.set_lease(owner, renewed);
        let watcher = Watcher::Holder(owner, hold.name.clone());
        let link = hold.watch.then(|| self.watches.watch(&watcher, vec![(own, Vec::new())], revision + 1));
        Ok(Renewed::Kept { since, link })
    }

    /// Gives what is held a lease of another length: that of a lease is fixed when it is granted.
    async fn move_to_new_lease(
        &self,
        hold: &Hold,
        own: Vec<u8>,
        (mod_revision, old): (i64, i64),
        since: BootInstant,
        until: Until,
    ) -> Result<Renewed> {
        let closed = hold.of == Held::Closed;
        let wanted = if closed { seconds_for(hold.ttl) - 1 } else { seconds_for(hold.ttl + hold.lock_delay) };
        let lease = self.grant(wanted.max(1), until, |_| ()).await?;
        let value = match hold.of {
            Held::Record => match self.read(get(own.clone()), until).await?.kvs.pop() {
                Some(kv) if kv.mod_revision == mod_revision => kv.value,
                _ => return Ok(Renewed::Gone),
            },
            _ => text(&hold.owner, hold.mode, closed),
        };
        let (condition, write) = (written(own.clone(), mod_revision), put(own, value, lease.id));
        let replies = self.txn(vec![condition], vec![write], Vec::new(), Again::Never, until).await?;
        if !replies.succeeded {
            return Ok(Renewed::Gone);
        }
        // Nothing is attached to it any more.
        self.revoke(old, until).await?;
        if closed {
            self.forget_lease(hold.owner.id());
        } else {
            self.set_lease(hold.owner.id(), lease);
        }
        Ok(Renewed::Kept { since, link: None })
    }
}
