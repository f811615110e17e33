//! PostgreSQL and etcd, beside what no library can do without there.

use clap::ValueEnum;

use super::Setup;
use crate::{Failure, engines::Engines, rounds, section::Section};

pub(super) fn measure(setup: &Setup) -> Result<Vec<Section>, Failure> {
    let title = "PostgreSQL and etcd beside bare statements and transactions";
    Ok(vec![rounds::section("engines", title, setup, Engines::value_variants())?])
}
