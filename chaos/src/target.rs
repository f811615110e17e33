//! The targets of faults: the servers of a topology, and the workers of any.

use crate::{
    Failure,
    topology::{Fault, Topology},
    workers::Workers,
};

/// What a fault hits.
pub(crate) enum Target<T: 'static> {
    Servers(&'static Fault<T>),
    Worker { kind: &'static str, hit: fn(&mut Workers, u64) },
}

impl<T: Topology> Target<T> {
    fn all() -> Vec<Self> {
        let servers = T::FAULTS.iter().map(Self::Servers);
        servers
            .chain([
                Self::Worker { kind: "kill worker", hit: Workers::kill },
                Self::Worker { kind: "stop worker", hit: Workers::stop_past_ttl },
            ])
            .collect()
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Servers(fault) => fault.kind,
            Self::Worker { kind, .. } => kind,
        }
    }

    /// The targets of these kinds, or all.
    pub(crate) fn chosen(kinds: &[String]) -> Result<Vec<Self>, Failure> {
        let mut targets = Self::all();
        let known: Vec<_> = targets.iter().map(Self::kind).collect();
        if let Some(unknown) = kinds.iter().find(|kind| !known.contains(&kind.as_str())) {
            return Err(format!("no fault \"{unknown}\": expected {}", known.join(", ")).into());
        }
        targets.retain(|target| kinds.is_empty() || kinds.iter().any(|kind| kind == target.kind()));
        Ok(targets)
    }
}
