//! Acknowledgements on the command line: `1`, `majority`.

use leasehold::{Acks, Error};

/// Reads how many replicas must have a lock.
pub(crate) fn parse(text: &str) -> Result<Acks, String> {
    text.parse().map_err(|error| match error {
        Error::Invalid { allowed, .. } => format!("hint: write {allowed}"),
        other => other.to_string(),
    })
}
