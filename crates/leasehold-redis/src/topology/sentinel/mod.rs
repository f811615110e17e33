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
use redis::{AsyncConnectionConfig, Client, Cmd, Value, aio::MultiplexedConnection};
use tokio::sync::Notify;

pub(crate) use self::report::{Report, SentinelReport};
use self::watch::Watch;
use crate::{
    connection::{Connection, Tasks},
    info::{Info, command, read},
    reply,
    target::{self, asked},
    url::{Endpoint, SentinelUrl},
};
use leasehold_core::{
    clock::Clock,
    engine::{EngineError, EngineOptions, Fault},
    error::Refusal,
};

/// Sentinels that are remembered because others named them.
const LEARNT_MAX: usize = 32;

/// Who is the primary, in one sentinel's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Grows with every fail-over.
    pub(crate) epoch: u64,
    pub(crate) primary: Endpoint,
}

/// The sentinels of one primary.
pub(crate) struct Sentinels {
    /// Those in the URL.
    named: Vec<Endpoint>,
    /// Those that others named; asked when none of the URL's answers.
    learnt: Mutex<Vec<Endpoint>>,
    /// What they call the primary.
    name: String,
    /// How to log in to a sentinel, whichever it is.
    login: Client,
    clock: Clock,
    tasks: Arc<Tasks>,
    /// How long one sentinel may take: a part of what a dial may take, so that time is left for the primary.
    ask_within: Duration,
    /// The view that was acted on last.
    seen: Mutex<Option<View>>,
    /// How many replicas a sentinel last reported, those that are down included.
    replicas: AtomicU32,
    moves: AtomicU64,
    /// Those that learn at once that the primary moved.
    connections: Mutex<Vec<Weak<Connection>>>,
    watch: Mutex<Watch>,
    /// How long nothing new is granted after a promotion, if that was asked for.
    pub(crate) grace: Option<Duration>,
}

impl Sentinels {
    pub(super) fn new(url: SentinelUrl, options: &EngineOptions, tasks: Arc<Tasks>) -> Arc<Self> {
        Arc::new(Self {
            named: url.sentinels,
            learnt: Mutex::default(),
            name: url.name,
            login: url.login,
            clock: options.clock.clone(),
            tasks,
            ask_within: options.command_timeout / 4,
            seen: Mutex::default(),
            replicas: AtomicU32::new(0),
            moves: AtomicU64::new(0),
            connections: Mutex::default(),
            watch: Mutex::default(),
            // A lease may last this long, and then its lock may stay closed for as long again.
            grace: url.grace.then_some(options.max_ttl * 2),
        })
    }

    /// Where the primary is.
    pub(crate) async fn primary(self: &Arc<Self>) -> Result<Endpoint, EngineError> {
        self.listen();
        let mut failed = Vec::new();
        let mut found = self.ask_all(&self.named, &mut failed).await;
        if found.is_none() {
            let learnt = lock(&self.learnt).clone();
            found = self.ask_all(&learnt, &mut failed).await;
        }
        let view = found.ok_or_else(|| self.nobody_knows(&failed))?;
        *lock(&self.seen) = Some(view.clone());
        Ok(view.primary)
    }

