//! Records and marks.
//!
//! What is under a key and under B is read, [`decide`] decides, and the outcome is written if nothing has changed meanwhile.
//! The fence of an execution is one more than the revision at which its key was read: whoever begins later reads a later one.

use std::{collections::HashSet, slice::from_ref, time::Duration};

use futures_util::future::try_join_all;
use leasehold_core::{
    clock::Until,
    engine::{
        Cursor, EngineError, Fault, Fut, Grant, Page,
        records::{
            Begin, Begun, MARK, MarkOp, Outcome, Record, Records, Settle, Settled,
            decide::{self, Beginning},
        },
        registry::Call,
    },
    fence::Fence,
    name::Name,
};

use super::{
    Etcd, Result,
    channel::Again,
    entry, keys,
    leases::check_fence,
    proto::{Compare, KeyValue, Op, RangeRequest, RequestOp, TxnRequest},
    reply::{created, delete, exists, get, holds, is_no_lease, op, put, read, written},
    spare::{StoreLease, seconds_for},
    store::OPS_MAX,
    watch::Watcher,
};

/// How often an operation is tried again because somebody else came in between.
const TRIES_MAX: u32 = 64;
/// How long B outlives the last execution.
const BEGUN_KEPT: Duration = Duration::from_secs(86_400);
/// Most keys that one page of a scan looks at.
const SCAN_MAX: u32 = 1000;

/// What is under a key.
struct Found {
    record: Option<KeyValue>,
    begun: Option<KeyValue>,
    revision: i64,
}

impl Found {
    fn text(&self) -> Option<&[u8]> {
        self.record.as_ref().map(|kv| kv.value.as_slice())
    }

    /// The fence of the last execution that is known.
    fn last(&self) -> Option<Fence> {
        let text = std::str::from_utf8(&self.begun.as_ref()?.value).ok()?;
        text.parse().ok().map(Fence::new)
    }

    /// That nothing has changed since.
    fn unchanged(&self, key: &Name) -> Vec<Compare> {
        let revision = |kv: &Option<KeyValue>| kv.as_ref().map_or(0, |kv| kv.mod_revision);
        vec![
            written(key.as_str().into(), revision(&self.record)),
            written(keys::begun(key), revision(&self.begun)),
        ]
    }
}

impl Etcd {
    async fn found(&self, key: &Name, until: Until) -> Result<Found> {
        let reads = vec![read(get(key.as_str().into())), read(get(keys::begun(key)))];
        let mut replies = self.txn(Vec::new(), reads, Vec::new(), Again::Same, until).await?;
        Ok(Found { record: replies.key()?, begun: replies.key()?, revision: replies.revision })
    }

    async fn begin_record(&self, begin: &Begin, until: Until) -> Result<Begun> {
        let since = self.clock.now();
        let call = self.registry.enter(begin.owner.id(), since)?;
        for _ in 0..TRIES_MAX {
            let found = self.found(&begin.key, until).await?;
            let left = match &found.record {
                Some(kv) if kv.lease != 0 => self.time_left(kv.lease, until).await?.unwrap_or_default(),
                _ => Duration::ZERO,
            };
            let fence = match decide::begin(found.text(), left, begin)? {
                Beginning::Take => match self.take_record(&call, begin, &found, until).await? {
                    Some(fence) => fence,
                    None => continue,
                },
                Beginning::Refresh(fence) => {
                    let lease = found.record.map_or(0, |kv| kv.lease);
                    let seconds = self.keep_alive.renew_one(lease, until).await?;
                    if seconds <= 0 {
                        continue;
                    }
                    self.set_lease(begin.owner.id(), StoreLease { id: lease, seconds, since });
                    fence
                }
                Beginning::Answer(answer) => {
                    if begin.wake && matches!(answer, Begun::Running { .. }) {
                        let target = (begin.key.as_str().into(), Vec::new());
                        let watcher = Watcher::Record(begin.owner.id());
                        self.watches.watch(&watcher, vec![target], found.revision + 1);
                    }
                    return Ok(answer);
                }
            };
            return Ok(Begun::Yours(Grant { fence, since, ttl: begin.lease, acks: 0 }));
        }
        Err(crowded())
    }

