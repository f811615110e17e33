//! Sentinels: who knows where the primary is.
//!
//! All of them are asked at every dial, and the answer of the latest fail-over counts, so that one that was cut off
//! and stopped is not believed. A task listens to all of them ([`watch`]): a client leaves a primary as soon as one of
//! them names another, although the old one may still take writes.

mod accounts;
mod url;
mod watch;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{AsyncConnectionConfig, Cmd, ConnectionAddr, Value, aio::MultiplexedConnection};

use super::{answer, node::Node, place};
use crate::{
    clock::Clock,
    engine::{EngineError, Fault, connect::EngineOptions},
    error::{Refusal, Result},
};
pub(super) use accounts::{Account, Told};
use watch::Watch;

/// Sentinels that are remembered because others named them.
const LEARNT_MAX: usize = 32;

/// A server, as it is dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    port: u16,
}

impl Address {
    fn new(host: &str, port: u16) -> Self {
        Self { host: host.trim_start_matches('[').trim_end_matches(']').to_owned(), port }
    }

    /// Host and port as a sentinel tells them.
    fn parse(host: &Value, port: &Value) -> Option<Self> {
        Some(Self::new(answer::text(host)?, answer::text(port)?.parse().ok()?))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Who is the primary, in one sentinel's view.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    /// Grows with every fail-over.
    epoch: u64,
    primary: Address,
}

/// The sentinels of one primary. The task that listens to them ends with this value.
pub(super) struct Sentinels {
    circle: Arc<Circle>,
    watch: Watch,
    /// How long nothing new is granted after a promotion, if that was asked for.
    pub(super) grace: Option<Duration>,
}

impl Sentinels {
    pub(super) fn open(url: &str, options: &EngineOptions) -> Result<Self> {
        let target = url::read(url)?;
        let circle = Circle {
            named: target.sentinels,
            learnt: Mutex::default(),
            name: target.name,
            sentinel: target.sentinel,
            primary: target.primary,
            clock: options.clock.clone(),
            client_name: super::client_name(options),
            command_timeout: options.command_timeout,
            ask_within: options.command_timeout / 4,
            seen: Mutex::default(),
            replicas: AtomicU32::new(0),
            moves: AtomicU64::new(0),
            nodes: Mutex::default(),
        };
        // A lease may last this long, and then its lock may stay closed for as long again.
        let grace = target.grace.then_some(options.max_ttl * 2);
        Ok(Self { circle: Arc::new(circle), watch: Watch::default(), grace })
    }

    /// The primary, as a server to dial.
    pub(super) async fn primary(&self) -> Result<redis::Client, EngineError> {
        // Here, because a runtime is certain; it may be another one than at the last dial.
        self.watch.start(&self.circle);
        let view = self.circle.find().await?;
        at(&self.circle.primary, &view.primary)
    }

    /// How often the primary moved.
    pub(super) fn moves(&self) -> u64 {
        self.circle.moves.load(Ordering::Acquire)
    }

    /// How to log in to the primary.
    pub(super) fn template(&self) -> &redis::Client {
        &self.circle.primary
    }

    /// A connection that shall learn at once that the primary moved.
    pub(super) fn tell(&self, node: &Arc<Node>) {
        let mut nodes = lock(&self.circle.nodes);
        nodes.retain(|node| node.strong_count() > 0);
        nodes.push(Arc::downgrade(node));
    }

    /// How many replicas there are, those that are down included, if a sentinel has told.
    pub(super) fn replicas(&self) -> Option<u32> {
        Some(self.circle.replicas.load(Ordering::Relaxed)).filter(|replicas| *replicas > 0)
    }

