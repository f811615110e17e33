//! What `doctor` checks: the members, their agreement, their room, and their alarms.

use futures_util::future::join_all;
use leasehold_core::{
    clock::Until,
    engine::{EngineError, Health, Warning},
};

use super::{
    Etcd, Result,
    channel::{Again, STATUS},
    proto::{
        AlarmRequest, AlarmResponse, LeaseGrantRequest, LeaseGrantResponse, MemberListRequest,
        MemberListResponse, StatusRequest, StatusResponse,
    },
};

/// The quota of members that were given none.
const DEFAULT_QUOTA_BYTES: i64 = 2 << 30;
/// More than this is worth a word before writes are refused.
const NEARLY_FULL: i64 = DEFAULT_QUOTA_BYTES / 5 * 4;

/// Every code that a [`Warning`] can have.
pub const WARNING_CODES: [&str; 9] = [
    "member-down",
    "member-unnamed",
    "few-members",
    "no-space",
    "corrupt",
    "nearly-full",
    "fragmented",
    "versions-differ",
    "slow-leases",
];

/// What was found of all members.
struct Found {
    /// Address and status of each member that the URL names.
    named: Vec<(String, Result<StatusResponse>)>,
    /// Members in all that vote, and the addresses of those that the URL does not name.
    voters: usize,
    unnamed: Vec<String>,
    alarms: Vec<i32>,
    /// The shortest lease that is granted, in seconds.
    shortest_lease: i64,
}

impl Etcd {
    pub(crate) async fn inspect_health(&self, until: Until) -> Result<Health> {
        let hosts: Vec<_> = self.members.hosts().map(str::to_owned).collect();
        let status = |host: String| async move {
            let status = self.members.call_member(&host, STATUS, StatusRequest {}, until).await;
            (host, status)
        };
        let named: Vec<(String, Result<StatusResponse>)> = join_all(hosts.iter().cloned().map(status)).await;
        if let (true, Some((_, Err(error)))) =
            (named.iter().all(|(_, status)| status.is_err()), named.first())
        {
            return Err(error.clone());
        }
        let path = "/etcdserverpb.Cluster/MemberList";
        let list: MemberListResponse =
            self.members.call(path, MemberListRequest {}, Again::Same, until).await?;
        let path = "/etcdserverpb.Maintenance/Alarm";
        let alarms: Result<AlarmResponse> =
            self.members.call(path, AlarmRequest { action: 0 }, Again::Same, until).await;
        let found = Found {
            voters: list.members.iter().filter(|member| !member.is_learner).count(),
            unnamed: unnamed(&list, &hosts),
            // Only root may ask, where users have to log in.
            alarms: alarms
                .map(|found| found.alarms.iter().map(|alarm| alarm.alarm).collect())
                .unwrap_or_default(),
            shortest_lease: self.shortest_lease(until).await.unwrap_or(0),
            named,
        };
        Ok(Health { facts: facts(&found), warnings: warnings(&found) })
    }

    async fn shortest_lease(&self, until: Until) -> Result<i64> {
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let request = LeaseGrantRequest { ttl: 1, id: 0 };
        let lease: LeaseGrantResponse = self.members.call(path, request, Again::Never, until).await?;
        self.revoke(lease.id, until).await?;
        Ok(lease.ttl)
    }
}

/// Members whose client addresses the URL does not have. Hosts may be written in several ways, so ports are compared too.
fn unnamed(list: &MemberListResponse, hosts: &[String]) -> Vec<String> {
    let address = |url: &str| url.split("://").nth(1).unwrap_or(url).trim_end_matches('/').to_owned();
    if list.members.len() <= hosts.len() {
        return Vec::new();
    }
    let of =
        |member: &super::proto::Member| member.client_urls.iter().map(|url| address(url)).collect::<Vec<_>>();
    let others = list.members.iter().map(of).filter(|urls| !urls.iter().any(|url| hosts.contains(url)));
    others.filter_map(|urls| urls.into_iter().next()).collect()
}

fn facts(found: &Found) -> Vec<(String, String)> {
    let up: Vec<_> = found.named.iter().filter_map(|(_, status)| status.as_ref().ok()).collect();
    let versions: Vec<_> = up.iter().map(|status| status.version.as_str()).collect();
    let size = up.iter().map(|status| status.db_size).max().unwrap_or(0);
    let facts = [
        ("engine", "etcd".to_owned()),
        ("version", versions.first().map_or("unknown", |version| *version).to_owned()),
        ("members", found.voters.to_string()),
        ("members that answer", format!("{} of {} in the URL", up.len(), found.named.len())),
        ("has a leader", if up.iter().any(|status| status.leader != 0) { "yes" } else { "no" }.to_owned()),
        ("database", format!("{:.1} MiB", size as f64 / f64::from(1 << 20))),
        ("shortest lease", format!("{} s", found.shortest_lease)),
    ];
    facts.into_iter().map(|(what, value)| (what.to_owned(), value)).collect()
}

