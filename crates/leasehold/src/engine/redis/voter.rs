//! One Redis as a voter of a quorum.
//!
//! Each node is asked on its own, over one connection, by scripts of its own ([`call`]). It votes only under its record,
//! in the run of the server for which that was written: what a restarted, wiped or rolled back
//! server has forgotten cannot be voted on twice.

mod call;
mod hints;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicBool, Ordering},
};

use redis::{Cmd, Value};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::{
    channel, client_name,
    connection::{Connection, ConnectionOptions, Link, Listener, Tasks},
    health,
    info::{Info, command},
    inspect,
    keys::{self, Keys},
    random_process,
    script::{self, Script},
    target::DialTarget,
    topology::{not_sent, outcome},
    url::{self, Endpoint},
};
use crate::{
    clock::{Clock, Until},
    engine::{
        ClockOffset, Cursor, EngineError, Fault, Fut, Health, Hold, Page, WakeSink, Warning,
        connect::EngineOptions,
        registry::{Call, Registry, send_noted},
        voter::{
            Abstention, Ballot, Kept, NodeStatus, RENEWALS_PER_CALL, Record, Sighting, State, Vote, Voter,
            Withdrawn,
        },
    },
    error::Result,
    fence::Fence,
    name::Name,
    owner::Owner,
};
use call::{Scripts, VotingRecord};
use hints::Hints;

/// The voters of a quorum; nothing is dialled.
pub(crate) fn voters(url: &str, options: &EngineOptions) -> Result<Vec<Arc<dyn Voter>>> {
    keys::check_prefix(&options.prefix)?;
    let nodes = url::servers(url)?;
    let (process, tasks) = (random_process(), Tasks::here());
    let voter = |(number, client): (usize, redis::Client)| -> Arc<dyn Voter> {
        Arc::new(RedisVoter(Member::new(client, channel(process, number), options, tasks.clone())))
    };
    Ok(nodes.into_iter().enumerate().map(voter).collect())
}

struct RedisVoter(Arc<Member>);

/// One node, shared with the calls that are under way.
struct Member {
    label: String,
    prefix: String,
    clock: Clock,
    connection: Arc<Connection>,
    scripts: Scripts,
    votes_under: Mutex<Option<Arc<VotingRecord>>>,
    attempts: Arc<Registry<Arc<Ballot>>>,
    hints: Arc<Hints>,
    /// Told once that the server refuses wake-ups.
    polling_only: AtomicBool,
    in_flight: Semaphore,
    max_in_flight: usize,
}

