//! Test support for leasehold engines: real servers, real processes, real faults.
//!
//! | you need | use |
//! |---|---|
//! | a Redis of your own, or one for the whole test process | [`RedisServer`] |
//! | a PostgreSQL of your own, and a pooler before it | [`PostgresServer`], [`PgBouncer`] |
//! | an etcd of one member or several | [`EtcdSet`] |
//! | nodes that fail over, share slots, or vote | [`SentinelSet`], [`ClusterSet`], [`QuorumSet`] |
//! | a certificate authority, and one that must not be trusted | [`Certificates`] |
//! | a network that delays, loses, holds or resets | [`FaultProxy`] |
//! | a holder that is killed or stopped for real | [`Helper`] |
//! | a resource that checks fences | [`Register`] |
//! | many tasks that compete for a few locks | [`load`] |
//! | a verdict on the history of many processes | [`history`] |
//! | a verdict on an engine | [`conformance`], and [`walk`] to compare it with another one |
//! | to wait for a condition without guessing a sleep | [`eventually`], [`eventually_async`] |
//!
//! Without the feature `cases` there are only the servers and sets of them.
//!
//! Nothing started here outlives the test: values clean up when dropped, and child processes also die
//! when the test process is killed.

mod certificates;
mod child;
#[cfg(feature = "cases")]
pub mod conformance;
mod etcd;
mod folder;
#[cfg(feature = "cases")]
pub mod history;
#[cfg(feature = "cases")]
pub mod load;
mod locale;
mod poll;
mod port;
mod postgres;
#[cfg(feature = "cases")]
mod process;
#[cfg(feature = "cases")]
mod proxy;
#[cfg(feature = "cases")]
mod recorder;
#[cfg(feature = "cases")]
mod register;
pub mod resp;
mod server;
mod server_builder;
mod sets;
#[cfg(feature = "cases")]
pub mod walk;

pub use certificates::Certificates;
pub use etcd::{EtcdMember, EtcdSet, EtcdSetBuilder};
pub use poll::{eventually, eventually_async, poll};
pub use postgres::{PgBouncer, PostgresServer};
#[cfg(feature = "cases")]
pub use process::Helper;
#[cfg(feature = "cases")]
pub use proxy::FaultProxy;
#[cfg(feature = "cases")]
pub use recorder::{Recorder, now};
#[cfg(feature = "cases")]
pub use register::{Admission, Register};
pub use server::{RedisServer, ServerError, redis_or_skip};
pub use server_builder::RedisServerBuilder;
pub use sets::{ClusterSet, ClusterSetBuilder, QuorumSet, QuorumSetBuilder, SentinelSet, SentinelSetBuilder};
