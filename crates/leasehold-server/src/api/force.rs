//! Taking a lock from its holder, and changing the limit of a semaphore.

use std::sync::{Arc, atomic::Ordering};

use axum::{Extension, extract::State, response::Response};
use http::{HeaderMap, StatusCode};
use leasehold::Released;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::locks::fence_of;
use crate::{
    audit::{Act, Action, checked_reason},
    auth::Caller,
    connection::Peer,
    gate::address,
    json::{Json, Places, ok, text_of},
    problem::{Problem, Result},
    state::App,
    token::LockKey,
    views::Fence64,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForceRelease {
    /// Why, for the audit: 1 to 500 characters.
    reason: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Forced {
    name: String,
    fence: Fence64,
    outcome: ForcedWord,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ForcedWord {
    Free,
    HandedOver,
}

pub(crate) async fn release(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    peer: Option<Extension<Arc<Peer>>>,
    Places(name): Places<String>,
    headers: HeaderMap,
    Json(body): Json<ForceRelease>,
) -> Result<Response> {
    let Some(tag) = text_of(&headers, "if-match")? else {
        let detail = "name the holder that you saw: If-Match: \"FENCE\", which is the ETag of GET";
        return Err(Problem::new(
            StatusCode::PRECONDITION_REQUIRED,
            "precondition_required",
            "no fence",
            detail,
        ));
    };
    let (seen, reason) = (fence_of(tag)?, checked_reason(&body.reason)?);
    let act = Act {
        action: Action::ForceRelease,
        name: &name,
        fence: Some(seen.get()),
        by: caller.name(),
        from: address(peer.as_deref()),
        reason: Some(reason),
    };
    let work = async {
        match app.leases.force_release(&name, seen).await? {
            Released::Taken { by } => Err(changed(&name).fence(by)),
            Released::Expired => Err(changed(&name)),
            Released::HandedOver { .. } => Ok(ForcedWord::HandedOver),
            _ => Ok(ForcedWord::Free),
        }
    };
    let outcome = app
        .audited(act, work, |outcome| {
            match outcome {
                ForcedWord::Free => "free",
                ForcedWord::HandedOver => "handed_over",
            }
            .into()
        })
        .await?;
    app.history.forced(&name, seen.get());
    app.metrics.forced.fetch_add(1, Ordering::Relaxed);
    app.attempts.ended(&LockKey { name: name.clone(), fence: seen.get() }, app.clock.now());
    Ok(ok(&Forced { name, fence: seen.into(), outcome }))
}

fn changed(name: &str) -> Problem {
    let detail = format!("\"{name}\" has another holder than the one you saw, or none; look again");
    Problem::new(StatusCode::PRECONDITION_FAILED, "changed", "the holder changed", detail).about(name)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limit {
    /// How many permits there are from now on.
    #[schemars(range(min = 1))]
    limit: u32,
}

pub(crate) async fn set_limit(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    peer: Option<Extension<Arc<Peer>>>,
    Places(name): Places<String>,
    Json(body): Json<Limit>,
) -> Result<StatusCode> {
    let act = Act {
        action: Action::SetLimit,
        name: &name,
        fence: None,
        by: caller.name(),
        from: address(peer.as_deref()),
        reason: Some(format!("limit {}", body.limit)),
    };
    let work = async { Ok(app.leases.set_limit(&name, body.limit).await?) };
    app.audited(act, work, |()| "done".into()).await?;
    Ok(StatusCode::NO_CONTENT)
}
