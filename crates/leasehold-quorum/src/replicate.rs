//! Replicates a grant to all nodes, not only to the majority that decided it.
//!
//! A bare majority is enough to hold a lock and too little to keep it: one node that hangs would cost it. So the grant is
//! sent to the other nodes in the background.

use std::{sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt};

use super::Shared;
use leasehold_core::{clock::BootInstant, engine::Hold};

/// How often it is sent to a node that does not take it: one that does not vote yet, or has voted for a claim that gives it
/// back.
const TIMES_MAX: u32 = 6;
/// Pause before it is sent again; doubles.
const PAUSE: Duration = Duration::from_millis(20);
/// Grants under way to nodes in the background; beyond it the next renewal settles the rest.
const UNDER_WAY_MAX: usize = 10_000;

impl Shared {
    /// Sends a grant to the nodes that lack it, also to those whose late answers turn out not to be a yes.
    pub(super) fn replicate_grant(
        self: &Arc<Self>,
        hold: Hold,
        since: BootInstant,
        lacking: Vec<usize>,
        mut late: impl Stream<Item = (usize, bool)> + Unpin + Send + 'static,
    ) {
        let (shared, hold) = (self.clone(), Arc::new(hold));
        lacking.into_iter().for_each(|index| self.repair_node(index, &hold, since));
        self.late.spawn(async move {
            while let Some((index, is_yes)) = late.next().await {
                if !is_yes {
                    shared.repair_node(index, &hold, since);
                }
            }
        });
    }

    /// Puts a hold back on a node, only in the first half of the lease: until then the majority that granted it has it,
    /// whatever its holder does.
    fn repair_node(self: &Arc<Self>, index: usize, hold: &Arc<Hold>, since: BootInstant) {
        if self.late.len() >= UNDER_WAY_MAX {
            return;
        }
        let (shared, hold, last) = (self.clone(), hold.clone(), since + hold.ttl / 2);
        let repair = async move {
            let mut pause = PAUSE;
            for _ in 0..TIMES_MAX {
                if shared.clock().now() >= last {
                    return;
                }
                // One that has it needs no more. One that is down or hangs is found again by the next renewal, and one
                // whose lease was given back meanwhile fails.
                let until = shared.node_until(hold.ttl, last);
                if !matches!(shared.voters[index].repair(&hold, until).await, Ok(false)) {
                    return;
                }
                shared.clock().sleep_until(shared.clock().now() + pause).await;
                pause *= 2;
            }
        };
        let closed = self.closed.clone();
        self.late.spawn(async move { closed.run_until_cancelled(repair).await });
    }
}
