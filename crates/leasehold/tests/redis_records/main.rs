//! Records and marks on real servers of every kind.
#![cfg(feature = "redis")]

mod contract;
mod ground;
