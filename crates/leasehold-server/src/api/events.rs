//! The stream of events.

use axum::{Extension, body::Body, extract::State, response::Response};
use http::{HeaderMap, HeaderValue, header};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    auth::Caller,
    events::{Wanted, stream},
    json::{Params, text_of},
    problem::Result,
    state::App,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EventsQuery {
    /// Words with commas between them: overview, locks, audit, playground. Default: all.
    topics: String,
    /// What the names of locks begin with.
    prefix: String,
}

pub(crate) async fn get(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Params(query): Params<EventsQuery>,
) -> Result<Response> {
    let wanted = Wanted::new(&query.topics, query.prefix, caller)?;
    app.watched_now();
    let events = stream(app, wanted, text_of(&headers, "last-event-id")?)?;
    let mut response = Response::new(Body::from_stream(events));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    // Proxies must not collect them.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}
