//! One server that writes to disk before it replies.

use std::time::Duration;

use leasehold_testkit::RedisServer;

use super::{Cure, Fault, Topology, cut_clients, flush_scripts};
use crate::{Failure, fault_loop::Options};

pub(crate) struct Single {
    server: RedisServer,
}

impl Topology for Single {
    const FAULTS: &'static [Fault<Self>] = &[
        Fault::lasting(
            "kill server",
            Cure::Hand,
            |single, _| {
                single.server.kill();
                vec![0]
            },
            |single, _| single.server.restart_with_data(),
        ),
        Fault::lasting(
            "stop server",
            Cure::Hand,
            |single, _| {
                single.server.stop();
                vec![0]
            },
            |single, _| single.server.cont(),
        ),
        Fault::passing("pause clients", |single, dice| {
            let pause_ms = 100 + dice % 1000;
            single.server.cli(&["CLIENT", "PAUSE", &pause_ms.to_string(), "ALL"]);
            Vec::new()
        }),
        Fault::passing("cut clients", |single, _| cut_clients(&single.server)),
        Fault::passing("flush scripts", |single, _| flush_scripts(&single.server)),
    ];

    const MAX_TTL: Duration = Duration::from_secs(2);

    fn start(_: &Options) -> Result<Self, Failure> {
        let server = RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always").start()?;
        Ok(Self { server })
    }

    fn url(&self) -> String {
        self.server.url()
    }

    fn await_whole(&self) {}
}
