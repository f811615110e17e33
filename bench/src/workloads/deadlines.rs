//! Deadlines beside many that are not due: claims and acknowledgements, and scans that find nothing.

use super::Setup;
use crate::{Failure, records::OfRecords, rounds, section::Section};

pub(super) fn measure(setup: &Setup) -> Result<Vec<Section>, Failure> {
    let title = format!("Deadlines beside {} that are not due", setup.count(1_000_000, 20_000));
    Ok(vec![rounds::section("deadlines", &title, setup, &[OfRecords::Deadlines, OfRecords::Scan])?])
}
