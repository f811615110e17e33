//! Deadlines: what should have ended by a time.

use std::time::Duration;

use axum::{extract::State, response::Response};
use http::StatusCode;
use leasehold::{
    Deadline,
    engine::deadlines::{DueTime, Receipt, Settle},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::locks::page_size;
use crate::{
    history::Heat,
    json::{Json, Named, Params, Places, Span, ok},
    problem::{Problem, Result},
    state::App,
    views::{ListOf, millis},
};

/// How a pool stands.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) pending: u64,
    pub(crate) due: u64,
    tried: u64,
    pub(crate) overdue_ms: u64,
    dead: u64,
    layout: Option<String>,
}

pub(crate) async fn pool(app: &App, name: &str) -> Result<Pool> {
    let pool = app.leases.deadlines(name);
    let (stats, layout) = (pool.stats().await?, pool.layout().await?);
    Ok(Pool {
        name: name.to_owned(),
        pending: stats.pending,
        due: stats.due,
        tried: stats.tried,
        overdue_ms: millis(stats.overdue),
        dead: stats.dead,
        layout: layout.map(|layout| layout.to_string()),
    })
}

pub(crate) async fn list(State(app): State<App>) -> Result<Response> {
    let mut items = Vec::new();
    for name in app.pools.all() {
        items.push(pool(&app, &name).await?);
    }
    Ok(ok(&ListOf { items }))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shown {
    /// 1 to 500. Default: 100.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<u32>,
}

/// A pool, what is due in it, and how that changed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PoolDetail {
    #[serde(flatten)]
    pool: Pool,
    /// Longest overdue first.
    items: Vec<PendingRow>,
    heat: Heat,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PendingRow {
    id: String,
    attempts: u32,
    overdue_ms: u64,
}

pub(crate) async fn get(
    State(app): State<App>,
    Places(name): Places<String>,
    Params(query): Params<Shown>,
) -> Result<Response> {
    let limit = u32::try_from(page_size(query.limit)?).unwrap_or(500);
    let standing = pool(&app, &name).await?;
    app.pools.note(&name);
    let pending = app.leases.deadlines(&name).peek(limit).await?;
    let items = pending.into_iter().map(|pending| PendingRow {
        id: pending.id.to_string(),
        attempts: pending.attempts,
        overdue_ms: millis(pending.overdue),
    });
    Ok(ok(&PoolDetail { pool: standing, items: items.collect(), heat: app.history.heat(&name) }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Set {
    /// From now on; or `at_ms`.
    #[serde(rename = "in")]
    after: Option<Span>,
    /// Wall-clock milliseconds since 1970.
    at_ms: Option<u64>,
    /// Any JSON; who claims the deadline gets it.
    context: Option<Value>,
}

pub(crate) async fn set(
    State(app): State<App>,
    Places((name, id)): Places<(String, String)>,
    Json(body): Json<Set>,
) -> Result<StatusCode> {
    let due = match (body.after, body.at_ms) {
        (Some(after), None) => DueTime::In(after.0),
        (None, Some(at)) => DueTime::AtMs(at),
        _ => {
            return Err(
                Problem::invalid("a deadline has either in, such as \"5m\", or at_ms").at("/in".into())
            );
        }
    };
    let deadline = Deadline::new(id, due);
    let deadline = match &body.context {
        Some(context) => deadline.json(context)?,
        None => deadline,
    };
    app.leases.deadlines(&name).set_many(&[deadline]).await?;
    app.pools.note(&name);
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Cancelled {
    cancelled: bool,
}

pub(crate) async fn cancel(
    State(app): State<App>,
    Places((name, id)): Places<(String, String)>,
) -> Result<Response> {
    let cancelled = app.leases.deadlines(&name).cancel(id).await?;
    Ok(ok(&Cancelled { cancelled }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// The most to claim, per bucket of the pool. Default: 10.
    limit: Option<u32>,
    /// How long nobody else can claim it. Default: 60s.
    visibility: Option<Span>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Claimed {
    items: Vec<DueRow>,
    /// Whether more is due.
    more: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DueRow {
    id: String,
    /// With the id, the proof of this claim.
    number: u64,
    /// Which delivery it is, from 1.
    attempt: u32,
    overdue_ms: u64,
    /// Counted from when you sent this request.
    hidden_for_ms: u64,
    context: Option<Value>,
}

pub(crate) async fn claim(
    State(app): State<App>,
    Places(name): Places<String>,
    Json(body): Json<Claim>,
) -> Result<Response> {
    let visibility = body.visibility.map_or(Duration::from_secs(60), |span| span.0);
    let claim = app.leases.deadlines(&name).claim().limit(body.limit.unwrap_or(10)).visibility(visibility);
    let claimed = claim.await?;
    app.pools.note(&name);
    let more = claimed.more;
    let items = claimed.into_iter().map(|due| {
        app.metrics.lateness.record(due.overdue());
        let context = due.context().map(|bytes| {
            let text = || Value::String(String::from_utf8_lossy(bytes).into_owned());
            serde_json::from_slice(bytes).unwrap_or_else(|_| text())
        });
        DueRow {
            id: due.id().to_owned(),
            number: due.receipt().number,
            attempt: due.attempt(),
            overdue_ms: millis(due.overdue()),
            hidden_for_ms: millis(due.hidden_for()),
            context,
        }
    });
    Ok(ok(&Claimed { items: items.collect(), more }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settlements {
    /// At most 1,000.
    items: Vec<Named<Settlement>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settlement {
    id: String,
    number: u64,
    #[serde(rename = "as")]
    how: SettleWord,
    /// With postpone: by how much.
    by: Option<Span>,
    /// With bury: why.
    why: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SettleWord {
    Done,
    Postpone,
    GiveBack,
    Bury,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SettledRow {
    id: String,
    outcome: OutcomeWord,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Settled {
    items: Vec<SettledRow>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OutcomeWord {
    Settled,
    /// It was claimed, set or cancelled since.
    Stale,
}

pub(crate) async fn settle(
    State(app): State<App>,
    Places(name): Places<String>,
    Json(body): Json<Settlements>,
) -> Result<Response> {
    if body.items.len() > 1_000 {
        return Err(Problem::invalid("at most 1000 at once").at("/items".into()));
    }
    let read = |(index, Named(item)): (usize, Named<Settlement>)| {
        let settle = match (item.how, item.by, item.why) {
            (SettleWord::Done, None, None) => Settle::Done,
            (SettleWord::GiveBack, None, None) => Settle::GiveBack,
            (SettleWord::Postpone, Some(by), None) => Settle::Postpone(by.0),
            (SettleWord::Bury, None, why) => Settle::Bury(why.unwrap_or_default()),
            _ => {
                let detail = "postpone needs by and nothing else, bury may have why, the others have neither";
                return Err(Problem::invalid(detail).at(format!("/items/{index}")));
            }
        };
        Ok((Receipt { id: item.id.into(), number: item.number }, settle))
    };
    let settlements = body.items.into_iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
    let settled = app.leases.deadlines(&name).settle(&settlements).await?;
    let items = settled.into_iter().map(|(id, outcome)| SettledRow {
        id: id.to_string(),
        outcome: if outcome.is_settled() { OutcomeWord::Settled } else { OutcomeWord::Stale },
    });
    Ok(ok(&Settled { items: items.collect() }))
}
