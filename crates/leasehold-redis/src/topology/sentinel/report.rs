//! What each sentinel reports, for the health of the set.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::{LEARNT_MAX, Sentinels, View, choose, listed, lock};
use crate::{
    info::{command, read},
    target::{self, asked},
    url::Endpoint,
};
use leasehold_core::engine::EngineError;

/// One sentinel and its answer.
pub(crate) struct SentinelReport {
    pub(crate) at: Endpoint,
    pub(crate) report: Result<Report, EngineError>,
}

/// What a sentinel reported.
pub(crate) struct Report {
    pub(crate) view: View,
    /// How many sentinels must miss a primary.
    pub(crate) quorum: Option<usize>,
    /// How many sentinels it knows besides itself.
    pub(crate) others: usize,
    /// `None` if this user may not see them.
    pub(crate) replicas: Option<Vec<Endpoint>>,
    id: Option<String>,
    /// Where the others are, and their ids.
    peers: Vec<(Endpoint, Option<String>)>,
}

impl Sentinels {
    /// What all sentinels report, those that others named included, and the primary that counts.
    pub(crate) async fn reports(&self) -> Result<(Vec<SentinelReport>, Endpoint), EngineError> {
        let mut all = self.ask_each(self.named.clone()).await;
        let mut more = peers(&all);
        if all.iter().all(|one| one.report.is_err()) {
            more = lock(&self.learnt).clone();
        }
        all.extend(self.ask_each(more).await);
        let views = all.iter().map(|one| Some(&one.report.as_ref().ok()?.view));
        if let Some(view) = choose(views, all.len(), self.seen_epoch()) {
            let primary = view.primary.clone();
            return Ok((all, primary));
        }
        let failed = all.into_iter().filter_map(|one| Some((one.at, one.report.err()?)));
        Err(self.nobody_knows(&failed.collect::<Vec<_>>()))
    }

    /// Whether sentinels are shown a password, or may be shown a certificate.
    pub(crate) fn has_login(&self) -> bool {
        let has_password = self.login.get_connection_info().redis_settings().password().is_some();
        has_password || target::speaks_tls(&self.login)
    }

    async fn ask_each(&self, sentinels: Vec<Endpoint>) -> Vec<SentinelReport> {
        let each = sentinels.into_iter().map(async |at| {
            let report = self.in_time(self.ask_one(&at)).await;
            SentinelReport { at, report }
        });
        join_all(each).await
    }

    async fn ask_one(&self, at: &Endpoint) -> Result<Report, EngineError> {
        let mut connection = self.connect(at, None).await?;
        let (view, details) = self.view(&mut connection).await?;
        // What is refused is not known; the rest still is.
        let replicas = asked(&mut connection, &self.command("REPLICAS")).await.ok();
        let others = asked(&mut connection, &self.command("SENTINELS")).await.ok();
        let id = asked(&mut connection, &command(&["SENTINEL", "MYID"])).await.ok();
        let number = |field: &str| details.get(field).and_then(|number| number.parse().ok());
        Ok(Report {
            view,
            quorum: number("quorum"),
            others: number("num-other-sentinels").unwrap_or(0),
            replicas: replicas.map(|list| listed(&list).into_iter().map(|(at, _)| at).collect()),
            id: id.as_ref().and_then(read),
            peers: others.as_ref().map(listed).unwrap_or_default(),
        })
    }
}

/// Sentinels that others name and that were not asked, not under another name either.
fn peers(asked: &[SentinelReport]) -> Vec<Endpoint> {
    let reports = || asked.iter().filter_map(|one| one.report.as_ref().ok());
    let is_asked = |(at, id): &&(Endpoint, Option<String>)| {
        asked.iter().any(|one| one.at == *at) || id.is_some() && reports().any(|report| report.id == *id)
    };
    let peers = reports().flat_map(|report| &report.peers).filter(|peer| !is_asked(peer));
    let found: BTreeSet<_> = peers.map(|(at, _)| at.clone()).take(LEARNT_MAX).collect();
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_with_two_names_is_asked_once() {
        let report = |host: &str, id: &str, peers: &[(&str, &str)]| SentinelReport {
            at: Endpoint::new(host, 1),
            report: Ok(Report {
                view: View { epoch: 0, primary: Endpoint::new("p", 1) },
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
