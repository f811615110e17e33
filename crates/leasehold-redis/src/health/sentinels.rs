//! A primary, its replicas, and the sentinels that watch them.

use std::collections::BTreeSet;

use super::{Check, Member, Role, warnings, when};
use crate::{
    topology::sentinel::{Report, SentinelReport, Sentinels},
    url::Endpoint,
};
use leasehold_core::engine::{EngineError, Health, nodes};

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
            let error = |one: &SentinelReport| Some(format!("{} ({})", one.at, one.report.as_ref().err()?));
            let silent: Vec<_> = set.reports.iter().filter_map(error).collect();
            let whom = if silent.is_empty() { "" } else { &format!(": {}", nodes::listed(&silent)) };
            let enough = answer * 2 > known && answer >= set.must_agree().unwrap_or(0);
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
    reports: Vec<SentinelReport>,
    primary: Endpoint,
    has_login: bool,
}

impl SentinelSet {
    /// Those that answer.
    fn answers(&self) -> impl Iterator<Item = (&Endpoint, &Report)> {
        self.reports.iter().filter_map(|one| Some((&one.at, one.report.as_ref().ok()?)))
    }

    /// How many there are, as far as any of them knows.
    fn known(&self) -> usize {
        let by_one = self.answers().map(|(_, report)| report.others + 1).max().unwrap_or(0);
        by_one.max(self.answers().count())
    }

    /// How many must miss the primary.
    fn must_agree(&self) -> Option<usize> {
        self.answers().filter_map(|(_, report)| report.quorum).max()
    }

    /// The replicas of the primary, as those sentinels report that name it; `None` if none of them does.
    fn replicas(&self) -> Option<BTreeSet<Endpoint>> {
        let right = self.answers().filter(|(_, report)| report.view.primary == self.primary);
        let lists: Vec<_> = right.filter_map(|(_, report)| report.replicas.as_ref()).collect();
        (!lists.is_empty()).then(|| lists.into_iter().flatten().cloned().collect())
    }

    fn facts(&self) -> Vec<(String, String)> {
        let agree =
            self.must_agree().map_or_else(String::new, |agree| format!(", {agree} must miss the primary"));
        let counts = format!("{} known, {} answer{agree}", self.known(), self.answers().count());
        let each = self.reports.iter().map(|SentinelReport { at, report }| {
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
pub(super) async fn inspect(sentinels: &Sentinels) -> Result<(Health, Vec<Member>), EngineError> {
    let (reports, primary) = sentinels.reports().await?;
    let set = SentinelSet { reports, primary, has_login: sentinels.has_login() };
    let health = Health { facts: set.facts(), warnings: warnings(&CHECKS, &set) };
    let replicas = set.replicas().unwrap_or_default();
    let replicas = replicas.into_iter().map(|at| Member { at, role: Role::Replica, what: "replica".into() });
    let primary = Member { at: set.primary, role: Role::Primary, what: "primary".into() };
    Ok((health, [primary].into_iter().chain(replicas).collect()))
}
