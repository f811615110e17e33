//! Deadlines beside many that are not due: claims and acknowledgements, and scans that find nothing.

use super::Setup;
use crate::{Failure, records::OfRecords, rounds, section::Section};

pub(super) fn measure(setup: &Setup) -> Result<Vec<Section>, Failure> {
    let title = "Deadlines beside 1,000,000 that are not due";
    Ok(vec![rounds::section("deadlines", title, setup, &[OfRecords::Deadlines, OfRecords::Scan])?])
}
