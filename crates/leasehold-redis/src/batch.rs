//! Many operations in few calls.
//!
//! A lone operation is sent at once, in its caller's own task. While a call is under way, operations gather and leave
//! together: the script's fixed cost is then shared, and the latency of a busy client falls. In a cluster a call carries
//! operations of one slot only; the calls of all slots leave together.

mod renewal;

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Mutex},
};

use futures_util::future::join_all;
use redis::Value;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use super::{
    Result,
    connection::{Connection, ConnectionOptions, Link},
    keys::Keys,
    locked, reply,
    script::{self, Call, Contended, Crowd, Op, Scripts},
    unreachable,
};
use leasehold_core::{
    clock::Until,
    engine::{
        Claim, EngineError, Fault,
        registry::{ended_error, send_noted},
    },
};

/// Calls under way before operations wait for one to end.
const CALLS_AT_ONCE: usize = 4;
/// Operations in one call; bounds how long the server is busy with one.
const OPS_PER_CALL: usize = 32;

/// One connection and the operations that share it.
pub(super) struct Lane {
    pub(super) connection: Arc<Connection>,
    scripts: &'static Scripts,
    contended: Contended,
    queue: Mutex<Queue>,
    in_flight: Semaphore,
    max_in_flight: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    calls: usize,
    /// One of the calls has not left yet and takes what waits.
    gathers: bool,
}

struct Waiting {
    op: Op,
    until: Until,
    reply: oneshot::Sender<Reply>,
}

/// An operation's reply, and the link it came over.
pub(super) type Reply = Result<(Value, u64)>;

impl Lane {
    /// `by_slot` for a node of a cluster.
    pub(super) fn new(connection: ConnectionOptions, max_in_flight: usize, by_slot: bool) -> Arc<Self> {
        Arc::new(Self {
            scripts: Scripts::of(by_slot, connection.grace().is_some()),
            contended: Contended::default(),
            connection: Connection::new(connection),
            queue: Mutex::default(),
            in_flight: Semaphore::new(max_in_flight),
            max_in_flight,
        })
    }

    /// Runs one operation, alone or together with others.
    pub(super) async fn run(self: &Arc<Self>, op: Op, until: Until) -> Reply {
        let _permit = match self.in_flight.try_acquire() {
            Ok(permit) => permit,
            Err(_) => Box::pin(self.permit(until)).await?,
        };
        let is_alone = {
            let mut queue = locked(&self.queue);
            let is_alone = queue.calls == 0 && queue.waiting.is_empty();
            queue.calls += usize::from(is_alone);
            is_alone
        };
        if is_alone {
            let _under_way = UnderWay { lane: self.clone(), gathers: false };
            let link = self.connection.link(until).await?;
            // Apart, or each that gathers would carry it, too.
            let value = Box::pin(self.call_with_one(&link, &op, until)).await?;
            return Ok((value, link.number));
        }
        let (reply, answer) = oneshot::channel();
        locked(&self.queue).waiting.push_back(Waiting { op, until, reply });
        self.gather();
        let answer = self.connection.options.clock.bounded(until, answer).await;
        answer.and_then(Result::ok).unwrap_or_else(|| Err(EngineError::no_answer()))
    }

