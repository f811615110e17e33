//! The conformance suite: cases that every engine must pass, run through the public API.
//!
//! A runner provides a [`Fixture`]: the store, and faults that can be injected from outside. [`run`] then runs every
//! [`Case`] on it, each in its own namespace. A case whose [`Need`]s the engine or the fixture lacks is skipped and counted
//! with that need; nothing is skipped silently.
//!
//! ```
//! use leasehold::{Builder, Leasehold};
//! use leasehold_testkit::conformance::{self, Fixture, Namespace};
//!
//! struct Mine;
//!
//! impl Fixture for Mine {
//!     fn builder(&self, namespace: &Namespace) -> Builder {
//!         Leasehold::builder(format!("memory:{}", namespace.name)).clock(namespace.clock.clone())
//!     }
//! }
//! # let _never_run = async {
//! conformance::run("mine", Mine).await.conclude();
//! # };
//! ```
//!
//! Cases use short leases and assert order, outcomes and relations to the ttl, never absolute times.

/// The cases of a subject. The name of a case is the name of its function; its needs follow the colon.
macro_rules! cases {
    ($($run:ident $(: $($need:ident)+)?),+ $(,)?) => {
        pub(in crate::conformance) const CASES: &[crate::conformance::Case] = &[$(crate::conformance::Case {
            name: stringify!($run),
            needs: &[$($(crate::conformance::Need::$need),+)?],
            run: |test| Box::pin($run(test)),
        }),+];
    };
}

mod breakable;
pub mod broken;
mod cancellation;
mod closing;
mod context;
mod contract;
mod deadlines;
mod dropping;
mod election;
mod engine_client;
mod exclusion;
mod fencing;
mod fixture;
mod inspection;
mod keeping;
mod latches;
mod limits;
mod listing;
mod lock_set;
mod outage;
mod paused;
mod permits;
mod queue;
mod records;
mod reentrant;
mod release;
mod report;
mod runner;
mod running;
mod sharing;
mod telemetry;
mod validity;
mod waiting;
mod wrapper;

use std::{fmt, pin::Pin};

pub use breakable::{Breakable, Slow};
pub use context::{TestContext, eventually};
pub use fixture::{Fixture, Namespace};
pub use report::Report;
pub use runner::{run, run_some};
pub use wrapper::{Tamper, Wrapped};

/// A running case. It runs on its own thread.
pub type CaseFuture = Pin<Box<dyn Future<Output = ()>>>;

/// One promise that every engine keeps.
#[derive(Clone, Copy)]
pub struct Case {
    /// The promise, as a sentence.
    pub name: &'static str,
    /// What the case needs to run.
    pub needs: &'static [Need],
    run: fn(TestContext) -> CaseFuture,
}

impl Case {
    /// A custom case for [`run_some`]. It fails by panicking.
    pub const fn new(name: &'static str, needs: &'static [Need], run: fn(TestContext) -> CaseFuture) -> Self {
        Self { name, needs, run }
    }

    /// Whether it affects cases that run at the same time.
    fn disturbs(&self, fixture: &dyn Fixture) -> bool {
        self.needs.iter().any(|need| fixture.disturbs(*need))
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("needs", &self.needs).finish_non_exhaustive()
    }
}

/// What a case needs beyond the minimum of every engine. The engine provides the first twelve, the [`Fixture`] the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Need {
    /// A release hands the lock over to the next waiter and wakes it.
    Push,
    /// Waiters are served in the order in which they came.
    Order,
    /// Locks outlive every client of the store.
    Durable,
    /// The store reports lost leases.
    LossReports,
    /// Locks can be shared.
    Shared,
    /// There are semaphores.
    Permits,
    /// A writer can become a reader, and the only reader the writer.
    Convert,
    /// Several locks can be claimed all or none.
    ClaimAll,
    /// A holder can name the next one.
    HandTo,
    /// The engine supports records. Tested through [`Need::Contract`].
    Records,
    /// The engine supports deadlines. Tested through [`Need::Contract`].
    Deadlines,
    /// There are latches and barriers.
    Latches,
    /// [`Fixture::engine`]: the engine contract without a client.
    Contract,
    /// The store follows tokio's paused clock.
    PausedTime,
    /// [`Fixture::cut`] and [`Fixture::mend`]: a store that can be made unreachable.
    Outage,
    /// [`Fixture::delete_side_state`]: queues and fences can be lost.
    SideState,
    /// [`Fixture::wipe`]: everything can be lost.
    Wipe,
    /// [`Fixture::save`] and [`Fixture::rewind`]: an old state can come back.
    Rewind,
}

impl Need {
    /// Why a case that needs it is skipped: what the store or the fixture lacks.
    pub const fn lack(self) -> &'static str {
        match self {
            Self::Push => "the store does not push hand-overs",
            Self::Order => "the store serves waiters in no order",
            Self::Durable => "the store ends with its last client",
            Self::LossReports => "the store does not report lost leases",
            Self::Shared => "locks cannot be shared",
            Self::Permits => "the store has no permits",
            Self::Convert => "a lock keeps its mode",
            Self::ClaimAll => "the store grants one lock at a time",
            Self::HandTo => "the store hands a lock to the first in the queue only",
            Self::Records => "the store keeps no records",
            Self::Deadlines => "the store keeps no deadlines",
            Self::Latches => "the store has no latches",
            Self::Contract => "the fixture offers no engine",
            Self::PausedTime => "the store does not follow tokio's paused clock",
            Self::Outage => "the fixture cannot make the store unreachable",
            Self::SideState => "the fixture cannot delete queues and fences alone",
            Self::Wipe => "the fixture cannot delete everything in the store",
            Self::Rewind => "the fixture cannot bring back an old state of the store",
        }
    }
}

/// All cases, subject by subject.
pub fn cases() -> Vec<Case> {
    let locks = [
        // Long cases first, so that they do not extend the run.
        keeping::CASES,
        election::CASES,
        reentrant::CASES,
        lock_set::CASES,
        validity::CASES,
        waiting::CASES,
        queue::CASES,
        exclusion::CASES,
        contract::CASES,
        sharing::CASES,
        permits::CASES,
        fencing::CASES,
        release::CASES,
        cancellation::CASES,
        dropping::CASES,
        closing::CASES,
        inspection::CASES,
        listing::CASES,
        limits::CASES,
        running::CASES,
        telemetry::CASES,
        paused::CASES,
        outage::CASES,
    ];
    [locks.concat(), latches::cases(), records::cases(), deadlines::cases()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(all >= 150, "{all} cases");
    }
}
