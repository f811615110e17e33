//! A connection while it is up, and the subscriptions by which wake-ups come over it.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use tokio::sync::OnceCell;

use super::{Connection, ConnectionOptions, native::Native};
use crate::{Result, info::command, locked, reply, topology::outcome};
use leasehold_core::{
    clock::{BootInstant, Until},
    engine::{EngineError, Fault},
};

/// Commands without a reply after which a link is given up.
const TIMEOUTS_MAX: u32 = 2;
/// A command given less time than this says nothing about the link.
const TIMEOUT_COUNTS_FROM: Duration = Duration::from_millis(200);

/// A waiter asks again well within this time, so a slot that nobody asked about for longer has none.
const UNUSED_AFTER: Duration = Duration::from_secs(15);
/// Subscriptions that are kept whatever they are used for.
const KEPT: usize = 64;

/// When a waiter last needed each, and whether the server has confirmed it.
type Subscriptions<T> = HashMap<T, (BootInstant, Arc<OnceCell<()>>)>;

/// A connection that is up. It is never repaired: what was learnt over it means nothing on the next.
pub(crate) struct Link {
    pub(super) inner: MultiplexedConnection,
    /// Tells links apart.
    pub(crate) number: u64,
    /// This run of the server and its data set, if it was asked for: a link cannot outlive either.
    pub(crate) identity: Option<String>,
    pub(super) since: BootInstant,
    /// How often the target had moved when it was dialled.
    pub(super) moves: u64,
    /// Whether wake-ups on the channel of the connection come over it.
    pub(crate) subscribed: OnceCell<()>,
    /// In a cluster, which slots' wake-ups do.
    pub(super) subscriptions: Mutex<Subscriptions<u16>>,
    /// Which other channels are subscribed to: those of locks in Redisson's format.
    pub(super) channels: Mutex<Subscriptions<String>>,
    pub(super) timeouts: AtomicU32,
    /// How this server deletes a key if it has a given value, unless it takes a script.
    pub(super) native: Native,
    /// Whether changes are reported over it, once the server was asked.
    pub(super) tracked: OnceCell<bool>,
    pub(super) signals: Arc<Signals>,
}

/// What the driver's own task reports, from the first byte on.
pub(super) struct Signals {
    pub(super) options: Arc<ConnectionOptions>,
    pub(super) number: u64,
    /// When and why the link broke.
    pub(super) end: OnceLock<(BootInstant, String)>,
    /// Replies can no longer be told apart.
    pub(super) shifted: AtomicBool,
}

impl Signals {
    pub(super) fn broke(&self, why: &str) {
        if self.end.set((self.options.clock.now(), why.to_owned())).is_ok() {
            tracing::debug!(why, "replacing the connection");
            if let Some(listener) = self.options.listener() {
                listener.disconnected(self.number, why);
            }
        }
    }
}

impl Link {
    /// Whether it may be used: it has not broken, and its target has not moved since.
    pub(super) fn is_up(&self, moves: u64) -> bool {
        self.moves == moves && self.signals.end.get().is_none()
    }

    /// Makes sure that the next call takes a new link.
    pub(crate) fn broke(&self, why: &str) {
        self.signals.broke(why);
    }

    pub(crate) async fn send(&self, cmd: &Cmd, until: Until) -> Result<Value> {
        let mut inner = self.inner.clone();
        // The driver's future is large, and would be part of each that waits for it.
        self.answered(Box::pin(inner.send_packed_command(cmd)), until).await
    }

    /// Sends one command, to a node that is about to get its slot if `asking`: then both commands leave together, and
    /// nothing gets in between.
    pub(crate) async fn send_to(&self, asking: bool, cmd: &Cmd, until: Until) -> Result<Value> {
        if !asking {
            return self.send(cmd, until).await;
        }
        let both = self.send_all(vec![command(&["ASKING"]), cmd.clone()], until);
        Box::pin(both).await.pop().unwrap_or_else(|| Err(EngineError::no_answer()))
    }

