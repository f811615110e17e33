//! Listening to sentinels, so that a primary is left as soon as one of them names another.

use std::{
    convert::Infallible,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::sync::Notify;

use super::{LEARNT_MAX, Sentinels, View, listed};
use crate::{
    Result,
    connection::MOVED,
    driver::{asked, dial, speaks_tls},
    locked, reply,
    url::Endpoint,
};

/// `+promoted-slave` comes first, and only from the sentinel that leads the fail-over; the other one from all of them.
const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];
/// How often a sentinel is asked although it sent nothing: a message may be lost, and a connection may be dead.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Between two connections to a sentinel.
const PAUSE: Duration = Duration::from_secs(1);

impl Sentinels {
    /// Starts to listen, unless that is under way.
    pub(super) fn listen(self: &Arc<Self>) {
        let mut state = locked(&self.state);
        // It may have ended together with the runtime it was started on.
        if state.closed || state.watch.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let set = self.clone();
        let task = async move { drop(join_all(set.named.iter().map(|at| set.follow(at))).await) };
        state.watch = self.tasks.spawn(task).map(|task| task.abort_handle());
    }

    /// Ends the listening for good.
    pub(crate) fn close(&self) {
        let mut state = locked(&self.state);
        state.closed = true;
        state.watch.take().into_iter().for_each(|task| task.abort());
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
        let (client, notify) = (at.client(&self.login), news.clone());
        let mut connection = self.in_time(dial(&client, move |_| notify.notify_one())).await?;
        let subscribed = async {
            let tls = speaks_tls(&self.login);
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
        let learnt = &mut locked(&self.state).learnt;
        for at in others {
            if learnt.len() < LEARNT_MAX && !self.named.contains(&at) && !learnt.contains(&at) {
                learnt.push(at);
            }
        }
    }

    /// Notes a sentinel's view. If the primary moved, every connection learns of it.
    fn note(&self, view: View) {
        let mut state = locked(&self.state);
        let Some(before) = state.seen.as_mut().filter(|before| before.epoch < view.epoch) else { return };
        let moved = before.primary != view.primary;
        *before = view.clone();
        if !moved {
            return;
        }
        state.moves += 1;
        let connections: Vec<_> = state.connections.iter().filter_map(Weak::upgrade).collect();
        drop(state);
        tracing::debug!(primary = %view.primary, "the sentinels name another primary");
        connections.iter().for_each(|connection| connection.leave(MOVED));
    }
}
