//! What people may see of locks.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use leasehold_core::{
    clock::Until,
    engine::{Cursor, Fut, HOLDERS_SHOWN, Holders, Inspect, Inspection, Page, WAITERS_SHOWN, Waiter},
    name::Name,
};

use super::{
    Etcd, Result,
    entry::Line,
    keys::{self, Keys},
    proto::{KeyValue, RangeRequest},
};

/// Most keys that one page looks at.
const KEYS_MAX: i64 = 2000;
/// Leases asked about at the same time.
const AT_ONCE: usize = 32;

impl Inspect for Etcd {
    fn inspect<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Inspection> {
        Box::pin(async move {
            let seen = self.seen(&self.keys(name), until).await?;
            self.show(name, seen.line, until).await
        })
    }

    fn page<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Inspection>> {
        Box::pin(self.list(prefix, from, limit, until))
    }
}

impl Etcd {
    async fn show(&self, name: &Name, line: Line, until: Until) -> Result<Inspection> {
        let holding = line.holding();
        let held = &line.entries[..holding];
        let shown: Vec<_> =
            held.iter().take(HOLDERS_SHOWN).map(|entry| (entry.tenure(), entry.lease)).collect();
        let shown = stream::iter(shown).map(async |(tenure, lease)| {
            let expires_in = self.time_left(lease, until).await?;
            Ok::<_, leasehold_core::engine::EngineError>((tenure, expires_in))
        });
        // One whose lease is over by now ends in a moment.
        let shown: Vec<_> = shown
            .buffered(AT_ONCE)
            .map_ok(|(tenure, left)| leasehold_core::engine::Tenure {
                expires_in: Some(left.unwrap_or(Duration::ZERO)),
                ..tenure
            })
            .try_collect()
            .await?;
        let free_in = shown.iter().filter_map(|tenure| tenure.expires_in).min();
        let now_ms = self.clock.wall_us() / 1000;
        let waiters = line.entries[holding..].iter().take(WAITERS_SHOWN as usize).map(|entry| Waiter {
            mode: entry.mode,
            waiting_for: Duration::from_millis(
                now_ms.saturating_sub(since_ms(&entry.holder).unwrap_or(now_ms)),
            ),
            holder: entry.holder.clone(),
        });
        Ok(Inspection {
            name: name.clone(),
            limit: line.limit.map(|limit| limit.now),
            permits_taken: held.iter().map(|entry| entry.mode.permits()).sum(),
            waiters: waiters.collect(),
            waiting: (line.entries.len() - holding) as u32,
            holders: Holders { shown, total: holding as u32, free_in },
        })
    }

    async fn list(
        &self,
        prefix: &str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Result<Page<Inspection>> {
        let (start, end) = keys::names_range(&self.prefix, prefix);
        let start = from.map_or(start, |from| from.as_str().as_bytes().to_vec());
        let range = RangeRequest { key: start, range_end: end, limit: KEYS_MAX, ..RangeRequest::default() };
        let found = self.read(range, until).await?;
        let (mut groups, more) = (grouped(&self.prefix, found.kvs), found.more);
        let mut next = None;
        if groups.len() > limit.max(1) as usize {
            groups.truncate(limit.max(1) as usize);
            next = groups.last().map(|(name, _)| self.after(name));
        } else if more {
            // The last one may be incomplete: it is read by itself.
            next = groups.last().map(|(name, _)| self.after(name));
            if let Some((name, line)) = groups.last_mut() {
                *line = self.seen(&self.keys(name), until).await?.line;
            }
        }
        let items = stream::iter(groups).map(async |(name, mut line)| {
            if line.entries.first().is_some_and(|entry| entry.mode.permits() > 0) {
                line = self.seen(&self.keys(&name), until).await?.line;
            }
            self.show(&name, line, until).await
        });
        let items: Vec<_> = items.buffered(AT_ONCE).try_collect().await?;
        let items = items.into_iter().filter(Inspection::is_in_use).collect();
        Ok(Page { items, next })
    }

    /// Where the keys after those of a name begin.
    fn after(&self, name: &Name) -> Cursor {
        let end = Keys::new(&self.prefix, name).range().1;
        Cursor::new(String::from_utf8_lossy(&end))
    }
}

/// Keys by the names that they are of.
fn grouped(prefix: &str, kvs: Vec<KeyValue>) -> Vec<(Name, Line)> {
    let mut groups: Vec<(Name, Vec<KeyValue>)> = Vec::new();
    for kv in kvs {
        let Some(name) = keys::name_of(prefix, &kv.key) else { continue };
        match groups.last_mut() {
            Some((last, kvs)) if *last == name => kvs.push(kv),
            _ => groups.push((name, vec![kv])),
        }
    }
    let line = |(name, kvs): (Name, _)| {
        let start = Keys::new(prefix, &name).range().0;
        (name, Line::read(&start, kvs, None))
    };
    groups.into_iter().map(line).collect()
}

fn since_ms(holder: &leasehold_core::Holder) -> Option<u64> {
    match holder {
        leasehold_core::Holder::Leasehold { since_ms, .. } => Some(*since_ms),
        _ => None,
    }
}
