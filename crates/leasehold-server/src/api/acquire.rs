//! Acquiring a lock: at once, with a wait, or in the background.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc, time::Duration};

use axum::{Extension, extract::State, response::Response};
use http::{HeaderMap, HeaderValue, header};
use leasehold::{Acks, Error, Guard, Lock, Mode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::Instrument;

use super::{
    attempt::{self, Run},
    prefer::Prefer,
};
use crate::{
    attempts::{Attempt, AttemptKey, Found, Progress},
    auth::Caller,
    json::{Json, Places, Span, ok, text_of},
    problem::{Problem, Result},
    sessions::Proof,
    state::{App, Service, secret},
    token::{self, Granted},
    views::{Fence64, ModeWord, millis, permits},
};

/// How a lock is to be held.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acquire {
    /// Default: exclusive.
    mode: Option<ModeWord>,
    /// How many permits there are; only with the mode `permits`, which needs it.
    of: Option<NonZeroU32>,
    /// How many of them to take. Default: 1.
    permits: Option<NonZeroU32>,
    ttl: Option<Span>,
    /// How long an asynchronous attempt may stay in the queue. Default: 60s.
    wait: Option<Span>,
    /// How long the lock stays closed after its lease has run out.
    lock_delay: Option<Span>,
    /// What people see as the holder.
    label: Option<String>,
    /// The session that keeps it alive; its secret is in the header Leasehold-Secret.
    session: Option<String>,
    /// Replicas that must have it: a number or "majority".
    acks: Option<AcksWord>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum AcksWord {
    AtLeast(u8),
    Majority(Majority),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Majority {
    Majority,
}

/// The same for a named policy: what it sets is the default.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireByPolicy {
    /// The values of the policy's key.
    values: BTreeMap<String, String>,
    ttl: Option<Span>,
    wait: Option<Span>,
    label: Option<String>,
    session: Option<String>,
}

impl Serialize for Span {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_u128(self.0.as_nanos())
    }
}

/// A lock that is held.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Held {
    state: HeldWord,
    name: String,
    mode: ModeWord,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    fence: Fence64,
    /// Proves that it is yours: whoever has it can extend and release the lock.
    token: String,
    /// Name, mode and fence in one text, for resources that log and compare.
    sequencer: String,
    ttl_ms: u64,
    /// How long the lock can be trusted, counted from when *you sent* this request.
    valid_for_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum HeldWord {
    Held,
}

impl Held {
    pub(crate) fn new(
        app: &Service,
        granted: &Granted,
        attempt: Option<String>,
        session: Option<String>,
    ) -> Self {
        let handle = &granted.handle;
        Self {
            state: HeldWord::Held,
            name: handle.name().to_string(),
            mode: granted.mode().into(),
            permits: permits(granted.mode()),
            fence: handle.fence().into(),
            token: token::write(handle),
            sequencer: granted.sequencer(),
            ttl_ms: millis(handle.ttl()),
            valid_for_ms: millis(granted.valid_until.since(app.clock.now())),
            attempt,
            session,
        }
    }

    /// The same with another ttl than it was acquired with.
    pub(crate) fn lasting(mut self, ttl: Duration) -> Self {
        self.ttl_ms = millis(ttl);
        self
    }

