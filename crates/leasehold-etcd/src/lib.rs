//! `etcd://HOST,HOST,HOST` — leases that a majority of members agrees on, and that no single member can grant twice.
//!
//! An attempt is a key under its name, attached to a lease of etcd. Attempts are ordered by the revision at which they came,
//! which is also the fence; whoever is first, or has room beside those before it, holds the lock (`entry`). No clock but
//! that of the members ends a lease, and no client's clock decides anything.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod channel;
mod entry;
mod health;
mod inspect;
mod keepalive;
mod kept;
mod keys;
mod leases;
mod proto;
mod records;
mod renewal;
mod reply;
mod set;
mod spare;
mod store;
mod url;
mod watch;

use std::sync::{Arc, Mutex, Weak, atomic::Ordering};

use channel::{Again, Members, STATUS};
use futures_util::{Stream, stream};
pub use health::WARNING_CODES;
use keepalive::KeepAlive;
use kept::Shared;
use keys::Keys;
use leasehold_core::{
    clock::{Clock, Until},
    engine::{
        Capabilities, Engine, EngineError, EngineOptions, Fut, Handover, Health, Held, Hold, Inspect, Leases,
        Reach, WakeSink, records as core_records, registry::Registry,
    },
    error::Error,
    name::{NAME_MAX_BYTES, Name},
    owner::OwnerMap,
};
use proto::{KeyValue, StatusRequest, StatusResponse};
use spare::{Spares, StoreLease};
use tokio::sync::mpsc;
use url::StoreUrl;
use watch::Watches;

type Result<T, E = EngineError> = std::result::Result<T, E>;

/// The engine behind `etcd://` and `etcds://`.
pub struct Etcd {
    prefix: String,
    clock: Clock,
    members: Arc<Members>,
    keep_alive: Arc<KeepAlive>,
    watches: Arc<Watches>,
    /// What of each attempt is under way.
    registry: Arc<Registry<()>>,
    /// The lease of each attempt that may have something in the store.
    leases: Mutex<OwnerMap<StoreLease>>,
    spares: Spares,
    shared: Shared,
    capabilities: Capabilities,
}

/// Why nobody changes how it holds a lock.
const NO_CONVERT: &str = "etcd orders holders by the revision at which they came, so a holder cannot change its mode and keep its place";
/// Why there are no deadlines.
const NO_DEADLINES: &str =
    "etcd keeps no sets that are ordered by time: use a redis://, postgres:// or sqlite: store for deadlines";
/// Why there are no latches.
const NO_LATCHES: &str =
    "latches on etcd are not supported: use a redis://, postgres:// or sqlite: store for them";

impl Etcd {
    /// Prepares the engine; nothing is dialled.
    pub fn open(url: &str, options: &EngineOptions) -> Result<Self, Error> {
        keys::check_prefix(&options.prefix)?;
        let members = Members::open(&StoreUrl::parse(url)?, options)?;
        let clock = options.clock.clone();
        let names_max_bytes = NAME_MAX_BYTES - options.prefix.len();
        let mut capabilities =
            Capabilities::new("etcd", Reach::Network, Handover::Pull, true, names_max_bytes)
                .without_acks("a majority of members has every grant before it is answered")
                .with_all_modes()
                .without_convert(NO_CONVERT)
                .with_claim_all()
                .with_loss_reports();
        capabilities.ttl_step = std::time::Duration::from_secs(1);
        Ok(Self {
            prefix: options.prefix.clone(),
            keep_alive: KeepAlive::new(members.clone(), clock.clone()),
            watches: Watches::new(members.clone()),
            members,
            clock,
            registry: Arc::default(),
            leases: Mutex::default(),
            spares: Spares::default(),
            shared: Shared::default(),
            capabilities,
        })
    }

    fn keys(&self, name: &Name) -> Keys {
        Keys::new(&self.prefix, name)
    }

    /// The key of what is held.
    fn key_of(&self, hold: &Hold) -> Vec<u8> {
        match hold.of {
            Held::Record => hold.name.as_str().into(),
            _ => self.keys(&hold.name).attempt(&hold.owner),
        }
    }

    /// Whether what lies under a key is what is held.
    fn is_ours(&self, hold: &Hold, kv: &KeyValue) -> bool {
        let fence = hold.fence.as_i64();
        match hold.of {
            Held::Record => core_records::decide::is_run_by(Some(&kv.value), &hold.owner),
            // What is closed by now is renewed by nobody.
            _ => !entry::Entry::read(kv.clone()).closed && (fence == 0 || fence == kv.create_revision),
        }
    }
}

/// What is sent over a stream, in the order in which it came.
fn stream_of<T: Send + 'static>(queued: mpsc::UnboundedReceiver<T>) -> impl Stream<Item = T> + Send {
    stream::unfold(queued, async |mut queued| queued.recv().await.map(|next| (next, queued)))
}

impl Engine for Etcd {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn leases(&self) -> &dyn Leases {
        self
    }

    fn inspector(&self) -> &dyn Inspect {
        self
    }

    fn records(&self) -> Result<&dyn core_records::Records, &'static str> {
        Ok(self)
    }

    fn deadlines(&self) -> Result<&dyn leasehold_core::engine::deadlines::Deadlines, &'static str> {
        Err(NO_DEADLINES)
    }

    fn latches(&self) -> Result<&dyn leasehold_core::engine::latches::Latches, &'static str> {
        Err(NO_LATCHES)
    }

    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>) {
        self.watches.set_sink(sink);
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.members.round_trips.load(Ordering::Relaxed))
    }

    fn connect(&self, until: Until) -> Fut<'_, ()> {
        Box::pin(async move {
            let _status: StatusResponse =
                self.members.call(STATUS, StatusRequest {}, Again::Same, until).await?;
            Ok(())
        })
    }

    fn health(&self, until: Until) -> Fut<'_, Health> {
        Box::pin(self.inspect_health(until))
    }

    fn close(&self, until: Until) -> Fut<'_, ()> {
        Box::pin(async move {
            self.watches.close();
            for lease in self.spares.drain() {
                // It would end by itself.
                if self.revoke(lease.id, until).await.is_err() {
                    break;
                }
            }
            self.keep_alive.hang_up();
            self.members.close();
            Ok(())
        })
    }
}
