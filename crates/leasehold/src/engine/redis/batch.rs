//! Many operations in few calls.
//!
//! A lone operation is sent at once, in its caller's own task. When enough calls are under way, operations wait and
//! leave together with the next call: the script's fixed cost is then shared, and the latency of a busy client falls.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redis::Value;
use tokio::sync::{Semaphore, oneshot};

use super::{
    node::Node,
    script::{self, Op, Script},
};
use crate::{
    clock::{Clock, Until},
    engine::{EngineError, Fault},
    error::Refusal,
};

/// Calls under way before operations begin to wait for each other.
const CALLS_AT_ONCE: usize = 4;
/// Operations in one call; bounds how long the server is busy with one.
const OPS_PER_CALL: usize = 16;

/// One connection and the operations that share it.
pub(super) struct Lane {
    pub(super) node: Arc<Node>,
    leases: Script,
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
        Arc::new(Self {
            node,
            leases: Script::new(script::LEASES),
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
            if queue.calls < CALLS_AT_ONCE && queue.waiting.is_empty() {
                queue.calls += 1;
                Err(op)
            } else {
                let (reply, answer) = oneshot::channel();
                queue.waiting.push_back(Waiting { op, until, reply });
                Ok(answer)
            }
        };
        if waiting.is_ok() {
            // Every call that ends sends what waits; this covers one that could not.
            self.flush();
        }
        match waiting {
            Err(op) => {
                let _call = Call(self);
                let (replies, number) = self.call(&[op], until).await?;
                only(replies).map(|value| (value, number))
            }
            Ok(answer) => match self.clock.bounded(until, answer).await {
                Some(Ok(reply)) => reply,
                _ => Err(EngineError::no_answer()),
            },
        }
    }

    /// Runs operations of one caller in one call of their own.
    pub(super) async fn run_together(
        self: &Arc<Self>,
        ops: &[Op],
        until: Until,
    ) -> Result<Vec<Value>, EngineError> {
        self.call(ops, until).await.map(|(replies, _)| replies)
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

    async fn call(&self, ops: &[Op], until: Until) -> Result<(Vec<Value>, u64), EngineError> {
        let connection = self.node.connection(until).await?;
        let build = |script: &_, by_hash| script::call(script, by_hash, ops, self.node.channel());
        let value = self.node.run_script(&connection, &self.leases, build, until).await?;
        Ok((script::replies(value, ops.len())?, connection.number))
    }

    /// Sends what waits, if a call is free.
    fn flush(self: &Arc<Self>) {
        let batch = {
            let mut queue = self.queue();
            let mut batch = Vec::new();
            while batch.len() < OPS_PER_CALL
                && queue.calls < CALLS_AT_ONCE
                && let Some(next) = queue.waiting.pop_front()
            {
                // Nobody waits for it any more, and it has not left: nothing happened.
                if !next.reply.is_closed() && !next.op.is_void() {
                    batch.push(next);
                }
            }
            if batch.is_empty() {
                return;
            }
            queue.calls += 1;
            batch
        };
        let lane = self.clone();
        tokio::spawn(async move {
            let _call = Call(&lane);
            lane.answer_all(batch).await;
        });
    }

    async fn answer_all(&self, batch: Vec<Waiting>) {
        // The latest limit of all: each caller keeps its own besides.
        let until = batch.iter().map(|waiting| waiting.until).max().unwrap_or(self.clock.now());
        let (ops, replies): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|Waiting { op, reply, .. }| (op, reply)).unzip();
        match self.call(&ops, until).await {
            Ok((values, number)) => {
                for (reply, value) in replies.into_iter().zip(values) {
                    let _ = reply.send(Ok((value, number)));
                }
            }
            Err(error) => {
                for reply in replies {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }
}

fn only(mut replies: Vec<Value>) -> Result<Value, EngineError> {
    replies.pop().ok_or_else(|| EngineError::new(Fault::Refused(Refusal::Other), "an empty answer"))
}

/// A call under way. Its end, also by a dropped future, lets those that wait go.
struct Call<'a>(&'a Arc<Lane>);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let more = {
            let mut queue = self.0.queue();
            queue.calls -= 1;
            !queue.waiting.is_empty()
        };
        // Without a runtime nobody can wait for an answer either.
        if more && tokio::runtime::Handle::try_current().is_ok() {
            self.0.flush();
        }
    }
}
