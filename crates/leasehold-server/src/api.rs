//! The resources, one file each.

pub(crate) mod acquire;
pub(crate) mod attempt;
pub(crate) mod audit;
pub(crate) mod dead;
pub(crate) mod deadlines;
pub(crate) mod elections;
pub(crate) mod events;
pub(crate) mod force;
pub(crate) mod health;
pub(crate) mod idempotency;
pub(crate) mod locks;
pub(crate) mod markers;
pub(crate) mod nodes;
pub(crate) mod overview;
pub(crate) mod playground;
pub(crate) mod policies;
pub(crate) mod prefer;
pub(crate) mod records;
pub(crate) mod sessions;
