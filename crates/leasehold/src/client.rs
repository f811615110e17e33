//! The client: where everything begins.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;

#[cfg(feature = "config")]
use crate::policy::Policies;
use crate::{
    clock::Clock,
    config::{Config, between},
    core::{Core, Entropy},
    deadlines::Deadlines,
    engine::{
        Capabilities, Changes, Cursor, Engine, Health, Inspection, Listing, Page, Released, Watch, Watched,
        connect::{self, EngineOptions},
    },
    error::{Error, Result},
    fence::Fence,
    idempotency::Idempotency,
    lock::Lock,
    marker::Marker,
    name::Name,
    telemetry::{Observer, Stats, Telemetry},
};

/// A client of one store. Cheap to clone; clones share connections, renewals and statistics.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::Leasehold;
///
/// let leases = Leasehold::connect("memory:").await?;
/// let guard = leases.lock("deal:42").acquire().await?;
/// println!("writing with fence {}", guard.fence());
/// guard.release().await?;
/// # leases.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct Leasehold {
    pub(crate) core: Arc<Core>,
    #[cfg(feature = "config")]
    pub(crate) policies: Arc<Policies>,
}

impl Leasehold {
    /// Connects to the store that `url` names, with the default settings.
    ///
    /// # Errors
    /// `invalid` for a URL that names no store, `unsupported` for one this build lacks, `store_unreachable` or
    /// `store_refused` when the store cannot be used.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// The same without reaching the store yet: it may be down while the program starts.
    ///
    /// # Errors
    /// `invalid` or `unsupported`, as [`Leasehold::connect`]; `unsupported` outside of a Tokio runtime.
    pub fn connect_lazy(url: impl AsRef<str>) -> Result<Self> {
        Self::builder(url).connect_lazy()
    }

    /// A client with settings of your own.
    pub fn builder(url: impl AsRef<str>) -> Builder {
        Builder {
            url: url.as_ref().to_owned(),
            config: Config::default(),
            #[cfg(feature = "config")]
            policies: Policies::default(),
            clock: Clock::system(),
            observer: None,
            seed: None,
            engine: None,
        }
    }

