//! Deadlines that were given up.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use futures_util::StreamExt;
use http::StatusCode;
use leasehold::{Deadline, engine::Cursor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::locks::page_size;
use crate::{
    audit::{Act, Action},
    auth::Caller,
    connection::Peer,
    gate::address,
    json::{Json, Params, Places, Span, ok},
    problem::{Problem, Result},
    state::App,
    views::PageOf,
};

/// How many dead deadlines are looked through for one.
const SEARCHED: usize = 100_000;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListQuery {
    from: String,
    /// 1 to 500. Default: 100.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DeadRow {
    id: String,
    attempts: u32,
    buried_at_ms: u64,
    why: String,
    context: Option<String>,
}

pub(crate) async fn list(
    State(app): State<App>,
    Places(pool): Places<String>,
    Params(query): Params<ListQuery>,
) -> Result<Response> {
    let limit = u32::try_from(page_size(query.limit)?).unwrap_or(500);
    let from = (!query.from.is_empty()).then(|| Cursor::new(&query.from));
    let page = app.leases.deadlines(&pool).dead_page(from, limit).await?;
    let items = page.items.into_iter().map(|dead| DeadRow {
        id: dead.id.to_string(),
        attempts: dead.attempts,
        buried_at_ms: dead.buried_at_ms,
        why: dead.why,
        context: dead.context.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    });
    Ok(ok(&PageOf { items: items.collect(), next: page.next.map(|next| next.as_str().to_owned()) }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requeue {
    /// From now on. Default: at once.
    #[serde(rename = "in")]
    after: Option<Span>,
}

pub(crate) async fn requeue(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    peer: Option<Extension<Arc<Peer>>>,
    Places((pool, id)): Places<(String, String)>,
    Json(body): Json<Requeue>,
) -> Result<StatusCode> {
    let deadlines = app.leases.deadlines(&pool);
    let mut dead = deadlines.dead().take(SEARCHED);
    let found = loop {
        match dead.next().await.transpose()? {
            Some(dead) if *dead.id == *id => break dead,
            Some(_) => {}
            None => {
                return Err(Problem::not_found(format!("no dead deadline \"{id}\" in the pool \"{pool}\"")));
            }
        }
    };
    let name = format!("deadlines:{pool}:{id}");
    let act = Act {
        action: Action::Requeue,
        name: &name,
        fence: None,
        by: caller.name(),
        from: address(peer.as_deref()),
        reason: None,
    };
    let mut deadline = Deadline::new(id, body.after.map(|span| span.0).unwrap_or_default());
    deadline.context = found.context;
    let work = async { Ok(deadlines.set_many(&[deadline]).await?) };
    app.audited(act, work, |()| "done".into()).await?;
    Ok(StatusCode::NO_CONTENT)
}
