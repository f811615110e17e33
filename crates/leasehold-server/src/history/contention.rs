//! Who waited for whom, and which names are hot.

use std::collections::{BTreeSet, HashMap, HashSet};

use leasehold::{Holder, engine::Inspection};
use schemars::JsonSchema;
use serde::Serialize;

use crate::views::{label_of, millis};

/// Pairs and names that are remembered; beyond that the least important are forgotten.
const KEPT: usize = 5_000;
const NAMES_SHOWN: usize = 5;
const HOT_SHOWN: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Contention {
    pairs: HashMap<(String, String), Count>,
    names: HashMap<String, Heat>,
}

#[derive(Debug, Default)]
struct Count {
    waiter_ms: u64,
    longest_ms: u64,
    episodes: u64,
    waiting_now: u32,
    names: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Heat {
    acquisitions: u64,
    waiter_ms: u64,
    waiters_max: u32,
}

/// A holder and those who waited for it, by their labels.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Pair {
    pub(crate) holder: String,
    pub(crate) waiter: String,
    pub(crate) waiter_ms: u64,
    pub(crate) longest_ms: u64,
    pub(crate) episodes: u64,
    pub(crate) waiting_now: u32,
    pub(crate) names: Vec<String>,
}

/// A name that many want.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Hot {
    name: String,
    acquisitions: u64,
    waiter_ms: u64,
    waiters_max: u32,
}

impl Contention {
    /// A new poll begins.
    pub(super) fn begin(&mut self) {
        self.pairs.values_mut().for_each(|pair| pair.waiting_now = 0);
        if self.pairs.len() > KEPT {
            forget_half(&mut self.pairs, |pair| pair.waiter_ms);
        }
        if self.names.len() > KEPT {
            forget_half(&mut self.names, |heat| heat.waiter_ms + heat.acquisitions);
        }
    }

    pub(super) fn acquired(&mut self, name: &str) {
        self.heat(name).acquisitions += 1;
    }

    fn heat(&mut self, name: &str) -> &mut Heat {
        if !self.names.contains_key(name) {
            self.names.insert(name.to_owned(), Heat::default());
        }
        self.names.get_mut(name).expect("just inserted")
    }

    /// Counts those who waited since the poll before; returns who waits now.
    pub(super) fn waited(
        &mut self,
        lock: &Inspection,
        before: Option<&HashSet<String>>,
        elapsed_ms: u64,
    ) -> HashSet<String> {
        let mut waiting = HashSet::new();
        if lock.waiting == 0 {
            return waiting;
        }
        let name = lock.name.as_str();
        let holder = lock.held().map_or("nobody", |tenure| label_of(&tenure.holder)).to_owned();
        let shown_ms = elapsed_ms * u64::from(lock.waiting);
        let heat = self.heat(name);
        heat.waiter_ms += shown_ms;
        heat.waiters_max = heat.waiters_max.max(lock.waiting);
        for waiter in &lock.waiters {
            let (id, waited_ms) = (identity(&waiter.holder), millis(waiter.waiting_for));
            let key = (holder.clone(), label_of(&waiter.holder).to_owned());
            let pair = self.pairs.entry(key).or_default();
            pair.waiter_ms += waited_ms.min(elapsed_ms);
            pair.longest_ms = pair.longest_ms.max(waited_ms);
            pair.episodes += u64::from(!before.is_some_and(|before| before.contains(&id)));
            pair.waiting_now += 1;
            if pair.names.len() < NAMES_SHOWN {
                pair.names.insert(name.to_owned());
            }
            waiting.insert(id);
        }
        waiting
    }

    pub(super) fn pairs(&self, wanted: impl Fn(&Pair) -> bool, most: usize) -> Vec<Pair> {
        let pairs = self.pairs.iter().map(|((holder, waiter), count)| Pair {
            holder: holder.clone(),
            waiter: waiter.clone(),
            waiter_ms: count.waiter_ms,
            longest_ms: count.longest_ms,
            episodes: count.episodes,
            waiting_now: count.waiting_now,
            names: count.names.iter().cloned().collect(),
        });
        let mut pairs: Vec<_> = pairs.filter(wanted).collect();
        pairs.sort_by(|one, other| {
            other
                .waiter_ms
                .cmp(&one.waiter_ms)
                .then_with(|| (&one.holder, &one.waiter).cmp(&(&other.holder, &other.waiter)))
        });
        pairs.truncate(most);
        pairs
    }

    pub(super) fn hot(&self) -> Vec<Hot> {
        let mut hot: Vec<_> = self
            .names
            .iter()
            .map(|(name, heat)| Hot {
                name: name.clone(),
                acquisitions: heat.acquisitions,
                waiter_ms: heat.waiter_ms,
                waiters_max: heat.waiters_max,
            })
            .collect();
        hot.sort_by(|one, other| {
            (other.waiter_ms, other.acquisitions)
                .cmp(&(one.waiter_ms, one.acquisitions))
                .then_with(|| one.name.cmp(&other.name))
        });
        hot.truncate(HOT_SHOWN);
        hot
    }
}

/// Who it is among those who wait.
fn identity(holder: &Holder) -> String {
    match holder {
        Holder::Leasehold { host, pid, since_ms, label } => format!("{host} {pid} {since_ms} {label}"),
        _ => String::new(),
    }
}

fn forget_half<K: Eq + std::hash::Hash, V>(all: &mut HashMap<K, V>, weight: impl Fn(&V) -> u64) {
    let mut weights: Vec<_> = all.values().map(&weight).collect();
    weights.sort_unstable();
    let median = weights[weights.len() / 2];
    all.retain(|_, value| weight(value) > median);
}
