//! The service: its settings, its start and its end.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use leasehold::{Error, Leasehold, Result};
use tokio::{
    net::{TcpListener, TcpSocket},
    task::JoinHandle,
};
use tokio_util::task::TaskTracker;

use crate::{
    auth::Tokens,
    events::Topic,
    limits::Limits,
    listen::{Entrance, raise_descriptors},
    poller::{POLL_RANGE, poll},
    routes::router,
    state::{App, Options, Service},
    tls::Tls,
};

/// Where a service listens unless it is told otherwise.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);
/// How long answers that are under way may take when the service stops.
const DRAIN: Duration = Duration::from_secs(10);
/// Connections that wait to be accepted: all clients of a service that starts again come at once.
const BACKLOG: u32 = 4096;

/// Builder of a [`Server`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    leases: Leasehold,
    address: SocketAddr,
    tls: Option<Tls>,
    options: Options,
}

impl Builder {
    /// Where to listen. Default: [`DEFAULT_ADDRESS`]. An address that others reach needs [`Builder::tokens`].
    pub fn listen(self, address: SocketAddr) -> Self {
        Self { address, ..self }
    }

    /// Who may do what. Without tokens everybody on this host may do everything.
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.options.tokens = Some(tokens);
        self
    }

    /// Speaks TLS.
    pub fn tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Refuses everything that changes something in the store.
    pub fn read_only(mut self) -> Self {
        self.options.read_only = true;
        self
    }

    /// Pools of deadlines that the dashboard shows from the start.
    pub fn pools(mut self, pools: impl IntoIterator<Item = String>) -> Self {
        self.options.pools = pools.into_iter().collect();
        self
    }

    /// How much the service takes on.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// How often the service looks at the store for the dashboard while somebody watches: 100 ms to a minute. Default: 2 s.
    pub fn poll_every(mut self, every: Duration) -> Self {
        self.options.poll_every = every;
        self
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// `invalid` when the address is in use, or others reach it and there are no tokens.
    pub async fn start(self) -> Result<Server> {
        let Self { leases, address, tls, options } = self;
        if !POLL_RANGE.contains(&options.poll_every) {
            let got = format!("{:?}", options.poll_every);
            return Err(Error::invalid("poll interval", got, format!("{POLL_RANGE:?}")));
        }
        if !address.ip().is_loopback() && options.tokens.is_none() {
            let expected = "a loopback address such as 127.0.0.1:7420, or a file of tokens beside it";
            return Err(Error::invalid("address to listen on", address.to_string(), expected));
        }
        let refused = |error| {
            Error::invalid("address to listen on", address.to_string(), format!("a free one: {error}"))
        };
        let listener = listener(address).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        raise_descriptors();
        let app = Service::new(leases, options, address);
        let connections = TaskTracker::new();
        let (router, tracker) = (router(app.clone()), connections.clone());
        let entrance = Entrance { app: app.clone(), router, tls, connections: tracker };
        let tasks = vec![
            tokio::spawn(entrance.accept(listener)),
            tokio::spawn(poll(app.clone())),
            tokio::spawn(app.clone().sweep()),
        ];
        tracing::info!(%address, store = app.leases.store(), "the service listens");
        Ok(Server { app, tasks, connections })
    }
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A service that starts again meets connections of its predecessor that are not quite over.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A service that listens.
#[derive(Debug)]
pub struct Server {
    app: App,
    tasks: Vec<JoinHandle<()>>,
    connections: TaskTracker,
}

impl Server {
    /// A service on this store, which it closes in the end.
    pub fn builder(leases: Leasehold) -> Builder {
        let options = Options {
            limits: Limits::default(),
            read_only: false,
            tokens: None,
            pools: Vec::new(),
            poll_every: Duration::from_secs(2),
        };
        Builder { leases, address: DEFAULT_ADDRESS, tls: None, options }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.app.listens_on
    }

    /// Stops: nothing new is accepted, who waits is told to ask elsewhere, and what is under way is answered for a while. Locks
    /// that clients hold stay held.
    pub async fn stop(self) {
        let Self { app, tasks, connections } = self;
        app.events.publish(Topic::Service, "draining", &serde_json::Map::new());
        app.draining.cancel();
        app.attempts.leave_all();
        app.executions.leave_all();
        connections.close();
        if tokio::time::timeout(DRAIN, connections.wait()).await.is_err() {
            tracing::warn!("some answers took too long; their connections are cut");
        }
        for task in tasks {
            task.abort();
        }
        if let Err(error) = app.leases.close().await {
            tracing::warn!(%error, "the store was not closed in time");
        }
    }
}