    pub(crate) fn answer(&self) -> Response {
        let mut response = ok(self);
        if let Ok(tag) = HeaderValue::try_from(format!("\"{}\"", self.fence.0)) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}

pub(crate) async fn acquire(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Places(name): Places<String>,
    headers: HeaderMap,
    Json(body): Json<Acquire>,
) -> Result<Response> {
    let mode = mode_of(&body)?;
    let digest = digest(&(&name, &body));
    let mut lock =
        app.leases.lock(&name).mode(mode).lock_delay(body.lock_delay.map_or(Duration::ZERO, |it| it.0));
    match body.acks {
        None => {}
        Some(AcksWord::AtLeast(number)) => lock = lock.acks(number),
        Some(AcksWord::Majority(_)) => lock = lock.acks(Acks::Majority),
    }
    let wish =
        Wish { name, lock, digest, ttl: body.ttl, wait: body.wait, label: body.label, session: body.session };
    wish.grant(app, &caller, &headers).await
}

pub(crate) async fn by_policy(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Places(policy): Places<String>,
    headers: HeaderMap,
    Json(body): Json<AcquireByPolicy>,
) -> Result<Response> {
    let digest = digest(&(&policy, &body));
    let bound = app.leases.lock_policy(&policy)?;
    let name = app.leases.policies().lock(&policy)?.key(&body.values)?.to_string();
    if !caller.may(crate::auth::Right::Hold, &name) {
        return Err(crate::gate::forbidden(&caller, crate::auth::Right::Hold, Some(&name)));
    }
    let lock = bound.key(&body.values).without_keep_alive();
    let wish =
        Wish { name, lock, digest, ttl: body.ttl, wait: body.wait, label: body.label, session: body.session };
    wish.grant(app, &caller, &headers).await
}

fn mode_of(body: &Acquire) -> Result<Mode> {
    let refuse = |pointer: &str, detail: &str| Err(Problem::invalid(detail).at(pointer.into()));
    match (body.mode.unwrap_or(ModeWord::Exclusive), body.of) {
        (ModeWord::Permits, Some(of)) => {
            Ok(Mode::Permits { take: body.permits.unwrap_or(NonZeroU32::MIN), of })
        }
        (ModeWord::Permits, None) => {
            refuse("/of", "the mode permits needs the number of permits that there are, as of")
        }
        (_, Some(_)) => refuse("/of", "of is only for the mode permits"),
        (_, None) if body.permits.is_some() => refuse("/permits", "permits is only for the mode permits"),
        (ModeWord::Shared, None) => Ok(Mode::Shared),
        (ModeWord::Exclusive, None) => Ok(Mode::Exclusive),
    }
}

/// What was asked for, so that another request under the same id is noticed.
fn digest(request: &impl Serialize) -> [u8; 32] {
    Sha256::digest(serde_json::to_vec(request).unwrap_or_default()).into()
}

/// A lock that a caller wants.
struct Wish {
    name: String,
    lock: Lock,
    digest: [u8; 32],
    ttl: Option<Span>,
    wait: Option<Span>,
    label: Option<String>,
    session: Option<String>,
}

/// How long an asynchronous attempt stays in the queue, unless it says so.
const QUEUE_DEFAULT: Duration = Duration::from_secs(60);

impl Wish {
    async fn grant(mut self, app: App, caller: &Caller, headers: &HeaderMap) -> Result<Response> {
        let prefer = Prefer::of(headers)?;
        if let Some(id) = &self.session {
            let secret = text_of(headers, "leasehold-secret")?.unwrap_or_default();
            let proof = Proof { caller: caller.name(), id, secret, now: app.clock.now() };
            let (ttl, label) = app.sessions.check(proof)?;
            self.ttl = self.ttl.or(Some(Span(ttl)));
            self.label = self.label.or(Some(label));
        }
        let label = self.label.take().filter(|label| !label.is_empty());
        let label = label.or_else(|| caller.token_name().map(str::to_owned)).unwrap_or_default();
        self.lock = self.lock.label(label);
        if let Some(ttl) = self.ttl {
            self.lock = self.lock.ttl(ttl.0);
        }
        let id = text_of(headers, "idempotency-key")?.map(checked_id).transpose()?;
        if id.is_none() && !prefer.is_async {
            return self.grant_once(&app, prefer.wait).await;
        }
        let id = id.map_or_else(secret, Ok)?;
        let key = AttemptKey { caller: caller.name().to_owned(), id };
        let now = app.clock.now();
        let made = || Attempt::new(&self.name, self.digest, prefer.is_async, now);
        let attempt = match app.attempts.enter(&key, self.digest, made)? {
            Found::Known(attempt) => attempt,
            Found::New(attempt) => {
                let queue = self.wait.map_or(QUEUE_DEFAULT, |wait| wait.0);
                let wait = if prefer.is_async { queue.max(prefer.wait) } else { prefer.wait };
                let run = Run { lock: self.lock, wait, session: self.session };
                // Asked before it runs, or it could end for want of anybody who asks.
                let asked = attempt.ask(now);
                tokio::spawn(run.go(app.clone(), key.clone(), attempt.clone()).in_current_span());
                let answer = attempt::answer(&app, &key, &attempt, prefer.wait).await;
                drop(asked);
                return answer;
            }
        };
        let _asked = attempt.ask(now);
        attempt::answer(&app, &key, &attempt, prefer.wait).await
    }

