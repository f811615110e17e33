//! What the votes so far decide. Pure.
//!
//! A majority is more than half of *all* nodes, so two majorities always share a node, and that node orders them.
//! A grant's fence must be above every earlier grant's: with one value on a majority it is, because the shared node
//! gave the earlier fence first. With different values the one is taken that a majority of votes does not exceed — at
//! most a minority has not seen the earlier fence — and it counts once a majority has been raised to it.

use leasehold_core::fence::Fence;

/// How many of `n` are more than half.
pub fn majority(n: usize) -> usize {
    n / 2 + 1
}

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Open,
    /// A majority gave this fence: it is ours.
    Granted(Fence),
    /// A majority said yes with different fences: this one must be confirmed.
    Confirm(Fence),
    /// No majority can say yes any more.
    Lost,
}

/// The votes on one claim.
#[derive(Clone, Debug)]
pub struct Count {
    n: usize,
    yes: Vec<Fence>,
    others: usize,
}

impl Count {
    /// No votes yet, of `n` nodes.
    pub fn new(n: usize) -> Self {
        Self { n, yes: Vec::with_capacity(n), others: 0 }
    }

    /// A node said yes, under this fence.
    pub fn yes(&mut self, fence: Fence) {
        self.yes.push(fence);
        self.yes.sort_unstable();
    }

    /// A node said no, abstained or could not be asked.
    pub fn other(&mut self) {
        self.others += 1;
    }

    /// What is decided so far.
    pub fn verdict(&self) -> Verdict {
        let most = majority(self.n);
        if let Some(equal) = self.yes.windows(most).find(|some| some[0] == some[most - 1]) {
            return Verdict::Granted(equal[0]);
        }
        if let Some(&fence) = self.yes.get(most - 1) {
            return Verdict::Confirm(fence);
        }
        if self.n - self.others < most { Verdict::Lost } else { Verdict::Open }
    }
}

/// Answers that are yes or no: confirmations, renewals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) yes: usize,
    pub(crate) no: usize,
    /// Not answered, and never will be.
    pub(crate) unknown: usize,
}

impl Tally {
    /// Whether a majority of `n` said yes.
    pub(crate) fn carried(&self, n: usize) -> bool {
        self.yes >= majority(n)
    }

    /// Whether a majority cannot have said yes, even if all unknown ones did.
    pub(crate) fn refuted(&self, n: usize) -> bool {
        n - self.no < majority(n)
    }

    /// Whether further answers change nothing.
    pub(crate) fn settled(&self, n: usize) -> bool {
        self.carried(n) || self.refuted(n) || self.yes + self.no + self.unknown == n
    }
}

