//! What an operator should know about a Redis server.

use std::time::Duration;

use redis::{Cmd, Value};

use super::{Redis, answer};
use crate::{
    clock::Until,
    engine::{EngineError, Fault, Health, Warning},
};

/// Every code that a [`Warning`] of this engine can have.
pub const WARNING_CODES: [&str; 13] = [
    "no-info",
    "eviction",
    "replica",
    "cluster",
    "version",
    "persistence",
    "bgsave",
    "min-replicas",
    "no-replicas",
    "clients",
    "clock-skew",
    "no-auth",
    "acl",
];

/// The oldest major version whose scripts, commands and rights are the ones this engine uses.
const VERSION_MIN: u32 = 7;
/// A difference between two clocks that people notice. Nothing here depends on it.
const SKEW_MAX: Duration = Duration::from_secs(1);
/// Share of `maxclients` above which the next deployment may not get a connection, in percent.
const CLIENTS_MAX_PERCENT: u64 = 90;

impl Redis {
    pub(super) async fn look_at_health(&self, until: Until) -> Result<Health, EngineError> {
        let node = &self.lanes[0].node;
        let connection = node.connection(until).await?;
        let ask = async |words: &[&str]| -> Result<Option<Value>, EngineError> {
            permitted(node.send(&connection, &command(words), until).await)
        };
        let asked_us = self.clock.wall_us();
        let server_us = ask(&["TIME"]).await?.as_ref().and_then(server_us);
        let answered_us = self.clock.wall_us();
        let user = ask(&["ACL", "WHOAMI"]).await?;
        let seen = Seen {
            info: Info::parse(&ask(&["INFO"]).await?.unwrap_or(Value::Nil)),
            config: ask(&["CONFIG", "GET", "save", "tls-auth-clients"]).await?.map(|value| pairs(&value)),
            // Changes nothing, and needs a right that no lock needs.
            is_administrator: ask(&["ACL", "USERS"]).await?.is_some(),
            has_password: node.place().has_password(),
            speaks_tls: node.place().speaks_tls(),
            skew: server_us.map(|server| skew(asked_us, server, answered_us)),
        };
        let mut facts = vec![("engine".to_owned(), self.capabilities.engine.to_owned())];
        let mut fact = |label: &str, value: Option<&str>| {
            facts.extend(value.map(|value| (label.to_owned(), value.to_owned())));
        };
        fact("version", seen.info.get("redis_version"));
        fact("valkey version", seen.info.get("valkey_version"));
        fact("role", seen.info.get("role"));
        fact("eviction policy", seen.info.get("maxmemory_policy"));
        fact("persistence", seen.persistence().map(Persistence::as_str));
        fact("clients", seen.info.get("connected_clients"));
        fact("memory", seen.info.get("used_memory_human"));
        fact("user", user.as_ref().and_then(answer::text));
        Ok(Health { facts, warnings: seen.warnings() })
    }
}

fn command(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    words.iter().for_each(|word| {
        cmd.arg(word);
    });
    cmd
}

/// A refusal means that this user may not see it, which is a finding; silence is a fault.
fn permitted(answer: Result<Value, EngineError>) -> Result<Option<Value>, EngineError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(EngineError { fault: Fault::Refused(_), .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What was found out about a server.
#[derive(Default)]
struct Seen {
    info: Info,
    /// Settings that INFO does not tell; `None` if this user may not read them.
    config: Option<Vec<(String, String)>>,
    is_administrator: bool,
    has_password: bool,
    speaks_tls: bool,
    skew: Option<Duration>,
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

    fn warnings(&self) -> Vec<Warning> {
        let mut found = Vec::new();
        let mut warn = |code: &'static str, words: String, cure: &str| {
            debug_assert!(WARNING_CODES.contains(&code), "{code} is not in the list");
            found.push(Warning { code, found: words, cure: cure.into() });
        };
        self.look_at_kind(&mut warn);
        self.look_at_data(&mut warn);
        self.look_at_load(&mut warn);
        self.look_at_access(&mut warn);
        found
    }

    /// Whether it is the kind of server that can grant locks.
    fn look_at_kind(&self, mut warn: impl FnMut(&'static str, String, &str)) {
        let info = &self.info;
        if info.0.is_empty() {
            warn(
                "no-info",
                "this user may not read INFO: eviction, version, role and persistence were not checked"
                    .into(),
                "grant +info, or look with another user",
            );
        }
        if info.get("role") == Some("slave") {
            warn(
                "replica",
                "this server is a replica: it cannot grant locks".into(),
                "connect to its primary",
            );
        }
        if info.get("cluster_enabled") == Some("1") {
            warn(
                "cluster",
                "this server is one node of a cluster: it has only some of the names".into(),
                "use a server that is not part of a cluster",
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
        // The server tells how many replicas are good only if it was told to need some.
        match (info.get("connected_slaves"), info.get("min_slaves_good_slaves")) {
            (_, Some("0")) => warn(
                "no-replicas",
                "min-replicas-to-write asks for a replica and none is good: no lock can be granted".into(),
                "bring a replica back, or set min-replicas-to-write 0",
            ),
            (Some(replicas), None) if replicas != "0" => warn(
                "min-replicas",
                format!("{replicas} connected replicas need not keep up: a fail-over may forget locks"),
                "set min-replicas-to-write 1 and min-replicas-max-lag",
            ),
            _ => {}
        }
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
        if let Some(skew) = self.skew.filter(|skew| *skew > SKEW_MAX) {
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

#[derive(Default)]
struct Info(Vec<(String, String)>);

impl Info {
    fn parse(value: &Value) -> Self {
        let text = match value {
            Value::VerbatimString { text, .. } => text,
            other => answer::text(other).unwrap_or_default(),
        };
        let pair = |line: &str| {
            line.split_once(':').map(|(field, value)| (field.to_owned(), value.trim().to_owned()))
        };
        Self(text.lines().filter_map(pair).collect())
    }

    fn get(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == field).map(|(_, value)| value.as_str())
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.get(field)?.parse().ok()
    }
}

fn pairs(value: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| answer::text(value).unwrap_or_default().to_owned();
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (text(name), text(value))).collect(),
        Value::Array(list) => list.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
        _ => Vec::new(),
    }
}

/// The server's wall clock in microseconds since 1970, from its answer to TIME.
fn server_us(value: &Value) -> Option<u64> {
    let Value::Array(parts) = value else { return None };
    let number = |at: usize| answer::text(parts.get(at)?)?.parse::<u64>().ok();
    Some(number(0)? * 1_000_000 + number(1)?)
}

/// How far a clock read between two readings of ours lies outside of them.
fn skew(asked_us: u64, server_us: u64, answered_us: u64) -> Duration {
    let behind = asked_us.saturating_sub(server_us);
    let ahead = server_us.saturating_sub(answered_us);
    Duration::from_micros(behind.max(ahead))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(info: &str) -> Seen {
        Seen { info: Info::parse(&Value::SimpleString(info.into())), has_password: true, ..Seen::default() }
    }

    fn codes(seen: &Seen) -> Vec<&'static str> {
        seen.warnings().iter().map(|warning| warning.code).collect()
    }

    #[test]
    fn a_slow_answer_is_no_skew() {
        assert_eq!(skew(1_000, 2_500, 9_000), Duration::ZERO);
        assert_eq!(skew(1_000, 400, 9_000), Duration::from_micros(600));
        assert_eq!(skew(1_000, 9_700, 9_000), Duration::from_micros(700));
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
}
