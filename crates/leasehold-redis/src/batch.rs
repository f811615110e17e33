//! Many operations in few calls.
//!
//! A lone operation is sent at once, in its caller's own task. While a call is under way, operations gather and leave
//! together: the script's fixed cost is then shared, and the latency of a busy client falls. In a cluster a call carries
//! operations of one slot only; the calls of all slots leave together.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use redis::Value;
use tokio::sync::{Semaphore, oneshot};

use super::{
    connection::{Connection, ConnectionOptions, Link},
    script::{self, Call, Contended, Op, Scripts},
};
use leasehold_core::{
    clock::{Clock, Until},
    engine::{
        EngineError, Fault,
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
    grace: Option<Duration>,
    clock: Clock,
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
pub(super) type Reply = Result<(Value, u64), EngineError>;

impl Lane {
    /// `by_slot` for a node of a cluster.
    pub(super) fn new(connection: ConnectionOptions, max_in_flight: usize, by_slot: bool) -> Arc<Self> {
        let grace = connection.target.grace();
        Arc::new(Self {
            clock: connection.clock.clone(),
            scripts: Scripts::of(by_slot, grace.is_some()),
            contended: Contended::default(),
            grace,
            connection: Connection::new(connection),
            queue: Mutex::default(),
            in_flight: Semaphore::new(max_in_flight),
            max_in_flight,
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one operation, alone or together with others.
    pub(super) async fn run(self: &Arc<Self>, op: Op, until: Until) -> Reply {
        let Some(Ok(_permit)) = self.clock.bounded(until, self.in_flight.acquire()).await else {
            let why = format!("{} operations are under way already", self.max_in_flight);
            return Err(EngineError::new(Fault::Overloaded, why));
        };
        let gathered = {
            let mut queue = self.queue();
            if queue.calls == 0 && queue.waiting.is_empty() {
                queue.calls = 1;
                Err(op)
            } else {
                let (reply, answer) = oneshot::channel();
                queue.waiting.push_back(Waiting { op, until, reply });
                Ok(answer)
            }
        };
        match gathered {
            Err(op) => {
                let _under_way = UnderWay { lane: self.clone(), gathers: false };
                let (mut replies, link) = self.call(&[op], until).await;
                replies.remove(0).map(|value| (value, link))
            }
            Ok(answer) => {
                self.gather();
                let answer = self.clock.bounded(until, answer).await;
                answer.and_then(Result::ok).unwrap_or_else(|| Err(EngineError::no_answer()))
            }
        }
    }

    /// Runs operations of one caller together, in calls of their own. One reply per operation, and the link they came over.
    pub(super) async fn call(&self, ops: &[Op], until: Until) -> (Vec<Result<Value, EngineError>>, u64) {
        let link = match self.connection.link(until).await {
            Ok(link) => link,
            Err(error) => return (vec![Err(error); ops.len()], 0),
        };
        let replies = match ops {
            [op] => vec![self.call_with_one(&link, op, until).await],
            ops => self.call_by_group(&link, ops, until).await,
        };
        (replies, link.number)
    }

    /// Runs one operation at a node that is about to get its slot.
    pub(super) async fn run_asking(&self, op: &Op, until: Until) -> Reply {
        let link = self.connection.link(until).await?;
        let mut replies = self.call_once(&link, true, [op].into_iter(), until).await?;
        Ok((replies.remove(0), link.number))
    }

    /// Tries the ordinary case first: its script is a fraction of the other.
    async fn call_with_one(&self, link: &Link, op: &Op, until: Until) -> Result<Value, EngineError> {
        let ordinary = self.scripts.ordinary(op, link.number).filter(|_| !self.contended.is(op));
        if let Some(call) = ordinary {
            match self.send(link, false, call, [op].into_iter(), until).await? {
                Value::Nil => self.contended.note(op, true),
                value => return Ok(value),
            }
            // The attempt may have ended meanwhile.
            if op.is_void() {
                return Err(ended_error());
            }
        }
        let reply = self.call_once(link, false, [op].into_iter(), until).await?.remove(0);
        if op.is_release() && reply == Value::Int(1) {
            self.contended.note(op, false);
        }
        Ok(reply)
    }

    /// One call for each script, and in a cluster for each slot.
    async fn call_by_group(&self, link: &Link, ops: &[Op], until: Until) -> Vec<Result<Value, EngineError>> {
        // In a stable order: operations of one name stay in theirs.
        let group = |(at, op)| (self.scripts.group(op), at);
        let mut order: Vec<_> = ops.iter().enumerate().map(group).collect();
        order.sort_unstable();
        let share = |(one, at): &(_, usize), (other, next): &(_, usize)| {
            one == other && !ops[*at].alone && !ops[*next].alone
        };
        let calls = order.chunk_by(share).map(async |places| {
            match self.call_once(link, false, places.iter().map(|(_, at)| &ops[*at]), until).await {
                Ok(replies) => replies.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); places.len()],
            }
        });
        let replies = join_all(calls).await.into_iter().flatten();
        let mut sorted: Vec<_> = order.iter().map(|(_, at)| *at).zip(replies).collect();
        sorted.sort_unstable_by_key(|(at, _)| *at);
        sorted.into_iter().map(|(_, reply)| reply).collect()
    }

    /// One call for operations of one group; one reply each.
    async fn call_once<'a>(
        &self,
        link: &Link,
        asking: bool,
        ops: impl ExactSizeIterator<Item = &'a Op> + Clone,
        until: Until,
    ) -> Result<Vec<Value>, EngineError> {
        let expected = ops.len();
        let call = ops.clone().next().map_or(Call::Locks, |op| self.scripts.group(op).0);
        let value = self.send(link, asking, call, ops, until).await?;
        link.believed(script::replies(value, expected)?)
    }

    async fn send<'a>(
        &self,
        link: &Link,
        asking: bool,
        call: Call,
        ops: impl ExactSizeIterator<Item = &'a Op> + Clone,
        until: Until,
    ) -> Result<Value, EngineError> {
        let era = link.identity.as_deref().zip(self.grace);
        let build = |by_hash| self.scripts.build(call, by_hash, ops.clone(), link.number, era);
        let sending = link.run_script(asking, build, until);
        send_noted(sending, || ops.clone().for_each(|op| op.left(link.number))).await
    }

    /// Sends what waits in one call, if a call is free. Those who are about to ask come along: the answers of one call
    /// wake many tasks, and most of them ask again at once.
    fn gather(self: &Arc<Self>) {
        {
            let mut queue = self.queue();
            if queue.gathers || queue.calls == CALLS_AT_ONCE || queue.waiting.is_empty() {
                return;
            }
            queue.calls += 1;
            queue.gathers = true;
        }
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
        drop(self.connection.tasks().spawn(task));
    }

    async fn answer_all(&self, batch: Vec<Waiting>) {
        // The latest limit of all: each caller keeps its own besides.
        let until = batch.iter().map(|waiting| waiting.until).max().unwrap_or(self.clock.now());
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
        let mut queue = self.lane.queue();
        self.gathers = false;
        queue.gathers = false;
        let mut batch = Vec::with_capacity(queue.waiting.len().min(OPS_PER_CALL));
        while batch.len() < OPS_PER_CALL
            && let Some(next) = queue.waiting.pop_front()
        {
            // Nobody waits for it any more, and it has not left: nothing happened.
            if !next.reply.is_closed() && !next.op.is_void() {
                batch.push(next);
            }
        }
        batch
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let unsent = {
            let mut queue = self.lane.queue();
            queue.calls -= 1;
            queue.gathers &= !self.gathers;
            if self.gathers { std::mem::take(&mut queue.waiting) } else { VecDeque::new() }
        };
        for Waiting { reply, .. } in unsent {
            let why = "the runtime of this client ended before it was sent";
            let _ = reply.send(Err(EngineError::new(Fault::Unreachable, why)));
        }
        if !self.gathers {
            self.lane.gather();
        }
    }
}
