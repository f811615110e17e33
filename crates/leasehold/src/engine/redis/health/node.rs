//! One server.

use std::{sync::Arc, time::Duration};

use redis::Value;

use super::{
    SET_WARNING_CODES, WARNING_CODES,
    info::{Info, command, pairs, permitted, server_us},
};
use crate::{
    clock::{Clock, Until},
    engine::{
        ClockOffset, EngineError, Health, Warning,
        redis::{answer, connection::Connection},
    },
};

/// The oldest major version whose scripts, commands and rights are the ones this engine uses.
const VERSION_MIN: u32 = 7;
/// A difference between two clocks that people notice. Nothing here depends on it.
const SKEW_MAX: Duration = Duration::from_secs(1);
/// Share of `maxclients` above which the next deployment may not get a connection, in percent.
const CLIENTS_MAX_PERCENT: u64 = 90;
/// How long a replica may hear nothing. Primaries ping every ten seconds.
const SILENT_MAX_S: u64 = 20;

/// What the client takes a server for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// The whole store.
    #[default]
    Whole,
    /// One that grants locks, with replicas that may take its place.
    Primary,
    Replica,
}

/// Looks at a server that works alone.
pub(in crate::engine::redis) async fn look_at(
    connection: &Arc<Connection>,
    clock: &Clock,
    until: Until,
) -> Result<Health, EngineError> {
    let seen = look(connection, clock, Part::Whole, false, until).await?;
    Ok(Health { facts: seen.facts(), warnings: seen.warnings() })
}

/// How far a server's clock is from ours; `None` if this user may not ask for it.
pub(in crate::engine::redis) async fn clock_of(
    connection: &Arc<Connection>,
    clock: &Clock,
    until: Until,
) -> Result<Option<ClockOffset>, EngineError> {
    let link = connection.link(until).await?;
    let asked_us = clock.wall_us();
    let answer = permitted(link.send(&command(&["TIME"]), until).await)?;
    let answered_us = clock.wall_us();
    let read = answer.as_ref().and_then(server_us);
    Ok(read.map(|server_us| ClockOffset::new(asked_us, server_us, answered_us)))
}

pub(super) async fn look(
    connection: &Arc<Connection>,
    clock: &Clock,
    part: Part,
    in_cluster: bool,
    until: Until,
) -> Result<Seen, EngineError> {
    let clock = clock_of(connection, clock, until).await?;
    let link = connection.link(until).await?;
    let ask = async |words: &[&str]| -> Result<Option<Value>, EngineError> {
        permitted(link.send(&command(words), until).await)
    };
    let settings = [
        "CONFIG",
        "GET",
        "save",
        "tls-auth-clients",
        "min-replicas-to-write",
        "cluster-require-full-coverage",
    ];
    Ok(Seen {
        user: ask(&["ACL", "WHOAMI"]).await?.as_ref().and_then(answer::text).map(str::to_owned),
        info: Info::parse(&ask(&["INFO"]).await?.unwrap_or(Value::Nil)),
        config: ask(&settings).await?.map(|value| pairs(&value)),
        // Changes nothing, and needs a right that no lock needs.
        is_administrator: ask(&["ACL", "USERS"]).await?.is_some(),
        has_password: connection.target().has_password(),
        speaks_tls: connection.target().speaks_tls(),
        clock,
        part,
        in_cluster,
    })
}

/// What was found out about a server.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) info: Info,
    pub(super) clock: Option<ClockOffset>,
    user: Option<String>,
    /// Settings that INFO does not tell; `None` if this user may not read them.
    config: Option<Vec<(String, String)>>,
    is_administrator: bool,
    has_password: bool,
    speaks_tls: bool,
    pub(super) part: Part,
    /// The client takes it for one node of a cluster.
    pub(super) in_cluster: bool,
}

/// What survives a restart of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Persistence {
    AppendOnly,
    Snapshots,
    Nothing,
    Unknown,
}

