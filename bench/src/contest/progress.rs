//! What runs, and how long it will take, on standard error.

use std::{io::Write, time::Instant};

pub(crate) struct Progress {
    title: String,
    /// When the first round began.
    began: Instant,
}

impl Progress {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), began: Instant::now() }
    }

    pub(crate) fn says(&self, what: &str) {
        let _ = writeln!(std::io::stderr(), "{}: {what}", self.title);
    }

    /// Round 0 is the warm-up.
    pub(crate) fn round(&mut self, round: usize, rounds: usize) {
        if round == 0 {
            self.began = Instant::now();
            return self.says("warm-up");
        }
        let done = self.began.elapsed();
        match done.as_secs() {
            0 => self.says(&format!("round {round} of {rounds}")),
            _ => {
                let left = done.mul_f64((rounds + 1 - round) as f64 / round as f64).as_secs();
                self.says(&format!("round {round} of {rounds}, about {left} s left"));
            }
        }
    }
}