    /// An exclusive lock of that name.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.core.clone(), name.as_ref())
    }

    /// Requests of one kind that shall be executed once each, such as `payout`.
    pub fn idempotency(&self, operation: impl AsRef<str>) -> Idempotency {
        Idempotency::new(self.core.clone(), operation.as_ref())
    }

    /// Marks of work in progress, such as `processing`.
    pub fn marker(&self, kind: impl AsRef<str>) -> Marker {
        Marker::new(self.core.clone(), kind.as_ref())
    }

    /// The pool of deadlines of that name.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use std::time::Duration;
    ///
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let payments = leases.deadlines("payments");
    /// payments.set_with("tx:42", Duration::ZERO, "order 7").await?;
    /// for due in payments.claim(100, Duration::from_secs(60)).await? {
    ///     println!("{} should have ended", due.id());
    ///     due.acknowledge().await?;
    /// }
    /// # leases.close().await
    /// # }
    /// ```
    pub fn deadlines(&self, pool: impl AsRef<str>) -> Deadlines {
        Deadlines::new(self.core.clone(), pool.as_ref())
    }

    /// Who holds a lock and who waits for it.
    ///
    /// # Errors
    /// When the name is bad or the store is at fault.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Inspection> {
        let name = self.name(name.as_ref())?;
        let answer = self.core.engine.inspector().inspect(&name, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "inspecting", &name))
    }

    /// A page of the locks that are held or waited for and whose name begins with `prefix`. A page may be short or
    /// empty although more follow; the last one has no `next`. A lock that is held from the first page to the last is on
    /// exactly one of them, as long as the cursors stay in this process.
    ///
    /// # Errors
    /// When the store is at fault.
    pub async fn list(&self, prefix: &str, from: Option<Cursor>, limit: u32) -> Result<Page<Inspection>> {
        self.core.check_open()?;
        if !(1..=10_000).contains(&limit) {
            return Err(Error::invalid("page size", limit.to_string(), "1 to 10000"));
        }
        let listing = Listing::at(from);
        let page =
            self.core.engine.inspector().page(prefix, listing.from(), limit, self.core.command_until());
        let page = page.await;
        let page =
            page.map_err(|error| self.core.explain_doing(error, format!("listing \"{prefix}\""), None))?;
        Ok(listing.page(page, limit, |lock| lock.name.as_str()))
    }

    /// The changes of one lock, polled every `poll_every` (10 ms to an hour) where the store cannot push them: see
    /// [`Capabilities::watch`]. [`Changes`] says what the items are and what dropping does. Ends when the client is closed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use std::time::Duration;
    /// use futures_util::StreamExt;
    ///
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let mut changes = leases.watch("deal:42", Duration::from_millis(100))?;
    /// let present = changes.next().await.expect("a first item")?;
    /// assert!(present.is_empty());
    /// let guard = leases.lock("deal:42").acquire().await?;
    /// let acquired = changes.next().await.expect("a change")?;
    /// assert_eq!(acquired[0].now.as_ref().unwrap().fence, guard.fence());
    /// # guard.release().await?; drop(changes); leases.close().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// `invalid` for a bad name or interval. Faults of the store are items.
    pub fn watch(&self, name: impl AsRef<str>, poll_every: Duration) -> Result<Changes<'_, Error>> {
        self.watching(Watched::Name(self.name(name.as_ref())?), poll_every)
    }

    /// The same for all locks whose name begins with `prefix`.
    ///
    /// # Errors
    /// As [`Leasehold::watch`].
    pub fn watch_prefix(&self, prefix: &str, poll_every: Duration) -> Result<Changes<'_, Error>> {
        self.watching(Watched::Prefix(prefix.to_owned()), poll_every)
    }

    fn watching(&self, locks: Watched, poll_every: Duration) -> Result<Changes<'_, Error>> {
        let core = &self.core;
        core.check_open()?;
        between("poll interval", poll_every, Duration::from_millis(10), Duration::from_secs(3600))?;
        let command_timeout = core.config.command_timeout;
        let watch = Watch { locks, poll_every, command_timeout, clock: core.clock.clone() };
        let changes = core.engine.inspector().watch(watch).take_until(core.closing().cancelled_owned());
        Ok(changes
            .map(|seen| seen.map_err(|error| core.explain_doing(error, "watching".into(), None)))
            .boxed())
    }

    /// Takes a lock away from its holder, if it is still the one whose fence was seen. The holder may still be at
    /// work: it learns of it at its next renewal, and only a fence check stops its writes before that.
    ///
    /// # Errors
    /// When the name is bad or the store is at fault. A holder that changed is an outcome: [`Released::Taken`].
    pub async fn force_release(&self, name: impl AsRef<str>, seen: Fence) -> Result<Released> {
        let name = self.name(name.as_ref())?;
        let answer = self.core.engine.leases().force_release(&name, seen, self.core.command_until()).await;
        let outcome = answer.map_err(|error| self.core.failed(error, "force-releasing", &name))?;
        tracing::warn!(%name, fence = %seen, ?outcome, "force-released");
        Ok(outcome)
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        self.core.telemetry.stats()
    }

    /// How often this client has asked its store and waited for the answer: calls over the network, transactions of a
    /// file. In a cluster what is asked of several shards at once counts for each. `None` where it is not counted
    /// (`memory:`, `redlock://`).
    pub fn round_trips(&self) -> Option<u64> {
        self.core.engine.round_trips()
    }

    /// What an operator should know about the store.
    ///
    /// # Errors
    /// When the store is at fault.
    pub async fn health(&self) -> Result<Health> {
        self.core.check_open()?;
        let answer = self.core.engine.health(self.core.command_until()).await;
        answer.map_err(|error| self.core.explain_doing(error, "checking its health".into(), None))
    }

    /// What the store can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.core.engine.capabilities()
    }

    /// The store's URL without its password.
    pub fn store(&self) -> &str {
        &self.core.store
    }

    /// Settles what was dropped, then gives back connections and files. Guards that still live are not renewed any
    /// more: release them first.
    ///
    /// # Errors
    /// When something could not be given back in time; it ends with its ttl.
    pub async fn close(&self) -> Result<()> {
        self.core.close().await
    }

    fn name(&self, name: &str) -> Result<Name> {
        self.core.check_open()?;
        let name = Name::new(name)?;
        self.core.check_name(&name)?;
        Ok(name)
    }
}

