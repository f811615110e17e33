//! One Redis as a voter of a quorum.
//!
//! Each node is asked on its own, over one connection, by scripts of its own ([`call`]). It votes only in the seat that
//! its record gives it, in the run of the server for which that was written: what a restarted, wiped or rolled back
//! server has forgotten cannot be voted on twice.

mod address;
mod call;
mod hints;
#[cfg(test)]
mod tests;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use redis::{Cmd, Value};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::unconstrained,
};

use super::{
    channel,
    claim::not_sent,
    client_name, health, inspect,
    keys::Keys,
    node::{Connection, Listener, Node, NodeOptions},
    place::Place,
    random_process,
    script::Script,
};
use crate::{
    clock::{Clock, Until},
    engine::{
        ClockOffset, Cursor, EngineError, Fault, Fut, Health, Hold, Page, WAITERS_SHOWN, WakeSink, Warning,
        connect::EngineOptions,
        registry::{Call, Registry},
        voter::{
            Abstention, Ballot, Kept, RENEWALS_PER_CALL, Record, Sighting, Standing, State, Vote, Voter,
            Withdrawn,
        },
    },
    error::Result,
    fence::Fence,
    name::Name,
    owner::Owner,
};
pub(crate) use address::Parameters;
use call::{Scripts, Seat};
use hints::Hints;

/// The voters of a quorum; nothing is dialled.
pub(crate) fn voters(url: &str, options: &EngineOptions) -> Result<(Vec<Arc<dyn Voter>>, Parameters)> {
    let (nodes, parameters) = address::parse(url)?;
    let process = random_process();
    let voter = |(number, (label, client)): (usize, (String, redis::Client))| -> Arc<dyn Voter> {
        Arc::new(RedisVoter(Member::new(label, client, channel(process, number), options)))
    };
    Ok((nodes.into_iter().enumerate().map(voter).collect(), parameters))
}

struct RedisVoter(Arc<Member>);

/// One node, shared with the calls that are under way.
struct Member {
    label: String,
    prefix: String,
    clock: Clock,
    node: Arc<Node>,
    scripts: Scripts,
    seat: Mutex<Option<Arc<Seat>>>,
    attempts: Arc<Registry<Arc<Ballot>>>,
    hints: Arc<Hints>,
    /// Told once that the server refuses wake-ups.
    polling_only: AtomicBool,
    in_flight: Semaphore,
    max_in_flight: usize,
}

impl Member {
    fn new(label: String, client: redis::Client, channel: String, options: &EngineOptions) -> Arc<Self> {
        let node = Node::new(NodeOptions {
            place: Place::Fixed(Box::new(client)),
            client_name: client_name(options),
            channel,
            clock: options.clock.clone(),
            command_timeout: options.command_timeout,
            identify: true,
        });
        let hints = Arc::new(Hints::new(&label));
        let listener: Arc<dyn Listener> = hints.clone();
        node.listen(Arc::downgrade(&listener));
        Arc::new(Self {
            label,
            prefix: options.prefix.clone(),
            clock: options.clock.clone(),
            node,
            scripts: Scripts::new(),
            seat: Mutex::default(),
            attempts: Arc::default(),
            hints,
            polling_only: AtomicBool::new(false),
            in_flight: Semaphore::new(options.max_in_flight),
            max_in_flight: options.max_in_flight,
        })
    }

