//! A connection to one server that reconnects: dialled once for all who wait for it, failing fast between dials, replaced
//! when it stops answering or leads to the wrong server.

mod dial;
mod link;
mod native;
mod tasks;
mod tracking;

use std::{
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use redis::Client;
use tokio::sync::watch;

use self::tracking::Tracking;
pub(super) use self::{
    link::{Link, Sharded},
    tasks::Tasks,
};
use super::{Result, locked, topology::sentinel::Sentinels, unreachable, url::Endpoint};
use leasehold_core::{
    clock::{BootInstant, Clock, Until},
    engine::{EngineError, EngineOptions},
};

/// Receives what comes over a connection besides replies. It must not block.
pub(super) trait Listener: Send + Sync {
    /// A message on a channel, over the link of that number.
    fn message(&self, link: u64, channel: &[u8], payload: &[u8]);
    /// Somebody else changed a key that a renewal has read over the link of that number; `None`: perhaps all of them.
    fn changed(&self, _link: u64, _key: Option<&[u8]>) {}
    /// A link is up.
    fn connected(&self);
    /// The link of that number broke.
    fn disconnected(&self, link: u64, why: &str);
    /// Something was sent whose reply is waited for.
    fn asked(&self) {}
}

/// A link that breaks sooner counts as a failed dial: otherwise a peer that accepts and closes is dialled without pause.
const LIFE_MIN: Duration = Duration::from_secs(1);
const DIAL_PAUSE_MIN: Duration = Duration::from_millis(20);
const DIAL_PAUSE_MAX: Duration = Duration::from_secs(1);
/// A pause this short is waited out; with a longer one ahead a call fails at once.
const DIAL_PAUSE_WAITED: Duration = Duration::from_millis(100);
pub(super) const MOVED: &str = "the primary is another server now";
/// No dial failed just now.
const AT_ONCE: BootInstant = BootInstant::from_nanos(0);

#[derive(Clone)]
pub(super) struct ConnectionOptions {
    /// The login; the server, too, unless sentinels name it.
    pub(super) client: Client,
    /// Who names the server, if it may be another one next time.
    pub(super) sentinels: Option<Arc<Sentinels>>,
    /// How this client calls itself to the server.
    pub(super) client_name: String,
    /// Where waiters of this connection are woken.
    pub(super) channel: Arc<str>,
    pub(super) clock: Clock,
    pub(super) command_timeout: Duration,
    /// Whether to ask the server which run of it this is.
    pub(super) identify: bool,
    /// Who learns of messages and link events, if anybody.
    pub(super) listener: Option<Weak<dyn Listener>>,
    /// Whether the servers report changes.
    pub(super) tracking: Arc<Tracking>,
    pub(super) tasks: Arc<Tasks>,
}

impl ConnectionOptions {
    pub(super) fn new(
        client: Client,
        sentinels: Option<Arc<Sentinels>>,
        options: &EngineOptions,
        listener: Weak<dyn Listener>,
        tasks: Arc<Tasks>,
    ) -> Self {
        let label = options.client_name.replace(|c: char| !c.is_ascii_graphic(), "-");
        Self {
            identify: sentinels.as_ref().is_some_and(|sentinels| sentinels.grace.is_some()),
            client,
            sentinels,
            client_name: if label.is_empty() { "leasehold".into() } else { format!("leasehold:{label}") },
            channel: Arc::default(),
            clock: options.clock.clone(),
            command_timeout: options.command_timeout,
            listener: Some(listener),
            tracking: Arc::default(),
            tasks,
        }
    }

    /// The same login at one server.
    pub(super) fn at(&self, endpoint: &Endpoint) -> Self {
        Self { client: endpoint.client(&self.client), sentinels: None, ..self.clone() }
    }

    /// The server to dial now.
    async fn server(&self) -> Result<Client> {
        match &self.sentinels {
            None => Ok(self.client.clone()),
            Some(sentinels) => Ok(sentinels.primary().await?.client(&self.client)),
        }
    }

    /// How often the server moved: a link made before the last time must not be used any more.
    fn moves(&self) -> u64 {
        self.sentinels.as_ref().map_or(0, |sentinels| sentinels.moves())
    }

    /// How long nothing new is granted after a promotion, if that was asked for.
    pub(super) fn grace(&self) -> Option<Duration> {
        self.sentinels.as_ref()?.grace
    }

    fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.listener.as_ref().and_then(Weak::upgrade)
    }
}

pub(super) struct Connection {
    pub(super) options: Arc<ConnectionOptions>,
    state: Mutex<State>,
}