impl Persistence {
    fn as_str(self) -> &'static str {
        match self {
            Self::AppendOnly => "append-only file",
            Self::Snapshots => "snapshots",
            Self::Nothing => "none",
            Self::Unknown => "this user may not see it",
        }
    }
}

impl Seen {
    fn setting(&self, name: &str) -> Option<&str> {
        let settings = self.config.as_ref()?;
        settings.iter().find(|(setting, _)| setting == name).map(|(_, value)| value.as_str())
    }

    /// INFO tells about the append-only file, and only the configuration about snapshots: the numbers in INFO look the
    /// same on a server that will write one in an hour and on a server that never will.
    fn persistence(&self) -> Option<Persistence> {
        Some(match (self.info.get("aof_enabled")?, self.setting("save")) {
            ("1", _) => Persistence::AppendOnly,
            (_, Some("")) => Persistence::Nothing,
            (_, Some(_)) => Persistence::Snapshots,
            (_, None) => Persistence::Unknown,
        })
    }

    /// The version, with the product where it is not the usual one.
    pub(super) fn version(&self) -> Option<String> {
        match self.info.get("valkey_version") {
            Some(version) => Some(format!("Valkey {version}")),
            None => self.info.get("redis_version").map(str::to_owned),
        }
    }

    /// One fact per line, for a server that is looked at alone.
    fn facts(&self) -> Vec<(String, String)> {
        let info = &self.info;
        let facts = [
            ("version", info.get("redis_version")),
            ("valkey version", info.get("valkey_version")),
            ("role", info.get("role")),
            ("eviction policy", info.get("maxmemory_policy")),
            ("persistence", self.persistence().map(Persistence::as_str)),
            ("clients", info.get("connected_clients")),
            ("memory", info.get("used_memory_human")),
            ("user", self.user.as_deref()),
        ];
        let known = |(label, value): (&str, Option<&str>)| Some((label.to_owned(), value?.to_owned()));
        facts.into_iter().filter_map(known).collect()
    }

    /// The same in one line, for a server among others.
    pub(super) fn summary(&self) -> String {
        let version = self.version().map(|version| format!("version {version}"));
        let persistence = self.persistence().map(|kept| match kept {
            Persistence::Nothing => "no persistence".to_owned(),
            Persistence::Unknown => "persistence not visible".to_owned(),
            kept => kept.as_str().to_owned(),
        });
        let link = (self.part == Part::Replica).then(|| self.info.get("master_link_status")).flatten();
        let link = link.map(|state| format!("link {state}"));
        let words: Vec<_> = [version, persistence, link].into_iter().flatten().collect();
        if words.is_empty() { "this user may not read INFO".into() } else { words.join(", ") }
    }

