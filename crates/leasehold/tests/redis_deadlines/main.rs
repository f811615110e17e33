//! Deadlines on real servers of every kind.
#![cfg(feature = "redis")]

mod contract;
#[path = "../each_right/mod.rs"]
mod each_right;
#[path = "../every_server/mod.rs"]
mod every_server;
mod faults;
mod fixture;
mod rights;
mod scans;
#[path = "../security_md/mod.rs"]
mod security_md;
