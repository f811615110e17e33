//! One Redis as a voter of a quorum.
//!
//! Each node is asked on its own, over one connection, by scripts of its own ([`scripts`]). It votes only under its record,
//! in the run of the server for which that was written: what a restarted, wiped or rolled back server has lost cannot be
//! voted on twice.

mod hints;
mod scripts;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, Weak};

use redis::Cmd;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::{
    channel,
    connection::{Connection, ConnectionOptions, Link, Listener, Tasks},
    health,
    info::{Info, command},
    inspect,
    keys::{self, Keys},
    random_process,
    script::{self, FENCE_KEPT, TOMBSTONE},
    topology::not_sent,
    url::{Endpoint, StoreUrl},
};
use leasehold_core::{
    clock::{Clock, Until},
    engine::{
        ClockOffset, Cursor, EngineError, EngineOptions, Fault, Fut, Health, Hold, Page, WakeSink, Warning,
        registry::{Call, Registry},
        voter::{Abstention, Ballot, Kept, NodeStatus, Record, Sighting, State, Vote, Voter, Withdrawn},
    },
    error::Result,
    fence::Fence,
    name::Name,
    owner::{Owner, OwnerId},
};
use scripts::{FLOOR, HIGHEST, RECORD, send, send_counted};

/// How long the fence of a name is kept, in milliseconds: the first argument of most scripts.
const KEPT_MS: u64 = FENCE_KEPT.as_millis() as u64;

/// The voters of a quorum; nothing is dialled.
pub fn voters(url: &str, options: &EngineOptions) -> Result<Vec<Arc<dyn Voter>>> {
    keys::check_prefix(&options.prefix)?;
    let url = StoreUrl::parse(url)?;
    let (login, process, tasks) = (url.login()?, random_process(), Tasks::here());
    let voter = |(number, node): (usize, &Endpoint)| -> Arc<dyn Voter> {
        RedisVoter::new(node, &login, channel(process, number), options, tasks.clone())
    };
    Ok(url.hosts.iter().enumerate().map(voter).collect())
}

/// One node.
struct RedisVoter {
    label: String,
    prefix: String,
    clock: Clock,
    connection: Arc<Connection>,
    votes_under: Mutex<Option<Arc<Record>>>,
    attempts: Arc<Registry<Arc<Ballot>>>,
    /// Where hints go, and whom to notify when a connection breaks.
    sink: OnceLock<Weak<dyn WakeSink>>,
    wake: OnceLock<Arc<Notify>>,
    /// Warns once that the server refuses wake-ups.
    polling_only: Once,
    in_flight: Semaphore,
    max_in_flight: usize,
}

impl RedisVoter {
    fn new(
        node: &Endpoint,
        login: &redis::Client,
        channel: String,
        options: &EngineOptions,
        tasks: Arc<Tasks>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|voter: &Weak<Self>| {
            let listener: Weak<dyn Listener> = voter.clone();
            let connection = ConnectionOptions::new(node.client(login), None, options, listener, tasks);
            let connection = Connection::new(ConnectionOptions { channel, identify: true, ..connection });
            Self {
                label: node.to_string(),
                prefix: options.prefix.clone(),
                clock: options.clock.clone(),
                connection,
                votes_under: Mutex::default(),
                attempts: Arc::default(),
                sink: OnceLock::new(),
                wake: OnceLock::new(),
                polling_only: Once::new(),
                in_flight: Semaphore::new(options.max_in_flight),
                max_in_flight: options.max_in_flight,
            }
        })
    }

    /// Room for one more call, and a link to send it over. A node that hangs keeps the calls it has, and only its own.
    async fn room(&self, until: Until) -> Result<(SemaphorePermit<'_>, Arc<Link>), EngineError> {
        let permit = match self.in_flight.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_) => self.clock.bounded(until, self.in_flight.acquire()).await.and_then(Result::ok),
        };
        let Some(permit) = permit else {
            let why = format!("{} operations are under way already", self.max_in_flight);
            return Err(EngineError::new(Fault::Busy, why));
        };
        Ok((permit, self.connection.link(until).await?))
    }

    fn keys(&self, name: &Name) -> Result<Keys, EngineError> {
        let keys = Keys::new(&self.prefix, name);
        match keys.clash() {
            None => Ok(keys),
            Some(why) => Err(EngineError::new(Fault::Unsupported, why)),
        }
    }

    /// The record that the node votes under, or why there is none.
    fn record(&self) -> Result<Arc<Record>, Abstention> {
        let expected = self.votes_under.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match expected {
            Some(expected) if expected.state == State::Votes => Ok(expected),
            Some(_) => Err(Abstention::Forgot),
            None => Err(Abstention::NotAdmitted),
        }
    }

    fn enter(&self, owner: OwnerId) -> Result<Call<Arc<Ballot>>, EngineError> {
        self.attempts.enter(owner, self.clock.now())
    }

    /// Makes sure that hints reach us, or that they never will.
    async fn listen(&self, link: &Link, until: Until) -> Result<(), EngineError> {
        match link.subscribe(until).await {
            Err(error) if matches!(error.fault, Fault::Refused(_)) => {
                // Without them it waits by polls: slower, and never wrong.
                self.polling_only.call_once(|| {
                    tracing::warn!(node = self.label, %error, "the node refuses wake-ups: waiting by polls alone");
                });
                Ok(())
            }
            outcome => outcome.map_err(not_sent),
        }
    }
}

