//! What every engine must do, as a list of cases that run through the public API.
//!
//! A runner gives a [`Fixture`]: where the store is, and what can be done to it from outside. [`run`] then plays every
//! [`Case`] on it, each in a namespace of its own. A case that needs something the engine or the fixture lacks is skipped
//! and counted with that [`Need`]'s word; nothing is skipped silently.
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
//! Cases use short leases, so they are asserted by order, outcomes and relations to the ttl, never by seconds.

/// The list of a subject's cases: a function's name is the case's name, what follows the colon is what it needs.
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
mod engine_client;
mod exclusion;
mod fencing;
mod fixture;
mod inspection;
mod keeping;
mod limits;
mod listing;
mod outage;
mod paused;
mod queue;
mod records;
mod release;
mod report;
mod runner;
mod running;
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

/// A case under way. It runs on a thread of its own.
pub type CaseFuture = Pin<Box<dyn Future<Output = ()>>>;

/// One promise that every engine keeps.
#[derive(Clone, Copy)]
pub struct Case {
    /// The promise, as a sentence.
    pub name: &'static str,
    /// What it takes to see it kept.
    pub needs: &'static [Need],
    run: fn(TestContext) -> CaseFuture,
}

impl Case {
    /// A case of your own, to be run with [`run_some`]. It fails by panicking.
    pub const fn new(name: &'static str, needs: &'static [Need], run: fn(TestContext) -> CaseFuture) -> Self {
        Self { name, needs, run }
    }

    /// Whether it does something to the store that cases beside it would feel.
    fn disturbs(&self, fixture: &dyn Fixture) -> bool {
        self.needs.iter().any(|need| fixture.disturbs(*need))
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("needs", &self.needs).finish_non_exhaustive()
    }
}

/// What a case needs beyond the least that every engine has. The first four are the engine's, the others are offered by
/// the [`Fixture`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Need {
    /// A release makes the next waiter the holder and tells it so.
    Push,
    /// Locks outlive every client of the store.
    Durable,
    /// The engine keeps records. Looked at through [`Need::Contract`].
    Records,
    /// The engine keeps deadlines. Looked at through [`Need::Contract`].
    Deadlines,
    /// [`Fixture::engine`]: the engine contract without a client.
    Contract,
    /// The store follows tokio's paused clock.
    PausedTime,
    /// [`Fixture::cut`] and [`Fixture::mend`]: a store that can be made unreachable.
    Outage,
    /// [`Fixture::delete_side_state`]: what the store keeps beside the locks can be lost.
    SideState,
    /// [`Fixture::wipe`]: everything can be lost.
    Wipe,
    /// [`Fixture::save`] and [`Fixture::rewind`]: an old state can come back.
    Rewind,
}

impl Need {
    /// Its word in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Push => "push hand-over",
            Self::Durable => "durable",
            Self::Records => "records",
            Self::Deadlines => "deadlines",
            Self::Contract => "engine contract",
            Self::PausedTime => "paused time",
            Self::Outage => "outage",
            Self::SideState => "side state",
            Self::Wipe => "wipe",
            Self::Rewind => "rewind",
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// All cases, subject by subject.
pub fn cases() -> Vec<Case> {
    let locks = [
        // Long ones first, so that nothing waits for them at the end.
        keeping::CASES,
        validity::CASES,
        waiting::CASES,
        queue::CASES,
        exclusion::CASES,
        contract::CASES,
        fencing::CASES,
        release::CASES,
        cancellation::CASES,
        closing::CASES,
        inspection::CASES,
        listing::CASES,
        limits::CASES,
        running::CASES,
        telemetry::CASES,
        paused::CASES,
        outage::CASES,
    ];
    [locks.concat(), records::cases(), deadlines::cases()].concat()
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
