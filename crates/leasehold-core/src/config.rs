//! Settings of a client, with their defaults and ranges.

use std::{fmt, time::Duration};

use crate::{
    error::{Error, Result},
    lease::validity::{TTL_MAX_DEFAULT, TTL_MAX_LIMIT, TTL_MIN},
    lock::Retry,
    owner::LABEL_MAX_BYTES,
    text::quoted,
};

/// Settings of a client. Start from [`Config::default`] and change what you need.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How long a lease lasts. Default 30 s.
    pub ttl: Duration,
    /// How long `acquire` waits. Default 5 s.
    pub wait: Duration,
    /// How often a waiting attempt asks again when nothing wakes it. Default: 50 ms growing to 1 s, with full jitter.
    pub retry: Retry,
    /// Longest wait for the store's answer to one command. Default 2 s.
    pub command_timeout: Duration,
    /// Longest ttl that is accepted. Default 5 min; a crashed holder blocks its lock that long.
    pub max_ttl: Duration,
    /// What precedes a name in a shared store. Default `lock:`.
    pub prefix: String,
    /// Connections to one server. Default 1, which is enough for about 100,000 operations a second.
    pub connections: usize,
    /// Most operations under way at once. Default 1,000.
    pub max_in_flight: usize,
    /// How this program calls itself, in holder data and to the server. Default: empty.
    pub label: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            wait: Duration::from_secs(5),
            retry: Retry::default(),
            command_timeout: Duration::from_secs(2),
            max_ttl: TTL_MAX_DEFAULT,
            prefix: "lock:".into(),
            connections: 1,
            max_in_flight: 1_000,
            label: String::new(),
        }
    }
}

/// Longest time an attempt may wait; "for ever" is this long.
pub const WAIT_MAX: Duration = Duration::from_secs(365 * 86_400);

impl Config {
    /// Checks every setting against its range.
    pub fn check(&self) -> Result<()> {
        between("max ttl", self.max_ttl, TTL_MIN, TTL_MAX_LIMIT)?;
        self.check_ttl(self.ttl)?;
        check_wait(self.wait)?;
        self.retry.check()?;
        between("command timeout", self.command_timeout, Duration::from_millis(10), Duration::from_secs(60))?;
        check_label(&self.label)?;
        between("connections", self.connections, 1, 64)?;
        between("max in flight", self.max_in_flight, 1, 100_000)?;
        check_text("prefix", &self.prefix)
    }

    /// Checks a ttl against its range.
    pub fn check_ttl(&self, ttl: Duration) -> Result<()> {
        between("ttl", ttl, TTL_MIN, self.max_ttl)
    }

    /// Checks a lock-delay against its range.
    pub(crate) fn check_lock_delay(&self, lock_delay: Duration) -> Result<()> {
        between("lock delay", lock_delay, Duration::ZERO, self.max_ttl)
    }
}

/// Checks a wait against its range.
pub fn check_wait(wait: Duration) -> Result<()> {
    between("wait", wait, Duration::ZERO, WAIT_MAX)
}

/// Checks a label against its range.
pub fn check_label(label: &str) -> Result<()> {
    check_text("label", label)
}

fn check_text(what: &str, text: &str) -> Result<()> {
    if text.len() > LABEL_MAX_BYTES || text.chars().any(char::is_control) {
        return Err(Error::invalid(what, quoted(text), "at most 128 bytes of printable text"));
    }
    Ok(())
}

/// Checks a duration or a number against its range.
#[inline]
pub fn between<T: PartialOrd + fmt::Debug>(what: &str, value: T, least: T, most: T) -> Result<()> {
    if value < least || value > most {
        return Err(out_of_range(what, &value, &least, &most));
    }
    Ok(())
}

#[cold]
fn out_of_range(what: &str, value: &dyn fmt::Debug, least: &dyn fmt::Debug, most: &dyn fmt::Debug) -> Error {
    Error::invalid(what, format!("{value:?}"), format!("{least:?} to {most:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_range() {
        Config::default().check().unwrap();
    }

    type Spoil = fn(&mut Config);

    #[test]
    fn each_setting_out_of_range_is_named() {
        let cases: [(&str, Spoil); 8] = [
            ("ttl", |c| c.ttl = Duration::ZERO),
            ("ttl", |c| c.ttl = Duration::from_secs(301)),
            ("max ttl", |c| c.max_ttl = Duration::from_secs(86_401)),
            ("command timeout", |c| c.command_timeout = Duration::ZERO),
            ("connections", |c| c.connections = 0),
            ("max in flight", |c| c.max_in_flight = 0),
            ("prefix", |c| c.prefix = "\n".into()),
            ("label", |c| c.label = "x".repeat(129)),
        ];
        for (what, spoil) in cases {
            let mut config = Config::default();
            spoil(&mut config);
            let text = config.check().unwrap_err().to_string();
            assert!(text.contains(what), "{text}");
        }
    }
}
