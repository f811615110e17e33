//! Looks at the store again and again, for the history and the events.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use leasehold::engine::Inspection;

use crate::{
    api::deadlines::pool,
    events::Topic,
    history::{Found, PoolPoint},
    state::{App, Service},
};

/// Names that are looked at; with more the history is truncated.
const NAMES_MAX: usize = 100_000;
const PAGE: u32 = 500;
/// How much rarer the store is asked while nobody watches.
const UNWATCHED: u32 = 5;
/// Somebody who asked this lately still watches.
const WATCHED_FOR_MS: u64 = 60_000;

impl Service {
    /// Notes that somebody watches.
    pub(crate) fn watched_now(&self) {
        if self.watched_at_ms.swap(self.wall_ms(), Ordering::Relaxed) == 0 {
            self.look_now.notify_one();
        }
    }

    fn is_watched(&self) -> bool {
        let at_ms = self.watched_at_ms.load(Ordering::Relaxed);
        self.events.clients() > 0 || self.wall_ms().saturating_sub(at_ms) < WATCHED_FOR_MS
    }
}

/// Polls until the service stops.
pub(crate) async fn poll(app: App) {
    loop {
        let began = Instant::now();
        look(&app).await;
        let pause = app.options.poll_every * if app.is_watched() { 1 } else { UNWATCHED };
        // A store that is slow is not asked all the time.
        let pause = pause.max(began.elapsed()).saturating_sub(began.elapsed() / 2);
        let rest = async {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = app.look_now.notified() => {}
            }
        };
        if app.unless_draining(rest).await.is_err() {
            return;
        }
    }
}

async fn look(app: &App) {
    let at_ms = app.wall_ms();
    let (locks, is_truncated) = match inspect_all(app).await {
        Ok(found) => found,
        Err(error) => {
            if let Some(reach) = app.history.unreachable(at_ms, error.to_string()) {
                app.events.publish(Topic::Overview, "store", &reach);
            }
            return;
        }
    };
    let Found { changed, reach, point } =
        app.history.record(at_ms, &locks, is_truncated, &app.leases.stats());
    if let Some(reach) = reach {
        app.events.publish(Topic::Overview, "store", &reach);
    }
    if let Some(changed) = changed {
        app.events.publish_locks(changed);
    }
    look_at_pools(app, at_ms).await;
    if app.events.clients() > 0 {
        app.events.publish(Topic::Overview, "overview", &app.overview_event(point));
    }
}

async fn inspect_all(app: &App) -> leasehold::Result<(Vec<Inspection>, bool)> {
    let (mut locks, mut from) = (Vec::new(), None);
    loop {
        let began = Instant::now();
        let page = app.leases.list_page("", from, PAGE).await?;
        app.metrics.store_latency.record(began.elapsed());
        locks.extend(page.items);
        from = page.next;
        if from.is_none() || locks.len() >= NAMES_MAX {
            locks.truncate(NAMES_MAX);
            return Ok((locks, from.is_some()));
        }
    }
}

async fn look_at_pools(app: &App, at_ms: u64) {
    for name in app.pools.all() {
        if !app.history.is_pool_time(&name, at_ms) {
            continue;
        }
        // A pool that cannot be read is no reason to stop looking.
        if let Ok(standing) = pool(app, &name).await {
            let (pending, due, overdue_ms) = (standing.pending, standing.due, standing.overdue_ms);
            app.history.record_pool(&name, PoolPoint { at_ms, pending, due, overdue_ms });
        }
    }
}

/// The shortest and the longest time between two looks at the store.
pub(crate) const POLL_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);
