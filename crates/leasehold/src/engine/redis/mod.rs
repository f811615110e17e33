//! `redis://`, `redis-sentinel://` and their TLS forms — leases between hosts, on one Redis (7.0 or later) or Valkey, or
//! on whichever server of a set is the primary ([`sentinel`]).
//!
//! A claim, a release or a renewal is one script on the server ([`script`]); many of them share a call when the client
//! is busy ([`batch`]). The next holder learns of a release in one hop, by a message on its connection ([`wake`]).

mod answer;
mod batch;
mod health;
mod keys;
mod look;
mod node;
mod place;
mod script;
mod sentinel;
mod url;
mod wake;

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    clock::{Clock, Until},
    engine::{
        Answer, Capabilities, Claim, Cursor, Engine, EngineError, Fault, Fut, Grant, Handover, Health, Hold,
        Inspection, Leases, Page, Reach, Released, Renewed, WakeSink, connect::EngineOptions,
    },
    error::Result,
    fence::Fence,
    name::{NAME_MAX_BYTES, Name},
    owner::Owner,
};
use answer::Claimed;
use batch::Lane;
pub use health::WARNING_CODES;
use keys::Keys;
use node::{Listener, Node, NodeOptions};
use place::Place;
use script::Op;
use wake::Attempts;

/// Renewals in one call; bounds how long the server is busy with one.
const RENEWALS_PER_CALL: usize = 128;

/// The engine behind `redis://` and `redis-sentinel://`.
pub struct Redis {
    prefix: String,
    clock: Clock,
    lanes: Vec<Arc<Lane>>,
    attempts: Arc<Attempts>,
    /// Told once that the server refuses wake-ups.
    polling_only: AtomicBool,
    capabilities: Capabilities,
}

impl Redis {
    /// Prepares the engine; nothing is dialled.
    pub(crate) fn open(url: &str, options: &EngineOptions) -> Result<Self> {
        let place = Place::open(url, options)?;
        let attempts = Arc::<Attempts>::default();
        let mut random = [0; 8];
        getrandom::fill(&mut random).expect("the operating system gives random numbers");
        let process = u64::from_le_bytes(random);
        let label: String =
            options.client_name.chars().map(|c| if c.is_ascii_graphic() { c } else { '-' }).collect();
        let client_name =
            if label.is_empty() { "leasehold".to_owned() } else { format!("leasehold:{label}") };
        let lane = |number: usize| {
            let channel = format!("leasehold:wake:{process:016x}:{number}");
            let node = Node::new(NodeOptions {
                place: place.clone(),
                client_name: client_name.clone(),
                channel,
                clock: options.clock.clone(),
                command_timeout: options.command_timeout,
                identify: place.grace().is_some(),
            });
            let listener: Arc<dyn Listener> = attempts.clone();
            node.listen(Arc::downgrade(&listener));
            place.tell(&node);
            Lane::new(node, options.clock.clone(), options.max_in_flight)
        };
        Ok(Self {
            lanes: (0..options.connections).map(lane).collect(),
            capabilities: Capabilities::new(
                place.engine(),
                Reach::Network,
                Handover::Push,
                true,
                NAME_MAX_BYTES - options.prefix.len(),
            ),
            prefix: options.prefix.clone(),
            clock: options.clock.clone(),
            attempts,
            polling_only: AtomicBool::new(false),
        })
    }

    fn keys(&self, name: &Name) -> Keys {
        Keys::new(&self.prefix, name)
    }