fn is_of_run(link: &Link, record: &Record) -> bool {
    link.identity.as_ref() == Some(&record.identity)
}

impl Voter for RedisVoter {
    fn label(&self) -> &str {
        &self.label
    }

    fn vote_under(&self, record: Option<Record>) {
        *self.votes_under.lock().unwrap_or_else(PoisonError::into_inner) = record.map(Arc::new);
    }

    fn vote<'a>(&'a self, ballot: &'a Arc<Ballot>, until: Until) -> Fut<'a, Vote> {
        Box::pin(async move {
            let claim = &ballot.claim;
            let keys = self.keys(&claim.name)?;
            let record = match self.record() {
                Ok(record) => record,
                Err(why) => return Ok(Vote::Abstains(why)),
            };
            let call = self.enter(claim.owner.id())?;
            let (_room, link) = self.room(until).await?;
            if !is_of_run(&link, &record) {
                return Ok(Vote::Abstains(Abstention::Forgot));
            }
            let waits = claim.queue.map(|_| ballot);
            if waits.is_some() {
                self.listen(&link, until).await?;
            }
            let write = |cmd: &mut Cmd| {
                cmd.arg(8).arg(keys.lock()).arg(keys.fence()).arg(keys.waiters()).arg(keys.seen());
                cmd.arg(keys.gone(claim.owner.id_text())).arg(RECORD).arg(HIGHEST).arg(FLOOR);
                cmd.arg(KEPT_MS).arg(claim.owner.expose()).arg(script::px(claim.ttl + claim.lock_delay));
                cmd.arg(ballot.hint.get()).arg(record.to_string());
                script::write_entry(cmd, Some(claim), &self.connection.options.channel);
                cmd.arg(ballot.arrival);
            };
            let value = send_counted(&link, &call, waits, &scripts::VOTE, write, until).await?;
            let vote = scripts::voted(&value, &record)?;
            if matches!(vote, Vote::Yes(_)) {
                call.waits_no_longer();
            }
            // Only a new connection reads the identity again. One for each other abstention would be a storm.
            if scripts::is_other_data_set(&value, &record) {
                link.broke("the server has another data set by now");
            }
            Ok(vote)
        })
    }

