//! Claims and ends of attempts, and what is about them all.

use std::{num::NonZeroU32, slice::from_ref};

use futures_util::future::join;
use leasehold_core::{
    clock::{BootInstant, Until},
    engine::{
        Answer, AnswerAll, Claim, Converted, EngineError, Fault, Fut, Grant, Held, Hold, Leases, Mode,
        Released, Renewed, WAITERS_MAX,
    },
    error::Refusal,
    fence::Fence,
    name::Name,
    owner::OwnerId,
};

use super::{
    Etcd, Result,
    channel::Again,
    entry::{Limit, Line, text},
    keys::Keys,
    proto::{Compare, RequestOp},
    reply::{Replies, created, delete, exists, get, is_no_lease, put, range, read, unchanged, written},
    spare::{StoreLease, seconds_for},
    watch::Watcher,
};

/// How often a claim is sent again because others came in between.
const TRIES_MAX: u32 = 64;
/// Most entries that the end of an attempt reads, to learn who is next.
const NEXT_MAX: i64 = 1000;

/// What the store had under a name.
pub(crate) struct Seen {
    pub(crate) line: Line,
    /// When the limit of permits was written; zero if there is none.
    pub(crate) limit_revision: i64,
    pub(crate) revision: i64,
}

impl Seen {
    /// From the replies to [`reads`].
    pub(crate) fn take(keys: &Keys, mode: Mode, replies: &mut Replies) -> Result<Self> {
        let kvs = replies.range()?.kvs;
        let limit = if mode.permits() > 0 { replies.key()? } else { None };
        let limit_revision = limit.as_ref().map_or(0, |kv| kv.mod_revision);
        let limit = limit.and_then(|kv| Limit::read(&kv.value));
        let line = Line::read(&keys.range().0, kvs, limit);
        Ok(Self { line, limit_revision, revision: replies.revision })
    }
}

/// What a claim reads besides: all attempts, and the limit of permits.
pub(crate) fn reads(keys: &Keys, mode: Mode) -> Vec<RequestOp> {
    let mut reads = vec![read(range(keys.range(), 0))];
    if mode.permits() > 0 {
        reads.push(read(get(keys.limit.clone())));
    }
    reads
}

/// Under which conditions an attempt's key is written, and what is written.
pub(crate) fn writes(
    keys: &Keys,
    claim: &Claim,
    lease: i64,
    seen: Option<&Seen>,
) -> (Vec<Compare>, Vec<RequestOp>) {
    let own = keys.attempt(&claim.owner);
    let mut writes = vec![put(own.clone(), text(&claim.owner, claim.mode, false), lease)];
    let mut compare = vec![match claim.queue {
        Some(_) => created(own, 0),
        // Nobody may have come, or changed, since it was seen that there is room.
        None => unchanged(keys.range(), seen.map_or(0, |seen| seen.revision)),
    }];
    if let Some(limit) = Limit::of(claim.mode) {
        let limit_revision = seen.map_or(0, |seen| seen.limit_revision);
        compare.push(written(keys.limit.clone(), limit_revision));
        if limit_revision == 0 {
            writes.push(put(keys.limit.clone(), limit.text(), 0));
        }
    }
    (compare, writes)
}

impl Etcd {
    async fn claim_lock(&self, claim: &Claim, until: Until) -> Result<Answer> {
        self.capabilities.check(claim)?;
        let since = self.clock.now();
        let call = self.registry.enter(claim.owner.id(), since)?;
        let keys = self.keys(&claim.name);
        let mut seen = None::<Seen>;
        // One that waits already only looks: members need not agree on that.
        let mut looks = self.watches.is_watching(&Watcher::Attempt(claim.owner.id()));
        for _ in 0..TRIES_MAX {
            let lease = self.lease_of_claim(claim, until).await?;
            let (compare, mut success) = match looks {
                true => (Vec::new(), Vec::new()),
                false => writes(&keys, claim, lease.id, seen.as_ref()),
            };
            success.extend(reads(&keys, claim.mode));
            let again = Again::Claim(from_ref(&call));
            let txn = self.txn(compare, success, reads(&keys, claim.mode), again, until);
            let (replies, kept) = join(txn, self.cover(claim, lease, since, until)).await;
            let mut replies = match replies {
                Err(error) if is_no_lease(&error) => {
                    self.forget_lease(claim.owner.id());
                    continue;
                }
                replies => replies?,
            };
            let now = Seen::take(&keys, claim.mode, &mut replies)?;
            let found = (&now, replies.succeeded && !looks);
            looks = false;
            if let Some(answer) = self.judge(claim, &keys, found, (since, kept), until).await? {
                return Ok(answer);
            }
            seen = Some(now);
        }
        let why = format!("others came in between {TRIES_MAX} times");
        Err(EngineError::new(Fault::Overloaded, why))
    }

