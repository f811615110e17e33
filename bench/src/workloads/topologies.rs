//! A cluster, sentinels and a quorum beside one server.

use super::Setup;
use crate::{Failure, rounds, section::Section, topologies::Topology};

pub(super) fn measure(setup: &Setup) -> Result<Vec<Section>, Failure> {
    let all = [Topology::Cluster, Topology::Sentinel, Topology::Acks, Topology::Handover];
    Ok(vec![rounds::section(
        "topologies",
        "A cluster, sentinels and a quorum beside one server",
        setup,
        &all,
    )?])
}
