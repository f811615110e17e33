//! What a command that runs another one has meanwhile: a client of the store, and ears for signals and for trouble.

use leasehold::{Event, Leasehold};

use super::trouble::Misses;
use crate::{
    command::Global,
    exit::Failure,
    output::Output,
    signals::{FORWARDED, Signals},
    store::Store,
};

pub(crate) struct Session {
    pub(crate) leases: Leasehold,
    pub(crate) signals: Signals,
    pub(super) misses: Misses,
    pub(crate) out: Output,
    pub(crate) verbose: bool,
}

impl Session {
    /// Reaches nothing yet.
    pub(crate) fn open(store: &Store, global: &Global) -> Result<Self, Failure> {
        let signals = Signals::listen(&FORWARDED)?;
        let misses = Misses::default();
        let leases = store.connect_observed({
            let misses = misses.clone();
            move |event: &Event| misses.on_event(event)
        })?;
        Ok(Self { leases, signals, misses, out: global.output(), verbose: global.verbose > 0 })
    }
}