fn warnings(found: &Found) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn =
        |code, found: String, cure: &str| warnings.push(Warning { code, found, cure: cure.into() });
    let is_down = |status: &Result<StatusResponse>| status.is_err();
    for (host, status) in found.named.iter().filter(|(_, status)| is_down(status)) {
        let why = status.as_ref().err().map(EngineError::to_string).unwrap_or_default();
        warn(
            "member-down",
            format!("{host} does not answer: {why}"),
            "start it, or remove it from the cluster",
        );
    }
    for address in &found.unnamed {
        let found = format!("the URL does not name the member {address}");
        warn("member-unnamed", found, "add it, so that locks outlive the others");
    }
    if found.voters < 3 {
        let found = format!("{} of {} members must be up", found.voters, found.voters);
        warn("few-members", found, "run three or five members, so that one may fail");
    }
    if found.alarms.contains(&1) {
        let found = "the alarm NOSPACE is raised: nothing can be locked".into();
        warn("no-space", found, "etcdctl compact and defrag, then etcdctl alarm disarm");
    }
    if found.alarms.contains(&2) {
        let found = "the alarm CORRUPT is raised: members have different data".into();
        warn("corrupt", found, "replace the member that differs; see etcd's guide to disaster recovery");
    }
    let up: Vec<_> = found.named.iter().filter_map(|(_, status)| status.as_ref().ok()).collect();
    if let Some(status) = up.iter().max_by_key(|status| status.db_size) {
        if status.db_size > NEARLY_FULL {
            let found =
                format!("the database has {} MiB, and 2048 MiB is the default quota", status.db_size >> 20);
            warn(
                "nearly-full",
                found,
                "switch on auto-compaction and run etcdctl defrag, or raise --quota-backend-bytes",
            );
        }
        if status.db_size > 256 << 20 && status.db_size_in_use < status.db_size / 4 {
            let found = format!(
                "of {} MiB only {} MiB are in use",
                status.db_size >> 20,
                status.db_size_in_use >> 20
            );
            warn("fragmented", found, "etcdctl defrag, one member after the other");
        }
    }
    if up.windows(2).any(|pair| pair[0].version != pair[1].version) {
        let versions: Vec<_> = up.iter().map(|status| status.version.as_str()).collect();
        let found = format!("members have different versions: {}", versions.join(", "));
        warn("versions-differ", found, "finish the upgrade");
    }
    if found.shortest_lease > 5 {
        let found = format!(
            "no lease is shorter than {} s: a crashed holder keeps a lock as long",
            found.shortest_lease
        );
        warn("slow-leases", found, "lower --election-timeout, of which it is one and a half");
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::engine::Fault;

    fn member(version: &str, db_size: i64, db_size_in_use: i64) -> (String, Result<StatusResponse>) {
        let (version, leader) = (version.to_owned(), 1);
        ("a:1".into(), Ok(StatusResponse { version, db_size, leader, db_size_in_use, ..Default::default() }))
    }

    fn found(named: Vec<(String, Result<StatusResponse>)>) -> Found {
        Found { named, voters: 3, unnamed: Vec::new(), alarms: Vec::new(), shortest_lease: 2 }
    }

    fn codes(found: &Found) -> Vec<&'static str> {
        warnings(found).iter().map(|warning| warning.code).collect()
    }

    #[test]
    fn a_warning_for_each_thing_to_change_and_none_otherwise() {
        let well = || vec![member("3.4.23", 1 << 20, 1 << 20), member("3.4.23", 1 << 20, 1 << 20)];
        assert!(codes(&found(well())).is_empty());
        let mut all = found(vec![
            member("3.4.23", 1 << 20, 1 << 20),
            member("3.5.9", 1900 << 20, 1 << 20),
            ("b:1".into(), Err(EngineError::new(Fault::Unreachable, "refused"))),
        ]);
        (all.voters, all.unnamed, all.alarms, all.shortest_lease) = (2, vec!["c:1".into()], vec![1, 2], 9);
        let mut expected = WARNING_CODES;
        let mut codes = codes(&all);
        codes.sort_unstable();
        expected.sort_unstable();
        assert_eq!(codes, expected);
    }

    #[test]
    fn a_member_is_named_by_any_of_its_addresses() {
        let member = |urls: &[&str]| crate::proto::Member {
            client_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            ..Default::default()
        };
        let members =
            vec![member(&["https://a:2379/", "https://10.0.0.1:2379"]), member(&["https://b:2379"])];
        let list = MemberListResponse { members };
        assert_eq!(unnamed(&list, &["10.0.0.1:2379".into()]), ["b:2379"]);
        assert!(unnamed(&list, &["x:2379".into(), "y:2379".into()]).is_empty());
    }
}