    pub(super) fn close(&self) {
        self.watch.stop();
    }
}

/// Whether a server is a primary.
pub(super) async fn check_role(
    connection: &mut MultiplexedConnection,
    client: &redis::Client,
) -> Result<(), EngineError> {
    let role = place::asked(connection, &redis::cmd("ROLE")).await?;
    match &role {
        Value::Array(parts) if parts.first().and_then(answer::text) == Some("master") => Ok(()),
        _ => {
            let words =
                format!("{}, which the sentinels name, is no primary", client.get_connection_info().addr());
            Err(EngineError::new(Fault::Unreachable, words))
        }
    }
}

/// The same login at another address.
fn at(template: &redis::Client, address: &Address) -> Result<redis::Client, EngineError> {
    let info = template.get_connection_info().clone();
    let Address { host, port } = address.clone();
    let addr = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    redis::Client::open(info.set_addr(addr))
        .map_err(|error| EngineError::new(Fault::Unreachable, format!("{address}: {error}")))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the listening task and the dials share.
struct Circle {
    /// Those in the URL.
    named: Vec<Address>,
    /// Those that others told of; asked when none of the URL's answers.
    learnt: Mutex<Vec<Address>>,
    name: String,
    sentinel: redis::Client,
    primary: redis::Client,
    clock: Clock,
    client_name: String,
    command_timeout: Duration,
    /// How long one sentinel may take: a part of what a dial may take, so that time is left for the primary.
    ask_within: Duration,
    /// The view that was acted on last.
    seen: Mutex<Option<View>>,
    /// How many replicas a sentinel last told of, those that are down included.
    replicas: AtomicU32,
    moves: AtomicU64,
    nodes: Mutex<Vec<Weak<Node>>>,
}

impl Circle {
    /// Asks all sentinels at once.
    async fn find(&self) -> Result<View, EngineError> {
        let mut silent = Vec::new();
        let mut found = self.ask_all(&self.named, &mut silent).await;
        if found.is_none() {
            let learnt = lock(&self.learnt).clone();
            found = self.ask_all(&learnt, &mut silent).await;
        }
        let view = found.ok_or_else(|| self.nobody_knows(&silent))?;
        *lock(&self.seen) = Some(view.clone());
        Ok(view)
    }

    /// The view of the latest fail-over. Waits no longer than it takes until more than half say the same, unless a
    /// later fail-over was heard of: those that answer first may not know of it yet. Those that are behind what was heard
    /// were cut off, and count only if all of them are, because they were told to forget.
    async fn ask_all(&self, sentinels: &[Address], silent: &mut Vec<(Address, EngineError)>) -> Option<View> {
        let heard = lock(&self.seen).as_ref().map_or(0, |seen| seen.epoch);
        let ask = |(place, at)| async move {
            let view = async { self.view(&mut self.connect(at, None).await?).await };
            (place, self.in_time(view).await)
        };
        let mut answers: FuturesUnordered<_> = sentinels.iter().enumerate().map(ask).collect();
        let (mut views, mut errors) = (Vec::<(usize, View)>::new(), Vec::new());
        while let Some((place, answer)) = answers.next().await {
            match answer {
                Err(error) => errors.push((place, error)),
                Ok(view) => {
                    views.push((place, view.clone()));
                    let equal = views.iter().filter(|(_, other)| *other == view).count();
                    if equal * 2 > sentinels.len() && view.epoch >= heard {
                        return Some(view);
                    }
                }
            }
        }
        let latest = views.iter().map(|(_, view)| view).max_by_key(|view| view.epoch);
        if let Some(view) = latest.filter(|view| view.epoch >= heard || errors.is_empty()) {
            return Some(view.clone());
        }
        errors.extend(views.into_iter().map(|(place, view)| {
            let why = format!("names {}, which was replaced since", view.primary);
            (place, EngineError::new(Fault::Unreachable, why))
        }));
        // In the order of the URL, not in that of the answers.
        errors.sort_by_key(|(place, _)| *place);
        silent.extend(errors.into_iter().map(|(place, error)| (sentinels[place].clone(), error)));
        None
    }

    async fn in_time<T>(
        &self,
        asking: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let until = self.clock.now() + self.ask_within;
        self.clock.bounded(until, asking).await.unwrap_or_else(|| {
            Err(EngineError::new(Fault::Unreachable, format!("no answer within {:?}", self.ask_within)))
        })
    }

    async fn connect(
        &self,
        address: &Address,
        push: Option<Arc<tokio::sync::Notify>>,
    ) -> Result<MultiplexedConnection, EngineError> {
        let client = at(&self.sentinel, address)?;
        let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        if let Some(news) = push {
            config = config.set_push_sender(move |_| -> Result<(), redis::aio::SendError> {
                news.notify_one();
                Ok(())
            });
        }
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| answer::of_dial(&error, place::speaks_tls(&client)))
    }

    /// What one sentinel says.
    async fn view(&self, connection: &mut MultiplexedConnection) -> Result<View, EngineError> {
        let mut other = connection.clone();
        let (who, when) = (self.command("GET-MASTER-ADDR-BY-NAME"), self.command("MASTER"));
        // Sent together, because a fail-over may end between them.
        let (primary, details) =
            tokio::join!(place::asked(connection, &who), place::asked(&mut other, &when));
        match primary? {
            Value::Array(parts) if parts.len() == 2 => {
                let primary = Address::parse(&parts[0], &parts[1])
                    .ok_or_else(|| answer::unexpected(&Value::Array(parts)))?;
                let details = details.unwrap_or(Value::Nil);
                let epoch = field(&details, "config-epoch").and_then(|epoch| epoch.parse().ok());
                if let Some(replicas) = field(&details, "num-slaves").and_then(|number| number.parse().ok()) {
                    self.replicas.store(replicas, Ordering::Relaxed);
                }
                Ok(View { epoch: epoch.unwrap_or(0), primary })
            }
            Value::Nil => Err(EngineError::new(Fault::Unsupported, "does not know it")),
            other => Err(answer::unexpected(&other)),
        }
    }

    fn command(&self, what: &str) -> Cmd {
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg(what).arg(&self.name);
        cmd
    }

    fn nobody_knows(&self, silent: &[(Address, EngineError)]) -> EngineError {
        let each: Vec<_> = silent.iter().map(|(at, error)| format!("{at} ({error})")).collect();
        let words = format!("no sentinel knows a primary called {:?}: {}", self.name, each.join(", "));
        let refusal = silent.iter().find_map(|(_, error)| match error.fault {
            Fault::Refused(refusal) => Some(refusal),
            Fault::Unsupported => Some(Refusal::Other),
            _ => None,
        });
        EngineError::new(refusal.map_or(Fault::Unreachable, Fault::Refused), words)
    }

    /// A sentinel's view came in unasked. If the primary moved, every connection is told.
    fn heard(&self, view: View) {
        {
            let mut seen = lock(&self.seen);
            let Some(before) = &*seen else { return };
            if view.epoch <= before.epoch {
                return;
            }
            let moved = before.primary != view.primary;
            *seen = Some(view.clone());
            if !moved {
                return;
            }
            self.moves.fetch_add(1, Ordering::AcqRel);
        }
        tracing::debug!(primary = %view.primary, "the sentinels name another primary");
        let nodes: Vec<_> = {
            let mut nodes = lock(&self.nodes);
            nodes.retain(|node| node.strong_count() > 0);
            nodes.iter().filter_map(Weak::upgrade).collect()
        };
        nodes.iter().for_each(|node| node.look_again());
    }

    fn learn(&self, told: &Value) {
        let Value::Array(sentinels) = told else { return };
        let parts = |sentinel| Some((field(sentinel, "ip")?, field(sentinel, "port")?.parse().ok()?));
        let mut learnt = lock(&self.learnt);
        for (host, port) in sentinels.iter().filter_map(parts) {
            let address = Address::new(host, port);
            if learnt.len() < LEARNT_MAX && !self.named.contains(&address) && !learnt.contains(&address) {
                learnt.push(address);
            }
        }
    }
}

/// A value among the names and values that a sentinel tells.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    match value {
        Value::Map(pairs) => pairs
            .iter()
            .find(|(field, _)| answer::text(field) == Some(name))
            .and_then(|(_, v)| answer::text(v)),
        Value::Array(list) => list
            .chunks_exact(2)
            .find(|pair| answer::text(&pair[0]) == Some(name))
            .and_then(|pair| answer::text(&pair[1])),
        _ => None,
    }
}
