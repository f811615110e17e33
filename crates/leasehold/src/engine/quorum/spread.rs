//! A grant soon lies on all nodes, not only on the majority that decided it.
//!
//! A bare majority is enough to hold a lock and too little to keep it: one node that hangs would cost it. So whoever did
//! not say yes is told of the grant in the background.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::StreamExt;

use super::{Shared, round::Answers};
use crate::{
    clock::BootInstant,
    engine::{Hold, voter::Vote},
};

/// How often a node is told that does not take it: it is not seated yet, or has a vote for somebody else who gives it back.
const TIMES_MAX: u32 = 5;
/// Pause before a node is told again; doubles.
const PAUSE: Duration = Duration::from_millis(20);
/// Grants under way to nodes in the background; beyond it the next renewal settles the rest.
const UNDER_WAY_MAX: usize = 10_000;

impl Shared {
    /// Brings a grant to the nodes that lack it, also to those that turn out to when their late answers come: `is_yes`
    /// is told which node said what.
    pub(super) fn spread<T: Send + 'static>(
        self: &Arc<Self>,
        hold: Hold,
        since: BootInstant,
        lacking: Vec<usize>,
        mut late: Answers<T>,
        is_yes: fn(&Self, usize, &T) -> bool,
    ) {
        let hold = Arc::new(hold);
        lacking.into_iter().for_each(|index| self.bring(index, &hold, since));
        if late.is_empty() {
            return;
        }
        let shared = self.clone();
        self.late.spawn(async move {
            while let Some((index, answer)) = late.next().await {
                if !answer.is_ok_and(|answer| is_yes(&shared, index, &answer)) {
                    shared.bring(index, &hold, since);
                }
            }
        });
    }

    /// Whether a vote that comes late is a yes. One that does not vote any more is looked at, as if it had come in time.
    pub(super) fn is_late_yes(&self, index: usize, vote: &Vote) -> bool {
        if matches!(vote, Vote::Abstains(_)) {
            self.lost_seat(index);
        }
        matches!(vote, Vote::Yes(_))
    }

    fn bring(self: &Arc<Self>, index: usize, hold: &Arc<Hold>, since: BootInstant) {
        if self.late.len() >= UNDER_WAY_MAX {
            return;
        }
        let (shared, hold) = (self.clone(), hold.clone());
        self.late.spawn(async move {
            let closed = shared.closed.clone();
            closed.run_until_cancelled(shared.bring_in_time(index, &hold, since)).await;
        });
    }

    /// Only in the first half of the lease: until then the majority that granted it has it, whatever its holder does.
    async fn bring_in_time(&self, index: usize, hold: &Arc<Hold>, since: BootInstant) {
        let last = since + hold.ttl / 2;
        let mut pause = PAUSE;
        for _ in 0..TIMES_MAX {
            if self.has_ended(hold.owner.id()) || self.clock().now() >= last {
                return;
            }
            let is_seated = self.seats()[index].votes();
            if is_seated {
                match self.voters[index].repair(hold, self.node_until(hold.ttl, last)).await {
                    Ok(false) => {}
                    Ok(true) => {
                        self.counters.repaired.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    // It is down, or hangs: the next renewal finds it again.
                    Err(_) => return,
                }
            }
            self.clock().sleep_until(self.clock().now() + pause).await;
            pause *= 2;
        }
    }
}
