//! What must be installed in a store before it is used.

use super::Client;
use crate::{
    core::Core,
    engine::{self, Installed},
    error::{Error, Result},
};

/// What a store needs installed; made by [`Client::schema`].
#[derive(Clone, Copy)]
pub struct Schema<'a> {
    core: &'a Core,
    schema: &'a dyn engine::Schema,
}

impl Client {
    /// What must be installed in the store before it is used.
    ///
    /// # Errors
    /// `unsupported` for stores that need nothing.
    pub fn schema(&self) -> Result<Schema<'_>> {
        let core = &self.core;
        core.check_open()?;
        let what = || format!("installing a schema in the store {}", core.store);
        let why = "only a database needs one; that is a postgres:// store";
        let schema = core.engine.schema().ok_or_else(|| Error::unsupported(what(), why))?;
        Ok(Schema { core, schema })
    }
}

impl Schema<'_> {
    /// All that [`Schema::install`] runs in an empty store, for people who run it themselves.
    pub fn script(&self) -> String {
        self.schema.script()
    }

    /// What is installed. Changes nothing.
    ///
    /// # Errors
    /// When the store cannot be reached.
    pub async fn check(&self) -> Result<Installed> {
        let found = self.schema.check(self.core.command_until()).await;
        found.map_err(|error| self.core.explain_doing(error, "checking its schema".into(), None))
    }

    /// Installs it, or brings it to this program's version, and returns what was installed before.
    ///
    /// # Errors
    /// When the store cannot be reached, or its user may not create what is needed.
    pub async fn install(&self) -> Result<Installed> {
        // Whoever uses the tables at the moment is waited for.
        let until = self.core.clock.now() + self.core.config.command_timeout * 10;
        let installed = self.schema.install(until).await;
        installed.map_err(|error| self.core.explain_doing(error, "installing its schema".into(), None))
    }
}