    fn confirm<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, bool> {
        Box::pin(async move {
            let keys = self.keys(&hold.name)?;
            let (_room, link) = self.room(until).await?;
            let write = |cmd: &mut Cmd| {
                cmd.arg(3).arg(keys.lock()).arg(keys.fence()).arg(HIGHEST);
                cmd.arg(KEPT_MS).arg(hold.owner.expose()).arg(hold.fence.get());
            };
            scripts::yes_or_no(&send(&link, &scripts::CONFIRM, write, until).await?)
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Kept>> {
        Box::pin(async move {
            let link = self.connection.link(until).await?;
            let keys: Vec<_> = holds.iter().map(|hold| Keys::new(&self.prefix, &hold.name)).collect();
            let write = |cmd: &mut Cmd| {
                cmd.arg(1 + keys.len() * 2).arg(RECORD);
                for keys in &keys {
                    cmd.arg(keys.lock()).arg(keys.fence());
                }
                cmd.arg(KEPT_MS);
                for hold in holds {
                    cmd.arg(hold.owner.expose()).arg(script::px(hold.ttl + hold.lock_delay));
                }
            };
            scripts::renewed(send(&link, &scripts::RENEW, write, until).await?, holds.len())
        })
    }

    fn repair<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, bool> {
        Box::pin(async move {
            let keys = self.keys(&hold.name)?;
            let Ok(record) = self.record() else { return Ok(false) };
            let call = self.enter(hold.owner.id())?;
            let (_room, link) = self.room(until).await?;
            if !is_of_run(&link, &record) {
                return Ok(false);
            }
            let write = |cmd: &mut Cmd| {
                cmd.arg(5).arg(keys.lock()).arg(keys.fence()).arg(keys.gone(hold.owner.id_text()));
                cmd.arg(RECORD).arg(HIGHEST);
                cmd.arg(KEPT_MS).arg(hold.owner.expose()).arg(script::px(hold.ttl + hold.lock_delay));
                cmd.arg(record.to_string()).arg(hold.fence.get());
            };
            let value = send_counted(&link, &call, None, &scripts::REPAIR, write, until).await?;
            scripts::yes_or_no(&value)
        })
    }

    fn retract<'a>(&'a self, ballot: &'a Arc<Ballot>, until: Until) -> Fut<'a, ()> {
        Box::pin(async move {
            let claim = &ballot.claim;
            let keys = self.keys(&claim.name)?;
            let call = self.enter(claim.owner.id())?;
            let (_room, link) = self.room(until).await?;
            let waits = claim.queue.map(|_| ballot);
            let write = |cmd: &mut Cmd| {
                cmd.arg(5).arg(keys.lock()).arg(keys.fence()).arg(keys.waiters()).arg(keys.seen());
                cmd.arg(keys.gone(claim.owner.id_text())).arg(KEPT_MS).arg(claim.owner.expose());
                script::write_entry(cmd, Some(claim), &self.connection.options.channel);
                cmd.arg(ballot.arrival);
            };
            let value = send_counted(&link, &call, waits, &scripts::RETRACT, write, until).await?;
            scripts::yes_or_no(&value).map(drop)
        })
    }

    fn withdraw<'a>(&'a self, name: &'a Name, owner: &'a Owner, until: Until) -> Fut<'a, Withdrawn> {
        // At once, not when the future is first polled: no vote leaves from here on.
        self.attempts.end(owner.id());
        Box::pin(async move {
            let keys = self.keys(name)?;
            let (_room, link) = self.room(until).await?;
            let waits = self.attempts.waits(owner.id(), |waits| waits.clone());
            let claim = waits.as_ref().map(|ballot| &ballot.claim);
            let may_come_late = self.attempts.may_come_late(owner.id(), link.number);
            let write = |cmd: &mut Cmd| {
                cmd.arg(if may_come_late { 5 } else { 4 });
                cmd.arg(keys.lock()).arg(keys.fence()).arg(keys.waiters()).arg(keys.seen());
                if may_come_late {
                    cmd.arg(keys.gone(owner.id_text()));
                }
                cmd.arg(KEPT_MS).arg(owner.expose());
                script::write_entry(cmd, claim, &self.connection.options.channel);
                cmd.arg(TOMBSTONE.as_millis() as u64);
            };
            let value = send(&link, &scripts::WITHDRAW, write, until).await?;
            self.attempts.ended(owner.id());
            scripts::withdrawn(&value)
        })
    }

    fn inspect<'a>(&'a self, names: &'a [Name], until: Until) -> Fut<'a, Vec<Sighting>> {
        Box::pin(async move {
            let (_room, link) = self.room(until).await?;
            let mut seen = Vec::with_capacity(names.len());
            for some in names.chunks(inspect::NAMES_PER_CALL) {
                let keys: Vec<_> = some.iter().map(|name| Keys::new(&self.prefix, name)).collect();
                let write = |cmd: &mut Cmd| script::write_inspection(cmd, &keys, true);
                let value = send(&link, &scripts::INSPECT, write, until).await?;
                seen.extend(script::replies(value, some.len())?);
            }
            seen.iter().map(scripts::sighting).collect()
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Name>> {
        Box::pin(inspect::scan_server(&self.connection, (&self.prefix, prefix), from, limit, until))
    }

    fn status(&self, until: Until) -> Fut<'_, NodeStatus> {
        Box::pin(async move {
            for _ in 0..2 {
                let link = self.connection.link(until).await?;
                let write = |cmd: &mut Cmd| {
                    cmd.arg(2).arg(RECORD).arg(HIGHEST);
                };
                let value = send(&link, &scripts::STATUS, write, until).await?;
                match scripts::node_status(&value, link.identity.as_deref().unwrap_or_default())? {
                    Some(status) => return Ok(status),
                    None => link.broke("the server has another data set by now"),
                }
            }
            Err(EngineError::new(Fault::Unreachable, "the server changes its data set"))
        })
    }

    fn write_record<'a>(
        &'a self,
        seen: Option<&'a Record>,
        record: &'a Record,
        floor: Fence,
        until: Until,
    ) -> Fut<'a, bool> {
        Box::pin(async move {
            let link = self.connection.link(until).await?;
            if !is_of_run(&link, record) {
                return Ok(false);
            }
            let write = |cmd: &mut Cmd| {
                cmd.arg(3).arg(RECORD).arg(HIGHEST).arg(FLOOR);
                cmd.arg(seen.map(Record::to_string).unwrap_or_default());
                cmd.arg(record.to_string()).arg(floor.get());
            };
            scripts::yes_or_no(&send(&link, &scripts::WRITE_RECORD, write, until).await?)
        })
    }

    fn on_disconnect(&self, wake: Arc<Notify>) {
        let _first = self.wake.set(wake);
    }

    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>) {
        let _first = self.sink.set(sink);
    }

    fn health(&self, until: Until) -> Fut<'_, (Health, Option<ClockOffset>)> {
        Box::pin(async move {
            let (mut health, clock) = health::inspect_server(&self.connection, until).await?;
            // How a primary and its replicas should be set up: here there should be none.
            health.warnings.retain(|warning| warning.code != "min-replicas");
            let link = self.connection.link(until).await?;
            let info = Info::parse(&link.send(&command(&["INFO", "replication"]), until).await?);
            if let Some(replicas) = info.number("connected_slaves").filter(|replicas| *replicas > 0) {
                health.warnings.push(Warning {
                    code: "quorum-replicas",
                    found: format!("{replicas} connected replicas: one that takes over has lost votes"),
                    cure: "a node of a quorum has no replicas; more nodes make it safer".into(),
                });
            }
            Ok((health, clock))
        })
    }

    fn close(&self) {
        self.connection.close();
    }
}