    /// Without an id nothing is remembered: the client that disconnects ends the attempt.
    async fn grant_once(self, app: &App, wait: Duration) -> Result<Response> {
        let Self { name, lock, session, .. } = self;
        let progress = Arc::new(std::sync::Mutex::new(Progress::default()));
        let granted = match app.unless_draining(take(app, lock, wait, &progress)).await?? {
            Taken::Granted(granted) => granted,
            Taken::Busy { retry_after } => {
                let progress = progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
                return Err(attempt::busy(app, &name, progress, retry_after).await);
            }
        };
        if let Some(id) = &session
            && !app.sessions.add(id, &granted)
        {
            return Err(attempt::session_over(app, &granted).await);
        }
        Ok(Held::new(app, &granted, None, session).answer())
    }
}

pub(super) fn checked_id(id: &str) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if !id.is_empty() && id.len() <= 128 && id.bytes().all(is_plain) {
        return Ok(id.to_owned());
    }
    Err(Problem::invalid(
        "the id of an attempt, its Idempotency-Key, is 1 to 128 letters, digits, '-', '_', '.' and ':'",
    ))
}

/// What asking for a lock led to.
pub(super) enum Taken {
    Granted(Granted),
    Busy { retry_after: Duration },
}

/// Asks once, or waits. What was seen of the queue is noted in `progress`.
pub(super) async fn take(
    app: &Service,
    lock: Lock,
    wait: Duration,
    progress: &Arc<std::sync::Mutex<Progress>>,
) -> leasehold::Result<Taken> {
    let note = {
        let progress = progress.clone();
        move |seen: Progress| *progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = seen
    };
    if wait.is_zero() {
        return Ok(match lock.try_acquire().await? {
            leasehold::Attempt::Held(guard) => Taken::Granted(granted(app, guard).await?),
            leasehold::Attempt::Busy { holder, retry_after } => {
                note(Progress { ahead: None, holder });
                Taken::Busy { retry_after }
            }
        });
    }
    let seen = note.clone();
    let lock = lock.wait(wait).on_wait(move |waited| {
        seen(Progress { ahead: Some(waited.ahead), holder: waited.holder.cloned() });
    });
    match lock.acquire().await {
        Ok(guard) => Ok(Taken::Granted(granted(app, guard).await?)),
        Err(Error::TimedOut { holder, .. }) => {
            note(Progress { ahead: None, holder });
            Ok(Taken::Busy { retry_after: Duration::from_secs(1) })
        }
        Err(error) => Err(error),
    }
}

/// What the client gets of a guard. One that was handed over begins anew, so that its client has the whole ttl.
async fn granted(app: &Service, guard: Guard) -> leasehold::Result<Granted> {
    let (asked_at, remaining) = (app.clock.now(), guard.remaining());
    let mut valid_until = asked_at + remaining;
    let handle = guard.detach();
    if remaining < handle.ttl().mul_f64(0.9) {
        handle.extend(&app.leases, None).await?;
        valid_until = app.valid_until(asked_at, &handle);
    }
    Ok(Granted { handle, valid_until })
}