    /// Room for one more call. A node that hangs keeps those it has, and only its own.
    async fn room(&self, until: Until) -> Result<SemaphorePermit<'_>, EngineError> {
        if let Ok(permit) = self.in_flight.try_acquire() {
            return Ok(permit);
        }
        match self.clock.bounded(until, self.in_flight.acquire()).await {
            Some(Ok(permit)) => Ok(permit),
            _ => {
                let why = format!("{} operations are under way already", self.max_in_flight);
                Err(EngineError::new(Fault::Overloaded, why))
            }
        }
    }

    fn keys(&self, name: &Name) -> Result<Keys, EngineError> {
        let keys = Keys::new(&self.prefix, name);
        match keys.clash() {
            None => Ok(keys),
            Some(why) => Err(EngineError::new(Fault::Unsupported, why)),
        }
    }

    /// The seat, or why the node has none.
    fn seat(&self) -> Result<Arc<Seat>, Abstention> {
        let seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match seat {
            Some(seat) if seat.record.state == State::Votes => Ok(seat),
            Some(_) => Err(Abstention::Forgot),
            None => Err(Abstention::NotAdmitted),
        }
    }

    async fn vote(&self, ballot: &Arc<Ballot>, until: Until) -> Result<Vote, EngineError> {
        let claim = &ballot.claim;
        let keys = self.keys(&claim.name)?;
        let seat = match self.seat() {
            Ok(seat) => seat,
            Err(why) => return Ok(Vote::Abstains(why)),
        };
        let call = self.attempts.enter(claim.owner.id(), self.clock.now())?;
        let _room = self.room(until).await?;
        let connection = self.node.connection(until).await?;
        if !is_in_seat(&connection, &seat) {
            return Ok(Vote::Abstains(Abstention::Forgot));
        }
        let waits = claim.queue.map(|_| ballot);
        if waits.is_some() {
            self.listen(&connection, until).await?;
        }
        let channel = self.node.channel();
        let build = |script: &_, by_hash| call::vote(script, by_hash, &keys, ballot, &seat, channel);
        let value = self.send(&connection, &call, waits, &self.scripts.vote, build, until).await?;
        let vote = call::voted(&value, &seat)?;
        if matches!(vote, Vote::Yes(_)) {
            call.waits_no_longer();
        }
        // Only a new connection tells who the server is by now. One for each other abstention would be a storm.
        if call::is_other_data_set(&value, &seat) {
            self.node.replace(&connection, "the server has another data set by now");
        }
        Ok(vote)
    }

    /// Makes sure that hints reach us, or that they never will.
    async fn listen(&self, connection: &Connection, until: Until) -> Result<(), EngineError> {
        match self.node.subscribe(connection, until).await {
            Err(error) if matches!(error.fault, Fault::Refused(_)) => {
                // Without them it waits by asking: slower, and never wrong.
                if !self.polling_only.swap(true, Ordering::Relaxed) {
                    tracing::warn!(node = self.label, %error, "the node refuses wake-ups: waiting by polls alone");
                }
                Ok(())
            }
            outcome => outcome.map_err(not_sent),
        }
    }

    /// Sends a vote, its retraction or a repair. Each copy of it is counted, and none leaves after the attempt's end.
    async fn send(
        &self,
        connection: &Connection,
        call: &Call<Arc<Ballot>>,
        waits: Option<&Arc<Ballot>>,
        script: &Script,
        build: impl Fn(&Script, bool) -> Cmd,
        until: Until,
    ) -> Result<Value, EngineError> {
        let mut by_hash = true;
        loop {
            let cmd = build(script, by_hash);
            call.leaves(waits)?;
            // Polled once it is in the connection's queue, or in line for it; a task's budget must not delay that.
            let mut sending = pin!(unconstrained(self.node.send(connection, &cmd, until)));
            let first = poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
            call.left(connection.number);
            let answer = match first {
                Poll::Ready(answer) => answer,
                Poll::Pending => sending.await,
            };
            if !matches!(&answer, Err(error) if error.fault == Fault::NoAnswer) {
                call.answered(connection.number);
            }
            match answer {
                Err(error) if by_hash && error.why.starts_with("NOSCRIPT") => by_hash = false,
                answer => return answer,
            }
        }
    }

    async fn confirm(&self, hold: &Hold, until: Until) -> Result<bool, EngineError> {
        let keys = self.keys(&hold.name)?;
        let _room = self.room(until).await?;
        let connection = self.node.connection(until).await?;
        let build = |script: &_, by_hash| call::confirm(script, by_hash, &keys, hold);
        call::yes_or_no(&self.node.run_script(&connection, &self.scripts.confirm, build, until).await?)
    }

    async fn renew(&self, holds: &[Hold], until: Until) -> Result<Vec<Kept>, EngineError> {
        let connection = self.node.connection(until).await?;
        let calls = holds.chunks(RENEWALS_PER_CALL).map(|some| self.renew_some(&connection, some, until));
        let kept = futures_util::future::try_join_all(calls).await?;
        Ok(kept.into_iter().flatten().collect())
    }

    async fn renew_some(
        &self,
        connection: &Connection,
        holds: &[Hold],
        until: Until,
    ) -> Result<Vec<Kept>, EngineError> {
        let keys: Vec<_> = holds.iter().map(|hold| Keys::new(&self.prefix, &hold.name)).collect();
        let build = |script: &_, by_hash| call::renew(script, by_hash, &keys, holds);
        let value = self.node.run_script(connection, &self.scripts.renew, build, until).await?;
        call::renewed(value, holds.len())
    }

    async fn repair(&self, hold: &Hold, until: Until) -> Result<bool, EngineError> {
        let keys = self.keys(&hold.name)?;
        let Ok(seat) = self.seat() else { return Ok(false) };
        let call = self.attempts.enter(hold.owner.id(), self.clock.now())?;
        let _room = self.room(until).await?;
        let connection = self.node.connection(until).await?;
        if !is_in_seat(&connection, &seat) {
            return Ok(false);
        }
        let build = |script: &_, by_hash| call::repair(script, by_hash, &keys, hold, &seat);
        call::yes_or_no(&self.send(&connection, &call, None, &self.scripts.repair, build, until).await?)
    }

    async fn withdraw(&self, name: &Name, owner: &Owner, until: Until) -> Result<Withdrawn, EngineError> {
        let keys = self.keys(name)?;
        let _room = self.room(until).await?;
        let connection = self.node.connection(until).await?;
        let remains = self.attempts.remains(owner.id(), connection.number);
        let (waits, late) = (remains.waits.as_deref(), remains.may_come_late);
        let channel = self.node.channel();
        let build = |script: &_, by_hash| call::withdraw(script, by_hash, &keys, owner, waits, late, channel);
        let value = self.node.run_script(&connection, &self.scripts.withdraw, build, until).await?;
        self.attempts.ended(owner.id());
        call::withdrawn(&value)
    }

    async fn retract(&self, ballot: &Arc<Ballot>, until: Until) -> Result<(), EngineError> {
        let keys = self.keys(&ballot.claim.name)?;
        let call = self.attempts.enter(ballot.claim.owner.id(), self.clock.now())?;
        let _room = self.room(until).await?;
        let connection = self.node.connection(until).await?;
        let waits = ballot.claim.queue.map(|_| ballot);
        let channel = self.node.channel();
        let build = |script: &_, by_hash| call::retract(script, by_hash, &keys, ballot, channel);
        let value = self.send(&connection, &call, waits, &self.scripts.retract, build, until).await?;
        call::yes_or_no(&value).map(drop)
    }

    async fn look(&self, names: &[Name], until: Until) -> Result<Vec<Sighting>, EngineError> {
        let _room = self.room(until).await?;
        let inspect = &self.scripts.inspect;
        let seen =
            inspect::inspect_names(&self.node, inspect, &self.prefix, names, WAITERS_SHOWN, true, until)
                .await?;
        seen.iter().map(call::sighting).collect()
    }

    async fn standing(&self, until: Until) -> Result<Standing, EngineError> {
        for _ in 0..2 {
            let connection = self.node.connection(until).await?;
            let value =
                self.node.run_script(&connection, &self.scripts.standing, call::standing, until).await?;
            let identity = connection.identity.as_deref().unwrap_or_default();
            match call::stands(&value, identity)? {
                Some(standing) => return Ok(standing),
                None => self.node.replace(&connection, "the server has another data set by now"),
            }
        }
        Err(EngineError::new(Fault::Unreachable, "the server changes its data set"))
    }

    async fn mark(
        &self,
        seen: &str,
        record: &Record,
        floor: Fence,
        until: Until,
    ) -> Result<bool, EngineError> {
        let connection = self.node.connection(until).await?;
        // Another run of the server than the one that the record speaks of.
        if connection.identity.as_ref() != Some(&record.identity) {
            return Ok(false);
        }
        let text = record.to_string();
        let build = |script: &_, by_hash| call::mark(script, by_hash, seen, &text, floor);
        call::yes_or_no(&self.node.run_script(&connection, &self.scripts.mark, build, until).await?)
    }

    async fn health(&self, until: Until) -> Result<Health, EngineError> {
        let mut health = health::look_at(&self.node, &self.clock, until).await?;
        // How a primary and its replicas should be set up: here there should be none.
        health.warnings.retain(|warning| warning.code != "min-replicas");
        let mut info = Cmd::new();
        info.arg("INFO").arg("replication");
        let connection = self.node.connection(until).await?;
        let info = health::Info::parse(&self.node.send(&connection, &info, until).await?);
        if let Some(replicas) = info.number("connected_slaves").filter(|replicas| *replicas > 0) {
            health.warnings.push(Warning {
                code: "quorum-replicas",
                found: format!("{replicas} connected replicas: one that takes over has forgotten votes"),
                cure: "a node of a quorum has no replicas; more nodes make it safer".into(),
            });
        }
        Ok(health)
    }
}

