//! Deadlines that are claimed and acknowledged, and bare updates of as many rows at a time, both beside many that are not due.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, Statement};

use super::{Bench, session};
use crate::{
    Failure,
    records::{BATCH, MANY, Store, work_off},
    report::Figures,
};

/// Both tables have been filled.
pub(super) struct Full;

/// What a queue in a table does to take its next rows.
const TAKE: &str = "UPDATE bare_deadlines SET due = $1, attempts = attempts + 1 \
    WHERE id IN (SELECT id FROM bare_deadlines WHERE due <= $2 ORDER BY due LIMIT $3 FOR UPDATE SKIP LOCKED) \
    RETURNING id, attempts";
/// After everything that is due.
const LATER: i64 = 4_000_000_000_000;

async fn fill(bench: &Bench, url: &str) -> Result<Full, Failure> {
    let many = bench.count(1_000_000, 20_000);
    Store::open(url)?.fill(MANY, many).await?;
    let bare = session(url).await?;
    bare.batch_execute(&format!(
        "CREATE TABLE bare_deadlines (id text PRIMARY KEY, due bigint NOT NULL, attempts int NOT NULL DEFAULT 0)
            WITH (fillfactor = 80);
         INSERT INTO bare_deadlines SELECT 'pending:' || n, {LATER} FROM generate_series(1, {many}) AS n;
         CREATE INDEX ON bare_deadlines (due)"
    ))
    .await?;
    bare.batch_execute("VACUUM ANALYZE").await?;
    Ok(Full)
}

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let url = bench.in_memory().await?.url("bench");
    bench.full.get_or_try_init(async || fill(bench, &url).await).await?;
    let (store, bare) = (Store::open(&url)?, session(&url).await?);
    let take = bare.prepare(TAKE).await?;
    let count = bench.count(10, 1) * BATCH;
    let mut took = [(0, Duration::ZERO); 2];
    // The first turn of each is the warm-up.
    for now in 0..=bench.count(3, 1) {
        for place in 0..2 {
            let which = (place + now + turn) % 2;
            let (done, time) = match which {
                0 => work_off(&store, MANY, count).await?,
                _ => update_all(&bare, &take, count).await?,
            };
            if now > 0 {
                took[which] = (took[which].0 + done, took[which].1 + time);
            }
        }
    }
    let [ours, bare] = took.map(|(count, time)| count as f64 / time.as_secs_f64());
    Ok(vec![("postgres_deadlines_per_s", ours), ("bare_updates_per_s", bare)])
}

/// Takes so many rows that are due, in batches; returns how many there were and how long it took.
async fn update_all(bare: &Client, take: &Statement, count: usize) -> Result<(usize, Duration), Failure> {
    let due = format!(
        "INSERT INTO bare_deadlines SELECT 'due:' || n, 1 FROM generate_series(1, {count}) AS n
         ON CONFLICT (id) DO UPDATE SET due = 1"
    );
    bare.batch_execute(&due).await?;
    let (began, mut done) = (Instant::now(), 0);
    while done < count {
        let rows = bare.query(take, &[&LATER, &2_i64, &(BATCH as i64)]).await?;
        if rows.is_empty() {
            return Err("fewer rows were due than were set".into());
        }
        done += rows.len();
    }
    Ok((done, began.elapsed()))
}
