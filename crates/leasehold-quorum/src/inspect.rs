//! Inspecting what a majority holds.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::StreamExt;

use super::{Quorum, Result, Shared, count::fence_of};
use leasehold_core::engine::{
    Cursor, EngineError, Fault, Fut, Holders, Inspect, Inspection, Mode, Page, Released, Tenure,
    WAITERS_SHOWN,
    voter::{Sighting, Value},
};
use leasehold_core::{Fence, Holder, Name, clock::Until, owner::Owner};

/// How long the other nodes are waited for once a majority has decided.
const SETTLE: Duration = Duration::from_millis(20);

/// What the nodes that answered know about one name.
type Sightings = Vec<Sighting>;

impl Inspect for Quorum {
    fn inspect<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Inspection> {
        Box::pin(async move {
            let seen = self.shared.sight_one(name, until).await?;
            Ok(self.shared.inspection(name, &seen))
        })
    }

    fn page<'a>(
        &'a self,
        prefix: &'a str,
        mut from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Inspection>> {
        Box::pin(async move {
            let began = self.shared.clock().now();
            loop {
                let page = self.shared.scan(prefix, from, limit, until).await?;
                // A vote may not have come to this node yet. A long search goes on with the next page.
                let now = self.shared.clock().now();
                if !page.items.is_empty() || page.next.is_none() || now.since(began) > until.since(now) {
                    return Ok(page);
                }
                from = page.next;
            }
        })
    }
}

impl Shared {
    async fn sight_one(&self, name: &Name, until: Until) -> Result<Sightings> {
        Ok(self.sight(std::slice::from_ref(name), until).await?.pop().unwrap_or_default())
    }

    /// What each node sees of some names, as soon as a majority of them decides.
    async fn sight(&self, names: &[Name], until: Until) -> Result<Vec<Sightings>> {
        let names: Arc<[Name]> = names.into();
        let mut asked = self.ask_all(&names, move |voter, names| voter.inspect(names, until));
        let mut seen: Vec<Sightings> = vec![Vec::new(); names.len()];
        let (mut answered, mut last) = (0, None);
        let (began, mut patience) = (self.clock().now(), until);
        while let Some(Some((_, answer))) = self.clock().bounded(patience, asked.next()).await {
            match answer {
                Ok(sightings) => {
                    answered += 1;
                    seen.iter_mut().zip(sightings).for_each(|(seen, sighting)| seen.push(sighting));
                }
                Err(error) => last = Some(error),
            }
            let left = self.n() - answered;
            if answered >= self.majority() && seen.iter().all(|seen| self.is_decided(seen, left)) {
                // The rest changes little; a node that hangs is not waited for.
                patience = patience.min(began + self.clock().now().since(began) * 3 + SETTLE);
            }
        }
        if answered >= self.majority() {
            return Ok(seen);
        }
        let why = last.map_or_else(String::new, |error| format!(": {error}"));
        Err(EngineError::new(Fault::Unreachable, format!("{answered} of {} nodes answer{why}", self.n())))
    }

    /// Whether `left` nodes that have not answered cannot change who holds it. Of several readers one is enough: a grant is
    /// sent to all nodes, and one that hangs is not waited for.
    fn is_decided(&self, seen: &Sightings, left: usize) -> bool {
        let most = by_owner(seen).map(|one| one.fences.len()).max().unwrap_or(0);
        most >= self.majority() || most + left < self.majority()
    }