/// The fence of a grant, from what the nodes that hold it say: a majority was raised to it and at most a minority is
/// below.
pub(crate) fn fence_of(mut seen: Vec<Fence>, n: usize) -> Option<Fence> {
    seen.sort_unstable();
    seen.get(majority(n) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(n: usize, votes: &[Option<u64>]) -> Verdict {
        let mut count = Count::new(n);
        for vote in votes {
            match vote {
                Some(fence) => count.yes(Fence::new(*fence)),
                None => count.other(),
            }
        }
        count.verdict()
    }

    #[test]
    fn equal_votes_of_a_majority_decide_at_once() {
        assert_eq!(count(3, &[Some(7)]), Verdict::Open);
        assert_eq!(count(3, &[Some(7), Some(7)]), Verdict::Granted(Fence::new(7)));
        assert_eq!(count(5, &[Some(7), Some(9), Some(7), None, Some(7)]), Verdict::Granted(Fence::new(7)));
    }

    #[test]
    fn different_votes_need_a_confirmation() {
        assert_eq!(count(3, &[Some(9), Some(7)]), Verdict::Confirm(Fence::new(9)));
        assert_eq!(count(5, &[Some(9), Some(7), Some(8)]), Verdict::Confirm(Fence::new(9)));
        assert_eq!(count(5, &[Some(9), Some(7), Some(8), Some(10)]), Verdict::Confirm(Fence::new(9)));
    }

    #[test]
    fn an_even_number_of_nodes_never_waits_for_what_cannot_come() {
        assert_eq!(count(4, &[Some(7), Some(7), None]), Verdict::Open);
        assert_eq!(count(4, &[Some(7), Some(7), None, None]), Verdict::Lost);
        assert_eq!(count(2, &[Some(7), None]), Verdict::Lost);
    }

    #[test]
    fn what_is_not_answered_is_neither_carried_nor_refuted() {
        let tally = Tally { yes: 1, no: 1, unknown: 1 };
        assert!(tally.settled(3) && !tally.carried(3) && !tally.refuted(3));
        let tally = Tally { yes: 0, no: 2, unknown: 0 };
        assert!(tally.settled(3) && tally.refuted(3));
    }

    #[test]
    fn a_node_that_fails_leaves_the_others_to_decide() {
        assert!(!Tally { yes: 0, no: 1, unknown: 1 }.settled(3));
        assert!(Tally { yes: 0, no: 2, unknown: 1 }.refuted(3));
        assert!(Tally { yes: 2, no: 0, unknown: 1 }.carried(3));
    }

    proptest! {
        #[test]
        fn every_complete_count_is_decided(n in 1usize..10, votes in prop::collection::vec(prop::option::of(0u64..4), 10)) {
            prop_assert_ne!(count(n, &votes[..n]), Verdict::Open);
        }

        #[test]
        fn a_decision_is_never_taken_back(n in 1usize..10, votes in prop::collection::vec(prop::option::of(0u64..4), 10)) {
            let verdicts: Vec<_> = (0..=n).map(|k| count(n, &votes[..k])).collect();
            let first = verdicts.iter().position(|verdict| *verdict != Verdict::Open).unwrap();
            for later in &verdicts[first..] {
                match verdicts[first] {
                    Verdict::Lost => prop_assert_eq!(*later, Verdict::Lost),
                    _ => prop_assert!(matches!(later, Verdict::Granted(_) | Verdict::Confirm(_))),
                }
            }
        }

        /// Whatever a minority has missed, the next grant's fence is above the last one's.
        #[test]
        fn a_fence_is_above_that_of_every_earlier_majority(
            n in 1usize..8, before in prop::collection::vec(0u64..20, 8), hint in 0u64..20,
            first in prop::collection::vec(any::<prop::sample::Index>(), 8),
            second in prop::collection::vec(any::<prop::sample::Index>(), 8),
        ) {
            let mut nodes = before[..n].to_vec();
            let granted = grant(&mut nodes, &first, hint);
            let next = grant(&mut nodes, &second, hint);
            prop_assert!(next > granted, "{next} after {granted} on {nodes:?}");
            prop_assert_eq!(fence_of(nodes.iter().map(|fence| Fence::new(*fence)).collect(), n).map(Fence::get) >= Some(granted), true);
        }
    }

    /// Votes of a majority of nodes and, where they differ, the confirmation on it.
    fn grant(nodes: &mut [u64], order: &[prop::sample::Index], hint: u64) -> u64 {
        let n = nodes.len();
        let mut left: Vec<usize> = (0..n).collect();
        let mut voters = Vec::new();
        let mut count = Count::new(n);
        for index in order {
            let Verdict::Open = count.verdict() else { break };
            let node = left.remove(index.index(left.len()));
            nodes[node] = (nodes[node] + 1).max(hint);
            count.yes(Fence::new(nodes[node]));
            voters.push(node);
        }
        match count.verdict() {
            Verdict::Granted(fence) => fence.get(),
            Verdict::Confirm(fence) => {
                voters.into_iter().for_each(|node| nodes[node] = nodes[node].max(fence.get()));
                fence.get()
            }
            other => panic!("{other:?}"),
        }
    }
}