    /// All operations of a name take the same connection: what is sent later arrives later.
    fn lane(&self, name: &Name) -> &Arc<Lane> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        &self.lanes[hash as usize % self.lanes.len()]
    }

    async fn claim(&self, claim: &Claim, until: Until) -> Result<Answer, EngineError> {
        let owner = &claim.owner;
        if owner.has_ended() {
            return Err(EngineError::new(Fault::Ended, "this attempt has ended"));
        }
        if let Some(why) = self.keys(&claim.name).clash() {
            return Err(EngineError::new(Fault::Unsupported, why));
        }
        let lane = self.lane(&claim.name);
        let arrival = match claim.queue_for {
            // Nobody queues before the server confirmed that wake-ups reach us, or refused them.
            Some(_) => {
                let connection = lane.node.connection(until).await?;
                match lane.node.subscribe(&connection, until).await {
                    Ok(()) => {}
                    // Without wake-ups it waits by asking: slower, and never wrong.
                    Err(error) if matches!(error.fault, Fault::Refused(_)) => self.warn_of_polling(&error),
                    Err(error) => return Err(not_sent(error)),
                }
                self.attempts.enter(claim)
            }
            None => None,
        };
        loop {
            match self.claim_once(claim, arrival.clone(), until).await {
                Ok(None) => {}
                Ok(Some(answer)) => return Ok(answer),
                Err(error) => {
                    // Nobody owes an end to a claim that had no effect.
                    if error.fault != Fault::NoAnswer {
                        self.attempts.leave_unless_queued(owner.id());
                    }
                    return Err(error);
                }
            }
        }
    }

    fn warn_of_polling(&self, error: &EngineError) {
        if !self.polling_only.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "the server refuses wake-ups: waiting by polls alone");
        }
    }

    /// Sends a claim; `None` if dead waiters were removed and those behind them come next.
    async fn claim_once(
        &self,
        claim: &Claim,
        arrival: Option<String>,
        until: Until,
    ) -> Result<Option<Answer>, EngineError> {
        let (owner, lane) = (&claim.owner, self.lane(&claim.name));
        let op = Op::claim(self.keys(&claim.name), claim, arrival);
        let asked_at = self.clock.now();
        owner.claim_sent();
        // Counted first: an end that comes later knows of this claim, one that came before is seen here.
        if owner.has_ended() {
            owner.claim_answered();
            return Err(EngineError::new(Fault::Ended, "this attempt has ended"));
        }
        let reply = lane.run(op, until).await;
        if !matches!(&reply, Err(error) if error.fault == Fault::NoAnswer) {
            owner.claim_answered();
        }
        let (value, connection) = reply?;
        Ok(Some(match answer::claimed(value)? {
            Claimed::Granted(fence) => {
                if claim.queue_for.is_some() {
                    self.attempts.leave(owner.id());
                }
                Answer::Granted(Grant { fence, since: asked_at, ttl: claim.ttl, acks: 0 })
            }
            Claimed::Queued { ahead, expires_in, last, arrival, holder } => {
                self.attempts.queued(owner.id(), arrival, last, asked_at, connection);
                Answer::Queued { ahead, holder, expires_in }
            }
            Claimed::Busy { expires_in, holder } => Answer::Busy { holder, expires_in },
            Claimed::MoreWait => return Ok(None),
        }))
    }

    /// Ends an attempt; nothing of it is believed from here on.
    async fn end(
        &self,
        name: &Name,
        owner: &Owner,
        claim: Option<&Claim>,
        until: Until,
    ) -> Result<Released, EngineError> {
        owner.end();
        self.attempts.leave(owner.id());
        let mut freed = false;
        loop {
            let op = Op::release(self.keys(name), owner, claim);
            let (value, _) = self.lane(name).run(op, until).await?;
            match answer::released(value)? {
                // Dead waiters were removed and the lock is free; the next round serves those behind them.
                None => freed = true,
                Some(Released::Expired) if freed => return Ok(Released::Free),
                Some(Released::Taken { by }) if freed => return Ok(Released::HandedOver { next: by }),
                Some(outcome) => return Ok(outcome),
            }
        }
    }

    async fn renew(&self, holds: &[Hold], until: Until) -> Vec<Result<Renewed, EngineError>> {
        // A hand-over was believed: it waits no longer.
        holds.iter().for_each(|hold| self.attempts.leave(hold.owner.id()));
        let mut answers: Vec<Option<Result<Renewed, EngineError>>> = holds.iter().map(|_| None).collect();
        let mut calls = Vec::new();
        for lane in &self.lanes {
            let places: Vec<usize> =
                (0..holds.len()).filter(|at| Arc::ptr_eq(self.lane(&holds[*at].name), lane)).collect();
            for some in places.chunks(RENEWALS_PER_CALL) {
                calls.push(self.renew_some(lane, holds, some.to_vec(), until));
            }
        }
        for (places, results) in futures_util::future::join_all(calls).await {
            for (place, result) in places.into_iter().zip(results) {
                answers[place] = Some(result);
            }
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(EngineError::no_answer()))).collect()
    }

    async fn renew_some(
        &self,
        lane: &Arc<Lane>,
        holds: &[Hold],
        places: Vec<usize>,
        until: Until,
    ) -> (Vec<usize>, Vec<Result<Renewed, EngineError>>) {
        let ops: Vec<_> =
            places.iter().map(|at| Op::renew(self.keys(&holds[*at].name), &holds[*at])).collect();
        let since = self.clock.now();
        let results = match lane.run_together(&ops, until).await {
            Ok(values) => values.into_iter().map(|value| answer::renewed(value, since)).collect(),
            Err(error) => vec![Err(error); places.len()],
        };
        (places, results)
    }
}

