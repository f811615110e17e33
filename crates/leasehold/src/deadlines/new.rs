//! Deadlines to be set.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::Serialize;

use crate::{
    config::quoted,
    engine::deadlines::{Deadline, DeadlineId, DueTime},
    error::{Error, Result},
};

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

    /// The same as JSON, for [`Due::context_as`](super::Due::context_as).
    ///
    /// # Errors
    /// `invalid` for a value that has no JSON.
    pub fn json(self, context: &impl Serialize) -> Result<Self> {
        match serde_json::to_vec(context) {
            Ok(json) => Ok(self.context(json)),
            Err(error) => Err(Error::invalid(
                format!("context of the deadline \"{}\"", quoted(&self.id)),
                error.to_string(),
                "a value that can be written as JSON",
            )),
        }
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
