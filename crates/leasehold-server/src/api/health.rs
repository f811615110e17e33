//! Whether the service lives and can work, and its numbers.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    json::{answer, ok},
    state::App,
};

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Alive {
    status: &'static str,
}

pub(crate) async fn alive() -> Response {
    ok(&Alive { status: "ok" })
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Ready {
    status: &'static str,
    store: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NotReady {
    status: &'static str,
    why: String,
    since_ms: u64,
}

pub(crate) async fn ready(State(app): State<App>) -> Response {
    let reach = app.history.reach();
    let not_ready = |why: String, since_ms| {
        answer(StatusCode::SERVICE_UNAVAILABLE, &NotReady { status: "not_ready", why, since_ms })
    };
    if app.draining.is_cancelled() {
        return not_ready("the service is being stopped".into(), app.wall_ms());
    }
    if !reach.reachable {
        return not_ready(reach.error.unwrap_or_default(), reach.since_ms);
    }
    ok(&Ready { status: "ready", store: app.leases.store().to_owned() })
}

pub(crate) async fn metrics(State(app): State<App>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.prometheus()).into_response()
}

pub(crate) async fn openapi(State(app): State<App>) -> Response {
    let _same_for_all = app;
    ([(header::CONTENT_TYPE, "application/json")], crate::openapi::document()).into_response()
}
