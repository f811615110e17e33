//! One Redis as a voter of a quorum.
//!
//! Each node is asked on its own, over one connection, by scripts of its own. It votes only under its record, in the run of
//! the server for which that was written: what a restarted, wiped or rolled back server has lost cannot be voted on twice.
//! Its wake-ups are hints: they grant nothing, and the attempt that gets one tries at once.

mod ordinary;
mod readers;
mod reply;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, Weak};

use futures_util::future::{BoxFuture, join};
use redis::{Cmd, Value};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::{
    channel,
    connection::{Connection, ConnectionOptions, Link, Listener, Tasks},
    health,
    info::{Info, command},
    inspect,
    keys::{self, Keys},
    random_process,
    reply::read,
    script::{self, Contended, Crowd, FENCE_KEPT, Script, TOMBSTONE, entry, px},
    topology::{not_sent, outcome},
    url::{Endpoint, StoreUrl},
};
use leasehold_core::{
    clock::Until,
    engine::{
        ClockOffset, Cursor, EngineError, EngineOptions, Fault, Fut, Health, Hold, LinkChange, Mode, Page,
        Wake, WakeSink, Warning,
        registry::{Call, Registry, send_noted},
        voter::{
            Abstention, Ballot, Kept, NodeStatus, Op, Outcome, Record, Sighting, State, Vote, Voter,
            Withdrawn,
        },
    },
    error::Result,
    fence::Fence,
    name::Name,
    owner::Owner,
};

/// Q: the node's record.
const RECORD: &str = "leasehold:quorum";
/// H: the highest fence that the node gave to any name.
const HIGHEST: &str = "leasehold:quorum:highest";
/// L: what every fence of the node is above, since it was admitted.
const FLOOR: &str = "leasehold:quorum:floor";
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
    options: EngineOptions,
    connection: Arc<Connection>,
    /// The record that it votes under, or why there is none.
    standing: Mutex<Result<Arc<Standing>, Abstention>>,
    attempts: Arc<Registry<Arc<Ballot>>>,
    contended: Contended,
    /// Where hints go, and whom to notify when a connection breaks.
    sink: OnceLock<Weak<dyn WakeSink>>,
    wake: OnceLock<Arc<Notify>>,
    /// Warns once that the server refuses wake-ups.
    polling_only: Once,
    in_flight: Semaphore,
    tasks: Arc<Tasks>,
}

/// A record that a node votes under, as scripts take it.
struct Standing {
    record: Record,
    text: String,
    /// The text up to the data set, and the data set, which is the second part of the identity.
    parts: [String; 2],
}

impl Standing {
    fn new(record: Record) -> Self {
        let (text, data) = (record.to_string(), record.identity.split_once('-').map_or("", |(_, data)| data));
        let rest = format!("{data} {} votes", record.max_ms);
        let head = text.strip_suffix(&rest).unwrap_or(&text);
        let parts = [head.to_owned(), data.to_owned()];
        Self { text, parts, record }
    }
}

impl RedisVoter {
    fn new(
        node: &Endpoint,
        login: &redis::Client,
        channel: Arc<str>,
        options: &EngineOptions,
        tasks: Arc<Tasks>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|voter: &Weak<Self>| {
            let listener: Weak<dyn Listener> = voter.clone();
            let connection =
                ConnectionOptions::new(node.client(login), None, options, listener, tasks.clone());
            let connection = Connection::new(ConnectionOptions { channel, identify: true, ..connection });
            Self {
                label: node.to_string(),
                options: options.clone(),
                connection,
                standing: Mutex::new(Err(Abstention::NotAdmitted)),
                attempts: Arc::default(),
                contended: Contended::default(),
                sink: OnceLock::new(),
                wake: OnceLock::new(),
                polling_only: Once::new(),
                in_flight: Semaphore::new(options.max_in_flight),
                tasks,
            }
        })
    }

    /// Room for one more call, and a link to send it over. A node that hangs keeps the calls it has, and only its own.
    async fn room(&self, until: Until) -> Result<(SemaphorePermit<'_>, Arc<Link>), EngineError> {
        let Some(Ok(permit)) = self.options.clock.bounded(until, self.in_flight.acquire()).await else {
            let why = format!("{} operations are under way already", self.options.max_in_flight);
            return Err(EngineError::new(Fault::Busy, why));
        };
        Ok((permit, self.connection.link(until).await?))
    }

    fn keys(&self, name: &Name) -> Result<Keys, EngineError> {
        Keys::new(&self.options.prefix, name).checked()
    }

    fn standing(&self) -> MutexGuard<'_, Result<Arc<Standing>, Abstention>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn tell(&self, tell: impl FnOnce(&dyn WakeSink)) {
        if let Some(sink) = self.sink.get().and_then(Weak::upgrade) {
            tell(&*sink);
        }
    }
}

