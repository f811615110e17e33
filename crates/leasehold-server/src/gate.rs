//! What every request passes: shape, origin, token, rate and rights.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use axum::{
    extract::{RawPathParams, Request, State, rejection::RawPathParamsRejection},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, uri::Authority};
use tracing::{Instrument, Span, field};

use crate::{
    auth::{Caller, Right},
    connection::Peer,
    limits::{HEADER_BYTES, URI_BYTES},
    problem::{Problem, Result},
    route::{Named, Need},
    state::App,
};

/// The first step of every request, whatever its path.
pub(crate) async fn enter(State(app): State<App>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/v1");
    let (mut response, is_sound) = match check(&app, &request) {
        Ok(()) => (next.run(request).await, true),
        Err(problem) => (problem.into_response(), false),
    };
    let headers = response.headers_mut();
    if !is_sound {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    headers.insert("leasehold-version", HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_api {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn check(app: &App, request: &Request) -> Result<()> {
    let headers = request.headers();
    if request.uri().path_and_query().is_some_and(|target| target.as_str().len() > URI_BYTES) {
        let detail = format!("a path with its query has at most {URI_BYTES} bytes");
        return Err(Problem::new(StatusCode::URI_TOO_LONG, "uri_too_long", "path too long", detail));
    }
    if headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() > HEADER_BYTES {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        let detail = format!("headers have at most {HEADER_BYTES} bytes");
        return Err(Problem::new(status, "headers_too_large", "headers too large", detail));
    }
    // A second way to say where a body ends would let a proxy and this service see different requests.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        let detail = "send the body with Content-Length and without Transfer-Encoding";
        return Err(Problem::new(StatusCode::LENGTH_REQUIRED, "length_required", "no length", detail));
    }
    check_host(app, headers)?;
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        check_origin(headers)?;
    }
    Ok(())
}

/// Without tokens the service answers under names of the loopback address only: a page of another site can make its own name
/// point there.
fn check_host(app: &App, headers: &HeaderMap) -> Result<()> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Problem::invalid("a request has one Host header"));
    };
    let host = host.to_str().ok().and_then(|text| text.parse::<Authority>().ok());
    let Some(host) = host else { return Err(Problem::invalid("the Host header is no host")) };
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    let is_loopback =
        name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if app.options.tokens.is_none() && !is_loopback {
        let detail = "without tokens the service answers to localhost only; start it with --tokens";
        return Err(cross_site(detail));
    }
    Ok(())
}

/// Refuses what a page of another site makes a browser send.
fn check_origin(headers: &HeaderMap) -> Result<()> {
    let value = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if value("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(cross_site("the request comes from a page of another site"));
    }
    let Some(origin) = value("origin") else { return Ok(()) };
    let from = origin.split_once("://").map(|(_, authority)| authority);
    if from.is_none() || from != value("host") {
        return Err(cross_site("the Origin of the request is another site"));
    }
    Ok(())
}

fn cross_site(detail: &'static str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "cross_site", "another site", detail)
}

/// What one route needs.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) app: App,
    pub(crate) need: Need,
    pub(crate) id: &'static str,
    pub(crate) path: &'static str,
}

/// The step before one route: who asks, how often, and whether they may.
pub(crate) async fn pass(
    State(gate): State<Gate>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Response {
    let (began, span) = (Instant::now(), span(&gate, &request));
    let params = params.map_err(|error| Problem::invalid(error.body_text()));
    let admitted = params.and_then(|params| admit(&gate, &params, &request));
    let response = match admitted {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).instrument(span.clone()).await
        }
        Err(problem) => problem.into_response(),
    };
    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    gate.app.metrics.answered(gate.id, response.status(), began.elapsed());
    response
}

/// The span of a request, in OpenTelemetry's words. The route stands for the path: that has names in it.
fn span(gate: &Gate, request: &Request) -> Span {
    let method = request.method().as_str();
    let span = tracing::debug_span!(
        "request",
        otel.name = format_args!("{method} {}", gate.path),
        otel.kind = "server",
        otel.status_code = field::Empty,
        http.request.method = method,
        http.route = gate.path,
        http.response.status_code = field::Empty,
    );
    #[cfg(feature = "otel")]
    crate::otel::follow(&span, request.headers());
    span
}

fn admit(gate: &Gate, params: &RawPathParams, request: &Request) -> Result<Caller> {
    let (app, need) = (&gate.app, gate.need);
    if need == Need::Open {
        return Ok(app.anonymous.clone());
    }
    let caller = match &app.options.tokens {
        Some(tokens) => Caller::of(tokens, request.headers())?,
        None => app.anonymous.clone(),
    };
    if let Some(peer) = request.extensions().get::<Arc<Peer>>() {
        peer.belongs_to(&caller)?;
    }
    caller.take_rate()?;
    let (right, name) = match need {
        Need::Open | Need::Token => return Ok(caller),
        Need::Some(right) => (right, None),
        Need::All(right) => (right, Some(String::new())),
        Need::For(right, named) => (right, Some(name_of(app, named, params)?)),
    };
    let may = name.as_ref().map_or_else(|| caller.may_some(right), |name| caller.may(right, name));
    if !may {
        return Err(forbidden(&caller, right, name.as_deref()));
    }
    if need.changes() && app.options.read_only {
        let detail = "this service was started with --read-only";
        return Err(Problem::new(StatusCode::FORBIDDEN, "read_only", "read-only", detail));
    }
    if app.draining.is_cancelled() {
        return Err(Problem::draining());
    }
    Ok(caller)
}

pub(crate) fn forbidden(caller: &Caller, right: Right, name: Option<&str>) -> Problem {
    let of = match name {
        None => "any name".to_owned(),
        Some("") => "all names".to_owned(),
        Some(name) => format!("\"{name}\""),
    };
    let detail = format!("the token {} lacks the right to {} {of}", caller.name(), right.as_str());
    let problem = Problem::new(StatusCode::FORBIDDEN, "forbidden", "not allowed", detail);
    match name {
        Some(name) if !name.is_empty() => problem.about(name),
        _ => problem,
    }
}

fn name_of(app: &App, named: Named, params: &RawPathParams) -> Result<String> {
    let place = |wanted: &str| {
        params.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value).unwrap_or_default()
    };
    Ok(match named {
        Named::Lock => place("name").to_owned(),
        Named::Record => {
            let key = app.leases.idempotency(place("operation")).key(place("key"));
            key.store_key()?.to_string()
        }
        Named::Mark => format!("{}:{}", place("kind"), place("id")),
        Named::Pool => format!("deadlines:{}", place("pool")),
    })
}

/// Where a request came from, for the audit.
pub(crate) fn address(peer: Option<&Arc<Peer>>) -> String {
    peer.map_or_else(|| "unknown".into(), |peer| SocketAddr::ip(&peer.address).to_string())
}
