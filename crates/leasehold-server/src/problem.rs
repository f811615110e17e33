//! Why a request was refused: problem details (RFC 9457) with the words of the library.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use leasehold::{Error, ErrorKind, Fence, Holder};
use schemars::JsonSchema;
use serde::Serialize;

use crate::views::{Fence64, HolderView, millis};

/// When to ask again after an outage.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);

pub(crate) type Result<T, E = Problem> = std::result::Result<T, E>;

/// A refusal. Boxed, because most results are none.
#[derive(Debug)]
pub(crate) struct Problem(Box<Details>);

/// The body of a refusal, of the type `application/problem+json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct Details {
    /// `urn:leasehold:problem:KIND`
    #[serde(rename = "type")]
    urn: String,
    title: String,
    status: u16,
    /// What happened, to which name, and what to do.
    detail: String,
    /// One word.
    kind: &'static str,
    /// Whether the same request may succeed later without anybody changing anything.
    retry: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Where in the body, as a JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<HolderView>,
    /// The place in the queue that the caller has, or would get.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<Fence64>,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self(Box::new(Details {
            urn: format!("urn:leasehold:problem:{kind}"),
            title: title.into(),
            status: status.as_u16(),
            detail: detail.into(),
            kind,
            retry: false,
            name: None,
            pointer: None,
            retry_after_ms: None,
            holder: None,
            place: None,
            fence: None,
        }))
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", "invalid request", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "not found", detail)
    }

    pub(crate) fn gone(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "gone", "gone", detail)
    }

    pub(crate) fn mismatch(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "mismatch", "another request under this key", detail)
    }

    pub(crate) fn taken(name: &str, by: Option<Fence>) -> Self {
        let detail = format!("\"{name}\" had run out and somebody else holds it by now");
        let mut problem =
            Self::new(StatusCode::CONFLICT, "taken", "taken by another holder", detail).about(name);
        problem.0.fence = by.map(Fence64::from);
        problem
    }

    pub(crate) fn lost(name: &str) -> Self {
        let detail = format!("the lease of \"{name}\" had ended before this request");
        Self::new(StatusCode::GONE, "lost", "the lease has ended", detail).about(name)
    }

    pub(crate) fn draining() -> Self {
        let detail =
            "the service is being stopped; locks that are held stay held; ask again, or another service";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "draining", "the service stops", detail)
            .again_in(OUTAGE_PAUSE)
    }

    pub(crate) fn overloaded(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "overloaded", detail).again_in(OUTAGE_PAUSE)
    }

    /// A lock that another one has.
    pub(crate) fn busy(name: &str, holder: Option<&Holder>, place: Option<u32>, pause: Duration) -> Self {
        let by = holder.map_or_else(|| "another holder".to_owned(), ToString::to_string);
        let detail = format!("\"{name}\" is held by {by}; ask again, or wait with the header Prefer: wait=N");
        let mut problem = Self::new(StatusCode::CONFLICT, "busy", "held by another", detail).about(name);
        (problem.0.holder, problem.0.place) = (holder.map(HolderView::from), place);
        problem.again_in(pause)
    }

    pub(crate) fn about(mut self, name: &str) -> Self {
        self.0.name = Some(name.to_owned());
        self
    }

    pub(crate) fn held_by(mut self, holder: HolderView) -> Self {
        self.0.holder = Some(holder);
        self
    }

    pub(crate) fn at(mut self, pointer: String) -> Self {
        self.0.pointer = Some(pointer);
        self
    }

    pub(crate) fn fence(mut self, fence: Option<Fence>) -> Self {
        self.0.fence = fence.map(Fence64::from);
        self
    }

    pub(crate) fn again_in(mut self, pause: Duration) -> Self {
        self.0.retry = true;
        self.0.retry_after_ms = Some(millis(pause).max(1));
        self
    }

    /// The whole answer, where the router cannot write it.
    pub(crate) fn message(&self) -> Vec<u8> {
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.0.status,
            self.0.title,
            body.len(),
        );
        [head.into_bytes(), body].concat()
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> u16 {
        self.0.status
    }

    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (status, title) = match error.kind() {
            ErrorKind::TimedOut => (StatusCode::CONFLICT, "held by another"),
            ErrorKind::Lost => (StatusCode::GONE, "the lease has ended"),
            ErrorKind::StoreUnreachable => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer"),
            ErrorKind::StoreRefused if error.is_retryable() => {
                (StatusCode::SERVICE_UNAVAILABLE, "the store refused")
            }
            ErrorKind::StoreRefused => (StatusCode::BAD_GATEWAY, "the store refused"),
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, "invalid request"),
            ErrorKind::WrongType | ErrorKind::OtherMode | ErrorKind::OtherLimit | ErrorKind::OtherCount => {
                (StatusCode::CONFLICT, "the name is in use as something else")
            }
            ErrorKind::Unsupported => (StatusCode::NOT_IMPLEMENTED, "not supported by this store"),
            ErrorKind::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
            // `Corrupt`, and what a later library adds.
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "unreadable"),
        };
        let kind = match error.kind() {
            ErrorKind::TimedOut => "busy",
            kind => kind.as_str(),
        };
        let mut problem = Self::new(status, kind, title, error.to_string());
        if error.is_retryable() {
            problem = problem.again_in(OUTAGE_PAUSE);
        }
        match &error {
            Error::TimedOut { name, holder, .. } => {
                problem.0.holder = holder.as_ref().map(HolderView::from);
                problem.about(name.as_str())
            }
            Error::Lost { name, .. }
            | Error::WrongType { name, .. }
            | Error::OtherMode { name, .. }
            | Error::OtherLimit { name, .. }
            | Error::OtherCount { name, .. } => problem.about(name.as_str()),
            _ => problem,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let details = *self.0;
        let status = StatusCode::from_u16(details.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&details).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(pause) = details.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(pause.div_ceil(1000)));
        }
        response
    }
}
