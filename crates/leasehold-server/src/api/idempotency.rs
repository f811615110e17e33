//! Requests that shall be executed once.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use http::{HeaderMap, StatusCode};
use leasehold::{
    Holder,
    idempotency::{Begun, OnFailure, Settled},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    locks::page_size,
    prefer::Prefer,
    records::{RecordState, RecordView},
};
use crate::{
    audit::{Act, Action},
    auth::Caller,
    connection::Peer,
    executions::Running,
    gate::address,
    json::{Json, Params, Places, Span, answer, ok},
    problem::{Problem, Result},
    state::{App, secret},
    views::{Fence64, HolderView, millis},
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Begin {
    /// What was asked for: another one under the same key is a mismatch.
    fingerprint: Option<String>,
    /// How long the execution lasts unless it is extended.
    ttl: Option<Span>,
    /// How long its outcome is kept. Default: 24h.
    keep: Option<Span>,
    /// Default: retry.
    on_failure: Option<OnFailureWord>,
    label: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum OnFailureWord {
    Retry,
    Replay,
    Quarantine,
}

/// An execution that is yours, for as long as you extend it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Execution {
    state: BegunWord,
    /// Proves that it is yours.
    execution: String,
    fence: Fence64,
    ttl_ms: u64,
    valid_for_ms: u64,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum BegunWord {
    Begun,
}

/// How the request stands without you.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Stands {
    Completed {
        result: Value,
    },
    Failed {
        why: String,
    },
    Quarantined {
        why: String,
    },
    /// There is a mark, and no result.
    DoneElsewhere,
}

pub(crate) async fn begin(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Places((operation, key)): Places<(String, String)>,
    headers: HeaderMap,
    Json(body): Json<Begin>,
) -> Result<Response> {
    app.executions.check_room()?;
    let prefer = Prefer::of(&headers)?;
    let label = body.label.or_else(|| caller.token_name().map(str::to_owned)).unwrap_or_default();
    let mut request = app.leases.idempotency(&operation).key(&key).label(label).wait(prefer.wait);
    let ttl = body.ttl.map_or(leasehold::Config::default().ttl, |ttl| ttl.0);
    request = request.lease_ttl(ttl);
    if let Some(keep) = body.keep {
        request = request.keep_result_for(keep.0);
    }
    if let Some(fingerprint) = &body.fingerprint {
        request = request.fingerprint_bytes(fingerprint);
    }
    request = request.on_failure(match body.on_failure {
        Some(OnFailureWord::Replay) => OnFailure::Replay,
        Some(OnFailureWord::Quarantine) => OnFailure::Quarantine,
        Some(OnFailureWord::Retry) | None => OnFailure::Retry,
    });
    let name = request.store_key()?;
    Ok(match app.unless_draining(request.begin::<Value>()).await?? {
        Begun::Yours(execution) => {
            let secret = secret()?;
            let view = Execution {
                state: BegunWord::Begun,
                execution: secret.clone(),
                fence: execution.fence().into(),
                ttl_ms: millis(ttl),
                valid_for_ms: millis(execution.remaining().min(ttl)),
            };
            let until = app.clock.now() + ttl;
            app.executions.add(secret, Running { execution, ttl, until });
            answer(StatusCode::CREATED, &view)
        }
        Begun::Completed(result) => ok(&Stands::Completed { result }),
        Begun::Failed { why } => ok(&Stands::Failed { why }),
        Begun::Quarantined { why } => ok(&Stands::Quarantined { why }),
        Begun::DoneElsewhere => ok(&Stands::DoneElsewhere),
        Begun::InProgress { holder, look_again } => {
            return Err(in_progress(name.as_str(), &holder).again_in(look_again));
        }
        _ => {
            let detail = format!("\"{name}\" belongs to another request: its fingerprint differs");
            return Err(Problem::mismatch(detail).about(name.as_str()));
        }
    })
}

fn in_progress(name: &str, holder: &Holder) -> Problem {
    let detail = format!("another execution of \"{name}\" is in progress: {holder}");
    Problem::new(StatusCode::CONFLICT, "in_progress", "in progress", detail)
        .about(name)
        .held_by(HolderView::from(holder))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extend {
    execution: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Extended {
    fence: Fence64,
    ttl_ms: u64,
    valid_for_ms: u64,
}

fn name_of(app: &App, operation: &str, key: &str) -> Result<String> {
    Ok(app.leases.idempotency(operation).key(key).store_key()?.to_string())
}

pub(crate) async fn extend(
    State(app): State<App>,
    Places((operation, key)): Places<(String, String)>,
    Json(body): Json<Extend>,
) -> Result<Response> {
    let name = name_of(&app, &operation, &key)?;
    let (fence, ttl, valid_for) = app.executions.extend(&body.execution, &name, app.clock.now())?;
    Ok(ok(&Extended { fence: Fence64(fence), ttl_ms: millis(ttl), valid_for_ms: millis(valid_for) }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Complete {
    execution: String,
    /// Any JSON; everybody who asks later gets it.
    #[serde(default)]
    result: Value,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fail {
    execution: String,
    why: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SettledView {
    state: StoredWord,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum StoredWord {
    Stored,
}

pub(crate) async fn complete(
    State(app): State<App>,
    Places((operation, key)): Places<(String, String)>,
    Json(body): Json<Complete>,
) -> Result<Response> {
    let name = name_of(&app, &operation, &key)?;
    let running = app.executions.take(&body.execution, &name)?;
    settled(&name, running.execution.complete(&body.result).await?)
}

pub(crate) async fn fail(
    State(app): State<App>,
    Places((operation, key)): Places<(String, String)>,
    Json(body): Json<Fail>,
) -> Result<Response> {
    let name = name_of(&app, &operation, &key)?;
    let running = app.executions.take(&body.execution, &name)?;
    settled(&name, running.execution.fail(&body.why).await?)
}

fn settled(name: &str, settled: Settled) -> Result<Response> {
    match settled {
        Settled::Stored => Ok(ok(&SettledView { state: StoredWord::Stored })),
        Settled::FencedOff { by } => Err(Problem::taken(name, by)),
    }
}

pub(crate) async fn get(
    State(app): State<App>,
    Places((operation, key)): Places<(String, String)>,
) -> Result<Response> {
    let request = app.leases.idempotency(&operation).key(&key);
    let name = request.store_key()?;
    let record = request.get().await?;
    let record = record.ok_or_else(|| {
        Problem::not_found(format!("nothing is under \"{name}\": the next call executes"))
            .about(name.as_str())
    })?;
    Ok(ok(&RecordView::new(&record)))
}

pub(crate) async fn remove(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    peer: Option<Extension<Arc<Peer>>>,
    Places((operation, key)): Places<(String, String)>,
) -> Result<StatusCode> {
    let request = app.leases.idempotency(&operation).key(&key);
    let name = request.store_key()?.to_string();
    let act = Act {
        action: Action::RemoveRecord,
        name: &name,
        fence: None,
        by: caller.name(),
        from: address(peer.as_deref()),
        reason: None,
    };
    let work = async {
        match request.remove().await? {
            true => Ok(StatusCode::NO_CONTENT),
            false => Err(Problem::not_found(format!("nothing is under \"{name}\"")).about(&name)),
        }
    };
    app.audited(act, work, |_| "done".into()).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListQuery {
    operation: String,
    state: Option<RecordState>,
    from: String,
    /// 1 to 500. Default: 100.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<u32>,
}

pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<ListQuery>,
) -> Result<Response> {
    let prefix = match &*query.operation {
        "" => "idempotency:".to_owned(),
        // The key of any request of it begins with the same text.
        operation => {
            let mut key = name_of(&app, operation, "x")?;
            key.pop();
            key
        }
    };
    let page = app.records(&caller, &prefix, query.state, &query.from, page_size(query.limit)?).await?;
    Ok(ok(&page))
}
