//! Opens a pool: what was asked for must agree with how the pool is stored.

use std::{fmt, sync::Arc};

use tokio::sync::OnceCell;

use super::bounds::{self, BUCKETS_DEFAULT, CONTEXT_BYTES_DEFAULT};
use crate::{
    core::Core,
    engine::{
        EngineError,
        deadlines::{Deadlines, Placement, Pool, PoolLayout},
    },
    error::{Error, Result},
    name::Name,
};

/// A pool as it was asked for, and as it is once the store was asked.
#[derive(Clone)]
pub(super) struct Opening {
    core: Arc<Core>,
    // A bad name is reported by the first call, so that the builder reads as one sentence.
    name: Result<Name>,
    pub(super) buckets: Option<u16>,
    pub(super) placement: Option<Placement>,
    pub(super) context_max: usize,
    pool: OnceCell<Pool>,
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

    /// Not opened yet.
    pub(super) fn anew(&mut self) -> &mut Self {
        self.pool = OnceCell::new();
        self
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(super) fn name(&self) -> Result<&Name> {
        self.name.as_ref().map_err(Clone::clone)
    }

    /// The store's deadlines, and the pool after its layout was checked once. Makes the pool if it is new.
    pub(super) async fn ready(&self) -> Result<(&dyn Deadlines, &Pool)> {
        let engine = self.engine()?;
        let make = async || {
            let asked = self.asked()?;
            let answer = engine.layout(&asked, self.core.command_until()).await;
            self.agreed(&asked, answer.map_err(|error| self.not_opened(error, &asked.name))?)
        };
        Ok((engine, self.pool.get_or_try_init(make).await?))
    }

    /// The same, but a pool that is new stays unknown: who only looks makes nothing.
    pub(super) async fn known(&self) -> Result<Option<(&dyn Deadlines, &Pool)>> {
        let engine = self.engine()?;
        if let Some(pool) = self.pool.get() {
            return Ok(Some((engine, pool)));
        }
        let asked = self.asked()?;
        let answer = engine.known_layout(&asked.name, self.core.command_until()).await;
        let Some(stored) = answer.map_err(|error| self.not_opened(error, &asked.name))? else {
            return Ok(None);
        };
        let pool = self.agreed(&asked, stored)?;
        Ok(Some((engine, self.pool.get_or_init(async || pool).await)))
    }

    fn engine(&self) -> Result<&dyn Deadlines> {
        self.core.check_open()?;
        self.name()?;
        let engine = self.core.engine.deadlines();
        engine.map_err(|why| Error::unsupported("a pool of deadlines", why))
    }

    /// The pool as it was asked for.
    fn asked(&self) -> Result<Pool> {
        let Self { buckets, placement, context_max, .. } = self;
        buckets.map_or(Ok(()), bounds::check_buckets)?;
        bounds::check_context_max(*context_max)?;
        let layout = PoolLayout {
            buckets: buckets.unwrap_or(BUCKETS_DEFAULT),
            placement: placement.unwrap_or_default(),
        };
        Ok(Pool { name: self.name()?.clone(), layout })
    }

    /// The pool as it is stored, unless something else was asked for.
    fn agreed(&self, asked: &Pool, stored: PoolLayout) -> Result<Pool> {
        let Self { buckets, placement, .. } = self;
        let agrees = buckets.is_none_or(|buckets| buckets == stored.buckets)
            && placement.is_none_or(|placement| placement == stored.placement);
        if !agrees {
            return Err(Error::invalid(
                format!("layout of the pool \"{}\"", asked.name),
                asked.layout.to_string(),
                format!("{stored}, with which the pool was made"),
            ));
        }
        Ok(Pool { name: asked.name.clone(), layout: stored })
    }

    fn not_opened(&self, error: EngineError, name: &Name) -> Error {
        self.core.explain(error, "opening the pool", name)
    }
}

impl fmt::Display for PoolLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} buckets {}", self.buckets, self.placement)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spread => "spread",
            Self::Together => "together",
        })
    }
}
