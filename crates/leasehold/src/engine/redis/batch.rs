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

use redis::Value;
use tokio::sync::{Semaphore, oneshot};

use super::{
    connection::{Connection, ConnectionOptions, Link},
    script::{self, Contended, Op, Scripts},
};
use crate::{
    clock::{Clock, Until},
    engine::{EngineError, Fault, registry::ended_error},
    error::Refusal,
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
    reply: oneshot::Sender<Gathered>,
}

/// What became of an operation that gathered.
enum Gathered {
    Reply(Reply),
    /// It never left, because the runtime that gathered has ended.
    Unsent(Box<Op>),
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
    pub(super) async fn run(self: &Arc<Self>, mut op: Op, until: Until) -> Reply {
        let _permit = match self.in_flight.try_acquire() {
            Ok(permit) => permit,
            Err(_) => self.permit(until).await?,
        };
        loop {
            let waiting = {
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
            let answer = match waiting {
                Ok(answer) => answer,
                Err(op) => {
                    let _call = Call { lane: self.clone(), gathers: false };
                    let (replies, number) = self.call(&[op], until).await;
                    return only(replies).map(|value| (value, number));
                }
            };
            self.gather();
            match self.clock.bounded(until, answer).await {
                Some(Ok(Gathered::Reply(reply))) => return reply,
                Some(Ok(Gathered::Unsent(unsent))) => op = *unsent,
                _ => return Err(EngineError::no_answer()),
            }
        }
    }

    /// Runs operations of one caller together, in a call of their own.
    pub(super) async fn run_together(&self, ops: &[Op], until: Until) -> Vec<Result<Value, EngineError>> {
        self.call(ops, until).await.0
    }

    /// Runs one operation at a node that is about to get its slot.
    pub(super) async fn run_asking(&self, op: &Op, until: Until) -> Reply {
        let link = self.connection.link(until).await?;
        let (call, _) = self.scripts.group(op);
        let channel = self.connection.channel();
        let build = |_: &_, by_hash| self.scripts.build(call, by_hash, [op].into_iter(), channel, None);
        let value = link.run_script(true, self.scripts.script(call), build, until).await?;
        let replies = script::replies(value, 1)?.into_iter().map(Ok).collect();
        only(replies).map(|value| (value, link.number))
    }

    async fn permit(&self, until: Until) -> Result<tokio::sync::SemaphorePermit<'_>, EngineError> {
        match self.clock.bounded(until, self.in_flight.acquire()).await {
            Some(Ok(permit)) => Ok(permit),
            _ => {
                let why = format!("{} operations are under way already", self.max_in_flight);
                Err(EngineError::new(Fault::Overloaded, why))
            }
        }
    }

    /// One reply per operation, and the link they came over.
    async fn call(&self, ops: &[Op], until: Until) -> (Vec<Result<Value, EngineError>>, u64) {
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

    /// Tries the ordinary case first: its script is a fraction of the other.
    async fn call_with_one(&self, link: &Link, op: &Op, until: Until) -> Result<Value, EngineError> {
        if let Some(call) = self.scripts.ordinary(op).filter(|_| !self.contended.is(op)) {
            let script = self.scripts.script(call);
            let build = |_: &_, by_hash| self.scripts.build(call, by_hash, [op].into_iter(), "", None);
            match link.run_script(false, script, build, until).await? {
                Value::Nil => self.contended.note(op, true),
                value => return Ok(value),
            }
            // The attempt may have ended meanwhile.
            if op.is_void() {
                return Err(ended_error());
            }
        }
        let value = only(self.call_once(link, [op].into_iter(), until).await);
        if op.is_release() && matches!(value, Ok(Value::Int(1))) {
            self.contended.note(op, false);
        }
        value
    }

    async fn call_once<'a, I>(&self, link: &Link, ops: I, until: Until) -> Vec<Result<Value, EngineError>>
    where
        I: ExactSizeIterator<Item = &'a Op> + Clone,
    {
        let expected = ops.len();
        let Some(first) = ops.clone().next() else { return Vec::new() };
        let (call, _) = self.scripts.group(first);
        let era = link.identity.as_deref().zip(self.grace);
        let channel = self.connection.channel();
        let build = |_: &_, by_hash| self.scripts.build(call, by_hash, ops.clone(), channel, era);
        let value = link.run_script(false, self.scripts.script(call), build, until).await;
        let replies = value.and_then(|value| script::replies(value, expected));
        match replies.and_then(|replies| link.believed(replies)) {
            Ok(values) => values.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); expected],
        }
    }

    /// One call for each script, and in a cluster for each slot.
    async fn call_by_group(&self, link: &Link, ops: &[Op], until: Until) -> Vec<Result<Value, EngineError>> {
        // In a stable order: operations of one name stay in theirs.
        let group = |(at, op)| (self.scripts.group(op), at);
        let mut order: Vec<_> = ops.iter().enumerate().map(group).collect();
        order.sort_unstable();
        let calls = order
            .chunk_by(|(one, at), (other, next)| {
                one == other && !ops[*at].is_alone() && !ops[*next].is_alone()
            })
            .map(|places| self.call_once(link, places.iter().map(|(_, at)| &ops[*at]), until));
        let replies = futures_util::future::join_all(calls).await.into_iter().flatten();
        let mut sorted: Vec<_> = order.iter().map(|(_, at)| *at).zip(replies).collect();
        sorted.sort_unstable_by_key(|(at, _)| *at);
        sorted.into_iter().map(|(_, reply)| reply).collect()
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
        let mut call = Call { lane: self.clone(), gathers: true };
        let task = async move {
            tokio::task::yield_now().await;
            let batch = call.take();
            // More may wait than one call carries.
            call.lane.gather();
            if !batch.is_empty() {
                call.lane.answer_all(batch).await;
            }
        };
        drop(self.connection.tasks().spawn(task));
    }

    async fn answer_all(&self, batch: Vec<Waiting>) {
        // The latest limit of all: each caller keeps its own besides.
        let until = batch.iter().map(|waiting| waiting.until).max().unwrap_or(self.clock.now());
        let (ops, replies): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|Waiting { op, reply, .. }| (op, reply)).unzip();
        let (results, number) = self.call(&ops, until).await;
        for (reply, result) in replies.into_iter().zip(results) {
            let _ = reply.send(Gathered::Reply(result.map(|value| (value, number))));
        }
    }
}

fn only(mut replies: Vec<Result<Value, EngineError>>) -> Result<Value, EngineError> {
    replies.pop().unwrap_or_else(|| Err(EngineError::new(Fault::Refused(Refusal::Other), "an empty answer")))
}

/// A call under way. Its end, also by a dropped future, lets those that wait go.
struct Call {
    lane: Arc<Lane>,
    gathers: bool,
}

impl Call {
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

impl Drop for Call {
    fn drop(&mut self) {
        let unsent = {
            let mut queue = self.lane.queue();
            queue.calls -= 1;
            queue.gathers &= !self.gathers;
            if self.gathers { std::mem::take(&mut queue.waiting) } else { VecDeque::new() }
        };
        // It ended while it gathered, because its runtime did: each caller goes on by itself, on its own.
        for Waiting { op, reply, .. } in unsent {
            let _ = reply.send(Gathered::Unsent(Box::new(op)));
        }
        if !self.gathers {
            self.lane.gather();
        }
    }
}