    /// Sends commands in one write; one reply each.
    pub(crate) async fn send_all(&self, cmds: Vec<Cmd>, until: Until) -> Vec<Result<Value>> {
        let mut inner = self.inner.clone();
        let count = cmds.len();
        let mut all = redis::Pipeline::with_capacity(count);
        for cmd in cmds {
            all.add_command(cmd);
        }
        let values = async { inner.send_packed_commands(&all, 0, count).await.map(Value::Array) };
        match self.answered(Box::pin(values), until).await {
            Ok(Value::Array(values)) if values.len() == count => {
                values.into_iter().map(|value| self.unless_error(value)).collect()
            }
            Ok(other) => vec![Err(reply::unexpected(&other)); count],
            Err(error) => vec![Err(error); count],
        }
    }

    /// Sends a script by its hash, and its text when the server does not know it (any more).
    pub(crate) async fn run_script(
        &self,
        asking: bool,
        build: impl Fn(bool) -> Cmd,
        until: Until,
    ) -> Result<Value> {
        match self.send_to(asking, &build(true), until).await {
            Err(error) if outcome::is_unknown_script(&error) => {
                Box::pin(self.send_to(asking, &build(false), until)).await
            }
            answer => answer,
        }
    }

    async fn answered(
        &self,
        answer: impl Future<Output = RedisResult<Value>>,
        until: Until,
    ) -> Result<Value> {
        let options = &self.signals.options;
        let began = options.clock.now();
        if let Some(listener) = options.listener() {
            listener.asked();
        }
        let answer = options.clock.bounded(until, answer).await;
        if answer.is_some() && self.signals.shifted.load(Ordering::Acquire) {
            return Err(EngineError::new(Fault::NoAnswer, "the connection was replaced"));
        }
        match answer {
            Some(Ok(value)) => self.unless_error(value),
            Some(Err(error)) => Err(self.failed(&error)),
            None => {
                let least = TIMEOUT_COUNTS_FROM.min(options.command_timeout);
                let counts = options.clock.now().since(began) >= least;
                if counts && self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX {
                    self.broke("the server stopped answering");
                }
                Err(EngineError::no_answer())
            }
        }
    }

    fn unless_error(&self, value: Value) -> Result<Value> {
        if let Value::ServerError(error) = value {
            return Err(self.failed(&error.into()));
        }
        self.timeouts.store(0, Ordering::Relaxed);
        Ok(value)
    }

    fn failed(&self, error: &RedisError) -> EngineError {
        if error.is_io_error() || error.is_unrecoverable_error() {
            self.broke(&error.to_string());
            return reply::of_command(error);
        }
        self.timeouts.store(0, Ordering::Relaxed);
        self.refused(reply::of_command(error))
    }

    /// A refusal by a server that takes no writes, or that has other data than at the dial, means that this link leads to
    /// the wrong server: nothing happened, and the next dial looks for the right one.
    pub(crate) fn refused(&self, error: EngineError) -> EngineError {
        if outcome::is_wrong_server(&error) {
            self.broke(&error.why);
            return EngineError { fault: Fault::Unreachable, ..error };
        }
        error
    }

    /// The replies of one call, unless the server takes no writes.
    pub(crate) fn believed(&self, replies: Vec<Value>) -> Result<Vec<Value>> {
        match replies.iter().find_map(reply::read_only) {
            Some(error) => Err(self.refused(error)),
            None => Ok(replies),
        }
    }

    /// Makes sure that wake-ups come over this link; returns when the server confirmed it.
    pub(crate) async fn subscribe(&self, until: Until) -> Result<()> {
        let cmd = command(&["SUBSCRIBE", &self.signals.options.channel]);
        self.confirm(&self.subscribed, &cmd, false, until).await
    }

    /// The same for the wake-ups of a slot.
    async fn subscribe_slot(&self, (slot, channel): (u16, &str), asking: bool, until: Until) -> Result<()> {
        let confirmed = self.needs(&self.subscriptions, slot);
        self.confirm(&confirmed, &command(&["SSUBSCRIBE", channel]), asking, until).await
    }

    /// A waiter needs a subscription now; whether the server has confirmed it.
    fn needs<T: Eq + Hash>(&self, subscriptions: &Mutex<Subscriptions<T>>, what: T) -> Arc<OnceCell<()>> {
        let now = self.signals.options.clock.now();
        let mut subscriptions = locked(subscriptions);
        let (used_at, confirmed) = subscriptions.entry(what).or_insert((now, Arc::default()));
        *used_at = now;
        confirmed.clone()
    }

