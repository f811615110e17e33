//! Tasks of this process, and of others, want one name.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::json;
use tokio::task::JoinSet;

use super::{Keys, Orders, say, say_ready};
use crate::{
    Failure,
    library::{Library, Lock},
    spread::percentile_us,
};

pub(super) async fn play<L: Library>(library: L, keys: &Keys, mut orders: Orders) -> Result<(), Failure> {
    let (tasks, grants) = (keys.number::<usize>("tasks")?, keys.number::<i64>("grants")?);
    let hold = Duration::from_micros(keys.number("hold_us")?);
    let (prefix, name) = (keys.text("prefix")?, keys.text("name")?);
    // Connects.
    library.lock(&format!("{prefix}{name}:{}", std::process::id())).cycle().await?;
    let name = format!("{prefix}{name}");
    say_ready()?;
    while orders.next().await.is_some() {
        let (began, left) = (Instant::now(), Arc::new(AtomicI64::new(grants)));
        let mut working = JoinSet::new();
        for _ in 0..tasks {
            working.spawn(take_turns(library.lock(&name), left.clone(), hold));
        }
        let mut all = Vec::new();
        while let Some(done) = working.join_next().await {
            all.extend(done??);
        }
        let mut waits: Vec<_> = all.iter().map(|turn| turn.waited).collect();
        let waits = [0.5, 0.99, 1.0].map(|share| percentile_us(&mut waits, share));
        let granted = || all.iter().map(|turn| turn.granted_s);
        say(&json!({
            "grants": all.len(),
            "seconds": began.elapsed().as_secs_f64(),
            "hold_seconds": all.iter().map(|turn| turn.held).sum::<Duration>().as_secs_f64(),
            "waits_us": waits,
            "first_s": granted().fold(f64::INFINITY, f64::min),
            "last_s": granted().fold(0.0, f64::max),
            "errors": 0,
        }))?;
    }
    Ok(())
}

/// One grant.
struct Turn {
    waited: Duration,
    held: Duration,
    granted_s: f64,
}

/// Until this process has had its share of grants.
async fn take_turns(mut lock: impl Lock, left: Arc<AtomicI64>, hold: Duration) -> Result<Vec<Turn>, Failure> {
    let mut turns = Vec::new();
    while left.fetch_sub(1, Relaxed) > 0 {
        let began = Instant::now();
        let guard = lock.acquire().await?;
        let granted = Instant::now();
        let granted_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        tokio::time::sleep(hold).await;
        turns.push(Turn { waited: granted - began, held: granted.elapsed(), granted_s });
        lock.release(guard).await?;
    }
    Ok(turns)
}
