//! Test support for leasehold engines: real servers, real processes, real faults.
//!
//! | you need | take |
//! |---|---|
//! | a holder that is killed or stopped for real | [`Helper`] |
//! | a resource that checks fences | [`Register`] |
//! | a verdict on what many processes saw | [`history`] |
//! | to wait for a condition without guessing a sleep | [`eventually`], [`eventually_async`] |
//!
//! Nothing started here outlives the test: values clean up when dropped, and child processes also die
//! when the test process is killed.

mod child;
pub mod history;
mod poll;
mod process;
mod recorder;
mod register;

pub use poll::{eventually, eventually_async, poll};
pub use process::Helper;
pub use recorder::{Recorder, now};
pub use register::{Admission, Register};