    async fn confirm(&self, confirmed: &OnceCell<()>, cmd: &Cmd, asking: bool, until: Until) -> Result<()> {
        let confirmed =
            confirmed.get_or_try_init(|| async { self.send_to(asking, cmd, until).await.map(drop) });
        // Also while somebody else subscribes.
        let confirmed = self.signals.options.clock.bounded(until, confirmed).await;
        confirmed.unwrap_or_else(|| Err(EngineError::no_answer())).copied()
    }
}

/// Whether so many subscriptions have no waiter that a new link is cheaper.
fn mostly_unused<T>(subscriptions: &Subscriptions<T>, now: BootInstant) -> bool {
    let unused = subscriptions.values().filter(|(used_at, _)| now.since(*used_at) > UNUSED_AFTER);
    subscriptions.len() >= KEPT && unused.count() * 2 > subscriptions.len()
}

/// Whether a channel belongs to a slot of a cluster.
pub(crate) struct Sharded(pub(crate) bool);

impl Connection {
    /// Makes sure that wake-ups of one slot of a cluster come over the link, on a channel of that slot.
    pub(crate) async fn subscribe_slot(
        self: &Arc<Self>,
        (slot, channel): (u16, &str),
        asking: bool,
        until: Until,
    ) -> Result<()> {
        let link = self.link_to_subscribe(|link| &link.subscriptions, &slot, until).await?;
        link.subscribe_slot((slot, channel), asking, until).await
    }

    /// Makes sure that the messages on a channel come over the link, and returns its number. In a cluster the channel is that
    /// of a slot.
    pub(crate) async fn subscribe_to(
        self: &Arc<Self>,
        channel: &str,
        Sharded(sharded): Sharded,
        asking: bool,
        until: Until,
    ) -> Result<u64> {
        let channel = channel.to_owned();
        let link = self.link_to_subscribe(|link| &link.channels, &channel, until).await?;
        let subscribe = command(&[if sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" }, &channel]);
        let confirmed = link.needs(&link.channels, channel);
        link.confirm(&confirmed, &subscribe, asking, until).await?;
        Ok(link.number)
    }

    /// The link for a subscription; another one than before if most of those that it has are not used any more.
    async fn link_to_subscribe<T: Eq + Hash>(
        self: &Arc<Self>,
        subscriptions: impl Fn(&Link) -> &Mutex<Subscriptions<T>>,
        what: &T,
        until: Until,
    ) -> Result<Arc<Link>> {
        let link = self.link(until).await?;
        let is_crowded = {
            let subscriptions = locked(subscriptions(&link));
            !subscriptions.contains_key(what) && mostly_unused(&subscriptions, self.options.clock.now())
        };
        if !is_crowded {
            return Ok(link);
        }
        // To unsubscribe would shift the driver's replies: only a new link is rid of them.
        link.broke("most wake-ups that come over it have no waiter");
        self.link(until).await
    }

    /// Whether wake-ups of a slot come over the present link.
    pub(crate) fn is_subscribed(&self, slot: u16) -> bool {
        let is_confirmed = |link: Arc<Link>| {
            locked(&link.subscriptions).get(&slot).is_some_and(|(_, confirmed)| confirmed.initialized())
        };
        self.link_now().is_some_and(is_confirmed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_replaced_when_most_of_many_subscriptions_have_no_waiter() {
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let slots = |unused: u16, used: u16| -> Subscriptions<u16> {
            let times = (0..unused).map(|_| 1).chain((0..used).map(|_| 50));
            times.zip(0..).map(|(seconds, slot)| (slot, (at(seconds), Arc::default()))).collect()
        };
        assert!(mostly_unused(&slots(33, 31), at(60)));
        assert!(!mostly_unused(&slots(32, 32), at(60)), "half of them");
        assert!(!mostly_unused(&slots(33, 31), at(10)), "a moment ago");
        assert!(!mostly_unused(&slots(60, 0), at(60)), "few");
    }
}
