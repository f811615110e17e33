//! Entries of the queue.

use leasehold_core::engine::{Claim, Mode, liveness};

use super::px;

/// What a waiter's entry begins with, which `handover.lua` reads; its owner value follows. The same text on every resend.
/// Empty for a claim that does not wait.
pub(super) fn entry_head(claim: &Claim, channel: &str) -> String {
    let Some(queue) = claim.queue else { return String::new() };
    let (px, wait) = (px(claim.ttl + claim.lock_delay), queue.wait.as_millis());
    let live = liveness(queue.poll_every).as_millis();
    let mode = match claim.mode {
        Mode::Shared => "s".to_owned(),
        Mode::Permits { take, of } => format!("p{take}/{of}"),
        _ => String::new(),
    };
    format!("2{mode} {px} {wait} {live} {channel} ")
}

/// A waiter's entry; empty for a claim that does not wait.
pub(crate) fn entry(claim: &Claim, channel: &str) -> String {
    let owner = claim.queue.map_or("", |_| claim.owner.expose());
    entry_head(claim, channel) + owner
}

/// The mode and the owner value in an entry of the queue.
pub(crate) fn entry_parts(entry: &str) -> (Mode, &str) {
    let permits = |numbers: &str| {
        let (take, of) = numbers.split_once('/')?;
        Some(Mode::Permits { take: take.parse().ok()?, of: of.parse().ok()? })
    };
    let mode = match entry.split(' ').next().unwrap_or_default() {
        "2s" => Some(Mode::Shared),
        head => head.strip_prefix("2p").and_then(permits),
    };
    (mode.unwrap_or_default(), entry.splitn(6, ' ').nth(5).unwrap_or_default())
}
