//! Inspecting what a majority holds.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::StreamExt;

use super::{Shared, count::fence_of};
use crate::{
    clock::Until,
    engine::{
        Cursor, EngineError, Fault, Inspection, Mode, Page, Released, Tenure, WAITERS_SHOWN, Waiter,
        voter::{Sighting, Value},
    },
    fence::Fence,
    name::Name,
    owner::{Holder, Owner},
};

/// How long those are waited for who come after a majority.
const SETTLE: Duration = Duration::from_millis(20);

/// What the nodes that answered know about one name.
type Sightings = Vec<(usize, Sighting)>;

impl Shared {
    pub(super) async fn inspect(&self, name: &Name, until: Until) -> Result<Inspection, EngineError> {
        let mut seen = self.sight(std::slice::from_ref(name), until).await?;
        Ok(self.inspection(name, &seen.pop().unwrap_or_default()))
    }

    /// Every node that answers while a majority can still be heard; per name what each saw.
    async fn sight(&self, names: &[Name], until: Until) -> Result<Vec<Sightings>, EngineError> {
        let names: Arc<[Name]> = names.into();
        let mut asked = self.ask_all(|voter| voter.inspect(&names, until));
        let mut seen: Vec<Sightings> = vec![Vec::new(); names.len()];
        let (mut heard, mut last) = (0, None);
        let (began, mut patience) = (self.clock().now(), until);
        while let Some(Some((index, answer))) = self.clock().bounded(patience, asked.next()).await {
            match answer {
                Ok(sightings) => {
                    heard += 1;
                    seen.iter_mut().zip(sightings).for_each(|(seen, sighting)| seen.push((index, sighting)));
                }
                Err(error) => last = Some(error),
            }
            if heard >= self.majority() && seen.iter().all(|seen| self.is_decided(seen, self.n() - heard)) {
                // The rest changes little; a node that stands still is not waited for.
                patience = patience.min(began + self.clock().now().since(began) * 3 + SETTLE);
            }
        }
        if heard >= self.majority() {
            return Ok(seen);
        }
        let why = last.map_or_else(String::new, |error| format!(": {error}"));
        Err(EngineError::new(Fault::Unreachable, format!("{heard} of {} nodes answer{why}", self.n())))
    }

    /// Whether those that were not heard cannot change who holds it.
    fn is_decided(&self, seen: &Sightings, unheard: usize) -> bool {
        let most = by_owner(seen).into_values().map(|sightings| sightings.len()).max().unwrap_or(0);
        most >= self.majority() || most + unheard < self.majority()
    }