impl std::fmt::Debug for Leasehold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leasehold").field("store", &self.core.store).finish_non_exhaustive()
    }
}

/// Builder of a [`Leasehold`].
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    url: String,
    pub(crate) config: Config,
    #[cfg(feature = "config")]
    pub(crate) policies: Policies,
    clock: Clock,
    observer: Option<Arc<dyn Observer>>,
    seed: Option<u64>,
    engine: Option<Arc<dyn Engine>>,
}

impl Builder {
    /// All settings at once.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Changes some settings.
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Longest wait for the store's answer to one command.
    pub fn command_timeout(self, timeout: Duration) -> Self {
        self.configure(|config| config.command_timeout = timeout)
    }

    /// Receives the events of the client.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Another clock, for tests: [`Clock::tokio`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes randomness repeatable, for tests. Owner values become predictable: never use it on a store that anybody
    /// else can reach.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// An engine of your own, or a wrapper around one; the URL is then only a name.
    pub fn engine(mut self, engine: Arc<dyn Engine>) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// As [`Leasehold::connect`]; also `invalid` for a setting out of range.
    pub async fn connect(self) -> Result<Leasehold> {
        let client = self.connect_lazy()?;
        let core = &client.core;
        let connected = core.engine.connect(core.command_until()).await;
        connected.map_err(|error| core.explain_doing(error, "connecting".into(), None))?;
        Ok(client)
    }

    /// Makes the client without reaching the store.
    ///
    /// # Errors
    /// As [`Leasehold::connect_lazy`]; also `invalid` for a setting out of range.
    pub fn connect_lazy(self) -> Result<Leasehold> {
        self.config.check()?;
        #[cfg(feature = "config")]
        self.policies.check(&self.config)?;
        if tokio::runtime::Handle::try_current().is_err() {
            let why = "it must be called from within a Tokio runtime";
            return Err(Error::unsupported("connecting from here", why));
        }
        let engine = self.open()?;
        let telemetry = Arc::new(Telemetry::new(self.observer));
        let entropy = self.seed.map_or(Entropy::System, Entropy::seeded);
        let store = connect::redact(&self.url);
        let core = Core::start(engine, self.clock, self.config, store, entropy, telemetry);
        Ok(Leasehold {
            core: Arc::new(core),
            #[cfg(feature = "config")]
            policies: Arc::new(self.policies),
        })
    }

    /// The engine alone, to wrap it: give it back with [`Builder::engine`].
    ///
    /// # Errors
    /// As [`Builder::connect_lazy`].
    pub fn into_engine(self) -> Result<Arc<dyn Engine>> {
        self.config.check()?;
        self.open()
    }

    fn open(&self) -> Result<Arc<dyn Engine>> {
        if let Some(engine) = &self.engine {
            return Ok(engine.clone());
        }
        let options = EngineOptions {
            clock: self.clock.clone(),
            command_timeout: self.config.command_timeout,
            prefix: self.config.prefix.clone(),
            connections: self.config.connections,
            max_in_flight: self.config.max_in_flight,
            client_name: self.config.label.clone(),
            max_ttl: self.config.max_ttl,
        };
        connect::open(&self.url, &options)
    }
}
