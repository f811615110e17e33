//! What one seed stands for.

use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::network::Weather;

/// Longest lease in a simulation.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(4);

/// The circumstances of one run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) names: usize,
    /// How much each client's wall clock is ahead.
    pub(crate) skews_us: Vec<i64>,
    pub(crate) weather: Weather,
    pub(crate) trouble: Trouble,
    pub(crate) lasts: Duration,
}

/// What happens to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing.
    None,
    /// They hang, or some clients do not reach some of them.
    Hangs,
    /// Also they forget; enough of them remember to bring the others back.
    Forgets,
    /// They forget however few are left. Promises hold, but it takes a person to go on.
    ForgetsAll,
    /// They hang, and keys vanish. Then leases can overlap, and fences must not.
    Vanishes,
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut chance = StdRng::seed_from_u64(seed);
        let trouble = match seed % 8 {
            0 => Trouble::None,
            1 => Trouble::Hangs,
            2 => Trouble::ForgetsAll,
            3 | 4 => Trouble::Vanishes,
            _ => Trouble::Forgets,
        };
        let skew_max: i64 = [0, 3_000, 20_000_000][chance.random_range(0..3)];
        let clients = chance.random_range(2..=4);
        let weather = match chance.random_range(0..3) {
            0 => Weather::CALM,
            1 => Weather { usual_ms: 15, slow_ms: 250, slow: 0.05, lost: 0.01, vanish: 0.0 },
            _ => Weather { usual_ms: 40, slow_ms: 900, slow: 0.15, lost: 0.04, vanish: 0.0 },
        };
        let vanish = if trouble == Trouble::Vanishes { 0.08 } else { 0.0 };
        Self {
            seed,
            nodes: chance.random_range(3..=5),
            names: chance.random_range(1..=2),
            skews_us: (0..clients).map(|_| chance.random_range(-skew_max..=skew_max)).collect(),
            weather: Weather { vanish, ..weather },
            trouble,
            lasts: Duration::from_secs(chance.random_range(6..=12)),
        }
    }

    pub(crate) fn forgets(&self) -> bool {
        matches!(self.trouble, Trouble::Forgets | Trouble::ForgetsAll)
    }
}
