//! One server.

use std::{sync::Arc, time::Duration};

use redis::Value;

use super::{Check, warnings, when};
use crate::{
    Result,
    connection::Connection,
    driver::{has_password, speaks_tls},
    info::{Info, command, read},
    reply,
};
use leasehold_core::{
    clock::Until,
    engine::{ClockOffset, EngineError, Fault, Health, Warning},
};

/// The oldest major version whose scripts, commands and rights are the ones this engine uses.
const VERSION_MIN: u32 = 7;
/// A difference between two clocks that people notice. Nothing here depends on it.
const SKEW_MAX: Duration = Duration::from_secs(1);
/// Share of `maxclients` above which the next deployment may not get a connection, in percent.
const CLIENTS_MAX_PERCENT: u64 = 90;
/// How long a replica may get nothing from its primary, which pings every ten seconds.
const SILENT_MAX_S: u64 = 20;
const NO_PERSISTENCE: &str = "none";
/// Asks for what INFO does not have.
const SETTINGS: &str = "CONFIG GET save tls-auth-clients min-replicas-to-write cluster-require-full-coverage \
                        repl-backlog-ttl";

/// What can be wrong with a server; the last three with a server among others.
pub(super) const CHECKS: [Check<Server>; 17] = [
    Check("no-info", "grant +info, or look with another user", |seen| {
        let words = "this user may not read INFO: eviction, version, role and persistence were not checked";
        when(!seen.sees_info, words)
    }),
    Check("scripts", "use a server that has Lua scripts, and the ACL line in SECURITY.md", |seen| {
        let why = seen.scripts.as_ref().err()?;
        Some(format!("no lock can be granted, because EVAL is refused: {why}"))
    }),
    Check("replica", "connect to its primary", |seen| {
        let is_replica = seen.info.is("role", "slave") && !seen.duty.is_replica;
        when(is_replica, "this server is a replica: it cannot grant locks")
    }),
    Check("cluster", "use redis-cluster:// with some of its nodes", |seen| {
        let is_alone = seen.info.is("cluster_enabled", "1") && !seen.duty.in_cluster;
        when(is_alone, "this server is one node of a cluster: it has only some of the names")
    }),
    Check("version", "use Redis 7.0 or later, or Valkey", |seen| {
        let version = seen.info.get("redis_version")?;
        let major = version.split('.').next()?.parse::<u32>().ok()?;
        (major < VERSION_MIN).then(|| format!("version {version} is older than {VERSION_MIN}.0"))
    }),
    Check("eviction", "set maxmemory-policy noeviction", |seen| {
        let policy = seen.info.get("maxmemory_policy").filter(|policy| *policy != "noeviction")?;
        Some(format!("the eviction policy is {policy}: a full server removes locks that are held"))
    }),
    Check("persistence", "set appendonly yes, or accept it for locks that only save work", |seen| {
        let is_nothing = seen.persistence() == Some(NO_PERSISTENCE);
        when(is_nothing, "nothing is written to disk: a restart forgets who holds what")
    }),
    Check("bgsave", "look at its log and disk", |seen| {
        let has_failed = seen.info.is("rdb_last_bgsave_status", "err");
        when(has_failed, "the last snapshot failed: the server may refuse writes")
    }),
    Check("no-replicas", "bring a replica back, or set min-replicas-to-write 0", |seen| {
        // Reported only where min-replicas-to-write is set.
        let has_none = !seen.duty.is_replica && seen.info.is("min_slaves_good_slaves", "0");
        when(has_none, "min-replicas-to-write asks for a replica and none is good: no lock can be granted")
    }),
    Check("min-replicas", "set min-replicas-to-write 1 and min-replicas-max-lag", |seen| {
        let is_off = seen.info.is("min-replicas-to-write", "0");
        if seen.duty.is_replica {
            return when(is_off, "as a primary it would not need replicas that keep up");
        }
        let replicas = seen.info.number("connected_slaves").filter(|replicas| *replicas > 0)?;
        seen.info.get("min_slaves_good_slaves").is_none().then(|| {
            format!(
                "{replicas} connected replicas need not keep up: a fail-over may forget locks, and a primary \
                 that is cut off goes on granting them"
            )
        })
    }),
    Check("clients", "raise maxclients, or use fewer connections", |seen| {
        let (clients, most) = (seen.info.number("connected_clients")?, seen.info.number("maxclients")?);
        (clients * 100 >= most * CLIENTS_MAX_PERCENT)
            .then(|| format!("{clients} of at most {most} clients are connected"))
    }),
    Check("clock-skew", "keep both clocks in time; locks do not depend on it", |seen| {
        let skew_s = seen.clock.map(ClockOffset::from_ours).filter(|skew| *skew > SKEW_MAX)?.as_secs_f64();
        Some(format!("the server's clock and ours differ by {skew_s:.1} s: ages and log times mislead"))
    }),
    Check("no-auth", "set a password, best for a user of its own: see SECURITY.md", |seen| {
        let has_certificate = seen.speaks_tls && !seen.info.is("tls-auth-clients", "no");
        when(!seen.has_password && !has_certificate, "the server lets everybody in who reaches it")
    }),
    Check("acl", "use the ACL line in SECURITY.md", |seen| {
        let words = "this user may run administrative commands; a lock client needs far less";
        when(seen.is_administrator, words)
    }),
    Check("full-coverage", "set cluster-require-full-coverage no", |seen| {
        let is_on = seen.duty.in_cluster && seen.info.is("cluster-require-full-coverage", "yes");
        when(is_on, "one dead shard stops all others: cluster-require-full-coverage is on")
    }),
    Check("replica-link", "look at its log, at the network, and at masterauth", |seen| {
        let silent_s = seen.info.number("master_last_io_seconds_ago").unwrap_or(0);
        match (seen.info.get("role"), seen.info.get("master_link_status")) {
            _ if !seen.duty.is_replica => None,
            (Some("master"), _) => {
                Some("it should be a replica, and takes writes that nobody else has".into())
            }
            (_, Some(link)) if link != "up" => {
                Some(format!("the link to its primary is {link}: a fail-over to it would forget locks"))
            }
            _ => (silent_s > SILENT_MAX_S)
                .then(|| format!("it has heard nothing of its primary for {silent_s} s")),
        }
    }),
    Check("backlog-ttl", "set repl-backlog-ttl 0", |seen| {
        let ttl_s =
            seen.info.number("repl-backlog-ttl").filter(|ttl_s| seen.duty.with_grace && *ttl_s > 0)?;
        Some(format!(
            "with no replica for {ttl_s} s (repl-backlog-ttl) the data set gets another name: nothing is granted for \
             a whole grace, although no primary was replaced"
        ))
    }),
];