/// Closes when a dial is over.
type Dial = watch::Receiver<()>;

enum State {
    /// Not connected; no dial before `next_dial`. `pause` follows the dial after that, should it fail.
    Down {
        next_dial: BootInstant,
        pause: Duration,
        why: EngineError,
    },
    Dialling(Dial),
    Up {
        link: Arc<Link>,
        pause: Duration,
    },
    Closed,
}

impl State {
    /// To be dialled at once.
    fn down(why: &str) -> Self {
        Self::Down { next_dial: AT_ONCE, pause: DIAL_PAUSE_MIN, why: unreachable(why) }
    }

    /// After a failed dial, or a link that broke at once.
    fn failed(at: BootInstant, pause: Duration, why: EngineError) -> Self {
        // Clients that lost one server do not come back at the same moment.
        let next_dial = at + pause.mul_f64(0.5 + rand::random::<f64>());
        Self::Down { next_dial, pause: (pause * 2).min(DIAL_PAUSE_MAX), why }
    }
}

impl Connection {
    pub(super) fn new(options: ConnectionOptions) -> Arc<Self> {
        let state = Mutex::new(State::down("not connected yet"));
        let connection = Arc::new(Self { options: Arc::new(options), state });
        if let Some(sentinels) = &connection.options.sentinels {
            sentinels.register(&connection);
        }
        connection
    }

    /// The link, if it is up.
    pub(super) fn link_now(&self) -> Option<Arc<Link>> {
        match &*locked(&self.state) {
            State::Up { link, .. } if link.is_up(self.options.moves()) => Some(link.clone()),
            _ => None,
        }
    }

    /// The link; dials if there is none. All who wait share one dial, which goes on if they do not.
    pub(super) async fn link(self: &Arc<Self>, until: Until) -> Result<Arc<Link>> {
        match self.link_now() {
            Some(link) => Ok(link),
            None => Box::pin(self.dialled(until)).await,
        }
    }

    async fn dialled(self: &Arc<Self>, until: Until) -> Result<Arc<Link>> {
        loop {
            let mut dial = match self.link_or_dial()? {
                Ok(link) => return Ok(link),
                Err(dial) => dial,
            };
            // The sender is dropped when the dial is over, which is an error here and all we want to know.
            let over = self.options.clock.bounded(until, dial.changed()).await;
            let _over = over.ok_or_else(|| unreachable("no connection in time"))?;
            match &*locked(&self.state) {
                // The link was left before we heard of it.
                State::Down { next_dial: AT_ONCE, .. } => {}
                State::Down { why, .. } => return Err(why.clone()),
                _ => {}
            }
        }
    }

    /// The link, or the dial to wait for; an error if there is none for a while.
    fn link_or_dial(self: &Arc<Self>) -> Result<Result<Arc<Link>, Dial>> {
        let mut state = locked(&self.state);
        if let State::Up { link, pause } = &*state {
            if link.moves != self.options.moves() {
                link.broke(MOVED);
            }
            let Some((at, why)) = link.signals.end.get() else { return Ok(Ok(link.clone())) };
            let is_short = at.since(link.since) < LIFE_MIN && why != MOVED;
            let failed = || State::failed(*at, *pause, unreachable(why));
            let after = if is_short { failed() } else { State::down(why) };
            *state = after;
        }
        let now = self.options.clock.now();
        let (at, pause) = match &*state {
            State::Down { next_dial, why, .. } if next_dial.since(now) > DIAL_PAUSE_WAITED => {
                return Err(why.clone());
            }
            State::Down { next_dial, pause, .. } => (*next_dial, *pause),
            State::Dialling(dial) if dial.has_changed().is_ok() => return Ok(Err(dial.clone())),
            // The former is over without an outcome: its runtime has ended.
            State::Dialling(_) => (now, DIAL_PAUSE_MIN),
            State::Up { .. } | State::Closed => return Err(closed()),
        };
        Ok(Err(self.start_dial(&mut state, at, pause)))
    }

    /// The server is not needed any more, or another one is: a link is closed although nobody uses it, and its listener
    /// learns of that; a dial need not wait any longer.
    pub(super) fn leave(&self, why: &str) {
        let mut state = locked(&self.state);
        let link = match &*state {
            State::Up { link, .. } => Some(link.clone()),
            State::Down { .. } => None,
            _ => return,
        };
        *state = State::down(why);
        drop(state);
        link.into_iter().for_each(|link| link.broke(why));
    }

    pub(super) fn close(&self) {
        *locked(&self.state) = State::Closed;
    }
}

pub(super) fn closed() -> EngineError {
    unreachable("the client was closed")
}
