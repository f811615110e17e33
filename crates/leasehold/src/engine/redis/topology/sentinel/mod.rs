//! Sentinels: who knows where the primary is.
//!
//! All of them are asked at every dial; [`choose`] is the one rule that decides among their views. A task listens to all of
//! them ([`watch`]): a client leaves a primary as soon as one of them names another under a later epoch, although the old one
//! may still take writes.

mod report;
mod watch;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{AsyncConnectionConfig, Cmd, Value, aio::MultiplexedConnection};

pub(in super::super) use self::report::{Report, SentinelReport};
use self::watch::Watch;
use crate::{
    clock::Clock,
    engine::{
        EngineError, Fault,
        connect::EngineOptions,
        redis::{
            answer,
            connection::{Connection, Tasks},
            target,
            url::{self, Endpoint},
        },
    },
    error::{Refusal, Result},
};

/// Sentinels that are remembered because others named them.
const LEARNT_MAX: usize = 32;

/// Who is the primary, in one sentinel's view.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    /// Grows with every fail-over.
    epoch: u64,
    primary: Endpoint,
}

/// The sentinels of one primary. The task that listens to them ends with this value.
pub(in super::super) struct Sentinels {
    set: Arc<SentinelSet>,
    watch: Watch,
    /// How long nothing new is granted after a promotion, if that was asked for.
    pub(in super::super) grace: Option<Duration>,
}

impl Sentinels {
    pub(super) fn open(url: &str, options: &EngineOptions, tasks: Arc<Tasks>) -> Result<Self> {
        let url = url::sentinel(url)?;
        let set = SentinelSet {
            named: url.sentinels,
            learnt: Mutex::default(),
            name: url.name,
            sentinel: url.sentinel,
            primary: url.primary,
            tasks,
            clock: options.clock.clone(),
            client_name: super::super::client_name(options),
            command_timeout: options.command_timeout,
            ask_within: options.command_timeout / 4,
            seen: Mutex::default(),
            replicas: AtomicU32::new(0),
            moves: AtomicU64::new(0),
            connections: Mutex::default(),
        };
        // A lease may last this long, and then its lock may stay closed for as long again.
        let grace = url.grace.then_some(options.max_ttl * 2);
        Ok(Self { set: Arc::new(set), watch: Watch::default(), grace })
    }

    /// The primary, as a server to dial.
    pub(in super::super) async fn primary(&self) -> Result<redis::Client, EngineError> {
        self.watch.start(&self.set);
        let view = self.set.find().await?;
        view.primary.client(&self.set.primary)
    }

    /// How often the primary moved.
    pub(in super::super) fn moves(&self) -> u64 {
        self.set.moves.load(Ordering::Acquire)
    }

    /// How to log in to the primary.
    pub(in super::super) fn template(&self) -> &redis::Client {
        &self.set.primary
    }

    /// A connection that shall learn at once that the primary moved.
    pub(in super::super) fn tell(&self, connection: &Arc<Connection>) {
        let mut connections = lock(&self.set.connections);
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Arc::downgrade(connection));
    }

    /// How many replicas there are, those that are down included, if a sentinel has told.
    pub(in super::super) fn replicas(&self) -> Option<u32> {
        Some(self.set.replicas.load(Ordering::Relaxed)).filter(|replicas| *replicas > 0)
    }

    pub(super) fn close(&self) {
        self.watch.stop();
    }
}

