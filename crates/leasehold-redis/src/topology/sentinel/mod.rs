//! Sentinels: who knows where the primary is.
//!
//! All of them are asked at every dial; [`choose`] is the one rule that decides among their views. A task listens to all of
//! them ([`watch`]): a client leaves a primary as soon as one of them names another under a later epoch, although the old one
//! may still take writes.

mod watch;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Client, Cmd, Value, aio::MultiplexedConnection};
use tokio::task::AbortHandle;

use super::map::each_failed;
use crate::{
    Result,
    connection::{Connection, Tasks},
    driver::{asked, dial},
    info::{Info, command, read},
    locked, reply, unreachable,
    url::{Endpoint, StoreUrl},
};
use leasehold_core::{
    clock::Clock,
    engine::{EngineError, EngineOptions, Fault},
    error::{Error, Refusal},
};

/// Sentinels that are remembered because others named them.
const LEARNT_MAX: usize = 32;

/// Who is the primary, in one sentinel's view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Grows with every fail-over.
    pub(crate) epoch: u64,
    pub(crate) primary: Endpoint,
}

/// What one sentinel reports.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) view: View,
    /// What it knows of the primary.
    pub(crate) details: Info,
    /// `None` if this user may not see them.
    pub(crate) replicas: Option<Vec<Endpoint>>,
    id: Option<String>,
    /// Where the other sentinels are, and their ids.
    peers: Vec<(Endpoint, Option<String>)>,
}

/// What each of some sentinels reports, or why it does not.
type Reports = Vec<(Endpoint, Result<Report>)>;

/// The sentinels of one primary.
pub(crate) struct Sentinels {
    /// Those in the URL.
    named: Vec<Endpoint>,
    /// What they call the primary.
    name: String,
    /// How to log in to a sentinel, whichever it is.
    pub(crate) login: Client,
    clock: Clock,
    tasks: Arc<Tasks>,
    /// How long one sentinel may take: a part of what a dial may take, so that time is left for the primary.
    ask_within: Duration,
    /// How long nothing new is granted after a promotion, if that was asked for.
    pub(crate) grace: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Sentinels that others named; asked when none of the URL's answers.
    learnt: Vec<Endpoint>,
    /// The view that was acted on last.
    seen: Option<View>,
    /// How often the primary moved.
    moves: u64,
    /// How many replicas a sentinel last reported, those that are down included.
    replicas: Option<u32>,
    /// Those that learn at once that the primary moved.
    connections: Vec<Weak<Connection>>,
    /// The task that listens.
    watch: Option<AbortHandle>,
    closed: bool,
}

impl Sentinels {
    pub(super) fn new(url: &StoreUrl, options: &EngineOptions, tasks: Arc<Tasks>) -> Result<Self, Error> {
        Ok(Self {
            named: url.hosts.clone(),
            name: url.primary.clone(),
            login: url.sentinel_login()?,
            clock: options.clock.clone(),
            tasks,
            ask_within: options.command_timeout / 4,
            // A lease may last this long, and then its lock may stay closed for as long again.
            grace: url.grace.then_some(options.max_ttl * 2),
            state: Mutex::default(),
        })
    }

    /// Where the primary is.
    pub(crate) async fn primary(self: &Arc<Self>) -> Result<Endpoint> {
        self.listen();
        let learnt = locked(&self.state).learnt.clone();
        let mut reports = Vec::new();
        for sentinels in [&self.named, &learnt] {
            let more = self.ask(sentinels, false).await;
            if let Some(view) = self.chosen(&more, sentinels.len()) {
                locked(&self.state).seen = Some(view.clone());
                return Ok(view.primary);
            }
            reports.extend(more);
        }
        Err(self.nobody_knows(reports))
    }

    pub(crate) fn moves(&self) -> u64 {
        locked(&self.state).moves
    }