    /// What an attempt's claim is answered, given what is there after it, and whether it wrote its key just now; nothing if
    /// it has to be sent again.
    async fn judge(
        &self,
        claim: &Claim,
        keys: &Keys,
        (seen, is_new): (&Seen, bool),
        (since, kept): (BootInstant, Result<bool>),
        until: Until,
    ) -> Result<Option<Answer>> {
        let (own, line) = (keys.attempt(&claim.owner), &seen.line);
        let (place, holding) = (line.place(&own), line.holding());
        if place.is_none_or(|place| place >= holding) {
            let is_new = is_new || place.is_none();
            let limit = line.limit.map_or(Ok(()), |limit| limit.check(claim.mode, is_new));
            let mut refused = line.check_kind(claim, &own).and(limit).err();
            if place.is_some_and(|place| place - holding >= WAITERS_MAX as usize) {
                let why = format!("{WAITERS_MAX} attempts wait for this name already");
                refused.get_or_insert(EngineError::new(Fault::Overloaded, why));
            }
            if let Some(error) = refused {
                if place.is_some() && is_new {
                    self.take_back(claim, keys, seen.revision, until).await?;
                }
                return Err(error);
            }
        }
        let Some(place) = place else {
            if claim.queue.is_none() && !line.has_room(claim.mode) {
                self.keep_for_next(claim);
                return Ok(Some(Answer::Busy { holders: line.holders() }));
            }
            return Ok(None);
        };
        let entry = &line.entries[place];
        // It may have come with a copy that had another lease.
        let is_alive = match self.lease_of(claim.owner.id()) {
            Some(lease) if lease.id == entry.lease => kept?,
            _ => self.adopt(claim, entry.lease, since, until).await?,
        };
        if !is_alive {
            self.forget_lease(claim.owner.id());
            return Ok(None);
        }
        if place < holding {
            self.watches.forget(&Watcher::Attempt(claim.owner.id()));
            let grant = Grant { fence: entry.fence(), since, ttl: claim.ttl, acks: 0 };
            check_fence(grant.fence)?;
            return Ok(Some(Answer::Granted(grant)));
        }
        let ahead = (place - holding) as u32;
        let blocker = match claim.mode {
            Mode::Permits { .. } => Some(keys.range()),
            _ => line.blocker(place).map(|entry| (entry.key.clone(), Vec::new())),
        };
        let targets = blocker.into_iter().chain([(own, Vec::new())]).collect();
        self.watches.watch(&Watcher::Attempt(claim.owner.id()), targets, seen.revision + 1);
        let last = line.entries[..holding].last().map_or(Fence::new(0), |entry| entry.fence());
        Ok(Some(Answer::Queued { ahead, holders: line.holders(), last, link: 0 }))
    }

    pub(crate) async fn lease_of_claim(&self, claim: &Claim, until: Until) -> Result<StoreLease> {
        self.lease_for(claim.owner.id(), seconds_for(claim.ttl + claim.lock_delay), until).await
    }

    /// The lease of an attempt: its own, a spare one, or a new one for so many seconds.
    pub(crate) async fn lease_for(&self, owner: OwnerId, wanted: i64, until: Until) -> Result<StoreLease> {
        if let Some(lease) = self.lease_of(owner) {
            return Ok(lease);
        }
        if let Some(lease) = self.spares.take(wanted, self.clock.now()) {
            self.set_lease(owner, lease);
            return Ok(lease);
        }
        let granted = self.grant(wanted, until, |lease| self.set_lease(owner, lease)).await;
        if granted.is_err() {
            // Its id is not used again.
            self.forget_lease(owner);
        }
        granted
    }

    /// Renews a lease that would end before what is claimed. False if it is over.
    pub(crate) async fn cover(
        &self,
        claim: &Claim,
        lease: StoreLease,
        since: BootInstant,
        until: Until,
    ) -> Result<bool> {
        if lease.covers(claim.ttl + claim.lock_delay, since) {
            return Ok(true);
        }
        self.adopt(claim, lease.id, since, until).await
    }

