//! Records and marks on real servers of every kind.
#![cfg(feature = "redis")]

mod contract;
#[path = "../every_server/mod.rs"]
mod every_server;
mod ground;