    /// A connection that shall learn at once that the primary moved.
    pub(crate) fn register(&self, connection: &Arc<Connection>) {
        let connections = &mut locked(&self.state).connections;
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Arc::downgrade(connection));
    }

    /// How many replicas there are, those that are down included, if a sentinel has reported it.
    pub(crate) fn replicas(&self) -> Option<u32> {
        locked(&self.state).replicas
    }

    /// What all sentinels report, those that others named included, and the primary that counts.
    pub(crate) async fn reports(&self) -> Result<(Reports, Endpoint)> {
        let mut all = self.ask(&self.named, true).await;
        let is_silent = all.iter().all(|(_, report)| report.is_err());
        let more = if is_silent { locked(&self.state).learnt.clone() } else { peers(&all) };
        all.extend(self.ask(&more, true).await);
        match self.chosen(&all, all.len()) {
            Some(view) => Ok((all, view.primary)),
            None => Err(self.nobody_knows(all)),
        }
    }

    /// Asks sentinels at the same time: until it is certain which view counts, or `in_full`.
    async fn ask(&self, sentinels: &[Endpoint], in_full: bool) -> Reports {
        let one = async |at: &Endpoint| (at.clone(), self.in_time(self.report(at, in_full)).await);
        let mut asked: FuturesUnordered<_> = sentinels.iter().map(one).collect();
        let mut reports = Vec::new();
        while let Some(report) = asked.next().await {
            reports.push(report);
            if !in_full && self.chosen(&reports, sentinels.len()).is_some() {
                break;
            }
        }
        // In the order of the URL, not in that of the answers.
        reports.sort_by_key(|(at, _)| sentinels.iter().position(|known| known == at));
        reports
    }

    /// The view that counts ([`choose`]), if that is certain.
    fn chosen(&self, reports: &Reports, asked: usize) -> Option<View> {
        let seen = locked(&self.state).seen.as_ref().map_or(0, |seen| seen.epoch);
        let views = reports.iter().map(|(_, report)| Some(&report.as_ref().ok()?.view));
        choose(views, asked, seen).cloned()
    }

    async fn in_time<T>(&self, asking: impl Future<Output = Result<T>>) -> Result<T> {
        let until = self.clock.now() + self.ask_within;
        let late = || Err(unreachable(format!("no answer within {:?}", self.ask_within)));
        self.clock.bounded(until, asking).await.unwrap_or_else(late)
    }

    async fn report(&self, at: &Endpoint, in_full: bool) -> Result<Report> {
        let mut connection = dial(&at.client(&self.login), |_| {}).await?;
        let report = self.view(&mut connection).await?;
        if !in_full {
            return Ok(report);
        }
        // What is refused is not known; the rest still is.
        let replicas = asked(&mut connection, &self.command("REPLICAS")).await.ok();
        let others = asked(&mut connection, &self.command("SENTINELS")).await.ok();
        let id = asked(&mut connection, &command(&["SENTINEL", "MYID"])).await.ok();
        Ok(Report {
            replicas: replicas.map(|list| listed(&list).into_iter().map(|(at, _)| at).collect()),
            id: id.as_ref().and_then(read),
            peers: others.as_ref().map(listed).unwrap_or_default(),
            ..report
        })
    }

    /// Who is the primary to one sentinel, and what else it reports of it.
    async fn view(&self, connection: &mut MultiplexedConnection) -> Result<Report> {
        let mut other = connection.clone();
        let (who, when) = (self.command("GET-MASTER-ADDR-BY-NAME"), self.command("MASTER"));
        // Sent together, because a fail-over may end between them.
        let (primary, details) = tokio::join!(asked(connection, &who), asked(&mut other, &when));
        let primary = primary?;
        if primary == Value::Nil {
            return Err(EngineError::new(Fault::Unsupported, "does not know it"));
        }
        let (host, port): (String, _) = read(&primary).ok_or_else(|| reply::unexpected(&primary))?;
        let details = Info::of_pairs(&details.unwrap_or(Value::Nil));
        if let Some(replicas) = details.number("num-slaves").and_then(|replicas| replicas.try_into().ok()) {
            locked(&self.state).replicas = (replicas > 0).then_some(replicas);
        }
        let epoch = details.number("config-epoch").unwrap_or(0);
        let view = View { epoch, primary: Endpoint::new(&host, port) };
        Ok(Report { view, details, ..Report::default() })
    }

    fn command(&self, what: &str) -> Cmd {
        command(&["SENTINEL", what, &self.name])
    }

    fn nobody_knows(&self, reports: Reports) -> EngineError {
        let replaced = |Report { view, .. }| format!("names {}, which was replaced since", view.primary);
        let error = |report: Result<_>| report.map_or_else(|error| error, |old| unreachable(replaced(old)));
        let failed: Vec<_> = reports.into_iter().map(|(at, report)| (at, error(report))).collect();
        let words = format!("no sentinel knows a primary called {:?}: {}", self.name, each_failed(&failed));
        let refusal = failed.iter().find_map(|(_, error)| match error.fault {
            Fault::Refused(refusal) => Some(refusal),
            Fault::Unsupported => Some(Refusal::Other),
            _ => None,
        });
        EngineError::new(refusal.map_or(Fault::Unreachable, Fault::Refused), words)
    }
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

/// Sentinels that others name and that were not asked, not under another name either.
fn peers(asked: &Reports) -> Vec<Endpoint> {
    let reports = || asked.iter().filter_map(|(_, report)| report.as_ref().ok());
    let is_asked = |(at, id): &&(Endpoint, Option<String>)| {
        asked.iter().any(|(known, _)| known == at) || id.is_some() && reports().any(|report| report.id == *id)
    };
    let peers = reports().flat_map(|report| &report.peers).filter(|peer| !is_asked(peer));
    let found: BTreeSet<_> = peers.map(|(at, _)| at.clone()).take(LEARNT_MAX).collect();
    found.into_iter().collect()
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

    #[test]
    fn a_sentinel_with_two_names_is_asked_once() {
        let report = |host: &str, id: &str, peers: &[(&str, &str)]| {
            let peers = peers.iter().map(|(at, id)| (Endpoint::new(at, 1), Some((*id).to_owned()))).collect();
            (Endpoint::new(host, 1), Ok(Report { id: Some(id.into()), peers, ..Report::default() }))
        };
        let asked = vec![
            report("a.example", "1", &[("10.0.0.2", "2")]),
            report("10.0.0.2", "2", &[("10.0.0.1", "1")]),
        ];
        assert_eq!(peers(&asked), []);
        let asked = vec![report("a.example", "1", &[("10.0.0.2", "2"), ("10.0.0.3", "3")])];
        assert_eq!(peers(&asked), [Endpoint::new("10.0.0.2", 1), Endpoint::new("10.0.0.3", 1)]);
    }
}
