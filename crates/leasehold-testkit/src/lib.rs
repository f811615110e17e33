//! Test support for leasehold engines.

pub mod conformance;