fn is_in_seat(connection: &Connection, seat: &Seat) -> bool {
    connection.identity.as_ref() == Some(&seat.record.identity)
}

impl Voter for RedisVoter {
    fn label(&self) -> &str {
        &self.0.label
    }

    fn seat(&self, record: Option<Record>) {
        let seat = record.map(|record| Arc::new(Seat { text: record.to_string(), record }));
        *self.0.seat.lock().unwrap_or_else(PoisonError::into_inner) = seat;
    }

    fn vote(&self, ballot: &Arc<Ballot>, until: Until) -> Fut<'static, Vote> {
        let (member, ballot) = (self.0.clone(), ballot.clone());
        Box::pin(async move { member.vote(&ballot, until).await })
    }

    fn confirm(&self, hold: &Arc<Hold>, until: Until) -> Fut<'static, bool> {
        let (member, hold) = (self.0.clone(), hold.clone());
        Box::pin(async move { member.confirm(&hold, until).await })
    }

    fn renew(&self, holds: &Arc<[Hold]>, until: Until) -> Fut<'static, Vec<Kept>> {
        let (member, holds) = (self.0.clone(), holds.clone());
        Box::pin(async move { member.renew(&holds, until).await })
    }

    fn repair(&self, hold: &Arc<Hold>, until: Until) -> Fut<'static, bool> {
        let (member, hold) = (self.0.clone(), hold.clone());
        Box::pin(async move { member.repair(&hold, until).await })
    }

    fn retract(&self, ballot: &Arc<Ballot>, until: Until) -> Fut<'static, ()> {
        let (member, ballot) = (self.0.clone(), ballot.clone());
        Box::pin(async move { member.retract(&ballot, until).await })
    }

    fn withdraw(&self, name: &Name, owner: &Owner, until: Until) -> Fut<'static, Withdrawn> {
        let (member, name, owner) = (self.0.clone(), name.clone(), owner.clone());
        // At once, not when the future is first polled: no vote leaves from here on.
        member.attempts.end(owner.id());
        Box::pin(async move { member.withdraw(&name, &owner, until).await })
    }

    fn look(&self, names: &Arc<[Name]>, until: Until) -> Fut<'static, Vec<Sighting>> {
        let (member, names) = (self.0.clone(), names.clone());
        Box::pin(async move { member.look(&names, until).await })
    }

    fn scan(&self, prefix: &str, from: Option<Cursor>, limit: u32, until: Until) -> Fut<'static, Page<Name>> {
        let (member, prefix) = (self.0.clone(), prefix.to_owned());
        Box::pin(async move {
            inspect::scan_server(&member.node, (&member.prefix, &prefix), from, limit, until).await
        })
    }

    fn standing(&self, until: Until) -> Fut<'static, Standing> {
        let member = self.0.clone();
        Box::pin(async move { member.standing(until).await })
    }

    fn mark(&self, seen: Option<&Record>, record: &Record, floor: Fence, until: Until) -> Fut<'static, bool> {
        let (member, record) = (self.0.clone(), record.clone());
        let seen = seen.map(Record::to_string).unwrap_or_default();
        Box::pin(async move { member.mark(&seen, &record, floor, until).await })
    }

    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>) {
        self.0.hints.set_sink(sink);
    }

    fn health(&self, until: Until) -> Fut<'static, Health> {
        let member = self.0.clone();
        Box::pin(async move { member.health(until).await })
    }

    fn clock(&self, until: Until) -> Fut<'static, Option<ClockOffset>> {
        let member = self.0.clone();
        Box::pin(async move { health::clock_of(&member.node, &member.clock, until).await })
    }

    fn close(&self) {
        self.0.node.close();
    }
}
