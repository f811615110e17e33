//! Many operations in few calls.
//!
//! A lone operation is sent at once, in its caller's own task. While a call is under way, operations gather and leave
//! together: the script's fixed cost is then shared, and the latency of a busy client falls. In a cluster a call carries
//! operations of one slot only; the calls of all slots leave together.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redis::Value;
use tokio::sync::{Semaphore, oneshot};

use super::{
    connection::{Connection, ConnectionOptions, Link},
    script::{self, Op, Script},
};
use crate::{
    clock::{Clock, Until},
    engine::{EngineError, Fault},
    error::Refusal,
};

/// Calls under way before operations wait for one to end.
const CALLS_AT_ONCE: usize = 4;
/// Operations in one call; bounds how long the server is busy with one.
const OPS_PER_CALL: usize = 32;

/// One connection and the operations that share it.
pub(super) struct Lane {
    pub(super) connection: Arc<Connection>,
    leases: Script,
    with_grace: bool,
    pub(super) inspect: Script,
    /// A node of a cluster: a call may only touch one slot.
    by_slot: bool,
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
        let with_grace = connection.target.grace().is_some();
        Arc::new(Self {
            clock: connection.clock.clone(),
            connection: Connection::new(connection),
            leases: Script::new(script::leases(by_slot, with_grace)),
            with_grace,
            inspect: Script::new(script::INSPECT),
            by_slot,
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
        let channel = self.connection.channel();
        let build = |script: &_, by_hash| script::call(script, by_hash, [op].into_iter(), channel, None);
        let value = link.run_script(true, &self.leases, build, until).await?;
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
        let replies = if self.by_slot && ops.len() > 1 {
            self.call_by_slot(&link, ops, until).await
        } else {
            self.call_once(&link, ops.iter(), until).await
        };
        (replies, link.number)
    }

    async fn call_once<'a, I>(&self, link: &Link, ops: I, until: Until) -> Vec<Result<Value, EngineError>>
    where
        I: ExactSizeIterator<Item = &'a Op> + Clone,
    {
        let expected = ops.len();
        let era = link.identity.as_deref().filter(|_| self.with_grace);
        let channel = self.connection.channel();
        let build = |script: &_, by_hash| script::call(script, by_hash, ops.clone(), channel, era);
        let value = link.run_script(false, &self.leases, build, until).await;
        let replies = value.and_then(|value| script::replies(value, expected));
        match replies.and_then(|replies| link.believed(replies)) {
            Ok(values) => values.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); expected],
        }
    }

    async fn call_by_slot(&self, link: &Link, ops: &[Op], until: Until) -> Vec<Result<Value, EngineError>> {
        // In a stable order: operations of one name stay in theirs.
        let mut order: Vec<(u16, usize)> = ops.iter().enumerate().map(|(at, op)| (op.slot(), at)).collect();
        order.sort_unstable();
        let calls = order
            .chunk_by(|one, other| one.0 == other.0)
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
