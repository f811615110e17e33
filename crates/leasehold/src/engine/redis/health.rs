//! What an operator should know about a Redis server.

use redis::Value;

use super::{Redis, answer};
use crate::{
    clock::Until,
    engine::{EngineError, Health, Warning},
};

impl Redis {
    pub(super) async fn look_at_health(&self, until: Until) -> Result<Health, EngineError> {
        let node = &self.lanes[0].node;
        let connection = node.connection(until).await?;
        let info = match node.send(&connection, redis::cmd("INFO").arg("everything"), until).await {
            Ok(value) => Info::parse(&value),
            Err(_) => Info::default(),
        };
        let mut users = redis::cmd("ACL");
        users.arg("WHOAMI");
        let user = node.send(&connection, &users, until).await.ok();
        let mut health = Health::default();
        health.facts.push(("engine".into(), "redis".into()));
        for (field, label) in [
            ("redis_version", "version"),
            ("valkey_version", "valkey version"),
            ("role", "role"),
            ("maxmemory_policy", "eviction policy"),
            ("connected_clients", "clients"),
            ("used_memory_human", "memory"),
        ] {
            if let Some(value) = info.get(field) {
                health.facts.push((label.into(), value.into()));
            }
        }
        if let Some(user) = user.as_ref().and_then(answer::text) {
            health.facts.push(("user".into(), user.into()));
        }
        health.warnings = warnings(&info, self.is_unlimited(until).await);
        Ok(health)
    }

    /// Whether this user can do things no lock needs, told by a command that changes nothing and needs such a right.
    async fn is_unlimited(&self, until: Until) -> bool {
        let node = &self.lanes[0].node;
        let Ok(connection) = node.connection(until).await else { return false };
        let mut cmd = redis::cmd("ACL");
        cmd.arg("CAT").arg("dangerous");
        node.send(&connection, &cmd, until).await.is_ok()
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
}

fn warnings(info: &Info, unlimited: bool) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut warn =
        |code, words: String, cure: &str| found.push(Warning { code, found: words, cure: cure.into() });
    if info.0.is_empty() {
        warn(
            "no-info",
            "this user may not read INFO, so nothing could be checked".into(),
            "grant +info for the check",
        );
        return found;
    }
    if let Some(policy) = info.get("maxmemory_policy")
        && policy != "noeviction"
    {
        let words = format!("the eviction policy is {policy}: a full server removes locks that are held");
        warn("eviction", words, "set maxmemory-policy noeviction");
    }
    if info.get("role") == Some("slave") {
        warn("replica", "this server is a replica: it cannot grant locks".into(), "connect to its primary");
    }
    let major = info.get("redis_version").and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    if major.is_some_and(|major| major < 7) {
        let words = format!("version {} is older than 7.0", info.get("redis_version").unwrap_or("?"));
        warn("version", words, "use Redis 7.0 or later, or Valkey");
    }
    if info.get("aof_enabled") == Some("0")
        && info.get("rdb_saves").is_none_or(|_| true)
        && no_snapshots(info)
    {
        warn(
            "persistence",
            "nothing is written to disk: a restart forgets who holds what, and locks are granted anew".into(),
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
    if let (Some(replicas), Some(least)) = (info.get("connected_slaves"), info.get("min_slaves_good_slaves"))
    {
        let words = format!("{replicas} replicas are connected and {least} in good state");
        if replicas != "0" && least == "0" {
            warn("min-replicas", words, "check the replicas' lag, or min-replicas-to-write");
        }
    }
    if unlimited {
        warn(
            "acl",
            "this user may run administrative commands; a lock client needs far less".into(),
            "use the ACL line in SECURITY.md",
        );
    }
    found
}

fn no_snapshots(info: &Info) -> bool {
    info.get("rdb_bgsave_in_progress") == Some("0") && info.get("rdb_last_save_time").is_none()
}