    /// Whose value a majority has, and the fences there.
    fn holder<'a>(&self, seen: &'a Sightings) -> Option<(&'a Value, Vec<&'a Sighting>)> {
        by_owner(seen).into_iter().find(|(_, sightings)| sightings.len() >= self.majority())
    }

    fn inspection(&self, name: &Name, seen: &Sightings) -> Inspection {
        let held = self.holder(seen).map(|(owner, sightings)| {
            let mut ends: Vec<_> = sightings.iter().filter_map(|sighting| sighting.expires_in).collect();
            ends.sort_unstable();
            let holder = Holder::parse(&owner.0);
            let fences = sightings.iter().map(|sighting| sighting.fence).collect();
            let fence = if holder == Holder::Foreign { None } else { fence_of(fences, self.n()) };
            // It is over when fewer than a majority are left.
            let expires_in = ends.len().checked_sub(self.majority()).and_then(|at| ends.get(at)).copied();
            let fence = fence.unwrap_or_default();
            Tenure { holder, fence, mode: Mode::Exclusive, expires_in }
        });
        let longest = seen.iter().map(|(_, sighting)| &sighting.waiters).max_by_key(|waiters| waiters.len());
        // So many wait on a majority; a node that missed an end may show more.
        let mut counts: Vec<_> = seen.iter().map(|(_, sighting)| sighting.waiting).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let waiting = counts.get(self.majority() - 1).copied().unwrap_or(0);
        let waiters: Vec<_> = longest
            .into_iter()
            .flatten()
            .map(|(holder, waiting_for)| Waiter {
                holder: holder.clone(),
                mode: Mode::Exclusive,
                waiting_for: *waiting_for,
            })
            .collect();
        Inspection {
            name: name.clone(),
            holders: held.into(),
            waiting,
            waiters: waiters.into_iter().take(WAITERS_SHOWN.min(waiting) as usize).collect(),
        }
    }

    /// Names that a majority holds or that are waited for.
    pub(super) async fn scan(
        &self,
        prefix: &str,
        mut from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Result<Page<Inspection>, EngineError> {
        loop {
            let page = self.scan_next(prefix, from, limit, until).await?;
            // A vote may not have come to this node yet.
            if !page.items.is_empty() || page.next.is_none() {
                return Ok(page);
            }
            from = page.next;
        }
    }

    /// One node after another: what a majority holds is on one of any `n - majority + 1` nodes.
    async fn scan_next(
        &self,
        prefix: &str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Result<Page<Inspection>, EngineError> {
        let (mut node, at, mut skipped) = position(from.as_ref());
        let mut page = None;
        while node < self.n() {
            // One that stands still must leave time for the others.
            let now = self.clock().now();
            let node_until = now + until.since(now) / (self.n() as u32);
            let from = (!at.is_empty()).then(|| Cursor::new(&at));
            match self.voters[node].scan(prefix, from, limit, node_until).await {
                Ok(found) => {
                    page = Some(found);
                    break;
                }
                // The others have what a majority has, if enough of them answer. One that fails in the middle of its
                // pages would leave a gap.
                Err(error) if !at.is_empty() || skipped.len() + 1 > self.n() - self.majority() => {
                    return Err(error);
                }
                Err(_) => skipped.push(node),
            }
            node += 1;
        }
        let Some(Page { items: names, next }) = page else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        let seen = self.sight(&names, until).await?;
        let items = names
            .iter()
            .zip(&seen)
            .map(|(name, seen)| self.inspection(name, seen))
            .filter(Inspection::is_in_use)
            .collect();
        let skipped_text: Vec<_> = skipped.iter().map(usize::to_string).collect();
        let skips = skipped_text.join(",");
        let enough = self.n() - self.majority() + 1;
        let next = match next {
            Some(at) => Some(format!("{node}/{skips}/{}", at.as_str())),
            None if node + 1 - skipped.len() >= enough || node + 1 == self.n() => None,
            None => Some(format!("{}/{skips}/", node + 1)),
        };
        Ok(Page { items, next: next.map(Cursor::new) })
    }

    /// Takes the lock from the holder that was seen, on every node.
    pub(super) async fn force_release(
        self: &Arc<Self>,
        name: &Name,
        seen: Fence,
        until: Until,
    ) -> Result<Released, EngineError> {
        let sightings = self.sight(std::slice::from_ref(name), until).await?.pop().unwrap_or_default();
        let inspection = self.inspection(name, &sightings);
        let Some(held) = inspection.held() else { return Ok(Released::Expired) };
        if held.fence != seen {
            let by = (held.holder != Holder::Foreign).then_some(held.fence);
            return Ok(Released::Taken { by });
        }
        let owner = self.holder(&sightings).and_then(|(value, _)| Owner::from_exposed(&value.0));
        let Some(owner) = owner else {
            return Err(EngineError::new(
                Fault::Unsupported,
                "its holder is another library; delete the key on a majority of the nodes by hand",
            ));
        };
        self.end(name, &owner, self.options.max_ttl, until).await
    }
}

fn by_owner(seen: &Sightings) -> HashMap<&Value, Vec<&Sighting>> {
    let mut by_owner: HashMap<&Value, Vec<&Sighting>> = HashMap::new();
    for (_, sighting) in seen {
        if let Some(owner) = &sighting.owner {
            by_owner.entry(owner).or_default().push(sighting);
        }
    }
    by_owner
}

/// The node to go on with, where it goes on, and the nodes that were passed over.
fn position(from: Option<&Cursor>) -> (usize, String, Vec<usize>) {
    let read = || {
        let mut parts = from?.as_str().splitn(3, '/');
        let node = parts.next()?.parse().ok()?;
        let skipped = parts.next()?.split(',').filter_map(|node| node.parse().ok()).collect();
        Some((node, parts.next()?.to_owned(), skipped))
    };
    read().unwrap_or_default()
}
