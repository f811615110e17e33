//! Reports of the server that a key was changed by somebody else (`CLIENT TRACKING`).
//!
//! Tracking is switched on with the first renewal over a link. `OPTIN`: the server remembers what is read right after
//! `CLIENT CACHING YES`, so claims and releases over the same connection cost it nothing. `NOLOOP`: it does not report what
//! this connection changes. A write ends what it remembers of a key, so each renewal is followed by a read.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use redis::{Cmd, PushInfo, Value};

use super::{Link, link::Signals};
use crate::{Result, info::command, topology::outcome};
use leasehold_core::{
    clock::{BootInstant, Until},
    engine::{EngineError, Fault},
};

/// How long nothing is tried after a server, or a proxy before it, answered a request to track by silence or a hang-up.
const SILENCE_PAUSE: std::time::Duration = std::time::Duration::from_secs(300);

const ON: u8 = 0;
const SILENT: u8 = 1;
const REFUSED: u8 = 2;

/// Whether the servers of one client track keys, as far as is known.
#[derive(Default)]
pub(crate) struct Tracking {
    state: AtomicU8,
    /// When to try again after silence, on the boot clock.
    again_at: AtomicU64,
}

impl Tracking {
    /// Whether a server that was asked to track has done so, and one that was not asked yet probably will.
    pub(crate) fn is_on(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ON
    }

    fn may_be_asked(&self, now: BootInstant) -> bool {
        now.as_nanos() >= self.again_at.load(Ordering::Relaxed)
    }

    fn answered(&self, answer: &Result<()>, now: BootInstant) {
        let exchange = |from, to| self.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        match answer {
            Ok(()) => drop(exchange(SILENT, ON)),
            Err(error) if error.fault == Fault::NoAnswer => {
                self.again_at.store((now + SILENCE_PAUSE).as_nanos(), Ordering::Relaxed);
                let _unless_refused = exchange(ON, SILENT);
            }
            Err(error) => {
                if self.state.swap(REFUSED, Ordering::Relaxed) != REFUSED {
                    tracing::debug!(%error, "the server does not report lost locks: renewals find them");
                }
            }
        }
    }
}

fn remember_next_read() -> Cmd {
    command(&["CLIENT", "CACHING", "YES"])
}

impl Link {
    /// Whether the server tracks keys for this link. It is asked once.
    pub(crate) async fn is_tracked(&self, until: Until) -> Result<bool> {
        let options = &self.signals.options;
        let ask = || async {
            let tracking = command(&["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"]);
            // The last one reads nothing, and needs no right: it undoes the one before.
            let commands = vec![tracking, remember_next_read(), command(&["HELLO"])];
            let answers = self.send_all(commands, until).await;
            let answer = answers.into_iter().try_for_each(|answer| answer.map(drop));
            options.tracking.answered(&answer, options.clock.now());
            match answer {
                Err(error) if error.fault == Fault::NoAnswer => Err(error),
                answer => Ok(answer.is_ok()),
            }
        };
        if !self.tracked.initialized() && !options.tracking.may_be_asked(options.clock.now()) {
            return Ok(false);
        }
        // Also while somebody else asks.
        let asked = options.clock.bounded(until, self.tracked.get_or_try_init(ask)).await;
        asked.unwrap_or_else(|| Err(EngineError::no_answer())).copied()
    }

    /// Runs a script that renews leases over a link that is tracked. From then on the server reports over it when somebody
    /// else changes what was read after the renewal: by `read` in the same write, or by the script itself. Returns the replies
    /// to both; none to `read` if it failed.
    pub(crate) async fn run_tracked(
        &self,
        build: impl Fn(bool) -> Cmd,
        read: Option<Cmd>,
        until: Until,
    ) -> Result<(Value, Option<Value>)> {
        let mut by_hash = true;
        loop {
            let script = build(by_hash);
            let commands = match &read {
                None => vec![remember_next_read(), script],
                Some(read) => vec![script, remember_next_read(), read.clone()],
            };
            let mut replies = self.send_all(commands, until).await;
            match replies.remove(usize::from(read.is_none())) {
                Err(error) if by_hash && outcome::is_unknown_script(&error) => by_hash = false,
                renewed => return Ok((renewed?, replies.pop().and_then(Result::ok))),
            }
        }
    }
}

impl Signals {
    /// The server reports keys, or that there may be none left of those that it remembered.
    pub(super) fn invalidated(&self, push: &PushInfo) {
        let Some(listener) = self.options.listener() else { return };
        match push.data.first() {
            Some(Value::Array(keys)) => {
                let keys = keys.iter().filter_map(|key| match key {
                    Value::BulkString(key) => Some(key),
                    _ => None,
                });
                keys.for_each(|key| listener.changed(self.number, Some(key)));
            }
            _ => listener.changed(self.number, None),
        }
    }
}
