//! A primary, its replicas, and the sentinels that watch them.

use std::collections::BTreeSet;

use super::{Check, Duty, Member, warnings, when};
use crate::{
    Result,
    driver::{has_password, speaks_tls},
    topology::sentinel::{Report, Sentinels},
    url::Endpoint,
};
use leasehold_core::engine::{Health, nodes};

/// With fewer, one that fails leaves no majority to name another primary.
const SENTINELS_MIN: usize = 3;

/// What can be wrong with the sentinels, and with the set as they report it.
pub(super) const CHECKS: [Check<SentinelSet>; 6] = [
    Check("few-sentinels", "run three, on machines that do not fail together", |set| {
        let known = set.known();
        (known < SENTINELS_MIN)
            .then(|| format!("{known} sentinels are known: when one fails, nobody can name another primary"))
    }),
    Check(
        "sentinel-down",
        "bring them back; those that are gone for good are forgotten after SENTINEL RESET",
        |set| {
            let (answer, known) = (set.answers().count(), set.known());
            let all = known.max(set.reports.len());
            let failed = set.reports.iter().filter_map(|(at, report)| Some((at, report.as_ref().err()?)));
            let silent: Vec<_> = failed.map(|(at, error)| format!("{at} ({error})")).collect();
            let whom = if silent.is_empty() { "" } else { &format!(": {}", nodes::listed(&silent)) };
            let enough = answer * 2 > known && answer >= set.most("quorum").unwrap_or(0);
            let but = if enough { "" } else { "; too few are left to name another primary" };
            (answer < all).then(|| format!("{answer} of {all} sentinels answer{whom}{but}"))
        },
    ),
    Check(
        "sentinel-views",
        "a moment after a fail-over it is normal; otherwise look at what the odd one monitors",
        |set| {
            let each: Vec<_> =
                set.answers().map(|(at, report)| format!("{at} names {}", report.view.primary)).collect();
            let differ = set.answers().any(|(_, report)| report.view.primary != set.primary);
            differ.then(|| format!("the sentinels disagree about the primary: {}", nodes::listed(&each)))
        },
    ),
    Check("no-auth", "set a password, and give it as sentinel-password: see SECURITY.md", |set| {
        when(!set.has_login, "the sentinels let everybody in who reaches them")
    }),
    Check("no-info", "grant +sentinel|replicas, or look with another user", |set| {
        let words = "no sentinel lets this user see the replicas: they were not checked";
        when(set.replicas().is_none(), words)
    }),
    Check("unreplicated", "add a replica", |set| {
        let primary = &set.primary;
        (set.replicas()?.is_empty())
            .then(|| format!("{primary}: no replica can take its place, all locks stop with it"))
    }),
];

/// What the sentinels report.
pub(super) struct SentinelSet {
    reports: Vec<(Endpoint, Result<Report>)>,
    primary: Endpoint,
    has_login: bool,
}

impl SentinelSet {
    /// Those that answer.
    fn answers(&self) -> impl Iterator<Item = (&Endpoint, &Report)> {
        self.reports.iter().filter_map(|(at, report)| Some((at, report.as_ref().ok()?)))
    }

    /// How many there are, as far as any of them knows.
    fn known(&self) -> usize {
        let others = self.most("num-other-sentinels").unwrap_or(0);
        self.answers().count().max(others + 1)
    }

    /// The largest number that any of them reports.
    fn most(&self, field: &str) -> Option<usize> {
        self.answers().filter_map(|(_, report)| report.details.number(field)?.try_into().ok()).max()
    }

    /// The replicas of the primary, as those sentinels report that name it; `None` if none of them does.
    fn replicas(&self) -> Option<BTreeSet<Endpoint>> {
        let right = self.answers().filter(|(_, report)| report.view.primary == self.primary);
        let lists: Vec<_> = right.filter_map(|(_, report)| report.replicas.as_ref()).collect();
        (!lists.is_empty()).then(|| lists.into_iter().flatten().cloned().collect())
    }

    fn facts(&self) -> Vec<(String, String)> {
        let quorum = self.most("quorum").map(|quorum| format!(", {quorum} must miss the primary"));
        let agree = quorum.unwrap_or_default();
        let counts = format!("{} known, {} answer{agree}", self.known(), self.answers().count());
        let each = self.reports.iter().map(|(at, report)| {
            let words = match report {
                Ok(report) => format!("names {}, epoch {}", report.view.primary, report.view.epoch),
                Err(_) => "cannot be asked".into(),
            };
            (format!("sentinel {at}"), words)
        });
        let all = [("primary".into(), self.primary.to_string()), ("sentinels".into(), counts)];
        all.into_iter().chain(each).collect()
    }
}

/// What the sentinels report, and whom they watch.
pub(super) async fn inspect(sentinels: &Sentinels) -> Result<(Health, Vec<Member>)> {
    let (reports, primary) = sentinels.reports().await?;
    // They may be shown a certificate.
    let has_login = has_password(&sentinels.login) || speaks_tls(&sentinels.login);
    let set = SentinelSet { reports, primary, has_login };
    let health = Health { facts: set.facts(), warnings: warnings(&CHECKS, &set) };
    let member = |at, is_replica| {
        let duty = Duty { is_replica, in_cluster: false, with_grace: sentinels.grace.is_some() };
        Member { at, duty, what: if is_replica { "replica" } else { "primary" }.into() }
    };
    let replicas = set.replicas().unwrap_or_default().into_iter().map(|at| member(at, true));
    Ok((health, [member(set.primary, false)].into_iter().chain(replicas).collect()))
}
