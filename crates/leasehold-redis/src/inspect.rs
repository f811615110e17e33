//! Inspecting locks: one, or a page of them.

use std::{sync::Arc, time::Duration};

use redis::Value;

use super::{
    Redis,
    connection::Connection,
    fan_out::ScriptCall,
    keys::{REDISSON_TOKEN, scan_pattern},
    reply, script,
    topology::outcome::Resend,
};
use leasehold_core::{
    clock::Until,
    engine::{
        Cursor, EngineError, Fut, Holders, Inspect, Inspection, Page, Waiter,
        voter::{self, Sighting},
    },
    name::Name,
    owner::Holder,
};

/// Most keys that one SCAN is asked to look at.
const SCAN_COUNT_MAX: u32 = 200;
/// SCANs of one page: a sparse database gives short pages instead of a long wait.
const SCANS_PER_PAGE: usize = 50;
/// Names that are inspected together; bounds how long the server is busy with one call.
pub(super) const NAMES_PER_CALL: usize = 100;

impl Inspect for Redis {
    fn inspect<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Inspection> {
        Box::pin(async move {
            let mut found = self.inspect_names(std::slice::from_ref(name), until).await?;
            found.pop().ok_or_else(|| reply::unexpected(&Value::Nil))
        })
    }

    fn page<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Inspection>> {
        Box::pin(async move {
            let page = self.page_of_names((&self.prefix, prefix), from, limit, until).await?;
            let mut items = self.inspect_names(&page.items, until).await?;
            // Freed since the scan.
            items.retain(Inspection::is_in_use);
            Ok(Page { items, next: page.next })
        })
    }
}

impl Redis {
    async fn inspect_names(&self, names: &[Name], until: Until) -> Result<Vec<Inspection>, EngineError> {
        // In a cluster each name has a slot of its own.
        let per_call = if self.topology.in_cluster { 1 } else { NAMES_PER_CALL };
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(NAMES_PER_CALL) {
            let keys: Vec<_> = names.iter().map(|name| self.keys(name)).collect();
            let calls = keys.chunks(per_call).map(|keys| {
                let write = |cmd: &mut _| script::write_inspection(cmd, keys, false);
                ScriptCall::new(&script::INSPECT, keys[0].slot(), write)
            });
            let answers = self.call_each(None, Resend::AwaitMigration, calls, until).await;
            for (names, answer) in names.chunks(per_call).zip(answers) {
                for (name, value) in names.iter().zip(script::replies(answer?, names.len())?) {
                    found.push(inspection(name, &value)?);
                }
            }
        }
        Ok(found)
    }

