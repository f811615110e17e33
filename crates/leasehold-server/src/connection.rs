//! One connection: whose it is.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

use crate::{
    auth::{Caller, Connected},
    problem::Result,
};

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The token that the connection counts for: that of its latest request.
    connected: Mutex<Option<Connected>>,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, connected: Mutex::default() }
    }

    /// Counts the connection for this caller, who may have so many and no more.
    pub(crate) fn belongs_to(&self, caller: &Caller) -> Result<()> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if connected.as_ref().is_some_and(|connected| caller.is_same(connected)) {
            return Ok(());
        }
        *connected = Some(caller.connect()?);
        Ok(())
    }
}
