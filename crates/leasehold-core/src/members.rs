//! The nodes of a store that decides by majority, as an operator sees them.

use crate::{
    client::Client,
    core::Core,
    engine::{self, Member},
    error::{Error, Result},
};

/// The nodes of a quorum; made by [`Client::quorum`].
#[derive(Clone, Copy)]
pub struct Members<'a> {
    core: &'a Core,
    members: &'a dyn engine::Members,
}

impl Client {
    /// The nodes, if the store decides by majority.
    ///
    /// # Errors
    /// `unsupported` for every other store.
    pub fn quorum(&self) -> Result<Members<'_>> {
        let core = &self.core;
        core.check_open()?;
        match core.engine.members() {
            Some(members) => Ok(Members { core, members }),
            None => Err(Error::unsupported(
                format!("asking the store {} for its quorum", core.store),
                "one server or one cluster decides there; a quorum is a redlock:// store",
            )),
        }
    }
}

impl Members<'_> {
    /// Every node, and whether it votes.
    pub async fn list(&self) -> Vec<Member> {
        self.members.list(self.core.command_until()).await
    }

    /// Makes nodes that never were a quorum one, at once. Every node must answer.
    ///
    /// # Errors
    /// When a node does not answer, was changed at the same time, or is part of a quorum already.
    pub async fn admit_new(&self) -> Result<()> {
        self.admit_all(false).await
    }

    /// Makes the nodes a new quorum, at once, whatever they were before. Locks that a majority of them still has stay held.
    /// One that they have lost can be granted again at once, although its holder does not learn of it until its next
    /// renewal: use it only while no lock is held. [`Members::admit`] waits for that instead.
    ///
    /// # Errors
    /// When a node does not answer or was changed at the same time.
    pub async fn replace(&self) -> Result<()> {
        self.admit_all(true).await
    }

    async fn admit_all(&self, over: bool) -> Result<()> {
        let admitted = self.members.admit_new(over, self.core.command_until()).await;
        admitted.map_err(|error| self.core.explain_doing(error, "admitting a new quorum".into(), None))
    }

    /// Readmits nodes that lost their data, also when too few of the others vote to learn from. Begins to watch them;
    /// [`Members::list`] shows the progress.
    ///
    /// # Errors
    /// When no node remembers a quorum.
    pub async fn admit(&self) -> Result<()> {
        let begun = self.members.admit(self.core.command_until()).await;
        begun.map_err(|error| self.core.explain_doing(error, "admitting nodes".into(), None))
    }
}
