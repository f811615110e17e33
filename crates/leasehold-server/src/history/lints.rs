//! What looks wrong about a lock, from outside.

use std::collections::{HashMap, VecDeque};

use schemars::JsonSchema;
use serde::Serialize;

use super::tenures::Open;
use crate::views::LockRow;

const SHOWN: usize = 20;
/// The same finding about a name is not repeated for so long.
const QUIET_MS: u64 = 600_000;
const REMEMBERED: usize = 2_000;
const CONVOY: u32 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    LateRenewal,
    Convoy,
    Overheld,
    NoExpiry,
}

/// A finding, and what to do about it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Lint {
    code: Code,
    name: String,
    found: String,
    fix: &'static str,
    at_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Lints {
    recent: VecDeque<Lint>,
    told: HashMap<(Code, String), u64>,
}

impl Lints {
    pub(super) fn look(&mut self, row: &LockRow, first: &Open, at_ms: u64) {
        let held_ms = at_ms.saturating_sub(first.from_ms);
        let seconds = |ms: u64| format!("{:.1} s", ms as f64 / 1000.0);
        let found = match (first.left_ms, first.longest_ms) {
            (None, _) => Some((
                Code::NoExpiry,
                "its holder's lease never ends: a crash would block the name for ever".to_owned(),
                "make the other program set an expiry",
            )),
            (Some(left), Some(ttl)) if first.renewals > 0 && left < ttl / 5 => Some((
                Code::LateRenewal,
                format!("a lease of about {} that is kept alive has {} left", seconds(ttl), seconds(left)),
                "look for a stalled or overloaded holder, or raise the ttl",
            )),
            (Some(_), Some(ttl)) if first.renewals == 0 && held_ms > ttl / 2 && ttl > 5_000 => Some((
                Code::Overheld,
                format!("held for {} of a fixed ttl of about {}", seconds(held_ms), seconds(ttl)),
                "keep it alive, or raise the ttl",
            )),
            _ => None,
        };
        let convoy = (row.waiting >= CONVOY).then(|| {
            (
                Code::Convoy,
                format!("{} wait for one holder", row.waiting),
                "hold it for a shorter time, or split the name into several",
            )
        });
        for (code, found, fix) in found.into_iter().chain(convoy) {
            self.tell(Lint { code, name: row.name.clone(), found, fix, at_ms });
        }
    }

    fn tell(&mut self, lint: Lint) {
        if self.told.len() >= REMEMBERED {
            self.told.retain(|_, at| lint.at_ms.saturating_sub(*at) < QUIET_MS);
        }
        let key = (lint.code, lint.name.clone());
        let is_quiet = self.told.get(&key).is_some_and(|at| lint.at_ms.saturating_sub(*at) < QUIET_MS);
        if is_quiet || self.told.len() >= REMEMBERED {
            return;
        }
        self.told.insert(key, lint.at_ms);
        self.recent.push_front(lint);
        self.recent.truncate(SHOWN);
    }

    pub(super) fn recent(&self) -> Vec<Lint> {
        self.recent.iter().cloned().collect()
    }
}
