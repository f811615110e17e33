//! What stores decide, without doing it. Pure: what a store knows and the time come with each call.
//!
//! A store with scripts of its own decides inside them, by the same rules. Every other store reads what it knows about a
//! name, asks here, and writes the outcome, all in one transaction or under one lock.

pub mod latch;
pub mod lock;
mod room;
