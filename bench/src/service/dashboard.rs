//! What the dashboard costs: the store, while many locks are held, and who opens its page.

use std::time::Duration;

use leasehold::Leasehold;

use super::{Bench, client::Client};
use crate::{Failure, cpu, report::Figures, server};

const LOCKS: usize = 5_000;
const HELD_FOR: Duration = Duration::from_secs(300);
/// How often the service is asked whether it has seen all locks.
const PATIENCE: usize = 300;

pub(super) async fn measure(bench: &Bench) -> Result<Figures, Failure> {
    let leases = Leasehold::connect(bench.server.url()).await?;
    let count = bench.count(LOCKS, 500);
    let mut held = Vec::with_capacity(count);
    for number in 0..count {
        held.push(leases.lock(format!("bench:shown:{number}")).ttl(HELD_FOR).acquire().await?);
    }
    let times = bench.count(200, 20);
    // Loads the script.
    leases.inspect("bench:shown:0").await?;
    let before = server::script_us(&bench.server);
    for number in 0..times {
        leases.inspect(format!("bench:shown:{}", number % count)).await?;
    }
    let inspect = (server::script_us(&bench.server) - before) / times as f64;

    let [before, calls_before] =
        [server::script_us(&bench.server), server::script_calls(&bench.server) as f64];
    let service = bench.service().await?;
    let mut client = Client::connect(service.address).await?;
    let shown = seen(&mut client, count).await?;
    let look = server::script_us(&bench.server) - before;
    let calls = server::script_calls(&bench.server) as f64 - calls_before;
    let (before, computed) = (server::script_us(&bench.server), cpu::time_of(service.pid())?);
    for _ in 0..times {
        snapshot(&mut client, shown).await?;
    }
    let store = (server::script_us(&bench.server) - before) / times as f64;
    let computed = (cpu::time_of(service.pid())? - computed).as_secs_f64() * 1e6 / times as f64;
    for guard in held {
        let _ = guard.release().await?;
    }
    leases.close().await?;
    Ok(vec![
        ("inspect_server_us", inspect),
        ("snapshot_of_5000_server_us", store),
        ("snapshot_of_5000_service_cpu_us", computed),
        ("look_at_5000_server_us", look * LOCKS as f64 / count as f64),
        ("look_call_server_us", look / calls),
        ("dashboard_kb", weight(&mut client).await? / 1e3),
    ])
}

/// Waits until the service has looked at all locks.
async fn seen(client: &mut Client, count: usize) -> Result<usize, Failure> {
    for _ in 0..PATIENCE {
        let page = client.send("GET", "/v1/locks?limit=1", "", "").await?.with(200)?.json()?;
        if page["total"] == count {
            return Ok(count);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("the service did not see all locks".into())
}

/// What a browser asks for that opens the list.
async fn snapshot(client: &mut Client, count: usize) -> Result<(), Failure> {
    client.send("GET", "/v1/overview", "", "").await?.with(200)?;
    let page = client.send("GET", "/v1/locks?limit=100", "", "").await?.with(200)?.json()?;
    if page["total"] == count { Ok(()) } else { Err("a lock was lost".into()) }
}

/// Bytes of the page and its files, as a browser gets them.
async fn weight(client: &mut Client) -> Result<f64, Failure> {
    let page = client.send("GET", "/", "", "").await?.with(200)?;
    let page = String::from_utf8(page.body)?;
    let named = page.split('"').filter(|word| word.starts_with("/assets/") || word.starts_with("./assets/"));
    let mut files: Vec<_> = named.map(|word| word.trim_start_matches('.')).collect();
    files.push("/");
    files.dedup();
    let mut bytes = 0;
    for file in files {
        let answer = client.send("GET", file, "Accept-Encoding: gzip\r\n", "").await?.with(200)?;
        bytes += answer.body.len();
    }
    Ok(bytes as f64)
}
