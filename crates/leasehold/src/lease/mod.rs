//! Leases: how long one can be trusted, what keeps it alive, and the guard that its holder has.

pub mod validity;