    /// Writes a record as running. Nothing if somebody came in between, or if it has to be sent again.
    async fn take_record(
        &self,
        call: &Call<()>,
        begin: &Begin,
        found: &Found,
        until: Until,
    ) -> Result<Option<Fence>> {
        let owner = begin.owner.id();
        let began = self.clock.now();
        let mut lease = self.lease_for(owner, seconds_for(begin.lease), until).await?;
        if !lease.covers(begin.lease, began) {
            let seconds = self.keep_alive.renew_one(lease.id, until).await?;
            lease = StoreLease { seconds, since: began, ..lease };
            if !lease.covers(begin.lease, began) {
                self.forget_lease(owner);
                return Ok(None);
            }
            self.set_lease(owner, lease);
        }
        let fence = Fence::new(found.revision.unsigned_abs() + 1);
        check_fence(fence)?;
        let kept = self.kept_for(BEGUN_KEPT, until).await?;
        let writes = vec![
            put(begin.key.as_str().into(), begin.text(fence), lease.id),
            put(keys::begun(&begin.key), fence.to_string().into(), kept),
        ];
        let again = Again::Claim(from_ref(call));
        match self.txn(found.unchanged(&begin.key), writes, Vec::new(), again, until).await {
            Ok(replies) => Ok(replies.succeeded.then_some(fence)),
            Err(error) if is_no_lease(&error) => {
                self.shared.forget(kept);
                self.forget_lease(owner);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn settle_record(&self, settle: &Settle, until: Until) -> Result<Settled> {
        let (key, owner) = (&settle.hold.name, settle.hold.owner.id());
        self.registry.end(owner);
        self.watches.forget(&Watcher::Holder(owner, key.clone()));
        let settled = self.write_outcome(settle, until).await?;
        if let Some(lease) = self.lease_of(owner) {
            if self.registry.may_come_late(owner, u64::MAX) {
                self.revoke(lease.id, until).await?;
            } else if settled == Settled::Stored {
                self.spares.keep(lease);
            }
            self.forget_lease(owner);
        }
        self.registry.ended(owner);
        Ok(settled)
    }

    async fn write_outcome(&self, settle: &Settle, until: Until) -> Result<Settled> {
        let key = &settle.hold.name;
        for _ in 0..TRIES_MAX {
            let found = self.found(key, until).await?;
            if let Some(answer) = decide::settle(found.text(), found.last(), settle)? {
                return Ok(answer);
            }
            let (lease, write) = match (settle.text(), &settle.outcome) {
                (Some(text), _) => {
                    let lease = self.kept_for(settle.keep, until).await?;
                    (lease, vec![put(key.as_str().into(), text, lease)])
                }
                (None, Outcome::Retry) if found.record.is_none() => return Ok(Settled::Stored),
                (None, _) => (0, vec![delete(key.as_str().into())]),
            };
            match self.txn(found.unchanged(key), write, Vec::new(), Again::Same, until).await {
                Ok(replies) if replies.succeeded => return Ok(Settled::Stored),
                Ok(_) => {}
                Err(error) if is_no_lease(&error) => self.shared.forget(lease),
                Err(error) => return Err(error),
            }
        }
        Err(crowded())
    }

    /// One transaction for many marks, each under a condition of its own.
    async fn on_some_marks(&self, keys: &[Name], mark_op: MarkOp, until: Until) -> Result<Vec<bool>> {
        let lease = match mark_op {
            MarkOp::Set(ttl) | MarkOp::SetIfAbsent(ttl) => self.kept_for(ttl, until).await?,
            MarkOp::Test | MarkOp::Clear => 0,
        };
        let mut known = HashSet::new();
        // A transaction writes a key once.
        let firsts: Vec<_> = keys.iter().map(|key| known.insert(key)).collect();
        let once = keys.iter().zip(&firsts).filter(|(_, first)| **first).map(|(key, _)| key);
        let ops = once.map(|key| mark(key.as_str().into(), mark_op, lease)).collect();
        let again = match mark_op {
            MarkOp::Set(_) | MarkOp::Test => Again::Same,
            MarkOp::SetIfAbsent(_) | MarkOp::Clear => Again::Never,
        };
        let mut replies = match self.txn(Vec::new(), ops, Vec::new(), again, until).await {
            Err(error) if is_no_lease(&error) => {
                self.shared.forget(lease);
                return Err(EngineError::new(Fault::NoAnswer, "the lease of the marks was revoked"));
            }
            replies => replies?,
        };
        let mut answers = std::collections::HashMap::new();
        for (key, _) in keys.iter().zip(&firsts).filter(|(_, first)| **first) {
            answers.insert(key, replies.mark()?);
        }
        let repeats = matches!(mark_op, MarkOp::Set(_) | MarkOp::Test);
        Ok(keys.iter().zip(firsts).map(|(key, first)| answers[key] && (first || repeats)).collect())
    }

    async fn show_record(&self, key: &Name, kv: KeyValue, until: Until) -> Result<Record> {
        let expires_in = if kv.lease == 0 { None } else { self.time_left(kv.lease, until).await? };
        Ok(Record { key: key.clone(), content: decide::content(&kv.value), expires_in })
    }

    async fn scan_records(
        &self,
        prefix: &str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Result<Page<Record>> {
        let (start, end) = keys::range_of(prefix);
        let start = from.map_or(start, |from| from.as_str().as_bytes().to_vec());
        let limit = i64::from(limit.clamp(1, SCAN_MAX));
        let found = self
            .read(RangeRequest { key: start, range_end: end, limit, ..Default::default() }, until)
            .await?;
        // The next key after the last one.
        let next = found.kvs.last().filter(|_| found.more).and_then(|kv| {
            let mut after = String::from_utf8(kv.key.clone()).ok()?;
            after.push('\0');
            Some(Cursor::new(after))
        });
        let of_locks = !self.prefix.is_empty() && !prefix.starts_with(&self.prefix);
        let mut items = Vec::with_capacity(found.kvs.len());
        for kv in found.kvs {
            let Some(key) = std::str::from_utf8(&kv.key).ok().and_then(|key| Name::new(key).ok()) else {
                continue;
            };
            let is_of_lock =
                of_locks && key.as_str().starts_with(&self.prefix) || entry::is_attempt(&kv.value);
            if !is_of_lock && !keys::is_side_key(key.as_str()) {
                items.push(self.show_record(&key, kv, until).await?);
            }
        }
        Ok(Page { items, next })
    }
}

fn crowded() -> EngineError {
    EngineError::new(Fault::Overloaded, format!("others came in between {TRIES_MAX} times"))
}

/// The operation on one mark, as a part of a transaction.
fn mark(key: Vec<u8>, mark_op: MarkOp, lease: i64) -> RequestOp {
    let when = |compare, success, failure| {
        let (compare, success) = (vec![compare], vec![success]);
        op(Op::Txn(TxnRequest { compare, success, failure }))
    };
    let set = put(key.clone(), MARK.into(), lease);
    match mark_op {
        MarkOp::Set(_) => {
            let replace = when(holds(key.clone(), MARK.into()), set.clone(), Vec::new());
            when(created(key, 0), set, vec![replace])
        }
        MarkOp::SetIfAbsent(_) => when(created(key, 0), set, Vec::new()),
        MarkOp::Test => {
            when(exists(key.clone()), read(RangeRequest { keys_only: true, ..get(key) }), Vec::new())
        }
        MarkOp::Clear => when(holds(key.clone(), MARK.into()), delete(key), Vec::new()),
    }
}

impl Records for Etcd {
    fn begin<'a>(&'a self, begin: &'a Begin, until: Until) -> Fut<'a, Begun> {
        Box::pin(self.begin_record(begin, until))
    }

    fn settle<'a>(&'a self, settle: &'a Settle, until: Until) -> Fut<'a, Settled> {
        Box::pin(self.settle_record(settle, until))
    }

    fn on_marks<'a>(&'a self, keys: &'a [Name], op: MarkOp, until: Until) -> Fut<'a, Vec<bool>> {
        Box::pin(async move {
            let all = keys.chunks(OPS_MAX).map(|some| self.on_some_marks(some, op, until));
            Ok(try_join_all(all).await?.concat())
        })
    }

    fn read<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, Option<Record>> {
        Box::pin(async move {
            match Etcd::read(self, get(key.as_str().into()), until).await?.kvs.pop() {
                Some(kv) => self.show_record(key, kv, until).await.map(Some),
                None => Ok(None),
            }
        })
    }

    fn remove<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, bool> {
        Box::pin(async move {
            let key = Vec::from(key.as_str());
            let (compare, remove) = (vec![exists(key.clone())], vec![delete(key)]);
            Ok(self.txn(compare, remove, Vec::new(), Again::Never, until).await?.succeeded)
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Record>> {
        Box::pin(self.scan_records(prefix, from, limit, until))
    }
}