    pub(super) fn warnings(&self) -> Vec<Warning> {
        let mut found = Vec::new();
        let mut warn = |code: &'static str, words: String, cure: &str| {
            debug_assert!(
                WARNING_CODES.contains(&code) || SET_WARNING_CODES.contains(&code),
                "{code} is not in the list"
            );
            found.push(Warning { code, found: words, cure: cure.into() });
        };
        self.look_at_kind(&mut warn);
        self.look_at_data(&mut warn);
        match self.part {
            Part::Whole | Part::Primary => self.look_at_replicas(&mut warn),
            Part::Replica => self.look_at_link(&mut warn),
        }
        self.look_at_load(&mut warn);
        self.look_at_access(&mut warn);
        found
    }

    /// Whether it is the kind of server that can grant locks.
    fn look_at_kind(&self, mut warn: impl FnMut(&'static str, String, &str)) {
        let info = &self.info;
        if info.is_empty() {
            warn(
                "no-info",
                "this user may not read INFO: eviction, version, role and persistence were not checked"
                    .into(),
                "grant +info, or look with another user",
            );
        }
        if info.get("role") == Some("slave") && self.part != Part::Replica {
            warn(
                "replica",
                "this server is a replica: it cannot grant locks".into(),
                "connect to its primary",
            );
        }
        if info.get("cluster_enabled") == Some("1") && !self.in_cluster {
            warn(
                "cluster",
                "this server is one node of a cluster: it has only some of the names".into(),
                "use redis-cluster:// with some of its nodes",
            );
        }
        if self.in_cluster && self.setting("cluster-require-full-coverage") == Some("yes") {
            warn(
                "full-coverage",
                "one dead shard stops all others: cluster-require-full-coverage is on".into(),
                "set cluster-require-full-coverage no",
            );
        }
        let version = info.get("redis_version").unwrap_or_default();
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_some_and(|major| major < VERSION_MIN) {
            warn(
                "version",
                format!("version {version} is older than {VERSION_MIN}.0"),
                "use Redis 7.0 or later, or Valkey",
            );
        }
    }

    /// Whether it may forget who holds what.
    fn look_at_data(&self, mut warn: impl FnMut(&'static str, String, &str)) {
        let info = &self.info;
        if let Some(policy) = info.get("maxmemory_policy").filter(|policy| *policy != "noeviction") {
            warn(
                "eviction",
                format!("the eviction policy is {policy}: a full server removes locks that are held"),
                "set maxmemory-policy noeviction",
            );
        }
        if self.persistence() == Some(Persistence::Nothing) {
            warn(
                "persistence",
                "nothing is written to disk: a restart forgets who holds what".into(),
                "set appendonly yes, or accept it for locks that only save work",
            );
        }
        if info.get("rdb_last_bgsave_status") == Some("err") {
            warn(
                "bgsave",
                "the last snapshot failed: the server may refuse writes".into(),
                "look at its log and disk",
            );
        }
    }

    /// Whether replicas have what it granted. The server tells how many are good only if it was told to need some.
    fn look_at_replicas(&self, mut warn: impl FnMut(&'static str, String, &str)) {
        match (self.info.get("connected_slaves"), self.info.get("min_slaves_good_slaves")) {
            (_, Some("0")) => warn(
                "no-replicas",
                "min-replicas-to-write asks for a replica and none is good: no lock can be granted".into(),
                "bring a replica back, or set min-replicas-to-write 0",
            ),
            (Some(replicas), None) if replicas != "0" => warn(
                "min-replicas",
                format!(
                    "{replicas} connected replicas need not keep up: a fail-over may forget locks, and a primary \
                     that is cut off goes on granting them"
                ),
                MIN_REPLICAS,
            ),
            _ => {}
        }
    }

    /// Whether it could take its primary's place.
    fn look_at_link(&self, mut warn: impl FnMut(&'static str, String, &str)) {
        if self.setting("min-replicas-to-write") == Some("0") {
            let words = "as a primary it would not need replicas that keep up".into();
            warn("min-replicas", words, MIN_REPLICAS);
        }
        let silent_s = self.info.number("master_last_io_seconds_ago").unwrap_or(0);
        let words = match (self.info.get("role"), self.info.get("master_link_status")) {
            (Some("master"), _) => "it should be a replica, and takes writes that nobody else has".into(),
            (_, Some(link)) if link != "up" => {
                format!("the link to its primary is {link}: a fail-over to it would forget locks")
            }
            _ if silent_s > SILENT_MAX_S => format!("it has heard nothing of its primary for {silent_s} s"),
            _ => return,
        };
        warn("replica-link", words, "look at its log, at the network, and at masterauth");
    }

    /// Whether it has room, and the right time.
    fn look_at_load(&self, mut warn: impl FnMut(&'static str, String, &str)) {
        if let (Some(clients), Some(most)) =
            (self.info.number("connected_clients"), self.info.number("maxclients"))
            && clients * 100 >= most * CLIENTS_MAX_PERCENT
        {
            warn(
                "clients",
                format!("{clients} of at most {most} clients are connected"),
                "raise maxclients, or use fewer connections",
            );
        }
        if let Some(skew) = self.clock.map(ClockOffset::from_ours).filter(|skew| *skew > SKEW_MAX) {
            let seconds = skew.as_secs_f64();
            warn(
                "clock-skew",
                format!("the server's clock and ours differ by {seconds:.1} s: ages and log times mislead"),
                "keep both clocks in time; locks do not depend on it",
            );
        }
    }

    /// Who gets in, and what they may do.
    fn look_at_access(&self, mut warn: impl FnMut(&'static str, String, &str)) {
        let has_client_certificates = self.speaks_tls && self.setting("tls-auth-clients") != Some("no");
        if !self.has_password && !has_client_certificates {
            warn(
                "no-auth",
                "the server lets everybody in who reaches it".into(),
                "set a password, best for a user of its own: see SECURITY.md",
            );
        }
        if self.is_administrator {
            warn(
                "acl",
                "this user may run administrative commands; a lock client needs far less".into(),
                "use the ACL line in SECURITY.md",
            );
        }
    }
}

const MIN_REPLICAS: &str = "set min-replicas-to-write 1 and min-replicas-max-lag";

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A server that says this to INFO, seen by a user with a password.
    pub(in super::super) fn seen(info: &str) -> Seen {
        Seen { info: Info::parse(&Value::SimpleString(info.into())), has_password: true, ..Seen::default() }
    }

    fn codes(seen: &Seen) -> Vec<&'static str> {
        seen.warnings().iter().map(|warning| warning.code).collect()
    }

    #[test]
    fn a_setting_that_may_not_be_read_is_not_guessed() {
        let mut seen = seen("redis_version:7.0.0\r\naof_enabled:0\r\nrdb_saves:0\r\n");
        assert_eq!((seen.persistence(), codes(&seen).len()), (Some(Persistence::Unknown), 0));
        seen.config = Some(vec![("save".into(), "3600 1".into())]);
        assert_eq!((seen.persistence(), codes(&seen).len()), (Some(Persistence::Snapshots), 0));
        seen.config = Some(vec![("save".into(), String::new())]);
        assert_eq!(codes(&seen), ["persistence"]);
    }

    #[test]
    fn a_client_certificate_is_as_good_as_a_password() {
        let mut seen = seen("redis_version:7.0.0\r\n");
        (seen.has_password, seen.speaks_tls) = (false, true);
        for (setting, expected) in [("yes", &[][..]), ("no", &["no-auth"])] {
            seen.config = Some(vec![("tls-auth-clients".into(), setting.into())]);
            assert_eq!(codes(&seen), expected, "{setting}");
        }
        seen.speaks_tls = false;
        assert_eq!(codes(&seen), ["no-auth"]);
    }

    #[test]
    fn a_replica_is_asked_for_its_link_and_not_for_replicas_of_its_own() {
        let sound = "role:slave\r\nmaster_link_status:up\r\nmaster_last_io_seconds_ago:3\r\n\
                     min_slaves_good_slaves:0\r\nconnected_slaves:0\r\n";
        let found = |info: &str, part| codes(&Seen { part, ..seen(info) });
        assert_eq!(found(sound, Part::Replica), [""; 0]);
        assert_eq!(found(sound, Part::Primary), ["replica", "no-replicas"]);
        let silent = sound.replace("ago:3", "ago:21");
        for (bad, says) in [
            (sound.replace("status:up", "status:down"), "is down"),
            (silent, "nothing of its primary for 21 s"),
            ("role:master\r\n".to_owned(), "takes writes"),
        ] {
            let warnings = Seen { part: Part::Replica, ..seen(&bad) }.warnings();
            assert_eq!((warnings.len(), warnings[0].code), (1, "replica-link"), "{warnings:?}");
            assert!(warnings[0].found.contains(says), "{warnings:?}");
        }
    }
}