    /// Names on all primaries that begin with the store's prefix and another one; about `limit`, and some of them again. One
    /// primary after the other in the order of their first slots: the cursor is `FIRST_SLOT ENDPOINT CURSOR` within one, and
    /// `SLOT` between two.
    pub(super) async fn page_of_names(
        &self,
        prefixes: (&str, &str),
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Result<Page<Name>, EngineError> {
        let primaries = self.topology.primaries(until).await?;
        let mut words = from.as_ref().map_or("", Cursor::as_str).splitn(3, ' ');
        let least = words.next().and_then(|slot| slot.parse().ok()).unwrap_or(0);
        let (endpoint, at) = (words.next(), words.next());
        let mut items = Vec::new();
        for (first_slot, shard) in primaries.iter().filter(|(first_slot, _)| *first_slot >= least) {
            // A primary that is new at this slot is scanned from its beginning: a name may come again, but is not missed.
            let is_same = *first_slot == least && endpoint == Some(&*shard.endpoint.to_string());
            let at = at.filter(|_| is_same).map(Cursor::new);
            let page = scan_server(shard.connection(), prefixes, at, limit, until).await?;
            items.extend(page.items);
            let next = match page.next {
                Some(at) => format!("{first_slot} {} {}", shard.endpoint, at.as_str()),
                None if items.len() < limit as usize => continue,
                None => (first_slot + 1).to_string(),
            };
            return Ok(Page { items, next: Some(Cursor::new(next)) });
        }
        Ok(Page { items, next: None })
    }
}

/// The names that one server has. The cursor is the server's own.
pub(super) async fn scan_server(
    connection: &Arc<Connection>,
    (store_prefix, prefix): (&str, &str),
    from: Option<Cursor>,
    limit: u32,
    until: Until,
) -> Result<Page<Name>, EngineError> {
    let link = connection.link(until).await?;
    let pattern = scan_pattern(&format!("{store_prefix}{prefix}"));
    let from = from.as_ref().map(Cursor::as_str).filter(|at| !at.is_empty());
    let mut at = from.unwrap_or("0").to_owned();
    let (mut items, mut count) = (Vec::new(), limit.clamp(10, SCAN_COUNT_MAX));
    for _ in 0..SCANS_PER_PAGE {
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(&at).arg("MATCH").arg(&pattern).arg("COUNT").arg(count);
        let reply = link.send(&cmd, until).await?;
        let unexpected = reply::unexpected(&reply);
        let (next, keys): (String, Vec<Vec<u8>>) = redis::from_redis_value(reply).map_err(|_| unexpected)?;
        items.extend(keys.iter().filter_map(|key| name_of(store_prefix, key)));
        at = next;
        if at == "0" {
            return Ok(Page { items, next: None });
        }
        if items.len() >= limit as usize {
            break;
        }
        // Most keys are not asked for.
        count = SCAN_COUNT_MAX;
    }
    Ok(Page { items, next: Some(Cursor::new(at)) })
}

fn name_of(store_prefix: &str, key: &[u8]) -> Option<Name> {
    let key = std::str::from_utf8(key).ok()?;
    // With an empty prefix the side keys are in the scan's way.
    let is_side_key = key.starts_with("leasehold:") || key.starts_with(REDISSON_TOKEN);
    key.strip_prefix(store_prefix).filter(|_| !is_side_key).and_then(|name| Name::new(name).ok())
}

fn inspection(name: &Name, value: &Value) -> Result<Inspection, EngineError> {
    let [seen @ .., members, limit] = reply::items(value) else { return Err(reply::unexpected(value)) };
    let (text, Sighting { expires_in, waiters, waiting, .. }) = sighting(seen)?;
    let limit = reply::text(limit).and_then(|limit| limit.split(' ').next()?.parse().ok());
    let [Value::Int(total), Value::Int(taken), Value::Array(members)] = reply::items(members) else {
        return Err(reply::unexpected(members));
    };
    let number = |number: &i64| u32::try_from(*number).unwrap_or(u32::MAX);
    let holders = match reply::members(members, limit)? {
        members if members.is_empty() => reply::holder(text, expires_in.filter(|_| text.is_some())),
        shown => {
            let free_in = shown.iter().filter_map(|member| member.expires_in).min();
            Holders { shown, total: number(total), free_in }
        }
    };
    let (name, permits_taken) = (name.clone(), number(taken));
    Ok(Inspection { name, holders, limit, permits_taken, waiters, waiting })
}

/// What `inspect.lua` found about one name, after the lock's text: that is empty for another kind of key, which is not read.
pub(super) fn sighting(seen: &[Value]) -> Result<(Option<&str>, Sighting), EngineError> {
    let [holder, Value::Int(pttl), fence, Value::Int(count), Value::Array(waiters)] = seen else {
        return Err(reply::unexpected(&Value::Nil));
    };
    let text = if let Value::Int(_) = holder { Some("") } else { reply::text(holder) };
    let sighting = Sighting {
        owner: text.map(|text| voter::Value(reply::owner_text(text))),
        expires_in: reply::left(*pttl),
        fence: reply::fence(fence)?,
        waiters: waiters.chunks(2).map(waiter).collect(),
        waiting: u32::try_from(*count).unwrap_or(u32::MAX),
        readers: Vec::new(),
    };
    Ok((text, sighting))
}

/// A waiter's entry, and how long it has waited in microseconds.
fn waiter(pair: &[Value]) -> Waiter {
    let us = pair.get(1).and_then(reply::text).and_then(|us| us.parse().ok());
    let (mode, owner) = script::entry_parts(pair.first().and_then(reply::text).unwrap_or_default());
    let waiting_for = Duration::from_micros(us.unwrap_or(0));
    Waiter { holder: Holder::parse(owner), mode, waiting_for }
}
