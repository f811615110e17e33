//! Inspecting locks: one, or a page of them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::Value;

use super::{
    Redis, answer,
    connection::Connection,
    keys::{Keys, scan_pattern},
    script::{self, Script},
    topology::{Cluster, Map, Shard, outcome::Resend, slots},
};
use crate::{
    clock::Until,
    engine::{Cursor, EngineError, Inspection, Mode, Page, Tenure, WAITERS_SHOWN, Waiter},
    fence::Fence,
    name::Name,
    owner::Holder,
};

/// Keys that one SCAN looks at, at least.
const SCAN_COUNT: u32 = 200;
/// SCANs of one page: a sparse database gives short pages instead of a long wait.
const SCANS_PER_PAGE: usize = 50;
/// Names in one inspection call; bounds how long the server is busy with one.
const NAMES_PER_CALL: usize = 100;

impl Redis {
    pub(super) async fn inspect_one(&self, name: &Name, until: Until) -> Result<Inspection, EngineError> {
        let mut found = self.inspect_many(std::slice::from_ref(name), WAITERS_SHOWN, until).await?;
        found.pop().ok_or_else(|| answer::unexpected(&Value::Nil))
    }

    async fn inspect_many(
        &self,
        names: &[Name],
        most_waiters: u32,
        until: Until,
    ) -> Result<Vec<Inspection>, EngineError> {
        let Some(server) = self.topology.server() else {
            return self.inspect_by_slot(names, most_waiters, until).await;
        };
        let (connection, inspect) = (server.connection(), &server.lanes()[0].inspect);
        let seen =
            inspect_names(connection, inspect, &self.prefix, names, most_waiters, false, until).await?;
        names.iter().zip(&seen).map(|(name, value)| inspection(name, value)).collect()
    }

    /// Each name where it is, a few at a time.
    async fn inspect_by_slot(
        &self,
        names: &[Name],
        most_waiters: u32,
        until: Until,
    ) -> Result<Vec<Inspection>, EngineError> {
        let mut found = Vec::with_capacity(names.len());
        let script = Script::new(script::INSPECT);
        for some in names.chunks(NAMES_PER_CALL) {
            let looks = some.iter().map(|name| self.follow_and_inspect(&script, name, most_waiters, until));
            for look in join_all(looks).await {
                found.push(look?);
            }
        }
        Ok(found)
    }

    async fn follow_and_inspect(
        &self,
        script: &Script,
        name: &Name,
        most_waiters: u32,
        until: Until,
    ) -> Result<Inspection, EngineError> {
        let keys = [self.keys(name)];
        let build = |script: &_, by_hash| script::inspection(script, by_hash, &keys, most_waiters, false);
        let (slot, resend) = (keys[0].slot(), Resend::AwaitMigration);
        let value = self.topology.send_script(slot, resend, script, build, until).await?;
        let values = script::replies(value, 1)?;
        inspection(name, values.first().unwrap_or(&Value::Nil))
    }

