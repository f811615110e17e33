//! What an engine needs besides its URL.

use std::time::Duration;

use crate::clock::Clock;

/// What an engine needs besides its URL.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Where the time comes from.
    pub clock: Clock,
    /// Longest wait for one command's answer.
    pub command_timeout: Duration,
    /// What precedes a name in a shared store.
    pub prefix: String,
    /// Connections to one server.
    pub connections: usize,
    /// Most operations under way at once.
    pub max_in_flight: usize,
    /// How this client calls itself to the server.
    pub client_name: String,
    /// Longest ttl, and longest lock-delay.
    pub max_ttl: Duration,
}
