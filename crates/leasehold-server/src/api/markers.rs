//! Marks of work in progress.

use axum::{Extension, extract::State, response::Response};
use leasehold::marker::Cleared;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::locks::page_size;
use crate::{
    auth::{Caller, Right},
    gate::forbidden,
    json::{Json, Params, Places, Span, ok},
    problem::{Problem, Result},
    state::App,
};

/// Most marks tested at once.
const IDS_MAX: usize = 1_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mark {
    /// Default: 5m.
    ttl: Option<Span>,
    /// Only if there is none.
    #[serde(default)]
    if_absent: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Marked {
    marked: bool,
}

pub(crate) async fn mark(
    State(app): State<App>,
    Places((kind, id)): Places<(String, String)>,
    Json(body): Json<Mark>,
) -> Result<Response> {
    let mut marker = app.leases.marker(&kind);
    if let Some(ttl) = body.ttl {
        marker = marker.ttl(ttl.0);
    }
    let marked = if body.if_absent { marker.mark_if_absent(&id).await? } else { marker.mark(&id).await? };
    Ok(ok(&Marked { marked }))
}

pub(crate) async fn test(
    State(app): State<App>,
    Places((kind, id)): Places<(String, String)>,
) -> Result<Response> {
    let marked = app.leases.marker(&kind).is_marked(&id).await?;
    Ok(ok(&Marked { marked }))
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ClearedView {
    outcome: ClearedWord,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ClearedWord {
    Cleared,
    NotMarked,
    Guarded,
}

pub(crate) async fn clear(
    State(app): State<App>,
    Places((kind, id)): Places<(String, String)>,
) -> Result<Response> {
    let outcome = match app.leases.marker(&kind).clear(&id).await? {
        Cleared::Cleared => ClearedWord::Cleared,
        Cleared::NotMarked => ClearedWord::NotMarked,
        _ => ClearedWord::Guarded,
    };
    Ok(ok(&ClearedView { outcome }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ids {
    /// At most 1,000.
    ids: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Tested {
    /// One for each id, in their order.
    marked: Vec<bool>,
}

pub(crate) async fn test_many(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Places(kind): Places<String>,
    Json(body): Json<Ids>,
) -> Result<Response> {
    if body.ids.len() > IDS_MAX {
        return Err(Problem::invalid(format!("at most {IDS_MAX} ids at once")).at("/ids".into()));
    }
    let names = body.ids.iter().map(|id| format!("{kind}:{id}"));
    if let Some(name) = names.into_iter().find(|name| !caller.may(Right::Read, name)) {
        return Err(forbidden(&caller, Right::Read, Some(&name)));
    }
    let marked = app.leases.marker(&kind).are_marked(&body.ids).await?;
    Ok(ok(&Tested { marked }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// The kind of marks, such as `processing`.
    #[schemars(length(min = 1))]
    kind: String,
    #[serde(default)]
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
    if query.kind.is_empty() {
        return Err(Problem::invalid("kind is missing: name the kind of marks, such as ?kind=processing"));
    }
    let prefix = format!("{}:", query.kind);
    let page = app.records(&caller, &prefix, None, &query.from, page_size(query.limit)?).await?;
    Ok(ok(&page))
}
