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
    node::{Connection, Node},
    script::{self, Contended, Op, Script, Scripts},
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
    pub(super) node: Arc<Node>,
    scripts: &'static Scripts,
    contended: Contended,
    pub(super) inspect: Script,
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

/// An operation's reply, and the connection it came over.
pub(super) type Reply = Result<(Value, u64), EngineError>;

impl Lane {
    pub(super) fn new(node: Arc<Node>, clock: Clock, max_in_flight: usize) -> Arc<Self> {
        Self::open(node, clock, max_in_flight, false)
    }

    /// The same for a node of a cluster.
    pub(super) fn by_slot(node: Arc<Node>, clock: Clock, max_in_flight: usize) -> Arc<Self> {
        Self::open(node, clock, max_in_flight, true)
    }

    fn open(node: Arc<Node>, clock: Clock, max_in_flight: usize, by_slot: bool) -> Arc<Self> {
        let with_grace = node.place().grace().is_some();
        Arc::new(Self {
            node,
            scripts: Scripts::of(by_slot, with_grace),
            contended: Contended::default(),
            inspect: Script::new(script::INSPECT),
            clock,
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
        let _permit = match self.in_flight.try_acquire() {
            Ok(permit) => permit,
            Err(_) => self.permit(until).await?,
        };
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
        if waiting.is_ok() {
            self.gather();
        }
        match waiting {
            Err(op) => {
                let _call = Call { lane: self, gathers: false };
                let (replies, number) = self.call(&[op], until).await;
                only(replies).map(|value| (value, number))
            }
            Ok(answer) => match self.clock.bounded(until, answer).await {
                Some(Ok(reply)) => reply,
                _ => Err(EngineError::no_answer()),
            },
        }
    }

    /// Runs operations of one caller together, in a call of their own.
    pub(super) async fn run_together(&self, ops: &[Op], until: Until) -> Vec<Result<Value, EngineError>> {
        self.call(ops, until).await.0
    }

    /// Runs one operation at a node that is about to get its slot.
    pub(super) async fn run_asking(&self, op: &Op, until: Until) -> Reply {
        let connection = self.node.connection(until).await?;
        let (call, _) = self.scripts.group(op);
        let build =
            |_: &_, by_hash| self.scripts.build(call, by_hash, [op].into_iter(), self.node.channel(), None);
        let script = self.scripts.script(call);
        let value = self.node.run_script_asking(&connection, script, build, until).await?;
        let replies = script::replies(value, 1)?.into_iter().map(Ok).collect();
        only(replies).map(|value| (value, connection.number))
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

    /// One reply per operation, and the connection they came over.
    async fn call(&self, ops: &[Op], until: Until) -> (Vec<Result<Value, EngineError>>, u64) {
        let connection = match self.node.connection(until).await {
            Ok(connection) => connection,
            Err(error) => return (vec![Err(error); ops.len()], 0),
        };
        let replies = match ops {
            [op] => vec![self.call_with_one(&connection, op, until).await],
            ops => self.call_by_group(&connection, ops, until).await,
        };
        (replies, connection.number)
    }

    /// Tries the ordinary case first: its script is a fraction of the other.
    async fn call_with_one(
        &self,
        connection: &Connection,
        op: &Op,
        until: Until,
    ) -> Result<Value, EngineError> {
        if let Some(call) = self.scripts.ordinary(op).filter(|_| !self.contended.is(op)) {
            let script = self.scripts.script(call);
            let build = |_: &_, by_hash| self.scripts.build(call, by_hash, [op].into_iter(), "", None);
            match self.node.run_script(connection, script, build, until).await? {
                Value::Nil => self.contended.note(op, true),
                value => return Ok(value),
            }
            // The attempt may have ended meanwhile.
            if op.is_void() {
                return Err(EngineError::new(Fault::Ended, "this attempt has ended"));
            }
        }
        let value = only(self.call_once(connection, [op].into_iter(), until).await);
        if op.is_release() && matches!(value, Ok(Value::Int(1))) {
            self.contended.note(op, false);
        }
        value
    }

    async fn call_once<'a, I>(
        &self,
        connection: &Connection,
        ops: I,
        until: Until,
    ) -> Vec<Result<Value, EngineError>>
    where
        I: ExactSizeIterator<Item = &'a Op> + Clone,
    {
        let expected = ops.len();
        let Some(first) = ops.clone().next() else { return Vec::new() };
        let (call, _) = self.scripts.group(first);
        let era = connection.identity.as_deref().zip(self.node.place().grace());
        let build = |_: &_, by_hash| self.scripts.build(call, by_hash, ops.clone(), self.node.channel(), era);
        let value = self.node.run_script(connection, self.scripts.script(call), build, until).await;
        let replies = value.and_then(|value| script::replies(value, expected));
        match replies.and_then(|replies| self.node.believed(connection, replies)) {
            Ok(values) => values.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); expected],
        }
    }

    /// One call for each script, and in a cluster for each slot.
    async fn call_by_group(
        &self,
        connection: &Connection,
        ops: &[Op],
        until: Until,
    ) -> Vec<Result<Value, EngineError>> {
        // In a stable order: operations of one name stay in theirs.
        let group = |(at, op)| (self.scripts.group(op), at);
        let mut order: Vec<_> = ops.iter().enumerate().map(group).collect();
        order.sort_unstable();
        let calls = order
            .chunk_by(|(one, at), (other, next)| {
                one == other && !ops[*at].is_alone() && !ops[*next].is_alone()
            })
            .map(|places| self.call_once(connection, places.iter().map(|(_, at)| &ops[*at]), until));
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
        let lane = self.clone();
        tokio::spawn(async move {
            let mut call = Call { lane: &lane, gathers: true };
            tokio::task::yield_now().await;
            let batch = call.take();
            // More may wait than one call carries.
            lane.gather();
            if !batch.is_empty() {
                lane.answer_all(batch).await;
            }
        });
    }

    async fn answer_all(&self, batch: Vec<Waiting>) {
        // The latest limit of all: each caller keeps its own besides.
        let until = batch.iter().map(|waiting| waiting.until).max().unwrap_or(self.clock.now());
        let (ops, replies): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|Waiting { op, reply, .. }| (op, reply)).unzip();
        let (results, number) = self.call(&ops, until).await;
        for (reply, result) in replies.into_iter().zip(results) {
            let _ = reply.send(result.map(|value| (value, number)));
        }
    }
}

fn only(mut replies: Vec<Result<Value, EngineError>>) -> Result<Value, EngineError> {
    replies.pop().unwrap_or_else(|| Err(EngineError::new(Fault::Refused(Refusal::Other), "an empty answer")))
}

/// A call under way. Its end, also by a dropped future, lets those that wait go.
struct Call<'a> {
    lane: &'a Arc<Lane>,
    gathers: bool,
}

impl Call<'_> {
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

impl Drop for Call<'_> {
    fn drop(&mut self) {
        {
            let mut queue = self.lane.queue();
            queue.calls -= 1;
            queue.gathers &= !self.gathers;
        }
        // Without a runtime nobody can wait for an answer either.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.lane.gather();
        }
    }
}
