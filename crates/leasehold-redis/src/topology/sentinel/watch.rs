//! Listening to sentinels, so that a primary is left as soon as one of them names another.

use std::{
    convert::Infallible,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{sync::Notify, task::AbortHandle};

use super::{LEARNT_MAX, Sentinels, View, report::listed};
use crate::{
    Result,
    connection::MOVED,
    locked, reply,
    target::{self, asked},
    url::Endpoint,
};

/// `+promoted-slave` comes first, and only from the sentinel that leads the fail-over; the other one from all of them.
const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];
/// How often a sentinel is asked although it sent nothing: a message may be lost, and a connection may be dead.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Between two connections to a sentinel.
const PAUSE: Duration = Duration::from_secs(1);

/// The task that listens.
#[derive(Default)]
pub(super) enum Watch {
    #[default]
    NotStarted,
    Started(AbortHandle),
    Closed,
}

impl Sentinels {
    /// Starts to listen, unless that is under way.
    pub(super) fn listen(self: &Arc<Self>) {
        let mut watch = locked(&self.watch);
        match &*watch {
            Watch::Closed => return,
            // It may have ended together with the runtime it was started on.
            Watch::Started(task) if !task.is_finished() => return,
            _ => {}
        }
        let set = self.clone();
        let task = async move { drop(join_all(set.named.iter().map(|at| set.follow(at))).await) };
        *watch = self.tasks.spawn(task).map_or(Watch::NotStarted, |task| Watch::Started(task.abort_handle()));
    }

    /// Ends the listening for good.
    pub(crate) fn close(&self) {
        if let Watch::Started(task) = std::mem::replace(&mut *locked(&self.watch), Watch::Closed) {
            task.abort();
        }
    }

    /// Listens to one sentinel, again and again.
    async fn follow(&self, at: &Endpoint) -> Infallible {
        loop {
            let Err(error) = self.listen_to(at).await;
            tracing::debug!(sentinel = %at, %error, "not listening to this sentinel");
            self.clock.sleep_until(self.clock.now() + PAUSE).await;
        }
    }

    async fn listen_to(&self, at: &Endpoint) -> Result<Infallible> {
        let news = Arc::new(Notify::new());
        let mut connection = self.in_time(self.connect(at, Some(news.clone()))).await?;
        let subscribed = async {
            let tls = target::speaks_tls(&self.login);
            connection.subscribe(&CHANNELS[..]).await.map_err(|error| reply::of_dial(&error, tls))
        };
        self.in_time(subscribed).await?;
        // A sentinel that hides the others is still a sentinel.
        if let Ok(others) = self.in_time(asked(&mut connection, &self.command("SENTINELS"))).await {
            self.learn(listed(&others).into_iter().map(|(at, _)| at));
        }
        loop {
            self.note(self.in_time(self.view(&mut connection)).await?.view);
            let again = self.clock.now() + LOOK_EVERY;
            tokio::select! {
                () = news.notified() => {}
                () = self.clock.sleep_until(again) => {}
            }
        }
    }

    fn learn(&self, others: impl Iterator<Item = Endpoint>) {
        let mut learnt = locked(&self.learnt);
        for at in others {
            if learnt.len() < LEARNT_MAX && !self.named.contains(&at) && !learnt.contains(&at) {
                learnt.push(at);
            }
        }
    }

    /// Notes a sentinel's view. If the primary moved, every connection learns of it.
    fn note(&self, view: View) {
        {
            let mut seen = locked(&self.seen);
            let Some(before) = seen.as_mut().filter(|before| before.epoch < view.epoch) else { return };
            let moved = before.primary != view.primary;
            *before = view.clone();
            if !moved {
                return;
            }
            self.moves.fetch_add(1, Ordering::AcqRel);
        }
        tracing::debug!(primary = %view.primary, "the sentinels name another primary");
        let connections: Vec<_> = locked(&self.connections).iter().filter_map(Weak::upgrade).collect();
        connections.iter().for_each(|connection| connection.leave(MOVED));
    }
}
