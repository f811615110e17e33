//! Acquire and release by sixty-four clients with a lock each: over HTTP, and with the library.

use std::time::{Duration, Instant};

use leasehold::Leasehold;
use tokio::task::JoinSet;

use super::{Bench, client::Client, process::Service};
use crate::{Failure, cpu, report::Figures};

const CLIENTS: usize = 64;

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let service = bench.service().await?;
    let leases = Leasehold::connect(bench.server.url()).await?;
    let length = Duration::from_millis(bench.count(500, 100) as u64);
    let (mut http, mut library, mut computed) = (Vec::new(), Vec::new(), Duration::ZERO);
    // The first turn of each is the warm-up.
    for now in 0..=bench.count(6, 2) {
        for place in 0..2 {
            if (place + now + turn).is_multiple_of(2) {
                let before = cpu::time_of(service.pid())?;
                http.push(over_http(&service, length).await?);
                computed += if now == 0 { Duration::ZERO } else { cpu::time_of(service.pid())? - before };
            } else {
                library.push(with_library(&leases, length).await?);
            }
        }
    }
    leases.close().await?;
    let rate = |turns: &[u64]| {
        turns[1..].iter().sum::<u64>() as f64 / (length.as_secs_f64() * (turns.len() - 1) as f64)
    };
    let cycles: u64 = http[1..].iter().sum();
    Ok(vec![
        ("service_cycles_per_s_64", rate(&http)),
        ("library_cycles_per_s_64", rate(&library)),
        ("service_cycle_cpu_us", computed.as_secs_f64() * 1e6 / cycles as f64),
    ])
}

async fn over_http(service: &Service, length: Duration) -> Result<u64, Failure> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::connect(service.address).await?);
    }
    let (mut tasks, began) = (JoinSet::new(), Instant::now());
    for (number, mut client) in clients.into_iter().enumerate() {
        tasks.spawn(async move {
            let mut cycles = 0;
            let [acquire, release] =
                ["acquire", "release"].map(|act| format!("/v1/locks/bench:http:{number}/{act}"));
            while began.elapsed() < length {
                let held = client.send("POST", &acquire, "", "{}").await?.with(200)?;
                // Reading all of it would measure this client.
                let token = token_of(&held.body).ok_or("a grant has no token")?;
                let proof = format!("{{\"token\":\"{token}\"}}");
                client.send("POST", &release, "", &proof).await?.with(204)?;
                cycles += 1;
            }
            Ok(cycles)
        });
    }
    sum(tasks).await
}

fn token_of(body: &[u8]) -> Option<&str> {
    std::str::from_utf8(body).ok()?.split_once("\"token\":\"")?.1.split('"').next()
}

async fn with_library(leases: &Leasehold, length: Duration) -> Result<u64, Failure> {
    let (mut tasks, began) = (JoinSet::new(), Instant::now());
    for number in 0..CLIENTS {
        let leases = leases.clone();
        tasks.spawn(async move {
            let mut cycles = 0;
            while began.elapsed() < length {
                let guard = leases.lock(format!("bench:library:{number}")).acquire().await?;
                let _ = guard.release().await?;
                cycles += 1;
            }
            Ok(cycles)
        });
    }
    sum(tasks).await
}

async fn sum(mut tasks: JoinSet<Result<u64, Failure>>) -> Result<u64, Failure> {
    let mut sum = 0;
    while let Some(done) = tasks.join_next().await {
        sum += done??;
    }
    Ok(sum)
}
