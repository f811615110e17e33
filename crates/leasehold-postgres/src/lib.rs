//! `postgres://` — leases in the database you already have, which your own transactions can check.
//!
//! Everything that is atomic is a function of the schema `leasehold` in the database (`sql/`), installed by
//! `leasehold migrate` and checked when a client connects. A claim, a release or a round of renewals is one call of one
//! function, in one round trip and one transaction. A release notifies the next waiter, which claims for itself; waiters
//! also poll, so nothing depends on notifications.
//!
//! Within a transaction of yours `leasehold.assert_held(name, fence)` makes sure that what it writes is only committed
//! while the lock is held: see `docs/postgres.md`.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod deadlines;
mod health;
mod inspect;
mod latches;
mod leases;
mod listen;
mod migrate;
mod pool;
mod records;
mod reply;
mod sessions;
mod statements;
mod url;

use std::sync::{Arc, Weak, atomic::Ordering};

pub use health::WARNING_CODES;
use leasehold_core::{
    clock::{Clock, Until},
    engine::{
        Capabilities, Engine, EngineError, EngineOptions, Fut, Handover, Health, Inspect, Leases, Reach,
        Schema, WakeSink, deadlines::Deadlines, latches::Latches, records::Records, registry::Registry,
    },
    error,
    name::NAME_MAX_BYTES,
};
use listen::Listener;
pub use migrate::{SCHEMA_VERSION, script};
use pool::Pool;
pub use sessions::Sessions;
use url::StoreUrl;

type Result<T, E = EngineError> = std::result::Result<T, E>;

/// The engine behind `postgres://`.
pub struct Postgres {
    pool: Arc<Pool>,
    listener: Arc<Listener>,
    clock: Clock,
    attempts: Arc<Registry<()>>,
    capabilities: Capabilities,
}

impl Postgres {
    /// Prepares the engine; nothing is dialled.
    pub fn open(url: &str, options: &EngineOptions) -> error::Result<Self> {
        let url = StoreUrl::parse(url)?;
        let target = url.target(options)?;
        let listen_at = url.listen_target(options)?;
        let pool = Pool::new(target, url.connections(options)?, options);
        let listener = Listener::new(listen_at, Arc::downgrade(&pool), options);
        let capabilities = Capabilities::new(
            "postgres",
            Reach::Network,
            Handover::Pull,
            true,
            NAME_MAX_BYTES,
        )
        .without_acks(
            "synchronous_commit and synchronous_standby_names of the server say which replicas have a grant",
        )
        .with_all_modes()
        .with_claim_all()
        .with_hand_to();
        let clock = options.clock.clone();
        Ok(Self { pool, listener, clock, attempts: Arc::default(), capabilities })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.listener.close();
    }
}

impl Engine for Postgres {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn leases(&self) -> &dyn Leases {
        self
    }

    fn inspector(&self) -> &dyn Inspect {
        self
    }

    fn records(&self) -> Result<&dyn Records, &'static str> {
        Ok(self)
    }

    fn deadlines(&self) -> Result<&dyn Deadlines, &'static str> {
        Ok(self)
    }

    fn latches(&self) -> Result<&dyn Latches, &'static str> {
        Ok(self)
    }

    fn schema(&self) -> Option<&dyn Schema> {
        Some(self)
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.pool.round_trips.load(Ordering::Relaxed))
    }

    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>) {
        self.pool.set_sink(sink.clone());
        self.listener.set_sink(sink);
    }

    fn connect(&self, until: Until) -> Fut<'_, ()> {
        Box::pin(migrate::check_version(&self.pool, until))
    }

    fn health(&self, until: Until) -> Fut<'_, Health> {
        Box::pin(self.inspect_health(until))
    }

    fn close(&self, _: Until) -> Fut<'_, ()> {
        self.listener.close();
        self.pool.close();
        Box::pin(std::future::ready(Ok(())))
    }
}
