//! A connection to one server that reconnects: dialled once for all who wait for it, failing fast between dials, replaced
//! when it stops answering or leads to the wrong server.

mod dial;
mod link;
mod subscriptions;
mod tasks;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::watch;

pub(super) use self::{link::Link, tasks::Tasks};
use super::target::DialTarget;
use leasehold_core::{
    clock::{BootInstant, Clock, Until},
    engine::{EngineError, Fault},
};

/// Receives what comes over a connection besides replies. It must not block.
pub(super) trait Listener: Send + Sync {
    /// A message on the wake channel, over the link of that number.
    fn message(&self, link: u64, payload: &[u8]);
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
const MOVED: &str = "the primary is another server now";

/// What a connection is to be.
#[derive(Clone)]
pub(super) struct ConnectionOptions {
    /// Where to dial.
    pub(super) target: DialTarget,
    /// How this client calls itself to the server.
    pub(super) client_name: String,
    /// Where waiters of this connection are woken.
    pub(super) channel: String,
    pub(super) clock: Clock,
    pub(super) command_timeout: Duration,
    /// Whether to ask the server which run of it this is.
    pub(super) identify: bool,
    /// Who learns of messages and link events, if anybody.
    pub(super) listener: Option<Weak<dyn Listener>>,
    pub(super) tasks: Arc<Tasks>,
}

impl ConnectionOptions {
    fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.listener.as_ref().and_then(Weak::upgrade)
    }
}

pub(super) struct Connection {
    options: Arc<ConnectionOptions>,
    state: Mutex<State>,
}

enum State {
    /// Not connected; no dial before `next_dial`. `pause` follows the dial after that, should it fail.
    Down {
        next_dial: BootInstant,
        pause: Duration,
        why: EngineError,
    },
    /// Being dialled; the channel closes when that is over.
    Dialling(watch::Receiver<()>),
    Up {
        link: Arc<Link>,
        pause: Duration,
    },
    Closed,
}

impl State {
    /// To be dialled at once.
    fn down(why: &str) -> Self {
        let why = EngineError::new(Fault::Unreachable, why);
        Self::Down { next_dial: BootInstant::from_nanos(0), pause: DIAL_PAUSE_MIN, why }
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
        if let Some(sentinels) = connection.options.target.sentinels() {
            sentinels.register(&connection);
        }
        connection
    }

    /// The channel on which waiters of this connection are woken.
    pub(super) fn channel(&self) -> &str {
        &self.options.channel
    }

    pub(super) fn target(&self) -> &DialTarget {
        &self.options.target
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.options.tasks
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link; dials if there is none. All who wait share one dial, which goes on if they do not.
    pub(super) async fn link(self: &Arc<Self>, until: Until) -> Result<Arc<Link>, EngineError> {
        let clock = &self.options.clock;
        let late = || EngineError::new(Fault::Unreachable, "no connection in time");
        loop {
            let mut dial = match self.step(clock.now())? {
                Step::Up(link) => return Ok(link),
                Step::Dial(dial) => dial,
                Step::Pause(next_dial) if next_dial >= until => return Err(late()),
                Step::Pause(next_dial) => {
                    clock.sleep_until(next_dial).await;
                    continue;
                }
            };
            // The sender is dropped when the dial is over, which is an error here and all we want to know.
            let _over = clock.bounded(until, dial.changed()).await.ok_or_else(late)?;
            if let State::Down { why, .. } = &*self.state() {
                return Err(why.clone());
            }
        }
    }

    /// What a caller that needs the link does now; an error if there is none for a while.
    fn step(self: &Arc<Self>, now: BootInstant) -> Result<Step, EngineError> {
        let mut state = self.state();
        if let State::Up { link, pause } = &*state {
            if link.moves != self.options.target.moves() {
                link.broke(MOVED);
            }
            let Some(end) = link.broken() else { return Ok(Step::Up(link.clone())) };
            let short = end.at.since(link.since) < LIFE_MIN && end.why != MOVED;
            let why = EngineError::new(Fault::Unreachable, &end.why);
            let after = if short { State::failed(end.at, *pause, why) } else { State::down(&end.why) };
            *state = after;
        }
        let pause = match &*state {
            State::Up { link, .. } => return Ok(Step::Up(link.clone())),
            State::Closed => return Err(closed()),
            State::Down { next_dial, why, .. } if next_dial.since(now) > DIAL_PAUSE_WAITED => {
                return Err(why.clone());
            }
            State::Down { next_dial, .. } if now < *next_dial => return Ok(Step::Pause(*next_dial)),
            State::Down { pause, .. } => *pause,
            State::Dialling(dial) if dial.has_changed().is_ok() => return Ok(Step::Dial(dial.clone())),
            // The former is over without an outcome: its runtime has ended.
            State::Dialling(_) => DIAL_PAUSE_MIN,
        };
        Ok(Step::Dial(self.start_dial(&mut state, pause)))
    }

    /// The target moved: a link to the old server is closed, although nobody uses it, and a dial need not wait any longer.
    pub(super) fn target_moved(&self) {
        let mut state = self.state();
        let link = match &*state {
            State::Up { link, .. } if link.moves != self.options.target.moves() => Some(link.clone()),
            State::Down { .. } => None,
            _ => return,
        };
        *state = State::down(MOVED);
        drop(state);
        link.into_iter().for_each(|link| link.broke(MOVED));
    }

    /// The server is not needed any more: its listener learns that a link is gone.
    pub(super) fn leave(&self, why: &str) {
        if let Some(link) = self.present() {
            link.broke(why);
        }
    }

    fn present(&self) -> Option<Arc<Link>> {
        match &*self.state() {
            State::Up { link, .. } if link.broken().is_none() => Some(link.clone()),
            _ => None,
        }
    }

    pub(super) fn close(&self) {
        *self.state() = State::Closed;
    }
}

enum Step {
    Up(Arc<Link>),
    /// Until a dial may begin.
    Pause(BootInstant),
    Dial(watch::Receiver<()>),
}

pub(super) fn closed() -> EngineError {
    EngineError::new(Fault::Unreachable, "the client was closed")
}
