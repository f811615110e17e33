//! Opens a pool: what was asked for must agree with how the pool is stored.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::bounds::{self, BUCKETS_DEFAULT, CONTEXT_BYTES_DEFAULT, CONTEXT_BYTES_MAX};
use crate::{
    config::between,
    core::Core,
    engine::deadlines::{BUCKETS_MAX, Deadlines, Placement, Pool, PoolLayout},
    error::{Error, Result},
    name::Name,
};

/// A pool as it was asked for, and as it is once the store was asked.
#[derive(Clone)]
pub(super) struct Opening {
    pub(super) core: Arc<Core>,
    // A bad name is reported by the first call, so that the builder reads as one sentence.
    pub(super) name: Result<Name>,
    pub(super) buckets: Option<u16>,
    pub(super) placement: Option<Placement>,
    pub(super) context_max: usize,
    pub(super) pool: OnceCell<Pool>,
}

impl Opening {
    pub(super) fn new(core: Arc<Core>, name: &str) -> Self {
        Self {
            core,
            name: bounds::pool_name(name),
            buckets: None,
            placement: None,
            context_max: CONTEXT_BYTES_DEFAULT,
            pool: OnceCell::new(),
        }
    }

    /// The store's deadlines, and the pool after its layout was checked once. Creates the pool if it is new.
    pub(super) async fn ready(&self) -> Result<(&dyn Deadlines, &Pool)> {
        match self.open(true).await? {
            Some(opened) => Ok(opened),
            None => unreachable!("a pool that is new is created"),
        }
    }

    /// The same, but does not create a pool that is new.
    pub(super) async fn existing(&self) -> Result<Option<(&dyn Deadlines, &Pool)>> {
        self.open(false).await
    }

    async fn open(&self, create: bool) -> Result<Option<(&dyn Deadlines, &Pool)>> {
        self.core.check_open()?;
        let engine = self.core.engine.deadlines();
        let engine = engine.map_err(|why| Error::unsupported("a pool of deadlines", why))?;
        if let Some(pool) = self.pool.get() {
            return Ok(Some((engine, pool)));
        }
        let (wanted, until) = (self.wanted()?, self.core.command_until());
        let answer = match create {
            true => engine.layout(&wanted, until).await.map(Some),
            false => engine.known_layout(&wanted.name, until).await,
        };
        let answer = answer.map_err(|error| self.core.explain(error, "opening the pool", &wanted.name));
        let Some(stored) = answer? else { return Ok(None) };
        let pool = self.agreed(wanted, stored)?;
        Ok(Some((engine, self.pool.get_or_init(async || pool).await)))
    }

    /// The pool as it was asked for.
    fn wanted(&self) -> Result<Pool> {
        let buckets = self.buckets.unwrap_or(BUCKETS_DEFAULT);
        between("number of buckets", buckets, 1, BUCKETS_MAX)?;
        between("largest context in bytes", self.context_max, 1, CONTEXT_BYTES_MAX)?;
        let layout = PoolLayout { buckets, placement: self.placement.unwrap_or_default() };
        Ok(Pool { name: self.name.clone()?, layout })
    }

    /// The pool as it is stored, unless something else was asked for.
    fn agreed(&self, wanted: Pool, stored: PoolLayout) -> Result<Pool> {
        let agrees = self.buckets.is_none_or(|buckets| buckets == stored.buckets)
            && self.placement.is_none_or(|placement| placement == stored.placement);
        if !agrees {
            return Err(Error::invalid(
                format!("layout of the pool \"{}\"", wanted.name),
                wanted.layout.to_string(),
                format!("{stored}, with which the pool was made"),
            ));
        }
        Ok(Pool { layout: stored, ..wanted })
    }
}
