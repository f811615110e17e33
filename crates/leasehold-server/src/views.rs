//! What answers show of locks, the same everywhere.

use std::time::Duration;

use leasehold::{
    Fence, Holder, Mode,
    engine::{Inspection, Tenure, Waiter},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Who holds something or waits for it. No owner value is ever shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(rename = "Holder")]
pub(crate) enum HolderView {
    /// A client of this library.
    Leasehold {
        host: String,
        pid: u32,
        /// When its attempt started, by its own wall clock.
        since_ms: u64,
        label: String,
    },
    /// A client of another library.
    Foreign,
}

impl From<&Holder> for HolderView {
    fn from(holder: &Holder) -> Self {
        match holder {
            Holder::Leasehold { host, pid, since_ms, label } => {
                Self::Leasehold { host: host.clone(), pid: *pid, since_ms: *since_ms, label: label.clone() }
            }
            _ => Self::Foreign,
        }
    }
}

/// What people call a holder: its label, or its host.
pub(crate) fn label_of(holder: &Holder) -> &str {
    match holder {
        Holder::Leasehold { host, label, .. } if label.is_empty() => host,
        Holder::Leasehold { label, .. } => label,
        _ => "another library",
    }
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Mode")]
pub(crate) enum ModeWord {
    Exclusive,
    Shared,
    Permits,
}

impl From<Mode> for ModeWord {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Shared => Self::Shared,
            Mode::Permits { .. } => Self::Permits,
            _ => Self::Exclusive,
        }
    }
}

pub(crate) fn permits(mode: Mode) -> Option<u32> {
    Some(mode.permits()).filter(|permits| *permits > 0)
}

/// One holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct HolderRow {
    holder: HolderView,
    fence: Fence64,
    mode: ModeWord,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    expires_in_ms: Option<u64>,
}

impl From<&Tenure> for HolderRow {
    fn from(tenure: &Tenure) -> Self {
        Self {
            holder: (&tenure.holder).into(),
            fence: tenure.fence.into(),
            mode: tenure.mode.into(),
            permits: permits(tenure.mode),
            expires_in_ms: tenure.expires_in.map(millis),
        }
    }
}

/// One waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct WaiterRow {
    holder: HolderView,
    mode: ModeWord,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    waiting_for_ms: u64,
}

impl From<&Waiter> for WaiterRow {
    fn from(waiter: &Waiter) -> Self {
        Self {
            holder: (&waiter.holder).into(),
            mode: waiter.mode.into(),
            permits: permits(waiter.mode),
            waiting_for_ms: millis(waiter.waiting_for),
        }
    }
}

/// A fencing token: an integer below 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "Fence")]
pub(crate) struct Fence64(pub(crate) u64);

impl From<Fence> for Fence64 {
    fn from(fence: Fence) -> Self {
        Self(fence.get())
    }
}

/// What a lock is, as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LockState {
    Held,
    /// Nobody holds it at this moment, and somebody waits.
    Waiting,
    Free,
}

impl LockState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Waiting => "waiting",
            Self::Free => "free",
        }
    }
}

/// One lock. `holder`, `fence` and `expires_in_ms` are those of its first holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct LockRow {
    pub(crate) name: String,
    pub(crate) state: LockState,
    pub(crate) mode: Option<ModeWord>,
    pub(crate) holder: Option<HolderView>,
    pub(crate) fence: Option<Fence64>,
    pub(crate) expires_in_ms: Option<u64>,
    pub(crate) waiting: u32,
    pub(crate) holders_total: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permits_used: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u32>,
    /// How long the service has seen its first holder hold it.
    pub(crate) held_for_ms: Option<u64>,
    /// The most that was left of the first holder's lease when the service looked: about its ttl.
    pub(crate) ttl_ms: Option<u64>,
    /// How often that lease was seen renewed.
    pub(crate) renewals: u32,
}

impl From<&Inspection> for LockRow {
    fn from(lock: &Inspection) -> Self {
        let held = lock.held();
        let state = match (held, lock.waiting) {
            (Some(_), _) => LockState::Held,
            (None, 0) => LockState::Free,
            (None, _) => LockState::Waiting,
        };
        let expires_in_ms = held.and_then(|tenure| tenure.expires_in).map(millis);
        Self {
            name: lock.name.to_string(),
            state,
            mode: lock.mode().map(ModeWord::from),
            holder: held.map(|tenure| (&tenure.holder).into()),
            fence: held.map(|tenure| tenure.fence.into()),
            expires_in_ms,
            waiting: lock.waiting,
            holders_total: lock.holders.total,
            permits_used: lock.permits_used(),
            limit: lock.limit.map(u32::from),
            held_for_ms: None,
            ttl_ms: expires_in_ms,
            renewals: 0,
        }
    }
}

/// A page, and where the next one begins.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub(crate) struct PageOf<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

/// All there is.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub(crate) struct ListOf<T> {
    pub(crate) items: Vec<T>,
}

/// Bytes as text where they are text, else in hexadecimal.
pub(crate) fn readable(bytes: &[u8]) -> Result<String, String> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| hex(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let half = |digit: &u8| char::from(*digit).to_digit(16).filter(|_| !digit.is_ascii_uppercase());
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some((half(high)? << 4 | half(low)?) as u8)).collect()
}