    async fn permit(&self, until: Until) -> Result<SemaphorePermit<'_>> {
        let overloaded = || {
            let why = format!("{} operations are under way already", self.max_in_flight);
            EngineError::new(Fault::Overloaded, why)
        };
        let permit = self.connection.options.clock.bounded(until, self.in_flight.acquire()).await;
        permit.and_then(Result::ok).ok_or_else(overloaded)
    }

    /// Runs operations of one caller together, in calls of their own. One reply per operation, and the link they came over.
    pub(super) async fn call(&self, ops: &[Op], until: Until) -> (Vec<Result<Value>>, u64) {
        let link = match self.connection.link(until).await {
            Ok(link) => link,
            Err(error) => return (vec![Err(error); ops.len()], 0),
        };
        let replies = match ops {
            [op] => vec![Box::pin(self.call_with_one(&link, op, until)).await],
            ops => self.call_with_many(&link, ops, until).await,
        };
        (replies, link.number)
    }

    /// Runs one operation at a node that is about to get its slot.
    pub(super) async fn run_asking(&self, op: &Op, until: Until) -> Reply {
        let link = self.connection.link(until).await?;
        let mut replies = self.call_once(&link, true, self.scripts.call_of(op), &[op], until).await?;
        Ok((replies.remove(0), link.number))
    }

    /// Claims locks of one server, all or none, in a call of their own.
    pub(super) async fn claim_all(&self, claims: &[(Keys, &Claim)], until: Until) -> Result<Value> {
        let link = self.connection.link(until).await?;
        let era = link.identity.as_deref().zip(self.connection.options.grace());
        let build = |by_hash| self.scripts.build_all(by_hash, claims, era);
        let value = link.run_script(false, build, until).await?;
        Ok(link.believed(script::replies(value, 1)?)?.remove(0))
    }

    /// Tries the ordinary case first: its script is a fraction of the other.
    async fn call_with_one(&self, link: &Link, op: &Op, until: Until) -> Result<Value> {
        if let Some([call, _]) = self.ordinary(link, op) {
            let reply = match call {
                Call::ReleaseNatively => Box::pin(link.release_natively(&[op], until)).await.remove(0),
                call => self.send(link, false, call, &[op], until).await,
            };
            match reply? {
                Value::Nil => self.not_ordinary(call, op)?,
                value => {
                    self.answered(call, op, &value);
                    return Ok(value);
                }
            }
        }
        let call = self.scripts.call_of(op);
        let reply = Box::pin(self.call_once(link, false, call, &[op], until)).await?.remove(0);
        self.answered(call, op, &reply);
        Ok(reply)
    }

    /// The same for several: those whose case is not the ordinary one follow together.
    async fn call_with_many(&self, link: &Link, ops: &[Op], until: Until) -> Vec<Result<Value>> {
        let ordinary = |op| self.ordinary(link, op).map(|[_, among_others]| among_others);
        let calls = ops.iter().map(|op| ordinary(op).unwrap_or_else(|| self.scripts.call_of(op)));
        let mut replies: Vec<_> = ops.iter().map(|_| Ok(Value::Nil)).collect();
        let mut others = Vec::new();
        for (call, at, reply) in self.call_by_group(link, ops, calls.enumerate().collect(), until).await {
            replies[at] = match reply {
                Ok(Value::Nil) if call.is_ordinary() => self.not_ordinary(call, &ops[at]).map(|()| {
                    others.push((at, self.scripts.call_of(&ops[at])));
                    Value::Nil
                }),
                Ok(value) => {
                    self.answered(call, &ops[at], &value);
                    Ok(value)
                }
                error => error,
            };
        }
        if !others.is_empty() {
            for (call, at, reply) in Box::pin(self.call_by_group(link, ops, others, until)).await {
                reply.iter().for_each(|reply| self.answered(call, &ops[at], reply));
                replies[at] = reply;
            }
        }
        replies
    }

    /// The calls that try an operation's ordinary case, or that of a release which hands over, as its name had lately.
    fn ordinary(&self, link: &Link, op: &Op) -> Option<[Call; 2]> {
        let calls = self.scripts.ordinary(op, link.number)?;
        match self.contended.by(op.keys.lock()) {
            Crowd::Nobody => {}
            Crowd::One if op.is_release() && !op.is_of_member() => return Some([Call::ReleaseWanted; 2]),
            Crowd::One | Crowd::Members => return None,
        }
        let natively = link.compares_and_deletes() && op.held_text().is_some();
        Some(if natively { [Call::ReleaseNatively; 2] } else { calls })
    }

    /// The server found another case, and did nothing; an error if the attempt has ended meanwhile.
    fn not_ordinary(&self, call: Call, op: &Op) -> Result<()> {
        let crowd = if call == Call::ReleaseWanted { Crowd::Members } else { Crowd::One };
        self.contended.note(op.keys.lock(), crowd);
        if op.leaves() { Ok(()) } else { Err(ended_error()) }
    }

    /// One call for each script, and in a cluster for each slot; the replies by position.
    async fn call_by_group(
        &self,
        link: &Link,
        ops: &[Op],
        calls: Vec<(usize, Call)>,
        until: Until,
    ) -> Vec<(Call, usize, Result<Value>)> {
        // In a stable order: operations of one name stay in theirs.
        let group = |(at, call)| (call, self.scripts.slot_of(&ops[at]), at);
        let mut order: Vec<_> = calls.into_iter().map(group).collect();
        order.sort_unstable();
        let share = |(call, slot, at): &(Call, u16, usize), (other, next_slot, next): &(Call, u16, usize)| {
            let one_by_one = *call == Call::ReleaseWanted || ops[*at].alone || ops[*next].alone;
            call == other && slot == next_slot && !one_by_one
        };
        let sent = order.chunk_by(share).map(async |places| {
            let some: Vec<_> = places.iter().map(|(.., at)| &ops[*at]).collect();
            match places[0].0 {
                Call::ReleaseNatively => return link.release_natively(&some, until).await,
                call @ Call::ReleaseWanted => return vec![self.send(link, false, call, &some, until).await],
                _ => {}
            }
            match self.call_once(link, false, places[0].0, &some, until).await {
                Ok(replies) => replies.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); places.len()],
            }
        });
        let replies = join_all(sent).await.into_iter().flatten();
        order.iter().zip(replies).map(|((call, _, at), reply)| (*call, *at, reply)).collect()
    }

    /// One call for operations that share it; one reply each.
    async fn call_once(
        &self,
        link: &Link,
        asking: bool,
        call: Call,
        ops: &[&Op],
        until: Until,
    ) -> Result<Vec<Value>> {
        if !asking && ops.iter().any(|op| op.watches().is_some()) {
            return link.believed(Box::pin(self.renew_and_watch(link, call, ops, until)).await?);
        }
        let value = self.send(link, asking, call, ops, until).await?;
        link.believed(script::replies(value, ops.len())?)
    }

    /// A release tells who waits: if nobody does, the next operations on its name are ordinary.
    fn answered(&self, call: Call, op: &Op, reply: &Value) {
        if !op.is_release() || call < Call::ReleaseWanted {
            return;
        }
        let crowd = match reply::items(reply) {
            [Value::Int(1)] => Crowd::Nobody,
            [Value::Int(2), _] => Crowd::One,
            [Value::Int(2), ..] => Crowd::Members,
            _ => return,
        };
        self.contended.note(op.keys.lock(), crowd);
    }

    async fn send(&self, link: &Link, asking: bool, call: Call, ops: &[&Op], until: Until) -> Result<Value> {
        let era = link.identity.as_deref().zip(self.connection.options.grace());
        let build = |by_hash| self.scripts.build(call, by_hash, ops, link.number, era);
        let sending = pin!(link.run_script(asking, build, until));
        send_noted(sending, || ops.iter().for_each(|op| op.left(link.number))).await
    }

    /// Sends what waits in one call, if a call is free. Those who are about to ask come along: the answers of one call
    /// wake many tasks, and most of them ask again at once.
    fn gather(self: &Arc<Self>) {
        let mut queue = locked(&self.queue);
        if queue.gathers || queue.calls == CALLS_AT_ONCE || queue.waiting.is_empty() {
            return;
        }
        queue.calls += 1;
        queue.gathers = true;
        drop(queue);
        // Before the task: a runtime that ends drops it without having run it.
        let mut under_way = UnderWay { lane: self.clone(), gathers: true };
        let task = async move {
            tokio::task::yield_now().await;
            let batch = under_way.take();
            // More may wait than one call carries.
            under_way.lane.gather();
            if !batch.is_empty() {
                under_way.lane.answer_all(batch).await;
            }
        };
        drop(self.connection.options.tasks.spawn(task));
    }

    async fn answer_all(&self, batch: Vec<Waiting>) {
        // The latest limit of all: each caller keeps its own besides.
        let until =
            batch.iter().map(|waiting| waiting.until).max().unwrap_or(self.connection.options.clock.now());
        let (ops, replies): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|Waiting { op, reply, .. }| (op, reply)).unzip();
        let (results, link) = self.call(&ops, until).await;
        for (reply, result) in replies.into_iter().zip(results) {
            let _ = reply.send(result.map(|value| (value, link)));
        }
    }
}

/// A call under way. Its end, also by a dropped future, lets those that wait go.
struct UnderWay {
    lane: Arc<Lane>,
    gathers: bool,
}

impl UnderWay {
    /// Ends gathering: what one call carries of what waits.
    fn take(&mut self) -> Vec<Waiting> {
        let mut queue = locked(&self.lane.queue);
        self.gathers = false;
        queue.gathers = false;
        // What nobody waits for any more has not left: nothing happened.
        let is_wanted = |next: &Waiting| !next.reply.is_closed() && !next.op.is_void();
        std::iter::from_fn(|| queue.waiting.pop_front()).filter(is_wanted).take(OPS_PER_CALL).collect()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut queue = locked(&self.lane.queue);
        queue.calls -= 1;
        if !self.gathers {
            drop(queue);
            return self.lane.gather();
        }
        queue.gathers = false;
        let unsent = std::mem::take(&mut queue.waiting);
        drop(queue);
        for Waiting { reply, .. } in unsent {
            let _ = reply.send(Err(unreachable("the runtime of this client ended before it was sent")));
        }
    }
}

#[cfg(test)]
mod tests;
