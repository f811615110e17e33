//! Attempts that outlive one request.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Extension, extract::State, response::Response};
use http::{HeaderValue, StatusCode, header};
use leasehold::Lock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    acquire::{Held, Taken, checked_id, take},
    prefer::{Seconds, seconds_of},
};
use crate::{
    attempts::{Attempt, AttemptKey, Ended, Progress},
    auth::Caller,
    json::{Params, Places, answer as json},
    problem::{Problem, Result},
    state::{App, Service},
    token::Granted,
    views::{HolderView, millis},
};

/// An attempt that waits.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Attempt")]
pub(crate) struct AttemptView {
    state: WaitingWord,
    attempt: String,
    name: String,
    /// The place in the queue; 1 is next.
    place: Option<u32>,
    holder: Option<HolderView>,
    waited_ms: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum WaitingWord {
    Waiting,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    /// Seconds to wait for its end.
    #[schemars(with = "Option<Seconds>")]
    wait: Option<String>,
}

/// What is to be run in the background.
pub(super) struct Run {
    pub(super) lock: Lock,
    pub(super) wait: Duration,
    pub(super) session: Option<String>,
}

impl Run {
    /// Runs an attempt to its end, or until it is to leave the queue.
    pub(super) async fn go(self, app: App, key: AttemptKey, attempt: Arc<Attempt>) {
        let Self { lock, wait, session } = self;
        let progress = Arc::new(Mutex::new(Progress::default()));
        let seen = || progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let watched = async {
            let mut every = tokio::time::interval(Duration::from_millis(50));
            loop {
                every.tick().await;
                attempt.saw(seen());
            }
        };
        let taken = tokio::select! {
            biased;
            () = attempt.leave.cancelled() => None,
            taken = take(&app, lock, wait, &progress) => Some(taken),
            () = watched => None,
        };
        let ended = match taken {
            None => Ended::Over,
            Some(Err(error)) => Ended::Failed(error),
            Some(Ok(Taken::Busy { retry_after })) => Ended::Busy { progress: seen(), retry_after },
            Some(Ok(Taken::Granted(granted))) => {
                // Its session may have ended, and so may have the wish for it.
                let is_wanted = session.as_ref().is_none_or(|id| app.sessions.add(id, &granted));
                if attempt.leave.is_cancelled() || !is_wanted {
                    app.sessions.forget(&granted.key());
                    give_back(&app, &granted).await;
                    Ended::Over
                } else {
                    app.attempts.granted(&key, granted.key());
                    Ended::Granted { granted, session }
                }
            }
        };
        attempt.end(ended, app.clock.now());
    }
}

async fn give_back(app: &Service, granted: &Granted) {
    if let Err(error) = granted.handle.release(&app.leases).await {
        tracing::warn!(name = granted.name(), %error, "a lock that nobody wants any more ends with its ttl");
    }
}

/// The answer where a session ended before its lock was granted.
pub(super) async fn session_over(app: &Service, granted: &Granted) -> Problem {
    give_back(app, granted).await;
    Problem::not_found("the session ended while it waited for the lock, which was given back")
}

/// What the present state of an attempt means for a request that is ready to wait so long.
pub(super) async fn answer(
    app: &App,
    key: &AttemptKey,
    attempt: &Arc<Attempt>,
    wait: Duration,
) -> Result<Response> {
    let end = async {
        // What asks once, or is not asynchronous, has its own limit of time.
        if attempt.is_async {
            tokio::time::timeout(wait, attempt.ended()).await.ok()
        } else {
            Some(attempt.ended().await)
        }
    };
    let ended = match attempt.how_ended() {
        Some(ended) => Some(ended),
        None => app.unless_draining(end).await?,
    };
    match ended {
        None => Ok(waiting(app, key, attempt)),
        Some(Ended::Granted { granted, session }) => {
            Ok(Held::new(app, &granted, Some(key.id.clone()), session).answer())
        }
        Some(Ended::Busy { progress, retry_after }) => {
            Err(busy(app, &attempt.name, progress, retry_after).await)
        }
        Some(Ended::Failed(error)) => Err(error.into()),
        Some(Ended::Over) => {
            let detail = format!("the attempt {} is over: what it had was given back or has run out", key.id);
            Err(Problem::gone(detail).about(&attempt.name))
        }
    }
}

fn waiting(app: &App, key: &AttemptKey, attempt: &Attempt) -> Response {
    let Progress { ahead, holder } = attempt.progress();
    let view = AttemptView {
        state: WaitingWord::Waiting,
        attempt: key.id.clone(),
        name: attempt.name.clone(),
        place: ahead.map(|ahead| ahead + 1),
        holder: holder.as_ref().map(HolderView::from),
        waited_ms: millis(app.clock.now().since(attempt.began)),
    };
    let mut response = json(StatusCode::ACCEPTED, &view);
    if let Ok(place) = HeaderValue::try_from(format!("/v1/attempts/{}", key.id)) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

/// A refusal with the place that the next one would get.
pub(super) async fn busy(app: &App, name: &str, progress: Progress, retry_after: Duration) -> Problem {
    let place = match progress.ahead {
        Some(ahead) => Some(ahead + 1),
        None => app.leases.inspect(name).await.ok().map(|seen| seen.waiting + 1),
    };
    Problem::busy(name, progress.holder.as_ref(), place, retry_after)
}

pub(crate) async fn get(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Places(id): Places<String>,
    Params(Wait { wait }): Params<Wait>,
) -> Result<Response> {
    let key = AttemptKey { caller: caller.name().to_owned(), id: checked_id(&id)? };
    let wait = wait.as_deref().map_or(Ok(Duration::ZERO), seconds_of)?;
    let attempt = app.attempts.get(&key)?;
    let _asked = attempt.ask(app.clock.now());
    answer(&app, &key, &attempt, wait).await
}

pub(crate) async fn leave(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Places(id): Places<String>,
) -> Result<StatusCode> {
    let key = AttemptKey { caller: caller.name().to_owned(), id: checked_id(&id)? };
    let attempt = app.attempts.get(&key)?;
    attempt.leave();
    if let Ended::Granted { granted, .. } = attempt.ended().await {
        let outcome = granted.handle.release(&app.leases).await?;
        tracing::debug!(name = granted.name(), ?outcome, "an attempt was given up");
        app.ended(&granted.key());
    }
    Ok(StatusCode::NO_CONTENT)
}