    /// Renews the lease that an attempt's key has. False if it is over, or is too short.
    pub(crate) async fn adopt(
        &self,
        claim: &Claim,
        lease: i64,
        since: BootInstant,
        until: Until,
    ) -> Result<bool> {
        let seconds = self.keep_alive.renew_one(lease, until).await?;
        let renewed = StoreLease { id: lease, seconds, since };
        let is_alive = seconds > 0 && renewed.covers(claim.ttl + claim.lock_delay, since);
        if is_alive {
            self.set_lease(claim.owner.id(), renewed);
        }
        Ok(is_alive)
    }

    /// A claim that left nothing behind: the next one may have its lease, unless a copy of it is on its way.
    pub(crate) fn keep_for_next(&self, claim: &Claim) {
        let owner = claim.owner.id();
        if !self.registry.may_come_late(owner, u64::MAX)
            && let Some(lease) = self.forget_lease(owner)
        {
            self.spares.keep(lease);
        }
    }

    /// Removes what a claim that cannot be granted wrote at this revision: its key, and a limit that nobody has relied on since.
    async fn take_back(&self, claim: &Claim, keys: &Keys, revision: i64, until: Until) -> Result<()> {
        let (own, limit) = (delete(keys.attempt(&claim.owner)), delete(keys.limit.clone()));
        let is_ours = vec![written(keys.limit.clone(), revision), unchanged(keys.range(), revision)];
        self.txn(is_ours, vec![own.clone(), limit], vec![own], Again::Same, until).await?;
        Ok(())
    }

    /// Ends an attempt, and returns how its release ended. From here on nothing of it takes effect.
    async fn end(&self, claim: &Claim, fence: Option<Fence>, until: Until) -> Result<Released> {
        let (owner, keys) = (claim.owner.id(), self.keys(&claim.name));
        self.registry.end(owner);
        self.watches.forget(&Watcher::Attempt(owner));
        self.watches.forget(&Watcher::Holder(owner, claim.name.clone()));
        let released =
            self.delete_attempt(&keys, keys.attempt(&claim.owner), claim.mode, fence, until).await?;
        let may_come_late = self.registry.may_come_late(owner, u64::MAX);
        if let Some(lease) = self.lease_of(owner) {
            if may_come_late {
                // A put that arrives after this fails: its lease is no more.
                self.revoke(lease.id, until).await?;
            } else if released.was_held() {
                self.spares.keep(lease);
            }
            self.forget_lease(owner);
        }
        self.registry.ended(owner);
        Ok(released)
    }

    /// Deletes an attempt's key, in this creation if one is given.
    async fn delete_attempt(
        &self,
        keys: &Keys,
        own: Vec<u8>,
        mode: Mode,
        fence: Option<Fence>,
        until: Until,
    ) -> Result<Released> {
        let condition = match fence {
            Some(fence) => created(own.clone(), fence.as_i64()),
            None => exists(own.clone()),
        };
        let mut next = vec![read(range(keys.range(), NEXT_MAX))];
        if mode.permits() > 0 {
            next.push(read(get(keys.limit.clone())));
        }
        let before = [vec![read(get(own.clone())), delete(own)], next.clone()].concat();
        let mut replies = self.txn(vec![condition], before, next, Again::Never, until).await?;
        let was = if replies.succeeded { replies.key()? } else { None };
        let kvs = replies.range()?.kvs;
        let limit = if mode.permits() > 0 { replies.key()? } else { None };
        let limit = limit.and_then(|kv| Limit::read(&kv.value));
        let start = keys.range().0;
        let after = Line::read(&start, kvs.clone(), limit);
        let Some(was) = was else { return Ok(not_ours(&after, mode)) };
        let before = Line::read(&start, kvs.into_iter().chain([was.clone()]).collect(), limit);
        let place = before.place(&was.key).unwrap_or(0);
        let held_before = before.holding();
        if place >= held_before {
            // It waited, and nothing comes free.
            return Ok(Released::Free);
        }
        let newly = (after.holding() + 1).saturating_sub(held_before);
        if newly == 0 {
            return Ok(Released::Free);
        }
        let first = &after.entries[held_before - 1];
        Ok(Released::HandedOver { to: newly as u32, next: Some(first.fence()) })
    }
}

