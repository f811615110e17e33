//! Memory of the service while many clients wait for events.

use super::{Bench, client::Client};
use crate::{Failure, cpu, report::Figures};

const CLIENTS: usize = 10_000;
const MB: f64 = 1e6;

pub(super) async fn measure(bench: &Bench) -> Result<Figures, Failure> {
    let service = bench.service().await?;
    let mut first = Client::connect(service.address).await?;
    first.send("GET", "/healthz", "", "").await?.with(200)?;
    let alone = cpu::resident_bytes(service.pid())?;
    raise_files();
    let count = bench.count(CLIENTS, 1_000);
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let mut client = Client::connect(service.address).await?;
        client.events().await?;
        clients.push(client);
    }
    let bytes = cpu::resident_bytes(service.pid())?;
    let per_client = (bytes - alone) / count as f64;
    drop(clients);
    Ok(vec![
        ("service_mb", alone / MB),
        ("service_mb_10000_event_clients", (alone + per_client * CLIENTS as f64) / MB),
        ("bytes_per_event_client", per_client),
    ])
}

fn raise_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it may not, the clients that find no room say so.
    let _ = setrlimit(Resource::Nofile, limit);
}
