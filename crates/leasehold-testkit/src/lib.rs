//! Test support for leasehold engines.