/// Whether a server is a primary.
pub(in super::super) async fn check_role(
    connection: &mut MultiplexedConnection,
    client: &redis::Client,
) -> Result<(), EngineError> {
    let role = target::asked(connection, &redis::cmd("ROLE")).await?;
    match &role {
        Value::Array(parts) if parts.first().and_then(answer::text) == Some("master") => Ok(()),
        _ => {
            let words =
                format!("{}, which the sentinels name, is no primary", client.get_connection_info().addr());
            Err(EngineError::new(Fault::Unreachable, words))
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the listening task and the dials share.
struct SentinelSet {
    /// Those in the URL.
    named: Vec<Endpoint>,
    /// Those that others told of; asked when none of the URL's answers.
    learnt: Mutex<Vec<Endpoint>>,
    name: String,
    sentinel: redis::Client,
    primary: redis::Client,
    clock: Clock,
    tasks: Arc<Tasks>,
    client_name: String,
    command_timeout: Duration,
    /// How long one sentinel may take: a part of what a dial may take, so that time is left for the primary.
    ask_within: Duration,
    /// The view that was acted on last.
    seen: Mutex<Option<View>>,
    /// How many replicas a sentinel last told of, those that are down included.
    replicas: AtomicU32,
    moves: AtomicU64,
    connections: Mutex<Vec<Weak<Connection>>>,
}

impl SentinelSet {
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

    /// The view that counts ([`choose`]), as soon as that is certain.
    async fn ask_all(
        &self,
        sentinels: &[Endpoint],
        silent: &mut Vec<(Endpoint, EngineError)>,
    ) -> Option<View> {
        let heard = lock(&self.seen).as_ref().map_or(0, |seen| seen.epoch);
        let ask = |(place, at)| async move {
            let view = async { self.view(&mut self.connect(at, None).await?).await };
            (place, self.in_time(view).await)
        };
        let mut answers: FuturesUnordered<_> = sentinels.iter().enumerate().map(ask).collect();
        let (mut views, mut places, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        while let Some((place, answer)) = answers.next().await {
            match answer {
                Err(error) => errors.push((place, error)),
                Ok(view) => {
                    views.push(view);
                    places.push(place);
                }
            }
            if let Some(view) = choose(&views, sentinels.len(), errors.len(), heard) {
                return Some(view.clone());
            }
        }
        errors.extend(places.into_iter().zip(views).map(|(place, view)| {
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
        endpoint: &Endpoint,
        push: Option<Arc<tokio::sync::Notify>>,
    ) -> Result<MultiplexedConnection, EngineError> {
        let client = endpoint.client(&self.sentinel)?;
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
            .map_err(|error| answer::of_dial(&error, target::speaks_tls(&client)))
    }

    /// What one sentinel says.
    async fn view(&self, connection: &mut MultiplexedConnection) -> Result<View, EngineError> {
        let mut other = connection.clone();
        let (who, when) = (self.command("GET-MASTER-ADDR-BY-NAME"), self.command("MASTER"));
        // Sent together, because a fail-over may end between them.
        let (primary, details) =
            tokio::join!(target::asked(connection, &who), target::asked(&mut other, &when));
        match primary? {
            Value::Array(parts) if parts.len() == 2 => {
                let port = answer::text(&parts[1]).and_then(|port| port.parse().ok());
                let Some((host, port)) = answer::text(&parts[0]).zip(port) else {
                    return Err(answer::unexpected(&Value::Array(parts)));
                };
                let primary = Endpoint::new(host, port);
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

    fn nobody_knows(&self, silent: &[(Endpoint, EngineError)]) -> EngineError {
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
        let connections: Vec<_> = lock(&self.connections).iter().filter_map(Weak::upgrade).collect();
        connections.iter().for_each(|connection| connection.look_again());
    }

    fn learn(&self, value: &Value) {
        let mut learnt = lock(&self.learnt);
        for (endpoint, _) in listed(value) {
            if learnt.len() < LEARNT_MAX && !self.named.contains(&endpoint) && !learnt.contains(&endpoint) {
                learnt.push(endpoint);
            }
        }
    }
}

/// Which of the views counts, if that can be said yet; `asked` sentinels were asked, `silent` of them failed.
///
/// More than half of all that were asked decide as soon as they agree, unless a later fail-over than theirs was heard of:
/// those that answer first may not know of it yet. Otherwise the view of the latest fail-over counts once nobody else can
/// answer, because a sentinel that was cut off names an old primary for ever. One from before what was `heard` counts only
/// if nobody was silent: then all of them were told to forget.
fn choose(views: &[View], asked: usize, silent: usize, heard: u64) -> Option<&View> {
    let agree = |view: &&View| views.iter().filter(|other| other == view).count() * 2 > asked;
    if let Some(view) = views.iter().find(|view| agree(view) && view.epoch >= heard) {
        return Some(view);
    }
    let latest = views.iter().max_by_key(|view| view.epoch).filter(|_| views.len() + silent == asked);
    latest.filter(|view| view.epoch >= heard || silent == 0)
}

/// Endpoints and ids in a list of servers.
fn listed(value: &Value) -> Vec<(Endpoint, Option<String>)> {
    let Value::Array(servers) = value else { return Vec::new() };
    let server = |server: &Value| {
        let endpoint = Endpoint::new(field(server, "ip")?, field(server, "port")?.parse().ok()?);
        Some((endpoint, field(server, "runid").map(str::to_owned)))
    };
    servers.iter().filter_map(server).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn view(epoch: u64, port: u16) -> View {
        View { epoch, primary: Endpoint::new("h", port) }
    }

    fn chosen(views: &[View], asked: usize, silent: usize, heard: u64) -> Option<u16> {
        choose(views, asked, silent, heard).map(|view| view.primary.port)
    }

    #[test]
    fn more_than_half_decide_before_the_others_answer() {
        assert_eq!(chosen(&[view(1, 1), view(1, 1)], 3, 0, 0), Some(1));
        assert_eq!(chosen(&[view(1, 1)], 3, 0, 0), None);
        assert_eq!(chosen(&[view(1, 1)], 1, 0, 0), Some(1));
    }

    #[test]
    fn without_a_majority_the_latest_fail_over_counts_once_all_have_answered_or_failed() {
        assert_eq!(chosen(&[view(3, 1), view(4, 2)], 3, 0, 0), None);
        assert_eq!(chosen(&[view(3, 1), view(4, 2)], 3, 1, 0), Some(2));
        assert_eq!(chosen(&[view(3, 1), view(4, 2)], 2, 0, 0), Some(2));
        assert_eq!(chosen(&[], 2, 2, 0), None);
    }

    #[test]
    fn a_majority_that_is_behind_what_was_heard_does_not_decide() {
        assert_eq!(chosen(&[view(1, 1), view(1, 1)], 3, 0, 2), None, "the third may know better");
        assert_eq!(chosen(&[view(1, 1), view(1, 1), view(2, 2)], 3, 0, 2), Some(2));
        assert_eq!(chosen(&[view(1, 1), view(1, 1)], 3, 1, 2), None, "the one that knows is silent");
        assert_eq!(
            chosen(&[view(1, 1), view(1, 1), view(1, 1)], 3, 0, 2),
            Some(1),
            "all were told to forget"
        );
    }
}