    pub(super) async fn scan_page(
        &self,
        prefix: &str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Result<Page<Inspection>, EngineError> {
        let Page { items: names, next } =
            self.page_of_names(&self.prefix, prefix, from, limit, until).await?;
        let mut items = self.inspect_many(&names, WAITERS_SHOWN, until).await?;
        // Freed since the scan.
        items.retain(Inspection::is_in_use);
        Ok(Page { items, next })
    }

    /// Names on all servers that begin with `prefix` after the store's own.
    pub(super) async fn page_of_names(
        &self,
        store_prefix: &str,
        prefix: &str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Result<Page<Name>, EngineError> {
        let prefixes = (store_prefix, prefix);
        match (self.topology.server(), self.topology.cluster()) {
            (Some(server), _) => scan_server(server.connection(), prefixes, from, limit, until).await,
            (_, Some(cluster)) => scan_primaries(cluster, prefixes, from, limit, until).await,
            _ => Ok(Page { items: Vec::new(), next: None }),
        }
    }
}

/// Names that the primaries of a cluster have, one primary after the other.
async fn scan_primaries(
    cluster: &Arc<Cluster>,
    prefixes: (&str, &str),
    from: Option<Cursor>,
    limit: u32,
    until: Until,
) -> Result<Page<Name>, EngineError> {
    let map = cluster.map(until).await?;
    let (mut names, mut next) = (Vec::new(), from.map(|cursor| cursor.as_str().to_owned()));
    while let Some(Turn { first_slot, shard, at }) = turn(&map, next.as_deref()) {
        let room = limit.saturating_sub(u32::try_from(names.len()).unwrap_or(limit));
        let (connection, at) = (shard.connection(), at.unwrap_or_default());
        let (found, rest) = scan_names(connection, prefixes, at, room, until).await?;
        names.extend(found);
        let is_done = rest.is_none();
        next = match rest {
            Some(at) => Some(format!("{first_slot} {} {at}", shard.endpoint)),
            None => after(&map, first_slot),
        };
        if next.is_none() || !is_done || names.len() >= limit as usize {
            break;
        }
    }
    Ok(Page { items: names, next: next.map(Cursor::new) })
}

/// What the server says about some names, each as `inspect.lua` answers it.
pub(super) async fn inspect_names(
    connection: &Arc<Connection>,
    inspect: &Script,
    store_prefix: &str,
    names: &[Name],
    most_waiters: u32,
    own_fences: bool,
    until: Until,
) -> Result<Vec<Value>, EngineError> {
    let link = connection.link(until).await?;
    let mut seen = Vec::with_capacity(names.len());
    for some in names.chunks(NAMES_PER_CALL) {
        let keys: Vec<_> = some.iter().map(|name| Keys::new(store_prefix, name)).collect();
        let build =
            |script: &_, by_hash| script::inspection(script, by_hash, &keys, most_waiters, own_fences);
        let value = link.run_script(false, inspect, build, until).await?;
        seen.extend(script::replies(value, some.len())?);
    }
    Ok(seen)
}

/// The names that one server has.
pub(super) async fn scan_server(
    connection: &Arc<Connection>,
    prefixes: (&str, &str),
    from: Option<Cursor>,
    limit: u32,
    until: Until,
) -> Result<Page<Name>, EngineError> {
    let at = from.as_ref().map_or("", Cursor::as_str);
    let (items, next) = scan_names(connection, prefixes, at, limit, until).await?;
    Ok(Page { items, next: next.map(Cursor::new) })
}

/// What some SCANs find, about `limit` names, and the server's cursor where they go on.
async fn scan_names(
    connection: &Arc<Connection>,
    (store_prefix, prefix): (&str, &str),
    from: &str,
    limit: u32,
    until: Until,
) -> Result<(Vec<Name>, Option<String>), EngineError> {
    let link = connection.link(until).await?;
    let pattern = scan_pattern(&format!("{store_prefix}{prefix}"));
    let mut at = if from.is_empty() { "0".to_owned() } else { from.to_owned() };
    let mut names: Vec<Name> = Vec::new();
    for _ in 0..SCANS_PER_PAGE {
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(&at).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
        let (next, keys) = scanned(link.send(&cmd, until).await?)?;
        names.extend(keys.iter().filter_map(|key| name_of(store_prefix, key)));
        at = next;
        if at == "0" {
            return Ok((names, None));
        }
        if names.len() >= limit as usize {
            break;
        }
    }
    Ok((names, Some(at)))
}

fn name_of(store_prefix: &str, key: &str) -> Option<Name> {
    // With an empty prefix the side keys are in the scan's way.
    let side = key.starts_with("leasehold:");
    key.strip_prefix(store_prefix).filter(|_| !side).and_then(|name| Name::new(name).ok())
}

/// Whose turn it is in a scan of all primaries, which goes by their first slot.
struct Turn<'a> {
    first_slot: u16,
    shard: &'a Arc<Shard>,
    at: Option<&'a str>,
}

/// A primary that was replaced or lost its first slot since is scanned from its beginning: a name may come twice, but is
/// not missed.
fn turn<'a>(map: &'a Map, from: Option<&'a str>) -> Option<Turn<'a>> {
    let mut words = from.unwrap_or("0").splitn(3, ' ');
    let least = words.next()?.parse().unwrap_or(0);
    let (address, at) = (words.next(), words.next());
    let primary = map.primaries.iter().find(|primary| primary.first_slot() >= least)?;
    let same = primary.first_slot() == least && address == Some(&*primary.endpoint.to_string());
    let shard = map.shard_of(primary)?;
    Some(Turn { first_slot: primary.first_slot(), shard, at: at.filter(|_| same) })
}

/// Where the scan goes on when a primary is done.
fn after(map: &Map, first_slot: u16) -> Option<String> {
    let mut later = map.primaries.iter().map(slots::Primary::first_slot).filter(|slot| *slot > first_slot);
    later.next().map(|slot| slot.to_string())
}

fn scanned(value: Value) -> Result<(String, Vec<String>), EngineError> {
    match value {
        Value::Array(parts) => match parts.as_slice() {
            [next, Value::Array(keys)] => {
                let keys = keys.iter().filter_map(answer::text).map(str::to_owned).collect();
                Ok((answer::text(next).unwrap_or("0").to_owned(), keys))
            }
            _ => Err(answer::unexpected(&Value::Array(Vec::new()))),
        },
        other => Err(answer::unexpected(&other)),
    }
}

pub(super) fn inspection(name: &Name, value: &Value) -> Result<Inspection, EngineError> {
    let Value::Array(parts) = value else { return Err(answer::unexpected(value)) };
    let [holder, Value::Int(pttl), _, Value::Int(count), Value::Array(waiters)] = parts.as_slice() else {
        return Err(answer::unexpected(value));
    };
    let tenant = match holder {
        Value::Int(_) => Some((Holder::Foreign, Fence::new(0))),
        holder => answer::text(holder).map(answer::tenant),
    };
    let expires_in = answer::left(*pttl);
    let held = |(holder, fence)| Tenure { holder, fence, mode: Mode::Exclusive, expires_in };
    Ok(Inspection {
        name: name.clone(),
        holders: tenant.map(held).into(),
        waiters: waiters.chunks(2).map(waiter).collect(),
        waiting: u32::try_from(*count).unwrap_or(u32::MAX),
    })
}

/// A waiter's entry, and how long it waits in microseconds.
pub(super) fn waiter(pair: &[Value]) -> Waiter {
    Waiter {
        holder: Holder::parse(pair.first().and_then(answer::text).map_or("", script::entry_owner)),
        mode: Mode::Exclusive,
        waiting_for: Duration::from_micros(
            pair.get(1).and_then(answer::text).and_then(|us| us.parse().ok()).unwrap_or(0),
        ),
    }
}
