//! Locks as they are shown, the same in every command.

use std::time::Duration;

use leasehold::{
    Fence, Holder,
    engine::{Inspection, Waiter},
};
use serde::Serialize;

use crate::output::spoken;

/// One lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LockView {
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) holder: Option<Holder>,
    pub(crate) fence: Option<Fence>,
    pub(crate) expires_in_ms: Option<u64>,
    pub(crate) waiting: u32,
}

/// What a lock is, as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Somebody holds it.
    Held,
    /// Nobody holds it at this moment, and somebody waits.
    Waiting,
    /// Nobody holds it or waits.
    Free,
}

impl State {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Waiting => "waiting",
            Self::Free => "free",
        }
    }
}

impl From<&Inspection> for LockView {
    fn from(lock: &Inspection) -> Self {
        let state = match (lock.held(), lock.waiting) {
            (Some(_), _) => State::Held,
            (None, 0) => State::Free,
            (None, _) => State::Waiting,
        };
        let held = lock.held();
        Self {
            name: lock.name.to_string(),
            state,
            holder: held.map(|tenure| tenure.holder.clone()),
            fence: held.map(|tenure| tenure.fence),
            expires_in_ms: held.and_then(|tenure| tenure.expires_in).map(millis),
            waiting: lock.waiting,
        }
    }
}

impl LockView {
    pub(crate) fn holder_text(&self) -> String {
        self.holder.as_ref().map_or_else(|| "-".into(), ToString::to_string)
    }

    pub(crate) fn fence_text(&self) -> String {
        self.fence.map_or_else(|| "-".into(), |fence| fence.to_string())
    }

    pub(crate) fn ttl_text(&self) -> String {
        match (self.state, self.expires_in_ms) {
            (State::Held, None) => "never ends".into(),
            (_, None) => "-".into(),
            (_, Some(left)) => spoken(Duration::from_millis(left)),
        }
    }
}

/// One waiter.
#[derive(Debug, Serialize)]
pub(crate) struct WaiterView {
    pub(crate) holder: Holder,
    pub(crate) waiting_for_ms: u64,
}

impl From<&Waiter> for WaiterView {
    fn from(waiter: &Waiter) -> Self {
        Self { holder: waiter.holder.clone(), waiting_for_ms: millis(waiter.waiting_for) }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes as text where they are text, else in hexadecimal.
pub(crate) fn readable(bytes: &[u8]) -> Result<String, String> {
    let hex = |_| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    std::str::from_utf8(bytes).map(str::to_owned).map_err(hex)
}
