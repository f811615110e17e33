//! The order of the faults. Pure: the same seed gives the same faults on the same victims.

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};

/// One fault to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedFault {
    /// Which of the faults.
    pub(crate) fault: usize,
    /// Time without faults before it.
    pub(crate) rest: Duration,
    /// How long it lasts, if it has to be ended explicitly.
    pub(crate) outage: Duration,
    /// Chooses the victim.
    pub(crate) dice: u64,
}

/// Goes through all faults in random order, then again in another: a short run sees many kinds, a long one all.
pub(crate) struct Schedule {
    random: StdRng,
    kinds: usize,
    bag: Vec<usize>,
}

impl Schedule {
    pub(crate) fn new(seed: u64, kinds: usize) -> Self {
        assert!(kinds > 0, "there is something to break");
        Self { random: StdRng::seed_from_u64(seed), kinds, bag: Vec::new() }
    }
}

impl Iterator for Schedule {
    type Item = PlannedFault;

    fn next(&mut self) -> Option<PlannedFault> {
        if self.bag.is_empty() {
            self.bag.extend(0..self.kinds);
            self.bag.shuffle(&mut self.random);
        }
        Some(PlannedFault {
            fault: self.bag.pop()?,
            rest: Duration::from_millis(self.random.random_range(50..500)),
            outage: Duration::from_millis(self.random.random_range(100..1500)),
            dice: self.random.random(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64, number: usize) -> Vec<PlannedFault> {
        Schedule::new(seed, 7).take(number).collect()
    }

    #[test]
    fn a_seed_repeats_its_schedule_and_another_seed_does_not() {
        assert_eq!(first(1, 50), first(1, 50));
        assert_ne!(first(1, 50), first(2, 50));
    }

    #[test]
    fn every_fault_comes_once_before_any_comes_twice() {
        let mut faults: Vec<_> = first(3, 7).into_iter().map(|planned| planned.fault).collect();
        faults.sort_unstable();
        assert_eq!(faults, [0, 1, 2, 3, 4, 5, 6]);
    }
}
