//! Randomness: secrets from the operating system, unless a test gave a seed.

use std::{
    cell::RefCell,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

use crate::{clock::BootInstant, process};

/// How long a generator is used before it is seeded again: a copy of a running machine has a copy of it.
const SEEDED_FOR: Duration = Duration::from_millis(100);

pub(crate) struct Entropy(Option<Mutex<StdRng>>);

impl Entropy {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self(seed.map(|seed| Mutex::new(StdRng::seed_from_u64(seed))))
    }

    fn seeded(&self) -> Option<MutexGuard<'_, StdRng>> {
        self.0.as_ref().map(|rng| rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// 128 random bits that nobody can guess and no other process draws.
    pub(crate) fn secret(&self, now: BootInstant) -> u128 {
        let mut bytes = [0; 16];
        match (self.seeded(), process::stamp()) {
            (Some(mut rng), _) => rng.fill_bytes(&mut bytes),
            (None, Some(stamp)) => GENERATOR.with_borrow_mut(|generator| {
                generator.take_if(|generator| !generator.is_usable(stamp, now));
                generator.get_or_insert_with(|| Generator::new(stamp, now)).rng.fill_bytes(&mut bytes);
            }),
            (None, None) => bytes = from_the_system(),
        }
        u128::from_le_bytes(bytes)
    }

    /// A random number from 0 to 1, for jitter.
    pub(crate) fn fraction(&self) -> f64 {
        self.seeded().map_or_else(rand::random, |mut rng| rng.random())
    }
}

thread_local! {
    static GENERATOR: RefCell<Option<Generator>> = const { RefCell::new(None) };
}

/// A generator for secrets, seeded by the operating system: it saves a system call per secret.
struct Generator {
    rng: StdRng,
    /// Of the process that seeded it.
    stamp: u64,
    seeded_at: BootInstant,
}

impl Generator {
    fn new(stamp: u64, now: BootInstant) -> Self {
        Self { rng: StdRng::from_seed(from_the_system()), stamp, seeded_at: now }
    }

    /// Not by a child of the process that seeded it, and not for long.
    fn is_usable(&self, stamp: u64, now: BootInstant) -> bool {
        self.stamp == stamp && (self.seeded_at..self.seeded_at + SEEDED_FOR).contains(&now)
    }
}

/// Random bytes of the operating system.
pub(crate) fn from_the_system<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    bytes
}
