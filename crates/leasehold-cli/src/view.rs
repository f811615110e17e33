//! Locks as they are shown, the same in every command.

use std::time::Duration;

use leasehold::{
    Fence, Holder, Mode,
    engine::{Inspection, Tenure, Waiter},
};
use serde::Serialize;

use crate::output::spoken;

/// One lock. `holder`, `fence` and `expires_in_ms` are those of the first holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LockView {
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) holder: Option<Holder>,
    pub(crate) fence: Option<Fence>,
    pub(crate) expires_in_ms: Option<u64>,
    pub(crate) waiting: u32,
    /// How it is held, if it is.
    pub(crate) mode: Option<&'static str>,
    /// All of them, or as many as a store lists.
    pub(crate) holders: Vec<HolderView>,
    pub(crate) holders_total: u32,
    /// Only of a semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permits_used: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u32>,
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
    pub(crate) fn of(lock: &Inspection) -> Self {
        match (lock.held(), lock.waiting) {
            (Some(_), _) => Self::Held,
            (None, 0) => Self::Free,
            (None, _) => Self::Waiting,
        }
    }

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
        let held = lock.held();
        Self {
            name: lock.name.to_string(),
            state: State::of(lock),
            holder: held.map(|tenure| tenure.holder.clone()),
            fence: held.map(|tenure| tenure.fence),
            expires_in_ms: held.and_then(|tenure| tenure.expires_in).map(millis),
            waiting: lock.waiting,
            mode: lock.mode().map(Mode::as_str),
            holders: lock.holders.shown.iter().map(HolderView::from).collect(),
            holders_total: lock.holders.total,
            permits_used: lock.permits_used(),
            limit: lock.limit.map(u32::from),
        }
    }
}

impl LockView {
    /// `3 of 5 permits` of a semaphore.
    pub(crate) fn permits_text(&self) -> Option<String> {
        Some(format!("{} of {} permits", self.permits_used?, self.limit?))
    }

    /// How many holders are not listed.
    pub(crate) fn unlisted(&self) -> u32 {
        self.holders_total - (self.holders.len() as u32).min(self.holders_total)
    }
}

/// One holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HolderView {
    pub(crate) holder: Holder,
    pub(crate) fence: Fence,
    #[serde(flatten)]
    pub(crate) mode: ModeView,
    pub(crate) expires_in_ms: Option<u64>,
}

impl From<&Tenure> for HolderView {
    fn from(tenure: &Tenure) -> Self {
        Self {
            holder: tenure.holder.clone(),
            fence: tenure.fence,
            mode: tenure.mode.into(),
            expires_in_ms: tenure.expires_in.map(millis),
        }
    }
}

impl HolderView {
    pub(crate) fn ttl_text(&self) -> String {
        self.expires_in_ms.map_or_else(|| "never ends".into(), |left| spoken(Duration::from_millis(left)))
    }
}

/// How one of them holds it, or wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ModeView {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
}

impl From<Mode> for ModeView {
    fn from(mode: Mode) -> Self {
        Self { mode: mode.as_str(), permits: Some(mode.permits()).filter(|permits| *permits > 0) }
    }
}

/// `exclusive`, `shared`, `2 permits`: of how many they are is the lock's to know, and may have changed.
impl std::fmt::Display for ModeView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.permits {
            None => f.write_str(self.mode),
            Some(1) => f.write_str("1 permit"),
            Some(permits) => write!(f, "{permits} permits"),
        }
    }
}

/// One waiter.
#[derive(Debug, Serialize)]
pub(crate) struct WaiterView {
    pub(crate) holder: Holder,
    #[serde(flatten)]
    pub(crate) mode: ModeView,
    pub(crate) waiting_for_ms: u64,
}

impl From<&Waiter> for WaiterView {
    fn from(waiter: &Waiter) -> Self {
        let (holder, mode) = (waiter.holder.clone(), waiter.mode.into());
        Self { holder, mode, waiting_for_ms: millis(waiter.waiting_for) }
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
