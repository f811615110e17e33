//! Readers and permits beside exclusive locks.

use super::Setup;
use crate::{Failure, family::Family, rounds, section::Section};

pub(super) fn measure(setup: &Setup) -> Result<Vec<Section>, Failure> {
    let title = "Readers and permits beside exclusive locks, on one server";
    Ok(vec![rounds::section("family", title, setup, &[Family::Cycle, Family::Readers, Family::Permits])?])
}