impl Member {
    fn new(client: redis::Client, channel: String, options: &EngineOptions, tasks: Arc<Tasks>) -> Arc<Self> {
        let label = Endpoint::of(&client).to_string();
        let hints = Arc::new(Hints::new(&label));
        let listener: Arc<dyn Listener> = hints.clone();
        let connection = Connection::new(ConnectionOptions {
            target: DialTarget::fixed(client),
            client_name: client_name(options),
            channel,
            clock: options.clock.clone(),
            command_timeout: options.command_timeout,
            identify: true,
            listener: Some(Arc::downgrade(&listener)),
            tasks,
        });
        Arc::new(Self {
            label,
            prefix: options.prefix.clone(),
            clock: options.clock.clone(),
            connection,
            scripts: Scripts::new(),
            votes_under: Mutex::default(),
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
                Err(EngineError::new(Fault::Busy, why))
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

    /// The record that the node votes under, or why there is none.
    fn record(&self) -> Result<Arc<VotingRecord>, Abstention> {
        let expected = self.votes_under.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match expected {
            Some(expected) if expected.record.state == State::Votes => Ok(expected),
            Some(_) => Err(Abstention::Forgot),
            None => Err(Abstention::NotAdmitted),
        }
    }

    async fn vote(&self, ballot: &Arc<Ballot>, until: Until) -> Result<Vote, EngineError> {
        let claim = &ballot.claim;
        let keys = self.keys(&claim.name)?;
        let expected = match self.record() {
            Ok(expected) => expected,
            Err(why) => return Ok(Vote::Abstains(why)),
        };
        let call = self.attempts.enter(claim.owner.id(), self.clock.now())?;
        let _room = self.room(until).await?;
        let link = self.connection.link(until).await?;
        if !is_of_run(&link, &expected) {
            return Ok(Vote::Abstains(Abstention::Forgot));
        }
        let waits = claim.queue.map(|_| ballot);
        if waits.is_some() {
            self.listen(&link, until).await?;
        }
        let channel = self.connection.channel();
        let build = |script: &_, by_hash| call::vote(script, by_hash, &keys, ballot, &expected, channel);
        let value = self.send(&link, &call, waits, &self.scripts.vote, build, until).await?;
        let vote = call::voted(&value, &expected)?;
        if matches!(vote, Vote::Yes(_)) {
            call.waits_no_longer();
        }
        // Only a new connection tells who the server is by now. One for each other abstention would be a storm.
        if call::is_other_data_set(&value, &expected) {
            link.broke("the server has another data set by now");
        }
        Ok(vote)
    }

    /// Makes sure that hints reach us, or that they never will.
    async fn listen(&self, link: &Link, until: Until) -> Result<(), EngineError> {
        match link.subscribe(until).await {
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
        link: &Link,
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
            let answer = send_noted(link.send(&cmd, until), || call.left(link.number)).await;
            if !matches!(&answer, Err(error) if error.fault == Fault::NoAnswer) {
                call.answered();
            }
            match answer {
                Err(error) if by_hash && outcome::is_unknown_script(&error) => by_hash = false,
                answer => return answer,
            }
        }
    }

    async fn confirm(&self, hold: &Hold, until: Until) -> Result<bool, EngineError> {
        let keys = self.keys(&hold.name)?;
        let _room = self.room(until).await?;
        let link = self.connection.link(until).await?;
        let build = |script: &_, by_hash| call::confirm(script, by_hash, &keys, hold);
        call::yes_or_no(&link.run_script(false, &self.scripts.confirm, build, until).await?)
    }

    async fn renew(&self, holds: &[Hold], until: Until) -> Result<Vec<Kept>, EngineError> {
        let link = self.connection.link(until).await?;
        let calls = holds.chunks(RENEWALS_PER_CALL).map(|some| self.renew_some(&link, some, until));
        let kept = futures_util::future::try_join_all(calls).await?;
        Ok(kept.into_iter().flatten().collect())
    }

    async fn renew_some(&self, link: &Link, holds: &[Hold], until: Until) -> Result<Vec<Kept>, EngineError> {
        let keys: Vec<_> = holds.iter().map(|hold| Keys::new(&self.prefix, &hold.name)).collect();
        let build = |script: &_, by_hash| call::renew(script, by_hash, &keys, holds);
        let value = link.run_script(false, &self.scripts.renew, build, until).await?;
        call::renewed(value, holds.len())
    }

    async fn repair(&self, hold: &Hold, until: Until) -> Result<bool, EngineError> {
        let keys = self.keys(&hold.name)?;
        let Ok(expected) = self.record() else { return Ok(false) };
        let call = self.attempts.enter(hold.owner.id(), self.clock.now())?;
        let _room = self.room(until).await?;
        let link = self.connection.link(until).await?;
        if !is_of_run(&link, &expected) {
            return Ok(false);
        }
        let build = |script: &_, by_hash| call::repair(script, by_hash, &keys, hold, &expected);
        call::yes_or_no(&self.send(&link, &call, None, &self.scripts.repair, build, until).await?)
    }

    async fn withdraw(&self, name: &Name, owner: &Owner, until: Until) -> Result<Withdrawn, EngineError> {
        let keys = self.keys(name)?;
        let _room = self.room(until).await?;
        let link = self.connection.link(until).await?;
        let remains = self.attempts.remains(owner.id(), link.number);
        let (waits, late) = (remains.waits.as_deref(), remains.may_come_late);
        let channel = self.connection.channel();
        let build = |script: &_, by_hash| call::withdraw(script, by_hash, &keys, owner, waits, late, channel);
        let value = link.run_script(false, &self.scripts.withdraw, build, until).await?;
        self.attempts.ended(owner.id());
        call::withdrawn(&value)
    }

    async fn retract(&self, ballot: &Arc<Ballot>, until: Until) -> Result<(), EngineError> {
        let keys = self.keys(&ballot.claim.name)?;
        let call = self.attempts.enter(ballot.claim.owner.id(), self.clock.now())?;
        let _room = self.room(until).await?;
        let link = self.connection.link(until).await?;
        let waits = ballot.claim.queue.map(|_| ballot);
        let channel = self.connection.channel();
        let build = |script: &_, by_hash| call::retract(script, by_hash, &keys, ballot, channel);
        let value = self.send(&link, &call, waits, &self.scripts.retract, build, until).await?;
        call::yes_or_no(&value).map(drop)
    }

    async fn inspect(&self, names: &[Name], until: Until) -> Result<Vec<Sighting>, EngineError> {
        let _room = self.room(until).await?;
        let link = self.connection.link(until).await?;
        let mut seen = Vec::with_capacity(names.len());
        for some in names.chunks(inspect::NAMES_PER_CALL) {
            let keys: Vec<_> = some.iter().map(|name| Keys::new(&self.prefix, name)).collect();
            let build = |script: &_, by_hash| {
                let mut cmd = script::begin(script, by_hash, keys.len() * script::OP_BYTES);
                script::write_inspection(&mut cmd, &keys, true);
                cmd
            };
            let value = link.run_script(false, &self.scripts.inspect, build, until).await?;
            seen.extend(script::replies(value, some.len())?);
        }
        seen.iter().map(call::sighting).collect()
    }

    async fn status(&self, until: Until) -> Result<NodeStatus, EngineError> {
        for _ in 0..2 {
            let link = self.connection.link(until).await?;
            let value = link.run_script(false, &self.scripts.status, call::status, until).await?;
            let identity = link.identity.as_deref().unwrap_or_default();
            match call::node_status(&value, identity)? {
                Some(status) => return Ok(status),
                None => link.broke("the server has another data set by now"),
            }
        }
        Err(EngineError::new(Fault::Unreachable, "the server changes its data set"))
    }

    async fn write_record(
        &self,
        seen: &str,
        record: &Record,
        floor: Fence,
        until: Until,
    ) -> Result<bool, EngineError> {
        let link = self.connection.link(until).await?;
        // Another run of the server than the one that the record speaks of.
        if link.identity.as_ref() != Some(&record.identity) {
            return Ok(false);
        }
        let text = record.to_string();
        let build = |script: &_, by_hash| call::write_record(script, by_hash, seen, &text, floor);
        call::yes_or_no(&link.run_script(false, &self.scripts.write_record, build, until).await?)
    }

    async fn health(&self, until: Until) -> Result<Health, EngineError> {
        let mut health = health::inspect_server(&self.connection, &self.clock, until).await?;
        // How a primary and its replicas should be set up: here there should be none.
        health.warnings.retain(|warning| warning.code != "min-replicas");
        let link = self.connection.link(until).await?;
        let info = Info::parse(&link.send(&command(&["INFO", "replication"]), until).await?);
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

fn is_of_run(link: &Link, expected: &VotingRecord) -> bool {
    link.identity.as_ref() == Some(&expected.record.identity)
}

impl Voter for RedisVoter {
    fn label(&self) -> &str {
        &self.0.label
    }

    fn vote_under(&self, record: Option<Record>) {
        let expected = record.map(|record| Arc::new(VotingRecord { text: record.to_string(), record }));
        *self.0.votes_under.lock().unwrap_or_else(PoisonError::into_inner) = expected;
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

    fn inspect(&self, names: &Arc<[Name]>, until: Until) -> Fut<'static, Vec<Sighting>> {
        let (member, names) = (self.0.clone(), names.clone());
        Box::pin(async move { member.inspect(&names, until).await })
    }

    fn scan(&self, prefix: &str, from: Option<Cursor>, limit: u32, until: Until) -> Fut<'static, Page<Name>> {
        let (member, prefix) = (self.0.clone(), prefix.to_owned());
        Box::pin(async move {
            inspect::scan_server(&member.connection, (&member.prefix, &prefix), from, limit, until).await
        })
    }

    fn status(&self, until: Until) -> Fut<'static, NodeStatus> {
        let member = self.0.clone();
        Box::pin(async move { member.status(until).await })
    }

    fn write_record(
        &self,
        seen: Option<&Record>,
        record: &Record,
        floor: Fence,
        until: Until,
    ) -> Fut<'static, bool> {
        let (member, record) = (self.0.clone(), record.clone());
        let seen = seen.map(Record::to_string).unwrap_or_default();
        Box::pin(async move { member.write_record(&seen, &record, floor, until).await })
    }

    fn on_disconnect(&self, wake: Arc<Notify>) {
        self.0.hints.on_disconnect(wake);
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
        Box::pin(async move { health::clock_of(&member.connection, &member.clock, until).await })
    }

    fn close(&self) {
        self.0.connection.close();
    }
}
