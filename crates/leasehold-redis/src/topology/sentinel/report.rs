//! What each sentinel reports, for the health of the set.

use std::collections::BTreeSet;

use redis::Value;

use super::{LEARNT_MAX, Reports, Sentinels, View};
use crate::{
    Result,
    info::{Info, command, read},
    locked,
    target::{self, asked},
    url::Endpoint,
};

/// What a sentinel reported.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) view: View,
    /// What it knows of the primary.
    pub(crate) details: Info,
    /// `None` if this user may not see them.
    pub(crate) replicas: Option<Vec<Endpoint>>,
    pub(super) id: Option<String>,
    /// Where the other sentinels are, and their ids.
    pub(super) peers: Vec<(Endpoint, Option<String>)>,
}

impl Sentinels {
    /// What all sentinels report, those that others named included, and the primary that counts.
    pub(crate) async fn reports(&self) -> Result<(Reports, Endpoint)> {
        let mut all = self.ask(&self.named, true).await;
        let is_silent = all.iter().all(|(_, report)| report.is_err());
        let more = if is_silent { locked(&self.learnt).clone() } else { peers(&all) };
        all.extend(self.ask(&more, true).await);
        match self.chosen(&all, all.len()) {
            Some(view) => Ok((all, view.primary)),
            None => Err(self.nobody_knows(all)),
        }
    }

    /// Whether sentinels are shown a password, or may be shown a certificate.
    pub(crate) fn has_login(&self) -> bool {
        target::has_password(&self.login) || target::speaks_tls(&self.login)
    }

    pub(super) async fn report(&self, at: &Endpoint, in_full: bool) -> Result<Report> {
        let mut connection = self.connect(at, None).await?;
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
}

/// Where some servers are, and their ids, from an answer that lists them.
pub(super) fn listed(value: &Value) -> Vec<(Endpoint, Option<String>)> {
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