/// How a release ended that found nothing of its own.
fn not_ours(line: &Line, mode: Mode) -> Released {
    let in_the_way = |mode: Mode, other: Mode| mode == Mode::Exclusive || other == Mode::Exclusive;
    let mut held = line.entries[..line.holding()].iter();
    match held.find(|entry| in_the_way(mode, entry.mode)) {
        Some(entry) => Released::Taken { by: Some(entry.fence()) },
        None => Released::Expired,
    }
}

/// Fences end where doubles are no longer exact.
pub(crate) fn check_fence(fence: Fence) -> Result<()> {
    if fence.get() < leasehold_core::fence::FENCE_LIMIT {
        return Ok(());
    }
    let why = format!("fence exhausted: the store is at revision {fence}, and fences end at 2^53");
    Err(EngineError::new(Fault::Refused(Refusal::Other), why))
}

impl Leases for Etcd {
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        Box::pin(self.claim_lock(claim, until))
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim], until: Until) -> Fut<'a, AnswerAll> {
        Box::pin(self.claim_locks(claims, until))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        Box::pin(self.renew_all(holds, until))
    }

    fn reports_loss(&self, hold: &Hold) -> bool {
        matches!(hold.of, Held::Lock | Held::Record)
    }

    fn held_key(&self, hold: &Hold) -> Option<String> {
        let key = matches!(hold.of, Held::Lock).then(|| self.key_of(hold))?;
        String::from_utf8(key).ok()
    }

    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        Box::pin(async move {
            let Hold { name, owner, mode, format, ttl, lock_delay, .. } = hold.clone();
            let acks = leasehold_core::engine::Acks::None;
            let claim = Claim { name, owner, mode, format, ttl, lock_delay, queue: None, acks };
            let fence = Some(hold.fence).filter(|fence| *fence > Fence::new(0));
            self.end(&claim, fence, until).await
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()> {
        Box::pin(async move { self.end(claim, None, until).await.map(drop) })
    }

    fn convert<'a>(&'a self, _: &'a Hold, _: Mode, _: Until) -> Fut<'a, Converted> {
        Box::pin(std::future::ready(Err(EngineError::new(Fault::Unsupported, super::NO_CONVERT))))
    }

    fn set_limit<'a>(&'a self, name: &'a Name, limit: NonZeroU32, until: Until) -> Fut<'a, ()> {
        Box::pin(self.change_limit(name, limit, until))
    }

    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, until: Until) -> Fut<'a, Released> {
        Box::pin(self.force(name, seen, until))
    }
}

impl Etcd {
    async fn force(&self, name: &Name, seen: Fence, until: Until) -> Result<Released> {
        let keys = self.keys(name);
        let found = self.seen(&keys, until).await?.line;
        match found.entries[..found.holding()].iter().find(|entry| entry.fence() == seen) {
            Some(entry) => self.delete_attempt(&keys, entry.key.clone(), entry.mode, Some(seen), until).await,
            None => Ok(not_ours(&found, Mode::Exclusive)),
        }
    }

    /// What is under a name now.
    pub(crate) async fn seen(&self, keys: &Keys, until: Until) -> Result<Seen> {
        let any = Mode::Permits { take: NonZeroU32::MIN, of: NonZeroU32::MIN };
        let mut replies = self.txn(Vec::new(), reads(keys, any), Vec::new(), Again::Same, until).await?;
        Seen::take(keys, any, &mut replies)
    }

    async fn change_limit(&self, name: &Name, limit: NonZeroU32, until: Until) -> Result<()> {
        let keys = self.keys(name);
        for _ in 0..TRIES_MAX {
            let seen = self.seen(&keys, until).await?;
            if let Some(other) = seen.line.entries.iter().find(|entry| entry.mode.permits() == 0) {
                return Err(EngineError::other_mode(other.mode, Mode::Permits { take: limit, of: limit }));
            }
            let holding = &seen.line.entries[..seen.line.holding()];
            let held_up_to = holding.last().map_or(0, |entry| entry.created);
            let first = seen.line.limit.map_or(limit, |limit| limit.first);
            let limit = Limit { now: limit, first, held_up_to };
            let conditions = vec![
                unchanged(keys.range(), seen.revision),
                written(keys.limit.clone(), seen.limit_revision),
            ];
            let write = vec![put(keys.limit.clone(), limit.text(), 0)];
            if self.txn(conditions, write, Vec::new(), Again::Same, until).await?.succeeded {
                return Ok(());
            }
        }
        Err(EngineError::new(Fault::Overloaded, "others came in between every time"))
    }
}
