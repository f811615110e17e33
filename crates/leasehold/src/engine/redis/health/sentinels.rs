//! A primary, its replicas, and the sentinels that watch them.

use super::{
    between::{look_at_all, warnings},
    node::Part,
};
use crate::{
    clock::{Clock, Until},
    engine::{
        EngineError, Health, Warning, nodes,
        redis::{
            topology::sentinel::{Report, SentinelReport, Sentinels},
            url::Endpoint,
        },
    },
};

/// With fewer, one that fails leaves no majority to name another primary.
const SENTINELS_MIN: usize = 3;

pub(super) async fn look_at(
    sentinels: &Sentinels,
    clock: &Clock,
    until: Until,
) -> Result<Health, EngineError> {
    let (reports, primary) = sentinels.reports().await?;
    let mut health = about(&reports, &primary);
    if !sentinels.has_login() {
        health.warnings.push(Warning {
            code: "no-auth",
            found: "the sentinels let everybody in who reaches them".into(),
            cure: "set a password, and give it as sentinel-password: see SECURITY.md".into(),
        });
    }
    let one = |address: &Endpoint, part| (address.to_string(), sentinels.connection_to(address), part);
    let (replicas, are_known) = replicas(&reports, &primary);
    let asked = replicas.iter().map(|replica| one(replica, Part::Replica));
    let looked =
        look_at_all([one(&primary, Part::Primary)].into_iter().chain(asked), false, clock, until).await;
    if !are_known {
        health.warnings.push(Warning {
            code: "no-info",
            found: "no sentinel lets this user see the replicas: they were not checked".into(),
            cure: "grant +sentinel|replicas, or look with another user".into(),
        });
    } else if replicas.is_empty() {
        health.warnings.push(Warning {
            code: "unreplicated",
            found: format!("{primary}: no replica can take its place, all locks stop with it"),
            cure: "add a replica".into(),
        });
    }
    let words = ["primary"].into_iter().chain(std::iter::repeat("replica"));
    health.facts.extend(looked.iter().zip(words).map(|(one, what)| one.fact(what)));
    health.warnings.extend(warnings(&looked)?);
    Ok(health)
}

/// The replicas of the primary, as those sentinels tell that name it, and whether any of them tells.
fn replicas(reports: &[SentinelReport], primary: &Endpoint) -> (Vec<Endpoint>, bool) {
    let told = reports.iter().filter_map(|account| account.report.as_ref().ok());
    let lists: Vec<_> =
        told.filter(|told| told.primary == *primary).filter_map(|told| told.replicas.as_ref()).collect();
    let mut found: Vec<Endpoint> = Vec::new();
    for replica in lists.iter().copied().flatten() {
        if !found.contains(replica) {
            found.push(replica.clone());
        }
    }
    (found, !lists.is_empty())
}

/// What the sentinels say about themselves.
fn about(reports: &[SentinelReport], primary: &Endpoint) -> Health {
    let told: Vec<(&Endpoint, &Report)> =
        reports.iter().filter_map(|account| Some((&account.at, account.report.as_ref().ok()?))).collect();
    let answer = told.len();
    let known = told.iter().map(|(_, told)| told.others + 1).max().unwrap_or(0).max(answer);
    let must_agree = told.iter().filter_map(|(_, told)| told.quorum).max();
    let mut health = Health::default();
    health.facts.push(("primary".into(), primary.to_string()));
    let agree = must_agree.map_or_else(String::new, |agree| format!(", {agree} must miss the primary"));
    health.facts.push(("sentinels".into(), format!("{known} known, {answer} answer{agree}")));
    health.facts.extend(reports.iter().map(|SentinelReport { at, report }| {
        let words = match report {
            Ok(told) => format!("names {}, epoch {}", told.primary, told.epoch),
            Err(_) => "cannot be asked".into(),
        };
        (format!("sentinel {at}"), words)
    }));

    let mut warn = |code, found: String, cure: &str| {
        health.warnings.push(Warning { code, found, cure: cure.into() });
    };
    if known < SENTINELS_MIN {
        warn(
            "few-sentinels",
            format!("{known} sentinels are known: when one fails, nobody can name another primary"),
            "run three, on machines that do not fail together",
        );
    }
    let silent: Vec<_> = reports
        .iter()
        .filter_map(|account| Some(format!("{} ({})", account.at, account.report.as_ref().err()?)))
        .collect();
    if !silent.is_empty() || answer < known {
        let enough = answer * 2 > known && answer >= must_agree.unwrap_or(0);
        let but = if enough { "" } else { "; too few are left to name another primary" };
        let whom = if silent.is_empty() { String::new() } else { format!(": {}", nodes::listed(&silent)) };
        warn(
            "sentinel-down",
            format!("{answer} of {} sentinels answer{whom}{but}", known.max(reports.len())),
            "bring them back; those that are gone for good are forgotten after SENTINEL RESET",
        );
    }
    if told.iter().any(|(_, one)| one.primary != *primary) {
        let each: Vec<_> = told.iter().map(|(at, told)| format!("{at} names {}", told.primary)).collect();
        warn(
            "sentinel-views",
            format!("the sentinels disagree about the primary: {}", nodes::listed(&each)),
            "a moment after a fail-over it is normal; otherwise look at what the odd one monitors",
        );
    }
    health
}