    /// Those whom a majority of nodes has, first come first.
    fn held<'a>(&self, seen: &'a Sightings) -> Vec<(&'a Value, Tenure)> {
        let most = self.majority();
        let tenure = |Seen { owner, mode, fences, mut ends }: Seen<'a>| {
            ends.sort_unstable();
            let holder = Holder::parse(&owner.0);
            let fence = if holder == Holder::Foreign { None } else { fence_of(fences, self.n()) };
            // It is over when fewer than a majority are left.
            let expires_in = ends.len().checked_sub(most).and_then(|at| ends.get(at)).copied();
            (owner, Tenure { holder, fence: fence.unwrap_or_default(), mode, expires_in })
        };
        let held = by_owner(seen).filter(|one| one.fences.len() >= most).map(tenure);
        let mut held: Vec<_> = held.collect();
        held.sort_unstable_by_key(|(_, tenure)| tenure.fence);
        held
    }

    fn inspection(&self, name: &Name, seen: &Sightings) -> Inspection {
        // So many wait on a majority; a node that missed an end may show more.
        let mut counts: Vec<_> = seen.iter().map(|sighting| sighting.waiting).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let waiting = counts.get(self.majority() - 1).copied().unwrap_or(0);
        let longest = seen.iter().map(|sighting| &sighting.waiters).max_by_key(|waiters| waiters.len());
        let shown = WAITERS_SHOWN.min(waiting) as usize;
        let waiters = longest.into_iter().flatten().take(shown).cloned().collect();
        let mut held: Vec<_> = self.held(seen).into_iter().map(|(_, tenure)| tenure).collect();
        let total = held.len() as u32;
        held.truncate(WAITERS_SHOWN as usize);
        // Votes that are no majority, or no longer one, keep others out until they lapse.
        let lapse = || by_owner(seen).flat_map(|one| one.ends).max();
        let free_in = held.iter().filter_map(|tenure| tenure.expires_in).min();
        let holders =
            if total == 0 { Holders::none(lapse()) } else { Holders { shown: held, total, free_in } };
        Inspection { holders, waiting, waiters, ..Inspection::unused(name.clone()) }
    }

    /// Names that a majority holds or that are waited for, one node after another: what a majority holds is on one of any
    /// `n - majority + 1` nodes. The cursor has the node, how many were listed to their end before it, and the node's own
    /// cursor.
    async fn scan(
        &self,
        prefix: &str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Result<Page<Inspection>> {
        let (mut node, mut listed, at) = position(from.as_ref());
        let enough = self.n() - self.majority() + 1;
        let Page { items: names, next } = loop {
            let Some(voter) = self.voters.get(node) else {
                return Ok(Page { items: Vec::new(), next: None });
            };
            // The others have what a majority has, if enough of them answer. One that fails in the middle of its pages
            // would leave a gap.
            let may_skip = at.is_none() && self.n() - node - 1 + listed >= enough;
            let now = self.clock().now();
            let node_until = if may_skip { now + until.since(now) / 2 } else { until };
            match voter.scan(prefix, at.clone(), limit, node_until).await {
                Ok(page) => break page,
                Err(error) if !may_skip => return Err(error),
                Err(_) => node += 1,
            }
        };
        let seen = self.sight(&names, until).await?;
        let items = names.iter().zip(&seen).map(|(name, seen)| self.inspection(name, seen));
        let items = items.filter(Inspection::is_in_use).collect();
        if next.is_none() {
            (node, listed) = (node + 1, listed + 1);
        }
        let is_over = listed >= enough || node == self.n();
        let at = next.as_ref().map_or("", Cursor::as_str);
        Ok(Page { items, next: (!is_over).then(|| Cursor::new(format!("{node}/{listed}/{at}"))) })
    }

    /// Takes the lock from the holder that was seen, on every node.
    pub(super) async fn force_release(
        self: &Arc<Self>,
        name: &Name,
        seen: Fence,
        until: Until,
    ) -> Result<Released> {
        let sightings = self.sight_one(name, until).await?;
        let held = self.held(&sightings);
        let Some((_, first)) = held.first() else { return Ok(Released::Expired) };
        let Some((owner, tenure)) = held.iter().find(|(_, tenure)| tenure.fence == seen) else {
            let by = (first.holder != Holder::Foreign).then_some(first.fence);
            return Ok(Released::Taken { by });
        };
        let Some(owner) = Owner::from_exposed(&owner.0) else {
            let why = "its holder is another library; delete the key on a majority of the nodes by hand";
            return Err(EngineError::new(Fault::Unsupported, why));
        };
        self.end((name, &owner, tenure.mode), self.options.max_ttl, until).await
    }
}

/// What the nodes have of one owner: how it holds there, and each node's fence and the end of the lease.
struct Seen<'a> {
    owner: &'a Value,
    mode: Mode,
    fences: Vec<Fence>,
    ends: Vec<Duration>,
}

/// What is seen of each holder.
fn by_owner(seen: &Sightings) -> impl Iterator<Item = Seen<'_>> {
    let mut by_owner: BTreeMap<(&Value, bool), Seen<'_>> = BTreeMap::new();
    for Sighting { owner, fence, expires_in, readers, .. } in seen {
        let alone = owner.iter().map(|owner| (owner, Mode::Exclusive, *fence, *expires_in));
        let readers = readers.iter().map(|one| (&one.owner, Mode::Shared, one.fence, one.expires_in));
        for (owner, mode, fence, expires_in) in alone.chain(readers) {
            let key = (owner, mode == Mode::Shared);
            let of =
                by_owner.entry(key).or_insert(Seen { owner, mode, fences: Vec::new(), ends: Vec::new() });
            of.fences.push(fence);
            of.ends.extend(expires_in);
        }
    }
    by_owner.into_values()
}

/// The node to go on with, how many were listed to their end, and where the node goes on.
fn position(from: Option<&Cursor>) -> (usize, usize, Option<Cursor>) {
    let read = || {
        let mut parts = from?.as_str().splitn(3, '/');
        let (node, listed) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some((node, listed, parts.next().filter(|at| !at.is_empty()).map(Cursor::new)))
    };
    read().unwrap_or_default()
}
