//! What each sentinel reports, for whoever looks at the health of the set.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::Value;

use super::{LEARNT_MAX, SentinelSet, Sentinels, View, choose, field, listed, lock};
use crate::engine::{
    EngineError,
    redis::{
        answer,
        connection::{Connection, ConnectionOptions},
        target::{self, DialTarget},
        url::Endpoint,
    },
};

/// One sentinel and its answer.
pub(in crate::engine::redis) struct SentinelReport {
    pub(in crate::engine::redis) at: Endpoint,
    pub(in crate::engine::redis) report: Result<Report, EngineError>,
}

/// What a sentinel reported.
pub(in crate::engine::redis) struct Report {
    pub(in crate::engine::redis) primary: Endpoint,
    pub(in crate::engine::redis) epoch: u64,
    /// How many sentinels must miss a primary.
    pub(in crate::engine::redis) quorum: Option<usize>,
    /// How many sentinels it knows besides itself.
    pub(in crate::engine::redis) others: usize,
    /// `None` if this user may not see them.
    pub(in crate::engine::redis) replicas: Option<Vec<Endpoint>>,
    id: Option<String>,
    /// Where the others are, and their ids.
    peers: Vec<(Endpoint, Option<String>)>,
}

impl Sentinels {
    /// What all sentinels report, those that others named included, and the primary that counts.
    pub(in crate::engine::redis) async fn reports(
        &self,
    ) -> Result<(Vec<SentinelReport>, Endpoint), EngineError> {
        let set = &self.set;
        let mut all = set.ask_each(set.named.clone()).await;
        let mut more = peers(&all);
        if all.iter().all(|one| one.report.is_err()) {
            more = lock(&set.learnt).clone();
        }
        all.extend(set.ask_each(more).await);
        let views: Vec<_> = all.iter().filter_map(|one| Some(one.report.as_ref().ok()?.view())).collect();
        let heard = lock(&set.seen).as_ref().map_or(0, |seen| seen.epoch);
        match choose(&views, all.len(), all.len() - views.len(), heard) {
            Some(view) => Ok((all, view.primary.clone())),
            None => {
                let silent = all.into_iter().filter_map(|one| Some((one.at, one.report.err()?)));
                Err(set.nobody_knows(&silent.collect::<Vec<_>>()))
            }
        }
    }

    /// A connection of its own to a primary or a replica, whatever it is at the moment.
    pub(in crate::engine::redis) fn connection_to(
        &self,
        endpoint: &Endpoint,
    ) -> Result<Arc<Connection>, EngineError> {
        let set = &self.set;
        Ok(Connection::new(ConnectionOptions {
            target: DialTarget::Fixed(Box::new(endpoint.client(&set.primary)?)),
            client_name: set.client_name.clone(),
            channel: String::new(),
            clock: set.clock.clone(),
            command_timeout: set.command_timeout,
            identify: false,
            listener: None,
            tasks: set.tasks.clone(),
        }))
    }

    /// Whether sentinels are shown a password, or may be shown a certificate.
    pub(in crate::engine::redis) fn has_login(&self) -> bool {
        let sentinel = &self.set.sentinel;
        let has_password = sentinel.get_connection_info().redis_settings().password().is_some();
        has_password || target::speaks_tls(sentinel)
    }
}

impl Report {
    fn view(&self) -> View {
        View { epoch: self.epoch, primary: self.primary.clone() }
    }
}

/// Sentinels that others name and that were not asked, not under another name either.
fn peers(asked: &[SentinelReport]) -> Vec<Endpoint> {
    let reports = || asked.iter().filter_map(|one| one.report.as_ref().ok());
    let mut found = Vec::new();
    for (endpoint, id) in reports().flat_map(|report| &report.peers) {
        let is_asked = asked.iter().any(|one| one.at == *endpoint)
            || id.is_some() && reports().any(|report| report.id == *id);
        if !is_asked && !found.contains(endpoint) && found.len() < LEARNT_MAX {
            found.push(endpoint.clone());
        }
    }
    found
}

impl SentinelSet {
    async fn ask_each(&self, sentinels: Vec<Endpoint>) -> Vec<SentinelReport> {
        let each = sentinels.into_iter().map(async |at| {
            let report = self.in_time(self.ask_one(&at)).await;
            SentinelReport { at, report }
        });
        join_all(each).await
    }

    async fn ask_one(&self, at: &Endpoint) -> Result<Report, EngineError> {
        let mut connection = self.connect(at, None).await?;
        let View { epoch, primary } = self.view(&mut connection).await?;
        let mut ask = async |what: &str| target::asked(&mut connection, &self.command(what)).await;
        // What is refused is not known; the rest still is.
        let details = ask("MASTER").await.unwrap_or(Value::Nil);
        let replicas = ask("REPLICAS").await.ok();
        let others = ask("SENTINELS").await.unwrap_or(Value::Nil);
        let mut who = redis::cmd("SENTINEL");
        who.arg("MYID");
        let id = target::asked(&mut connection, &who).await.ok();
        let number = |name: &str| field(&details, name).and_then(|number| number.parse().ok());
        Ok(Report {
            primary,
            epoch,
            quorum: number("quorum"),
            others: number("num-other-sentinels").unwrap_or(0),
            replicas: replicas.map(|list| listed(&list).into_iter().map(|(endpoint, _)| endpoint).collect()),
            id: id.as_ref().and_then(answer::text).map(str::to_owned),
            peers: listed(&others),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_with_two_names_is_asked_once() {
        let report = |host: &str, id: &str, peers: &[(&str, &str)]| SentinelReport {
            at: Endpoint::new(host, 1),
            report: Ok(Report {
                primary: Endpoint::new("p", 1),
                epoch: 0,
                quorum: None,
                others: 0,
                replicas: None,
                id: Some(id.into()),
                peers: peers.iter().map(|(at, id)| (Endpoint::new(at, 1), Some((*id).to_owned()))).collect(),
            }),
        };
        let asked =
            [report("a.example", "1", &[("10.0.0.2", "2")]), report("10.0.0.2", "2", &[("10.0.0.1", "1")])];
        assert_eq!(peers(&asked), []);
        let asked = [report("a.example", "1", &[("10.0.0.2", "2"), ("10.0.0.3", "3")])];
        assert_eq!(peers(&asked), [Endpoint::new("10.0.0.2", 1), Endpoint::new("10.0.0.3", 1)]);
    }
}
