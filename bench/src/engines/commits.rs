//! Acquire and release by 16 tasks, which are two commits; bare commits of one row; and advisory locks, which commit nothing.

use std::time::{Duration, Instant};

use leasehold::Leasehold;
use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use super::{Bench, session};
use crate::{Failure, report::Figures};

const TASKS: usize = 16;
/// One for each task, and those that claims never take.
const POOL: usize = TASKS + 2;
const UPSERT: &str =
    "INSERT INTO bare (name, n) VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET n = bare.n + 1";

/// A connection of its own for a task, with its statements prepared.
struct Bare {
    client: Client,
    upsert: Statement,
    lock: Statement,
    unlock: Statement,
}

impl Bare {
    async fn connect(url: &str) -> Result<Self, Failure> {
        let client = session(url).await?;
        let upsert = client.prepare(UPSERT).await?;
        let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
        Ok(Self { client, upsert, lock, unlock })
    }
}

#[derive(Clone, Copy)]
enum Side {
    Ours,
    Upserts,
    Advisory,
}

const SIDES: [Side; 3] = [Side::Ours, Side::Upserts, Side::Advisory];

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let server = bench.durable().await?;
    let url = server.url("bench");
    server.sql(
        "bench",
        "CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, n bigint) WITH (fillfactor = 50)",
    );
    let leases = Leasehold::connect(format!("{url}?pool={POOL}")).await?;
    let mut sessions = Vec::new();
    for _ in 0..TASKS {
        sessions.push(std::sync::Arc::new(Bare::connect(&url).await?));
    }
    let each = bench.count(200, 10);
    let mut took = [Duration::ZERO; 3];
    let slices = bench.count(6, 1);
    // The first turn of each is the warm-up.
    for now in 0..=slices {
        for place in 0..SIDES.len() {
            let which = (place + now + turn) % SIDES.len();
            let (mut tasks, began) = (JoinSet::new(), Instant::now());
            for (task, bare) in sessions.iter().enumerate() {
                let (leases, bare, name) = (leases.clone(), bare.clone(), format!("bench:{task}"));
                tasks.spawn(async move {
                    for _ in 0..each {
                        once(SIDES[which], &leases, &bare, &name, task as i64).await?;
                    }
                    Ok::<_, Failure>(())
                });
            }
            while let Some(done) = tasks.join_next().await {
                done??;
            }
            if now > 0 {
                took[which] += began.elapsed();
            }
        }
    }
    leases.close().await?;
    let [ours, upserts, advisory] = took.map(|took| (TASKS * each * slices) as f64 / took.as_secs_f64());
    Ok(vec![
        ("postgres_cycles_per_s_16", ours),
        ("bare_commits_per_s_16", upserts),
        ("advisory_cycles_per_s_16", advisory),
    ])
}

async fn once(side: Side, leases: &Leasehold, bare: &Bare, name: &str, key: i64) -> Result<(), Failure> {
    match side {
        Side::Ours => {
            if !leases.lock(name).acquire().await?.release().await?.was_held() {
                return Err("a lease was lost".into());
            }
        }
        Side::Upserts => {
            bare.client.execute(&bare.upsert, &[&name]).await?;
        }
        Side::Advisory => {
            bare.client.execute(&bare.lock, &[&key]).await?;
            bare.client.execute(&bare.unlock, &[&key]).await?;
        }
    }
    Ok(())
}
