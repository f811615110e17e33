//! Responses of the layers themselves: problem details (RFC 9457).

use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};
use leasehold::{Error, ErrorKind};
use serde::Serialize;

use crate::body::{Body, full};

#[derive(Serialize)]
struct Details<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

/// A problem of the type `urn:leasehold:WORD`.
pub(crate) fn problem(status: StatusCode, word: &str, title: &str, detail: &str) -> Response<Body> {
    let details = Details { r#type: format!("urn:leasehold:{word}"), title, status: status.as_u16(), detail };
    let text = serde_json::to_string(&details).unwrap_or_default();
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Adds `Retry-After`: whole seconds, at least one.
pub(crate) fn again_in(mut response: Response<Body>, pause: Duration) -> Response<Body> {
    let seconds = pause.as_millis().div_ceil(1000).max(1);
    if let Ok(value) = HeaderValue::try_from(seconds.to_string()) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

/// `Retry-After` when the store is unavailable.
const OUTAGE_PAUSE: Duration = Duration::from_secs(2);

/// The response to a fault. It reveals nothing about the store; the library has logged that.
pub(crate) fn fault(error: &Error) -> Response<Body> {
    match error.kind() {
        ErrorKind::StoreUnreachable | ErrorKind::StoreRefused | ErrorKind::Overloaded => {
            let detail = "the coordination store is unavailable; nothing was done";
            let response =
                problem(StatusCode::SERVICE_UNAVAILABLE, "store-unavailable", "store unavailable", detail);
            again_in(response, OUTAGE_PAUSE)
        }
        kind => {
            tracing::error!(%kind, %error, "a request was refused");
            let detail = "the request could not be coordinated; see the log of the server";
            problem(StatusCode::INTERNAL_SERVER_ERROR, "fault", "fault", detail)
        }
    }
}

/// The response when a lease ended before the work did.
pub(crate) fn lost() -> Response<Body> {
    let detail = "the lease ended before the work did; the work may be partly done";
    let response = problem(StatusCode::SERVICE_UNAVAILABLE, "lease-lost", "lease lost", detail);
    again_in(response, OUTAGE_PAUSE)
}
