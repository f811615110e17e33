//! Test support for leasehold engines: real servers, real processes, real faults.
//!
//! | you need | take |
//! |---|---|
//! | to wait for a condition without guessing a sleep | [`eventually`], [`eventually_async`] |
//!
//! Nothing started here outlives the test: values clean up when dropped, and child processes also die
//! when the test process is killed.

mod poll;

pub use poll::{eventually, eventually_async, poll};
