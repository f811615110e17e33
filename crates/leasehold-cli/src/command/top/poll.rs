//! One question to the store.

use std::time::Instant;

use leasehold::{Leasehold, Result};

use super::{
    model::{Answered, Question},
    seen::Listing,
};
use crate::command::ls;

/// Most names that are listed.
const NAMES_MAX: usize = 10_000;

/// Asks for all locks, and for what only one page shows. `started` is when time begins.
///
/// # Cancel safety
/// It only reads.
pub(super) async fn ask(
    leases: &Leasehold,
    prefix: &str,
    question: Question,
    started: Instant,
) -> Result<Answered> {
    let began = started.elapsed();
    let (locks, more) = ls::all(leases, prefix, NAMES_MAX).await?;
    let listing = Listing { locks, more, began, ended: started.elapsed() };
    let detail = match question.detail {
        Some(name) => Some(leases.inspect(&name).await?),
        None => None,
    };
    let health = match question.health {
        true => Some(leases.health().await.map_err(|error| error.to_string())),
        false => None,
    };
    Ok(Answered { listing, detail, health })
}
