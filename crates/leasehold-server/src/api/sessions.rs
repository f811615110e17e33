//! Sessions: open, renew everything, close.

use std::sync::atomic::Ordering;

use axum::{Extension, extract::State, response::Response};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, StatusCode};
use leasehold::lease::validity::TTL_MAX_LIMIT;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    auth::Caller,
    json::{Json, Places, Span, answer, ok, text_of},
    problem::Result,
    sessions::{Member, Proof},
    state::{App, secret},
    views::{Fence64, ListOf, ModeWord, millis},
};

/// Releases under way at a time.
const TOGETHER: usize = 64;
const SHOWN: usize = 1_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Open {
    /// How long the session lasts unless it is renewed, and its locks unless they say otherwise.
    ttl: Option<Span>,
    /// What people see as the holder of its locks.
    label: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Opened {
    id: String,
    /// For the header Leasehold-Secret.
    secret: String,
    ttl_ms: u64,
    valid_for_ms: u64,
}

pub(crate) async fn open(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<Open>,
) -> Result<Response> {
    // The store's own limit of the ttl is checked with each lock.
    let mut config = leasehold::Config::default();
    config.max_ttl = TTL_MAX_LIMIT;
    config.label = body.label.unwrap_or_default();
    config.ttl = body.ttl.map_or(config.ttl, |ttl| ttl.0);
    config.check()?;
    let (ttl, label) = (config.ttl, config.label);
    let (id, secret) = (secret()?, secret()?);
    let proof = Proof { caller: caller.name(), id: &id, secret: &secret, now: app.clock.now() };
    app.sessions.open(proof, label, ttl)?;
    let ttl_ms = millis(ttl);
    Ok(answer(StatusCode::CREATED, &Opened { id, secret, ttl_ms, valid_for_ms: ttl_ms }))
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Renewed {
    id: String,
    ttl_ms: u64,
    valid_for_ms: u64,
    held: Vec<HeldLock>,
    /// Those that are lost and were not released yet.
    lost: Vec<LostLock>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct HeldLock {
    name: String,
    fence: Fence64,
    /// Counted from when you sent this request.
    valid_for_ms: u64,
    /// Whether the store confirmed it just now.
    renewed: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LostLock {
    name: String,
    fence: Fence64,
    mode: ModeWord,
}

pub(crate) async fn renew(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Places(id): Places<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let asked_at = app.clock.now();
    let secret = text_of(&headers, "leasehold-secret")?.unwrap_or_default();
    let proof = Proof { caller: caller.name(), id: &id, secret, now: asked_at };
    let (ttl, handles) = app.sessions.begin_renewal(proof)?;
    let results = app.leases.extend_all(&handles).await;
    let members =
        app.sessions.renewed(&id, handles.iter().zip(&results), |handle| app.valid_until(asked_at, handle));
    let renewed = results.iter().filter(|result| result.is_ok()).count();
    app.metrics.sessions_renewed.fetch_add(1, Ordering::Relaxed);
    app.metrics.locks_renewed.fetch_add(renewed as u64, Ordering::Relaxed);
    let (now, mut held, mut lost) = (app.clock.now(), Vec::new(), Vec::new());
    for Member { granted, is_lost, is_renewed } in members {
        let (name, fence) = (granted.name().to_owned(), granted.handle.fence().into());
        let valid_for_ms = millis(granted.valid_until.since(now));
        if is_lost || valid_for_ms == 0 {
            lost.push(LostLock { name, fence, mode: granted.mode().into() });
        } else {
            held.push(HeldLock { name, fence, valid_for_ms, renewed: is_renewed });
        }
    }
    app.metrics.locks_lost.fetch_add(lost.len() as u64, Ordering::Relaxed);
    held.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    lost.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let ttl_ms = millis(ttl);
    Ok(ok(&Renewed { id, ttl_ms, valid_for_ms: ttl_ms, held, lost }))
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Closed {
    released: Vec<ReleasedLock>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ReleasedLock {
    name: String,
    fence: Fence64,
    outcome: ReleasedWord,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ReleasedWord {
    Released,
    Lost,
    /// The store did not answer: it ends with its ttl.
    Unknown,
}

pub(crate) async fn close(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Places(id): Places<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let secret = text_of(&headers, "leasehold-secret")?.unwrap_or_default();
    let proof = Proof { caller: caller.name(), id: &id, secret, now: app.clock.now() };
    let members = app.sessions.close(proof)?;
    let releases = members.into_iter().map(|member| {
        let app = app.clone();
        async move {
            let handle = &member.granted.handle;
            let outcome = match handle.release(&app.leases).await {
                Ok(released) if released.was_held() => ReleasedWord::Released,
                Ok(_) => ReleasedWord::Lost,
                Err(_) => ReleasedWord::Unknown,
            };
            app.ended(&member.granted.key());
            ReleasedLock { name: handle.name().to_string(), fence: handle.fence().into(), outcome }
        }
    });
    // A client that disconnects must not leave half of them held.
    let releases = stream::iter(releases.collect::<Vec<_>>()).buffer_unordered(TOGETHER).collect::<Vec<_>>();
    let mut released = tokio::spawn(releases).await.unwrap_or_default();
    released.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(ok(&Closed { released }))
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionRow {
    id: String,
    label: String,
    ttl_ms: u64,
    expires_in_ms: u64,
    held: usize,
    lost: usize,
}

pub(crate) async fn list(State(app): State<App>) -> Response {
    let shown = app.sessions.shown(app.clock.now(), SHOWN).into_iter();
    let items = shown.map(|session| SessionRow {
        id: session.id,
        label: session.label,
        ttl_ms: millis(session.ttl),
        expires_in_ms: millis(session.left),
        held: session.held,
        lost: session.lost,
    });
    ok(&ListOf { items: items.collect() })
}
