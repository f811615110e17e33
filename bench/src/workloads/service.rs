//! `leasehold serve`: its rate beside the library's, and what it takes of store and memory.

use clap::ValueEnum;

use super::Setup;
use crate::{Failure, rounds, section::Section, service::Serving};

pub(super) fn measure(setup: &Setup) -> Result<Vec<Section>, Failure> {
    let title = "The service over HTTP, beside the library on the same server";
    Ok(vec![rounds::section("service", title, setup, Serving::value_variants())?])
}