fn is_of_run(link: &Link, record: &Record) -> bool {
    link.identity.as_ref() == Some(&record.identity)
}

/// How many keys a script has, and the first of them: K F W S Z H.
fn write_keys(cmd: &mut Cmd, count: usize, keys: &Keys) {
    cmd.arg(count).arg(keys.lock()).arg(keys.fence()).arg(keys.waiters()).arg(keys.seen());
    cmd.arg(keys.ends()).arg(keys.members());
}

/// Sends what may arrive in any order; `write` appends the number of keys, the keys and the arguments.
async fn send(
    link: &Link,
    script: &Script,
    write: impl Fn(&mut Cmd),
    until: Until,
) -> Result<Value, EngineError> {
    link.run_script(false, |by_hash| script.call(by_hash, script::OP_BYTES, &write), until).await
}

/// Sends a vote, its retraction or a repair. Each copy of it is counted, and none leaves after the attempt's end.
async fn send_counted(
    link: &Link,
    call: &Call<Arc<Ballot>>,
    waits: Option<&Arc<Ballot>>,
    script: &Script,
    write: impl Fn(&mut Cmd),
    until: Until,
) -> Result<Value, EngineError> {
    let mut by_hash = true;
    loop {
        let cmd = script.call(by_hash, script::OP_BYTES, &write);
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

impl Voter for RedisVoter {
    fn label(&self) -> &str {
        &self.label
    }

    fn vote_under(&self, record: Option<Record>) {
        let mut standing = self.standing();
        // It is told after each inspection, mostly the same.
        if matches!((&*standing, &record), (Ok(standing), Some(record)) if standing.record == *record) {
            return;
        }
        *standing = match record {
            Some(record) if record.state == State::Votes => Ok(Arc::new(Standing::new(record))),
            Some(_) => Err(Abstention::Forgot),
            None => Err(Abstention::NotAdmitted),
        };
    }

    fn do_ordinary<'a>(&'a self, ops: &'a [Op], until: Until) -> Fut<'a, Vec<Outcome>> {
        Box::pin(self.ordinary(ops, until))
    }

    fn vote<'a>(&'a self, ballot: &'a Arc<Ballot>, until: Until) -> Fut<'a, Vote> {
        Box::pin(async move {
            let claim = &ballot.claim;
            let keys = self.keys(&claim.name)?;
            let standing = match &*self.standing() {
                Ok(standing) => standing.clone(),
                Err(why) => return Ok(Vote::Abstains(*why)),
            };
            let record = &standing.record;
            let call = self.attempts.enter(claim.owner.id(), self.options.clock.now())?;
            let (_room, link) = self.room(until).await?;
            if !is_of_run(&link, record) {
                return Ok(Vote::Abstains(Abstention::Forgot));
            }
            let waits = claim.queue.map(|_| ballot);
            if waits.is_some() {
                self.listen(&link, until).await?;
            }
            let write = |cmd: &mut Cmd| {
                write_keys(cmd, 10, &keys);
                cmd.arg(keys.gone(claim.owner.id_text())).arg(RECORD).arg(HIGHEST).arg(FLOOR);
                cmd.arg(KEPT_MS).arg(claim.owner.expose()).arg(px(claim.ttl + claim.lock_delay));
                cmd.arg(ballot.hint.get()).arg(&standing.text);
                cmd.arg(entry(claim, &self.connection.options.channel)).arg(ballot.arrival);
                cmd.arg(if claim.mode == Mode::Shared { "s" } else { "" });
            };
            let value = send_counted(&link, &call, waits, &script::VOTE, write, until).await?;
            // Only a new connection reads the identity again. One for each other abstention would be a storm.
            if reply::is_other_data_set(&value, &standing.text) {
                link.broke("the server has another data set by now");
            }
            let vote = reply::voted(value, record)?;
            if matches!(vote, Vote::Yes(_)) {
                call.waits_no_longer();
                if claim.mode == Mode::Shared {
                    // Nothing is ordinary while readers hold it.
                    self.contended.note(keys.lock(), Crowd::Members);
                }
            }
            Ok(vote)
        })
    }

    fn confirm<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, bool> {
        Box::pin(async move {
            let keys = self.keys(&hold.name)?;
            let (_room, link) = self.room(until).await?;
            if hold.mode == Mode::Shared {
                return readers::confirm(&link, &keys, hold, until).await;
            }
            let write = |cmd: &mut Cmd| {
                cmd.arg(3).arg(keys.lock()).arg(keys.fence()).arg(HIGHEST);
                cmd.arg(KEPT_MS).arg(hold.owner.expose()).arg(hold.fence.get());
            };
            read(send(&link, &script::CONFIRM, write, until).await?)
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Kept>> {
        Box::pin(async move {
            let link = self.connection.link(until).await?;
            if holds.iter().all(|hold| hold.mode == Mode::Exclusive) {
                return self.renew_writers(&link, &holds.iter().collect::<Vec<_>>(), until).await;
            }
            let (read, write): (Vec<_>, Vec<_>) = holds.iter().partition(|hold| hold.mode == Mode::Shared);
            let writers = self.renew_writers(&link, &write, until);
            let (readers, writers) = join(self.renew_readers(&link, &read, until), writers).await;
            let (mut readers, mut writers) = (readers?.into_iter(), writers?.into_iter());
            let kept = |hold: &Hold| {
                let kept = if hold.mode == Mode::Shared { readers.next() } else { writers.next() };
                kept.unwrap_or(Kept::Missing)
            };
            Ok(holds.iter().map(kept).collect())
        })
    }

    fn repair<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, bool> {
        Box::pin(async move {
            let keys = self.keys(&hold.name)?;
            let Ok(standing) = self.standing().clone() else { return Ok(false) };
            let call = self.attempts.enter(hold.owner.id(), self.options.clock.now())?;
            let (_room, link) = self.room(until).await?;
            if !is_of_run(&link, &standing.record) {
                return Ok(false);
            }
            if hold.mode == Mode::Shared {
                return readers::repair(&link, &call, &keys, (hold, &standing.text), until).await;
            }
            let write = |cmd: &mut Cmd| {
                cmd.arg(5).arg(keys.lock()).arg(keys.fence()).arg(keys.gone(hold.owner.id_text()));
                cmd.arg(RECORD).arg(HIGHEST);
                cmd.arg(KEPT_MS).arg(hold.owner.expose()).arg(px(hold.ttl + hold.lock_delay));
                cmd.arg(&standing.text).arg(hold.fence.get());
            };
            read(send_counted(&link, &call, None, &script::REPAIR, write, until).await?)
        })
    }

    fn retract<'a>(&'a self, ballot: &'a Arc<Ballot>, until: Until) -> Fut<'a, ()> {
        Box::pin(async move {
            let claim = &ballot.claim;
            let keys = self.keys(&claim.name)?;
            let call = self.attempts.enter(claim.owner.id(), self.options.clock.now())?;
            let (_room, link) = self.room(until).await?;
            let waits = claim.queue.map(|_| ballot);
            let write = |cmd: &mut Cmd| {
                write_keys(cmd, 7, &keys);
                cmd.arg(keys.gone(claim.owner.id_text())).arg(KEPT_MS).arg(claim.owner.expose());
                cmd.arg(entry(claim, &self.connection.options.channel)).arg(ballot.arrival);
            };
            read(send_counted(&link, &call, waits, &script::RETRACT, write, until).await?).map(|_: bool| ())
        })
    }

    fn withdraw<'a>(&'a self, name: &'a Name, owner: &'a Owner, until: Until) -> Fut<'a, Withdrawn> {
        // At once, not when the future is first polled: no vote leaves from here on.
        self.attempts.end(owner.id());
        Box::pin(async move {
            let keys = self.keys(name)?;
            let (_room, link) = self.room(until).await?;
            let may_come_late = self.attempts.may_come_late(owner.id(), link.number);
            let entry = self.attempts.waits(owner.id(), |waits| {
                waits.as_ref().map(|ballot| entry(&ballot.claim, &self.connection.options.channel))
            });
            let entry = entry.unwrap_or_default();
            let write = |cmd: &mut Cmd| {
                write_keys(cmd, if may_come_late { 7 } else { 6 }, &keys);
                if may_come_late {
                    cmd.arg(keys.gone(owner.id_text()));
                }
                cmd.arg(KEPT_MS).arg(owner.expose()).arg(&entry).arg(px(TOMBSTONE));
            };
            let value = send(&link, &script::WITHDRAW, write, until).await?;
            self.attempts.ended(owner.id());
            let withdrawn = reply::withdrawn(&value)?;
            if withdrawn.was_ours && withdrawn.woke == 0 && !withdrawn.by_readers {
                self.contended.note(keys.lock(), Crowd::Nobody);
            }
            Ok(withdrawn)
        })
    }

    fn inspect<'a>(&'a self, names: &'a [Name], until: Until) -> Fut<'a, Vec<Sighting>> {
        Box::pin(async move {
            let (_room, link) = self.room(until).await?;
            let mut seen = Vec::with_capacity(names.len());
            for some in names.chunks(inspect::NAMES_PER_CALL) {
                let keys: Vec<_> = some.iter().map(|name| Keys::new(&self.options.prefix, name)).collect();
                let write = |cmd: &mut Cmd| script::write_inspection(cmd, &keys, true);
                let value = send(&link, &script::INSPECT, write, until).await?;
                seen.extend(script::replies(value, some.len())?);
            }
            seen.iter().map(reply::sighted).collect()
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Name>> {
        Box::pin(inspect::scan_server(&self.connection, (&self.options.prefix, prefix), from, limit, until))
    }

    fn status(&self, until: Until) -> Fut<'_, NodeStatus> {
        Box::pin(async move {
            for _ in 0..2 {
                let link = self.connection.link(until).await?;
                let write = |cmd: &mut Cmd| {
                    cmd.arg(2).arg(RECORD).arg(HIGHEST);
                };
                let value = send(&link, &script::STATUS, write, until).await?;
                match reply::node_status(&value, link.identity.as_deref().unwrap_or_default())? {
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
            read(send(&link, &script::WRITE_RECORD, write, until).await?)
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

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(self.tasks.spawn(task));
    }

    fn close(&self) {
        self.connection.close();
    }
}

impl Listener for RedisVoter {
    fn message(&self, _: u64, _: &[u8], payload: &[u8]) {
        if let Some(owner) = reply::hint(payload) {
            self.tell(|sink| sink.wake(Wake::LookAgain { owner }));
        }
    }

    fn connected(&self) {
        self.tell(|sink| sink.link(LinkChange::Connected));
    }

    fn disconnected(&self, _: u64, why: &str) {
        if let Some(wake) = self.wake.get() {
            wake.notify_one();
        }
        self.tell(|sink| {
            sink.link(LinkChange::Disconnected { why: format!("{}: {why}", self.label) });
            sink.wake(Wake::LookAgainAll);
        });
    }
}