/// What the client takes a server for.
#[derive(Clone, Copy, Default)]
pub(super) struct Duty {
    /// It may take the place of one that grants locks.
    pub(super) is_replica: bool,
    pub(super) in_cluster: bool,
    /// Nothing is granted for a while once its run or its data set is another.
    pub(super) with_grace: bool,
}

/// Inspects a server that works alone; and how far its clock is from ours, if this user may ask for it.
pub(crate) async fn inspect_server(
    connection: &Arc<Connection>,
    until: Until,
) -> Result<(Health, Option<ClockOffset>)> {
    let server = inspect(connection, Duty::default(), until).await?;
    Ok((Health { facts: server.facts(), warnings: server.warnings() }, server.clock))
}

pub(super) async fn inspect(connection: &Arc<Connection>, duty: Duty, until: Until) -> Result<Server> {
    let clock = &connection.options.clock;
    let link = connection.link(until).await?;
    // A refusal means that this user may not see it, which is a finding; silence is a fault.
    let ask = async |words: &str| {
        let words: Vec<_> = words.split(' ').collect();
        match link.send(&command(&words), until).await {
            Err(EngineError { fault: Fault::Refused(_), why }) => Ok(Err(why)),
            answer => answer.map(Ok),
        }
    };
    let asked_us = clock.wall_us();
    let time = ask("TIME").await?.ok().and_then(|time| read::<(u64, u64)>(&time));
    let answered_us = clock.wall_us();
    let offset = |(s, us): (u64, u64)| {
        ClockOffset::new(asked_us, s.saturating_mul(1_000_000).saturating_add(us), answered_us)
    };
    let reported = ask("INFO").await?;
    let mut info = Info::parse(reported.as_ref().unwrap_or(&Value::Nil));
    info.add(&ask(SETTINGS).await?.unwrap_or(Value::Nil));
    Ok(Server {
        sees_info: reported.is_ok(),
        info,
        // A script that does nothing.
        scripts: ask("EVAL return 0").await?.map(drop),
        user: ask("ACL WHOAMI").await?.ok().as_ref().and_then(reply::text).map(str::to_owned),
        // Changes nothing, and needs a right that no lock needs.
        is_administrator: ask("ACL USERS").await?.is_ok(),
        has_password: has_password(&connection.options.client),
        speaks_tls: speaks_tls(&connection.options.client),
        clock: time.map(offset),
        duty,
    })
}

pub(super) struct Server {
    sees_info: bool,
    /// With the settings, if this user may read them.
    info: Info,
    /// Why the server runs no script, if it does not.
    scripts: Result<(), String>,
    pub(super) clock: Option<ClockOffset>,
    user: Option<String>,
    is_administrator: bool,
    has_password: bool,
    speaks_tls: bool,
    duty: Duty,
}