/// A claim that could not even be prepared has had no effect, whatever became of the preparation.
fn not_sent(error: EngineError) -> EngineError {
    match error.fault {
        Fault::NoAnswer => EngineError { fault: Fault::Unreachable, ..error },
        _ => error,
    }
}

impl Engine for Redis {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn leases(&self) -> &dyn Leases {
        self
    }

    fn dial(&self, until: Until) -> Fut<'_, ()> {
        Box::pin(async move { self.lanes[0].node.connection(until).await.map(drop) })
    }

    fn health(&self, until: Until) -> Fut<'_, Health> {
        Box::pin(self.look_at_health(until))
    }

    fn close(&self, _: Until) -> Fut<'_, ()> {
        self.lanes.iter().for_each(|lane| {
            lane.node.close();
            lane.node.place().close();
        });
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Leases for Redis {
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        Box::pin(self.claim(claim, until))
    }

    fn wake_into(&self, sink: Weak<dyn WakeSink>) {
        self.attempts.wake_into(sink);
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        Box::pin(async move { Ok(self.renew(holds, until).await) })
    }

    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        Box::pin(self.end(&hold.name, &hold.owner, None, until))
    }

    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()> {
        Box::pin(async move { self.end(&claim.name, &claim.owner, Some(claim), until).await.map(drop) })
    }

    fn inspect<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Inspection> {
        Box::pin(self.inspect_one(name, until))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Inspection>> {
        Box::pin(self.scan_page(prefix, from, limit, until))
    }

    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, until: Until) -> Fut<'a, Released> {
        Box::pin(async move {
            let (value, _) = self.lane(name).run(Op::force_release(self.keys(name), seen), until).await?;
            // Those behind a hundred dead waiters find the lock free at their next poll.
            Ok(answer::released(value)?.unwrap_or(Released::Free))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::owner::Holder;

    fn claim(random: u128, name: &str) -> Claim {
        Claim {
            name: Name::new(name).unwrap(),
            owner: Owner::new(random, &Holder::this_process("", 1)),
            ttl: Duration::from_secs(30),
            lock_delay: Duration::ZERO,
            queue_for: Some(Duration::from_secs(30)),
            poll_every: Duration::from_secs(5),
            acks: crate::engine::Acks::None,
        }
    }

    #[tokio::test]
    async fn nothing_is_remembered_of_attempts_that_failed_or_got_their_lock() {
        let Some(server) = leasehold_testkit::redis_or_skip() else { return };
        let options = EngineOptions {
            clock: Clock::system(),
            command_timeout: Duration::from_secs(5),
            prefix: "lock:".into(),
            connections: 1,
            max_in_flight: 100,
            client_name: String::new(),
            max_ttl: Duration::from_secs(300),
        };
        let engine = Redis::open(&server.url(), &options).unwrap();
        let until = || Clock::system().now() + Duration::from_secs(5);

        server.cli(&["HSET", "lock:foreign", "a", "b"]);
        let error = engine.claim(&claim(1, "foreign"), until()).await.unwrap_err();
        assert_eq!(error.fault, Fault::WrongKind);
        assert_eq!(engine.attempts.count(), 0);

        let (first, second) = (claim(2, "x"), claim(3, "x"));
        assert!(matches!(engine.claim(&first, until()).await, Ok(Answer::Granted(_))));
        assert!(matches!(engine.claim(&second, until()).await, Ok(Answer::Queued { .. })));
        assert_eq!(engine.attempts.count(), 1);
        Leases::release(&engine, &first.hold(Fence::new(0)), until()).await.unwrap();
        // Its client believes the message, and makes the lease's start exact.
        assert!(matches!(
            engine.renew(&[second.hold(Fence::new(0))], until()).await[..],
            [Ok(Renewed::Kept { .. })]
        ));
        assert_eq!(engine.attempts.count(), 0);
    }
}
