//! What the dashboard shows first.

use axum::{Extension, extract::State, response::Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::locks::page_size;
use crate::{
    auth::{Caller, Grant},
    history::{Hot, Lint, Pair, Point, Reach, Series, TenureRow},
    json::{Params, ok},
    problem::Result,
    state::{App, Service},
};

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Overview {
    seq: u64,
    at_ms: u64,
    /// Nothing before is known.
    since_ms: u64,
    store: StoreView,
    read_only: bool,
    draining: bool,
    counters: Counters,
    /// Not in events, which have `point` instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Series>,
    /// Only in events: the step that ended, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    point: Option<Option<Point>>,
    hot: Vec<Hot>,
    lints: Vec<Lint>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct StoreView {
    url: String,
    engine: &'static str,
    #[serde(flatten)]
    reach: Reach,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Counters {
    held: u32,
    waiting: u32,
    expiring: u32,
    lost_1h: u64,
    idempotent_running: usize,
    deadlines_due: u64,
    deadlines_overdue_ms: u64,
    sessions: usize,
    names: u32,
    /// More names are in use than the service looks at.
    truncated: bool,
}

/// The first event of a client.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Snapshot {
    seq: u64,
    at_ms: u64,
    /// Only for tokens that may read everything.
    overview: Option<Overview>,
}

impl Service {
    fn overview(&self) -> Overview {
        let (seq, at_ms) = self.history.seq();
        let totals = self.history.totals();
        let (deadlines_due, deadlines_overdue_ms) = self.history.deadlines();
        let counters = Counters {
            held: totals.held,
            waiting: totals.waiting,
            expiring: totals.expiring,
            lost_1h: totals.lost_1h,
            idempotent_running: self.executions.len(),
            deadlines_due,
            deadlines_overdue_ms,
            sessions: self.sessions.len(),
            names: totals.names,
            truncated: totals.is_truncated,
        };
        let store = StoreView {
            url: self.leases.store().to_owned(),
            engine: self.leases.capabilities().engine,
            reach: self.history.reach(),
        };
        Overview {
            seq,
            at_ms,
            since_ms: self.history.since_ms,
            store,
            read_only: self.options.read_only,
            draining: self.draining.is_cancelled(),
            counters,
            series: None,
            point: None,
            hot: self.history.hot(),
            lints: self.history.lints(),
        }
    }

    fn whole_overview(&self) -> Overview {
        Overview { series: Some(self.history.series()), ..self.overview() }
    }

    /// What an event says.
    pub(crate) fn overview_event(&self, point: Option<Point>) -> Overview {
        Overview { point: Some(point), ..self.overview() }
    }

    pub(crate) fn snapshot(&self, sees_all: bool) -> Snapshot {
        let (seq, at_ms) = self.history.seq();
        Snapshot { seq, at_ms, overview: sees_all.then(|| self.whole_overview()) }
    }
}

pub(crate) async fn get(State(app): State<App>) -> Response {
    app.watched_now();
    ok(&app.whole_overview())
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ContentionQuery {
    /// Only this holder's label.
    holder: String,
    /// 1 to 500. Default: 100.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<u32>,
}

/// Who waited for whom.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ContentionView {
    since_ms: u64,
    at_ms: u64,
    items: Vec<Pair>,
}

pub(crate) async fn contention(
    State(app): State<App>,
    Params(query): Params<ContentionQuery>,
) -> Result<Response> {
    let is_wanted = |pair: &Pair| query.holder.is_empty() || pair.holder == query.holder;
    let items = app.history.pairs(is_wanted, page_size(query.limit)?);
    Ok(ok(&ContentionView { since_ms: app.history.since_ms, at_ms: app.history.seq().1, items }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldersQuery {
    label: String,
}

/// The tenures of all holders of one label.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HoldersView {
    since_ms: u64,
    /// Newest first.
    items: Vec<TenureRow>,
}

pub(crate) async fn holders(State(app): State<App>, Params(query): Params<HoldersQuery>) -> Response {
    let items = app.history.tenures_by(&query.label, 200);
    ok(&HoldersView { since_ms: app.history.since_ms, items })
}

/// Who asks, and what the service is.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WhoAmI {
    token: Option<String>,
    rights: Vec<Grant>,
    read_only: bool,
    version: &'static str,
    store: String,
    authentication: &'static str,
    playground: bool,
}

pub(crate) async fn whoami(State(app): State<App>, Extension(caller): Extension<Caller>) -> Response {
    ok(&WhoAmI {
        token: caller.token_name().map(str::to_owned),
        rights: caller.rights().to_vec(),
        read_only: app.options.read_only,
        version: env!("CARGO_PKG_VERSION"),
        store: app.leases.store().to_owned(),
        authentication: if app.options.tokens.is_some() { "token" } else { "none" },
        playground: true,
    })
}
