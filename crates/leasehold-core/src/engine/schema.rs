//! What must be installed in a store before it is used, as an operator sees it.

use serde::Serialize;

use super::Fut;
use crate::clock::Until;

/// What a store needs installed: tables and functions of a database.
pub trait Schema: Send + Sync {
    /// All that an installation into an empty store runs, for people who run it themselves.
    fn script(&self) -> String;

    /// What is installed. Changes nothing.
    fn check(&self, until: Until) -> Fut<'_, Installed>;

    /// Installs it, or brings it to this program's version, and returns what was installed before. Changes nothing if it is
    /// current, or of a later version that this program works with.
    fn install(&self, until: Until) -> Fut<'_, Installed>;
}

/// What is installed in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Installed {
    /// Nothing.
    Nothing,
    /// What this program installs.
    Current {
        /// Its version.
        version: u32,
    },
    /// Another version, or one that was changed by hand.
    Differs {
        /// Its version.
        version: u32,
        /// The version that this program installs.
        wanted: u32,
        /// Whether this program works with it all the same.
        works: bool,
    },
}

impl Installed {
    /// Whether this program works with it.
    pub const fn works(self) -> bool {
        matches!(self, Self::Current { .. } | Self::Differs { works: true, .. })
    }
}
