//! Deadlines to be set.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::engine::deadlines::{Deadline, DeadlineId, DueTime};

impl Deadline {
    /// A deadline without context. It is due after a [`Duration`] by the store's clock, or at a [`SystemTime`].
    pub fn new(id: impl Into<DeadlineId>, due: impl Into<DueTime>) -> Self {
        Self { id: id.into(), due: due.into(), context: None }
    }

    /// What whoever claims it shall know.
    #[must_use]
    pub fn context(self, context: impl Into<Bytes>) -> Self {
        Self { context: Some(context.into()), ..self }
    }
}

impl From<Duration> for DueTime {
    fn from(after: Duration) -> Self {
        Self::In(after)
    }
}

/// A time before 1970 is due at once.
impl From<SystemTime> for DueTime {
    fn from(at: SystemTime) -> Self {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::AtMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}
