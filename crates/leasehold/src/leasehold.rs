//! The client: where everything begins.

use std::{ops::Deref, sync::Arc, time::Duration};

use leasehold_core::client::{Client, ClientOptions};

#[cfg(feature = "config")]
use crate::Policies;
use crate::engine::{Engine, EngineOptions};
use crate::{Clock, Config, Observer, Result, connect, text};

/// A client of one store. Cheap to clone; clones share connections, renewals and statistics.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::Leasehold;
///
/// let leases = Leasehold::connect("memory:").await?;
/// let guard = leases.lock("deal:42").acquire().await?;
/// println!("writing with fence {}", guard.fence());
/// assert!(guard.release().await?.was_held());
/// # leases.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct Leasehold {
    client: Client,
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

    /// The same without reaching the store yet: it may be down while the program starts. Also `unsupported` outside of a
    /// Tokio runtime.
    pub fn connect_lazy(url: impl AsRef<str>) -> Result<Self> {
        Self::builder(url).connect_lazy()
    }

    /// A client with settings of your own.
    pub fn builder(url: impl AsRef<str>) -> Builder {
        let (config, clock, store) = (Config::default(), Clock::system(), text::redact(url.as_ref()));
        Builder {
            url: url.as_ref().to_owned(),
            options: ClientOptions { config, clock, observer: None, seed: None, store, policies: Vec::new() },
            #[cfg(feature = "config")]
            policies: Policies::default(),
            engine: None,
        }
    }
}

impl Deref for Leasehold {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl std::fmt::Debug for Leasehold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leasehold").field("store", &self.store()).finish_non_exhaustive()
    }
}

/// Builder of a [`Leasehold`].
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    url: String,
    pub(crate) options: ClientOptions,
    #[cfg(feature = "config")]
    pub(crate) policies: Policies,
    engine: Option<Arc<dyn Engine>>,
}

impl Builder {
    /// Changes settings.
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.options.config);
        self
    }

    /// Longest wait for the store's answer to one command.
    pub fn command_timeout(self, timeout: Duration) -> Self {
        self.configure(|config| config.command_timeout = timeout)
    }

    /// Receives the events of the client.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.options.observer = Some(Arc::new(observer));
        self
    }

    /// Another clock, for tests: [`Clock::tokio`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.options.clock = clock;
        self
    }

    /// Makes randomness repeatable, for tests. Owner values become predictable: never use it on a store that anybody
    /// else can reach.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = Some(seed);
        self
    }

    /// An engine of your own, or a wrapper around one; the URL is then only a name.
    pub fn engine(mut self, engine: Arc<dyn Engine>) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Connects. Errors as [`Leasehold::connect`]; also `invalid` for a setting out of range.
    pub async fn connect(self) -> Result<Leasehold> {
        let leases = self.connect_lazy()?;
        leases.reach().await?;
        Ok(leases)
    }

    /// Makes the client without reaching the store. Errors as [`Leasehold::connect_lazy`]; also `invalid` for a setting out
    /// of range.
    pub fn connect_lazy(self) -> Result<Leasehold> {
        self.options.config.check()?;
        #[cfg(feature = "config")]
        self.policies.check(&self.options.config)?;
        let engine = self.open()?;
        #[cfg(feature = "config")]
        let options = ClientOptions { policies: self.policies.names(), ..self.options };
        #[cfg(not(feature = "config"))]
        let options = self.options;
        Ok(Leasehold {
            client: Client::start(engine, options)?,
            #[cfg(feature = "config")]
            policies: Arc::new(self.policies),
        })
    }

    /// The engine alone, to wrap it: give it back with [`Builder::engine`]. Errors as [`Builder::connect_lazy`].
    pub fn into_engine(self) -> Result<Arc<dyn Engine>> {
        self.options.config.check()?;
        self.open()
    }

    fn open(&self) -> Result<Arc<dyn Engine>> {
        if let Some(engine) = &self.engine {
            return Ok(engine.clone());
        }
        let ClientOptions { config, clock, .. } = &self.options;
        let options = EngineOptions {
            clock: clock.clone(),
            command_timeout: config.command_timeout,
            prefix: config.prefix.clone(),
            connections: config.connections,
            max_in_flight: config.max_in_flight,
            client_name: config.label.clone(),
            max_ttl: config.max_ttl,
        };
        connect::open(&self.url, &options)
    }
}
