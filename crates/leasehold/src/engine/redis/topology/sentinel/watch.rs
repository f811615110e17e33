//! Listening to sentinels, so that a primary is left as soon as one of them names another.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::Notify, task::AbortHandle};

use super::{SentinelSet, lock};
use crate::engine::{
    EngineError,
    redis::{answer, target, url::Endpoint},
};

/// `+promoted-slave` comes first, and only from the sentinel that leads the fail-over; the other one from all of them.
const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];
/// How often a sentinel is asked although it said nothing: a message may be lost, and a connection may be dead.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Between two connections to a sentinel.
const PAUSE: Duration = Duration::from_secs(1);

/// The listening task; it ends with this value.
#[derive(Default)]
pub(super) struct Watch(Mutex<Option<AbortHandle>>);

impl Watch {
    /// Starts the task, unless it runs.
    pub(super) fn start(&self, set: &Arc<SentinelSet>) {
        let mut task = lock(&self.0);
        // It may have ended together with the runtime it was started on.
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            let listened = set.clone();
            let listen = async move {
                futures_util::future::join_all(listened.named.iter().map(|at| listened.follow(at))).await;
            };
            *task = set.tasks.spawn(listen).map(|task| task.abort_handle());
        }
    }

    pub(super) fn stop(&self) {
        if let Some(task) = lock(&self.0).take() {
            task.abort();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

impl SentinelSet {
    /// Listens to one sentinel, again and again.
    async fn follow(&self, at: &Endpoint) -> Infallible {
        loop {
            let Err(error) = self.listen(at).await;
            tracing::debug!(sentinel = %at, %error, "not listening to this sentinel");
            self.clock.sleep_until(self.clock.now() + PAUSE).await;
        }
    }

    async fn listen(&self, at: &Endpoint) -> Result<Infallible, EngineError> {
        let news = Arc::new(Notify::new());
        let mut connection = self.in_time(self.connect(at, Some(news.clone()))).await?;
        let subscribed = async {
            let tls = target::speaks_tls(&self.sentinel);
            connection.subscribe(&CHANNELS[..]).await.map_err(|error| answer::of_dial(&error, tls))
        };
        self.in_time(subscribed).await?;
        // A sentinel that hides the others is still a sentinel.
        let others = self.command("SENTINELS");
        if let Ok(others) = self.in_time(target::asked(&mut connection, &others)).await {
            self.learn(&others);
        }
        loop {
            self.heard(self.in_time(self.view(&mut connection)).await?);
            let again = self.clock.now() + LOOK_EVERY;
            tokio::select! {
                () = news.notified() => {}
                () = self.clock.sleep_until(again) => {}
            }
        }
    }
}
