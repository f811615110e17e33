//! Permits: never more than the limit then in force.
//!
//! A limit that is lowered takes nothing away, so the permits that are held may be more than the limit, but nobody may be
//! admitted then. Of all who are relied on when a grant returns, the last was admitted while that grant was under way. So all
//! of them together are within a limit that was in force during that time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    iter::Peekable,
    vec,
};

use leasehold::Mode;

use super::{Grant, Limit, Violation};

/// `tenures` are those that were relied on, first come first.
pub(super) fn within_limit(
    name: &str,
    tenures: &[&Grant],
    limits: &[Limit],
    violations: &mut Vec<Violation>,
) {
    let permits = |grant: &Grant| match grant.mode {
        Mode::Permits { take, of } => Some((u64::from(take.get()), of.get())),
        _ => None,
    };
    let Some((_, first)) = tenures.iter().find_map(|grant| permits(grant)) else { return };
    let (mut limits, mut ends, mut taken) = (LimitsInForce::new(first, limits), BinaryHeap::new(), 0);
    for grant in tenures {
        let Some((take, _)) = permits(grant) else { continue };
        while let Some(&Reverse((ended_at, take))) = ends.peek()
            && ended_at <= grant.returned_at
        {
            ends.pop();
            taken -= take;
        }
        ends.push(Reverse((grant.ended_at(), take)));
        taken += take;
        let limit = limits.highest(grant.invoked_at, grant.returned_at);
        if taken > u64::from(limit) {
            let (name, grant) = (name.to_owned(), (*grant).clone());
            violations.push(Violation::TooManyPermits { name, grant, taken, limit });
        }
    }
}

/// A limit, and when it can have been in force.
struct InForce {
    limit: u32,
    from: u64,
    until: u64,
}

/// Finds the highest limit of a time.
struct LimitsInForce {
    /// In order of their begin.
    to_come: Peekable<vec::IntoIter<InForce>>,
    /// Those that have begun, by their end. One that ends before another and is not higher is left out, so the first that has
    /// not ended is the highest.
    begun: BTreeMap<u64, u32>,
}

impl LimitsInForce {
    /// `first` was in force before any was set.
    fn new(first: u32, limits: &[Limit]) -> Self {
        let mut limits = limits.to_vec();
        limits.sort_by_key(|limit| limit.asked_at);
        // The earliest time at which one of those from here on was set.
        let mut set_by: Vec<u64> = limits.iter().map(|limit| limit.set_at.unwrap_or(u64::MAX)).collect();
        for index in (1..set_by.len()).rev() {
            set_by[index - 1] = set_by[index - 1].min(set_by[index]);
        }
        // It may be in force until another one was set that was asked for after it; if it is not known when it was set, always.
        let until = |set_at: u64| {
            let next = limits.partition_point(|limit| limit.asked_at <= set_at);
            set_by.get(next).copied().unwrap_or(u64::MAX)
        };
        let mut in_force = vec![InForce { limit: first, from: 0, until: until(0) }];
        in_force.extend(limits.iter().map(|limit| InForce {
            limit: limit.limit,
            from: limit.asked_at,
            until: until(limit.set_at.unwrap_or(u64::MAX)),
        }));
        Self { to_come: in_force.into_iter().peekable(), begun: BTreeMap::new() }
    }

    /// The highest limit between two times. The second one never goes back.
    fn highest(&mut self, from: u64, until: u64) -> u32 {
        while let Some(limit) = self.to_come.next_if(|limit| limit.from <= until) {
            self.begin(&limit);
        }
        self.begun.range(from..).next().map_or(u32::MAX, |(_, limit)| *limit)
    }

    fn begin(&mut self, new: &InForce) {
        if self.begun.range(new.until..).next().is_some_and(|(_, limit)| *limit >= new.limit) {
            return;
        }
        while let Some((&until, _)) =
            self.begun.range(..=new.until).next_back().filter(|(_, limit)| **limit <= new.limit)
        {
            self.begun.remove(&until);
        }
        self.begun.insert(new.until, new.limit);
    }
}
