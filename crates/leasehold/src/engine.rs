//! The contract every store keeps, and the stores of this build.

pub use leasehold_core::engine::*;
#[cfg(feature = "etcd")]
pub use leasehold_etcd as etcd;
#[cfg(feature = "postgres")]
pub use leasehold_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use leasehold_sqlite as sqlite;
#[cfg(feature = "redis")]
pub use {leasehold_quorum as quorum, leasehold_redis as redis};
