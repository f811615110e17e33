//! Looking at locks: one, or a page of them.

use std::{sync::Arc, time::Duration};

use redis::Value;

use super::{
    Redis, answer,
    keys::{Keys, scan_pattern},
    node::Node,
    script::{self, Script},
};
use crate::{
    clock::Until,
    engine::{Cursor, EngineError, Inspection, Page, Tenure, WAITERS_SHOWN, Waiter},
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
        let lane = &self.lanes[0];
        let seen = look_at(&lane.node, &lane.inspect, &self.prefix, names, most_waiters, until).await?;
        names.iter().zip(&seen).map(|(name, value)| inspection(name, value)).collect()
    }

    pub(super) async fn scan_page(
        &self,
        prefix: &str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Result<Page<Inspection>, EngineError> {
        let names = scan_names(&self.lanes[0].node, &self.prefix, prefix, from, limit, until).await?;
        let mut items = self.inspect_many(&names.items, WAITERS_SHOWN, until).await?;
        // Freed since the scan.
        items.retain(|found| found.held.is_some() || found.waiting > 0);
        Ok(Page { items, next: names.next })
    }
}

/// What the server says about some names, each as `inspect.lua` answers it.
pub(super) async fn look_at(
    node: &Arc<Node>,
    inspect: &Script,
    store_prefix: &str,
    names: &[Name],
    most_waiters: u32,
    until: Until,
) -> Result<Vec<Value>, EngineError> {
    let connection = node.connection(until).await?;
    let mut seen = Vec::with_capacity(names.len());
    for some in names.chunks(NAMES_PER_CALL) {
        let keys: Vec<_> = some.iter().map(|name| Keys::new(store_prefix, name)).collect();
        let build = |script: &_, by_hash| script::inspection(script, by_hash, &keys, most_waiters);
        let value = node.run_script(&connection, inspect, build, until).await?;
        seen.extend(script::replies(value, some.len())?);
    }
    Ok(seen)
}

/// A page of names is what some SCANs find. The cursor is the server's, and how many of its names were given already.
pub(super) async fn scan_names(
    node: &Arc<Node>,
    store_prefix: &str,
    prefix: &str,
    from: Option<Cursor>,
    limit: u32,
    until: Until,
) -> Result<Page<Name>, EngineError> {
    let page = |items, next: String| Ok(Page { items, next: Some(Cursor::new(next)) });
    let connection = node.connection(until).await?;
    let pattern = scan_pattern(&format!("{store_prefix}{prefix}"));
    let (mut at, mut given) = position(from.as_ref());
    let mut names = Vec::new();
    for _ in 0..SCANS_PER_PAGE {
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(&at).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
        let (next, keys) = scanned(node.send(&connection, &cmd, until).await?)?;
        let name_of = |key: &String| name_of(store_prefix, key);
        let fresh: Vec<_> = keys.iter().skip(given).filter_map(name_of).collect();
        let room = limit as usize - names.len();
        if fresh.len() > room {
            // Part of what this SCAN found: it is asked again for the rest.
            let taken = keys.iter().skip(given).enumerate().filter(|(_, key)| name_of(key).is_some());
            given += taken
                .map(|(place, _)| place + 1)
                .nth(room.saturating_sub(1))
                .filter(|_| room > 0)
                .unwrap_or(0);
            names.extend(fresh.into_iter().take(room));
            return page(names, format!("{at}/{given}"));
        }
        names.extend(fresh);
        (at, given) = (next, 0);
        if at == "0" {
            return Ok(Page { items: names, next: None });
        }
        if names.len() == limit as usize {
            break;
        }
    }
    page(names, format!("{at}/0"))
}

fn name_of(store_prefix: &str, key: &str) -> Option<Name> {
    // With an empty prefix the side keys are in the scan's way.
    let side = key.starts_with("leasehold:");
    key.strip_prefix(store_prefix).filter(|_| !side).and_then(|name| Name::new(name).ok())
}

fn position(from: Option<&Cursor>) -> (String, usize) {
    let text = from.map_or("0/0", Cursor::as_str);
    let (at, given) = text.split_once('/').unwrap_or(("0", "0"));
    (at.to_owned(), given.parse().unwrap_or(0))
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

fn inspection(name: &Name, value: &Value) -> Result<Inspection, EngineError> {
    let Value::Array(parts) = value else { return Err(answer::unexpected(value)) };
    let [holder, Value::Int(pttl), fence, Value::Int(count), Value::Array(waiters)] = parts.as_slice() else {
        return Err(answer::unexpected(value));
    };
    let holder = match holder {
        Value::Int(_) => Some(Holder::Foreign),
        holder => answer::text(holder).map(Holder::parse),
    };
    let held = match holder {
        None => None,
        Some(holder) => {
            let fence = if holder == Holder::Foreign { Fence::new(0) } else { answer::fence(fence)? };
            Some(Tenure { holder, fence, expires_in: answer::left(*pttl) })
        }
    };
    Ok(Inspection {
        name: name.clone(),
        held,
        waiters: waiters.chunks(2).map(waiter).collect(),
        waiting: u32::try_from(*count).unwrap_or(u32::MAX),
    })
}

/// A waiter's entry, and how long it waits in microseconds.
pub(super) fn waiter(pair: &[Value]) -> Waiter {
    Waiter {
        holder: Holder::parse(pair.first().and_then(answer::text).map_or("", script::entry_owner)),
        waiting_for: Duration::from_micros(
            pair.get(1).and_then(answer::text).and_then(|us| us.parse().ok()).unwrap_or(0),
        ),
    }
}