    /// How often the primary moved.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// A connection that shall learn at once that the primary moved.
    pub(crate) fn register(&self, connection: &Arc<Connection>) {
        let mut connections = lock(&self.connections);
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Arc::downgrade(connection));
    }

    /// How many replicas there are, those that are down included, if a sentinel has reported it.
    pub(crate) fn replicas(&self) -> Option<u32> {
        Some(self.replicas.load(Ordering::Relaxed)).filter(|replicas| *replicas > 0)
    }

    /// The view that counts ([`choose`]), as soon as that is certain.
    async fn ask_all(
        &self,
        sentinels: &[Endpoint],
        failed: &mut Vec<(Endpoint, EngineError)>,
    ) -> Option<View> {
        let ask = async |at: usize| {
            let view = async { Ok(self.view(&mut self.connect(&sentinels[at], None).await?).await?.0) };
            (at, self.in_time(view).await)
        };
        let mut asked: FuturesUnordered<_> = (0..sentinels.len()).map(ask).collect();
        let mut answers = Vec::new();
        while let Some((at, answer)) = asked.next().await {
            answers.push((at, answer));
            let views = answers.iter().map(|(_, answer)| answer.as_ref().ok());
            if let Some(view) = choose(views, sentinels.len(), self.seen_epoch()) {
                return Some(view.clone());
            }
        }
        // In the order of the URL, not in that of the answers.
        answers.sort_by_key(|(at, _)| *at);
        failed.extend(answers.into_iter().map(|(at, answer)| {
            let replaced = |View { primary, .. }| format!("names {primary}, which was replaced since");
            let old = |view| EngineError::new(Fault::Unreachable, replaced(view));
            (sentinels[at].clone(), answer.map_or_else(|error| error, old))
        }));
        None
    }

    fn seen_epoch(&self) -> u64 {
        lock(&self.seen).as_ref().map_or(0, |seen| seen.epoch)
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

    /// A connection to a sentinel; `news` is notified of what comes over it unasked.
    async fn connect(
        &self,
        at: &Endpoint,
        news: Option<Arc<Notify>>,
    ) -> Result<MultiplexedConnection, EngineError> {
        let client = at.client(&self.login)?;
        let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        if let Some(news) = news {
            config = config.set_push_sender(move |_| -> Result<(), redis::aio::SendError> {
                news.notify_one();
                Ok(())
            });
        }
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| reply::of_dial(&error, target::speaks_tls(&client)))
    }

    /// Who is the primary to one sentinel, and what else it reports of it.
    async fn view(&self, connection: &mut MultiplexedConnection) -> Result<(View, Info), EngineError> {
        let mut other = connection.clone();
        let (who, when) = (self.command("GET-MASTER-ADDR-BY-NAME"), self.command("MASTER"));
        // Sent together, because a fail-over may end between them.
        let (primary, details) = tokio::join!(asked(connection, &who), asked(&mut other, &when));
        let primary = primary?;
        if primary == Value::Nil {
            return Err(EngineError::new(Fault::Unsupported, "does not know it"));
        }
        let Some((host, port)) = read::<(String, u16)>(&primary) else {
            return Err(reply::unexpected(&primary));
        };
        let details = Info::of_pairs(&details.unwrap_or(Value::Nil));
        if let Some(replicas) = details.number("num-slaves") {
            self.replicas.store(u32::try_from(replicas).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        let epoch = details.number("config-epoch").unwrap_or(0);
        Ok((View { epoch, primary: Endpoint::new(&host, port) }, details))
    }

    fn command(&self, what: &str) -> Cmd {
        command(&["SENTINEL", what, &self.name])
    }

    fn nobody_knows(&self, failed: &[(Endpoint, EngineError)]) -> EngineError {
        let each: Vec<_> = failed.iter().map(|(at, error)| format!("{at} ({error})")).collect();
        let words = format!("no sentinel knows a primary called {:?}: {}", self.name, each.join(", "));
        let refusal = failed.iter().find_map(|(_, error)| match error.fault {
            Fault::Refused(refusal) => Some(refusal),
            Fault::Unsupported => Some(Refusal::Other),
            _ => None,
        });
        EngineError::new(refusal.map_or(Fault::Unreachable, Fault::Refused), words)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which view counts, if that is certain yet: `asked` sentinels were asked, and these have answered, or failed (`None`).
///
/// More than half of all that were asked decide as soon as they agree, unless a later fail-over than theirs was `seen`:
/// those that answer first may not know of it yet. Otherwise the view of the latest fail-over counts once no other can
/// come, because a sentinel that was cut off names an old primary for ever. One from before what was `seen` counts only
/// if all have answered: then all of them have been reset.
fn choose<'a>(answers: impl Iterator<Item = Option<&'a View>>, asked: usize, seen: u64) -> Option<&'a View> {
    let answers: Vec<_> = answers.collect();
    let views: Vec<_> = answers.iter().copied().flatten().collect();
    let agree = |view: &&&View| views.iter().filter(|other| other == view).count() * 2 > asked;
    if let Some(view) = views.iter().find(|view| agree(view) && view.epoch >= seen) {
        return Some(view);
    }
    let latest = views.iter().copied().max_by_key(|view| view.epoch).filter(|_| answers.len() == asked);
    latest.filter(|view| view.epoch >= seen || views.len() == asked)
}

/// Where some servers are, and their ids, from an answer that lists them.
fn listed(value: &Value) -> Vec<(Endpoint, Option<String>)> {
    let Value::Array(servers) = value else { return Vec::new() };
    let server = |server: &Value| {
        let server = Info::of_pairs(server);
        let port = u16::try_from(server.number("port")?).ok()?;
        Some((Endpoint::new(server.get("ip")?, port), server.get("runid").map(str::to_owned)))
    };
    servers.iter().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(epoch: u64, port: u16) -> View {
        View { epoch, primary: Endpoint::new("h", port) }
    }

    fn chosen(views: &[View], asked: usize, failed: usize, seen: u64) -> Option<u16> {
        let answers = views.iter().map(Some).chain(std::iter::repeat_n(None, failed));
        choose(answers, asked, seen).map(|view| view.primary.port)
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
