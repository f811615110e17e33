//! The proof of a lock that a client gets: with it any service on the same store extends or releases the lock.

use leasehold::{Handle, Mode, clock::BootInstant};

use crate::{
    problem::{Problem, Result},
    state::Service,
    views::{hex, unhex},
};

const VERSION: &str = "lh1_";
const BYTES_MAX: usize = 4096;

/// A lock that was granted through this service.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) handle: Handle,
    pub(crate) valid_until: BootInstant,
}

impl Granted {
    pub(crate) fn name(&self) -> &str {
        self.handle.name().as_str()
    }

    pub(crate) fn key(&self) -> LockKey {
        LockKey::of(&self.handle)
    }

    /// The name, the mode and the fence in one text that a resource can log and compare.
    pub(crate) fn sequencer(&self) -> String {
        format!("{}:{}:{}", self.handle.name(), self.handle.mode().as_str(), self.handle.fence())
    }

    pub(crate) fn mode(&self) -> Mode {
        self.handle.mode()
    }
}

/// One grant of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockKey {
    pub(crate) name: String,
    pub(crate) fence: u64,
}

impl LockKey {
    pub(crate) fn of(handle: &Handle) -> Self {
        Self { name: handle.name().to_string(), fence: handle.fence().get() }
    }
}

/// The text that a client gets. It contains the secret of this grant, so it is only ever sent to its holder.
pub(crate) fn write(handle: &Handle) -> String {
    format!("{VERSION}{}", hex(handle.expose().as_bytes()))
}

/// The lock of this name that a token proves.
pub(crate) fn read(token: &str, name: &str) -> Result<Handle> {
    let refused =
        || Problem::invalid("the token is none that this service gives out for a lock").at("/token".into());
    let digits = token.strip_prefix(VERSION).filter(|digits| digits.len() <= BYTES_MAX * 2);
    let text = digits.and_then(unhex).and_then(|bytes| String::from_utf8(bytes).ok());
    let handle: Handle = text.and_then(|text| text.parse().ok()).ok_or_else(refused)?;
    if handle.name().as_str() != name {
        let detail = format!("the token is that of another lock than \"{name}\"");
        return Err(Problem::invalid(detail).at("/token".into()));
    }
    Ok(handle)
}

impl Service {
    /// Until when a lease that was asked for then can be trusted.
    pub(crate) fn valid_until(&self, asked_at: BootInstant, handle: &Handle) -> BootInstant {
        leasehold::lease::validity::valid_until(asked_at, handle.ttl())
    }
}