impl Server {
    /// What survives a restart. INFO reports the append-only file, and only the configuration snapshots: the numbers in
    /// INFO look the same on a server that will write one in an hour and on a server that never will.
    fn persistence(&self) -> Option<&'static str> {
        Some(match (self.info.get("aof_enabled")?, self.info.get("save")) {
            ("1", _) => "append-only file",
            (_, Some("")) => NO_PERSISTENCE,
            (_, Some(_)) => "snapshots",
            (_, None) => "not visible to this user",
        })
    }

    /// The version, with the product where it is not the usual one.
    pub(super) fn version(&self) -> Option<String> {
        match self.info.get("valkey_version") {
            Some(version) => Some(format!("Valkey {version}")),
            None => self.info.get("redis_version").map(str::to_owned),
        }
    }

    /// One fact per line, for a server that works alone.
    fn facts(&self) -> Vec<(String, String)> {
        let info = &self.info;
        let facts = [
            ("version", info.get("redis_version")),
            ("valkey version", info.get("valkey_version")),
            ("role", info.get("role")),
            ("eviction policy", info.get("maxmemory_policy")),
            ("persistence", self.persistence()),
            ("clients", info.get("connected_clients")),
            ("memory", info.get("used_memory_human")),
            ("user", self.user.as_deref()),
            ("link", info.get("master_link_status")),
        ];
        let known = |(label, value): (&str, Option<&str>)| Some((label.to_owned(), value?.to_owned()));
        facts.into_iter().filter_map(known).collect()
    }

    /// Those that matter most in one line, for a server among others.
    pub(super) fn summary(&self) -> String {
        let matters = |label: &str| ["version", "valkey version", "persistence", "link"].contains(&label);
        let facts = self.facts().into_iter().filter(|(label, _)| matters(label));
        let words: Vec<_> = facts.map(|(label, value)| format!("{label} {value}")).collect();
        if words.is_empty() { "this user may not read INFO".into() } else { words.join(", ") }
    }

    pub(super) fn warnings(&self) -> Vec<Warning> {
        warnings(&CHECKS, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with this INFO, seen by a user with a password.
    fn seen(info: &str) -> Server {
        Server {
            sees_info: true,
            info: Info::parse(&Value::SimpleString(info.into())),
            scripts: Ok(()),
            clock: None,
            user: None,
            is_administrator: false,
            has_password: true,
            speaks_tls: false,
            duty: Duty::default(),
        }
    }

    fn set(seen: &mut Server, setting: &str, value: &str) {
        seen.info.add(&Value::Array([setting, value].map(|text| Value::SimpleString(text.into())).into()));
    }

    fn codes(seen: &Server) -> Vec<&'static str> {
        seen.warnings().iter().map(|warning| warning.code).collect()
    }

    #[test]
    fn a_setting_that_may_not_be_read_is_not_guessed() {
        for (save, kept, expected) in [
            (None, "not visible to this user", &[][..]),
            (Some("3600 1"), "snapshots", &[]),
            (Some(""), NO_PERSISTENCE, &["persistence"]),
        ] {
            let mut seen = seen("redis_version:7.0.0\r\naof_enabled:0\r\nrdb_saves:0\r\n");
            save.into_iter().for_each(|save| set(&mut seen, "save", save));
            assert_eq!((seen.persistence(), &codes(&seen)[..]), (Some(kept), expected));
        }
    }

    #[test]
    fn a_client_certificate_is_as_good_as_a_password() {
        for (speaks_tls, setting, expected) in
            [(true, "yes", &[][..]), (true, "no", &["no-auth"]), (false, "yes", &["no-auth"])]
        {
            let mut seen = Server { has_password: false, speaks_tls, ..seen("redis_version:7.0.0\r\n") };
            set(&mut seen, "tls-auth-clients", setting);
            assert_eq!(codes(&seen), expected, "{setting}");
        }
    }

    #[test]
    fn a_replica_is_asked_for_its_link_and_not_for_replicas_of_its_own() {
        let sound = "role:slave\r\nmaster_link_status:up\r\nmaster_last_io_seconds_ago:3\r\n\
                     min_slaves_good_slaves:0\r\nconnected_slaves:0\r\n";
        let of =
            |info: &str, is_replica| Server { duty: Duty { is_replica, ..Duty::default() }, ..seen(info) };
        assert_eq!(codes(&of(sound, true)), [""; 0]);
        assert_eq!(codes(&of(sound, false)), ["replica", "no-replicas"]);
        for (bad, says) in [
            (sound.replace("status:up", "status:down"), "is down"),
            (sound.replace("ago:3", "ago:21"), "nothing of its primary for 21 s"),
            ("role:master\r\n".to_owned(), "takes writes"),
        ] {
            let warnings = of(&bad, true).warnings();
            assert_eq!((warnings.len(), warnings[0].code), (1, "replica-link"), "{warnings:?}");
            assert!(warnings[0].found.contains(says), "{warnings:?}");
        }
    }
}
