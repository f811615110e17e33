//! How a request with an `Idempotency-Key` is processed.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body::Body as HttpBody;
use leasehold::idempotency::{Begun, Execution, Settled};
use tower::Service;
use tracing::Instrument;

use crate::{
    body::{Body, BoxError, Read, boxed, read, whole},
    idempotency::{HEAD_BYTES, REPLAYED, Settings},
    key,
    problem::{again_in, fault, lost, problem},
    stored::{self, Stored},
};

/// Longest `Retry-After` of a duplicate: the work seldom takes as long as its lease.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A service whose requests are executed once per key; made by [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Clone)]
pub struct IdempotencyService<S> {
    pub(crate) inner: S,
    pub(crate) settings: Arc<Settings>,
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled ready handles this request; its clone serves the next one.
        let copy = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, copy);
        let settings = self.settings.clone();
        Box::pin(handle(inner, settings, request))
    }
}

async fn handle<S, B, R>(
    mut inner: S,
    settings: Arc<Settings>,
    request: Request<B>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let key = match key_of(&settings, &request) {
        Ok(Some(key)) => key,
        Ok(None) => return inner.call(request.map(boxed)).await.map(|response| response.map(boxed)),
        Err(refusal) => return Ok(refusal),
    };
    let (mut parts, body) = request.into_parts();
    let (body, trailers) = match read(body, settings.request_max).await {
        Ok(Read::Whole(body, trailers)) => (body, trailers),
        Ok(Read::TooLarge(_)) => return Ok(too_large(settings.request_max)),
        Err(error) => return Ok(unreadable(&error)),
    };
    let execution = match begin(&settings, &parts, &key, &body).await {
        Ok(execution) => execution,
        Err(answer) => return Ok(answer),
    };
    parts.extensions.insert(execution.fence());
    let request = Request::from_parts(parts, whole(body, trailers));
    // A caller that hangs up drops this future; the work and its result must not go with it.
    let work = async move { execute(inner.call(request), execution, &settings).await };
    match tokio::spawn(work.in_current_span()).await {
        Ok(answer) => answer,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Ok(lost()),
        },
    }
}

/// The key, if the layer handles this method and the request has one.
#[expect(clippy::result_large_err, reason = "the error is a response")]
fn key_of<B>(settings: &Settings, request: &Request<B>) -> Result<Option<String>, Response<Body>> {
    if !settings.methods.contains(request.method()) {
        return Ok(None);
    }
    let bad = |word, detail| problem(StatusCode::BAD_REQUEST, word, "bad idempotency key", detail);
    match key::key_of(request.headers()) {
        Ok(None) if settings.required => {
            Err(bad("key-missing", "this request needs the header Idempotency-Key"))
        }
        Ok(key) => Ok(key),
        Err(()) => Err(bad(
            "key-invalid",
            "Idempotency-Key is one value of 1 to 255 visible ASCII characters, bare or as a quoted string",
        )),
    }
}

async fn begin(
    settings: &Settings,
    parts: &Parts,
    key: &str,
    body: &[u8],
) -> Result<Execution<Bytes>, Response<Body>> {
    let principal = settings.principal.as_ref().and_then(|who| who(parts));
    let begun = settings
        .leases
        .idempotency(&settings.operation)
        .key(key::scoped(parts, principal.as_deref(), key))
        .fingerprint_bytes(key::fingerprint(parts, body))
        .lease_ttl(settings.lease_ttl)
        .keep_result_for(settings.keep_result_for)
        .wait(settings.wait)
        .result_max(settings.response_max + HEAD_BYTES)
        .begin_bytes()
        .await;
    let conflict = |word, title, detail: &str| problem(StatusCode::CONFLICT, word, title, detail);
    Err(match begun {
        Ok(Begun::Yours(execution)) => return Ok(execution),
        Ok(Begun::Completed(text)) => replay(&text),
        Ok(Begun::InProgress { look_again, .. }) => {
            let detail = "the same request is in progress; try again later for its response";
            again_in(conflict("in-progress", "in progress", detail), look_again.min(PAUSE_MAX))
        }
        Ok(Begun::Mismatch) => problem(
            StatusCode::UNPROCESSABLE_ENTITY,
            "mismatch",
            "key of another request",
            "this Idempotency-Key was used for a request with another body or query",
        ),
        Ok(_) => conflict(
            "not-replayable",
            "already executed",
            "the request was already executed, and its response was not stored",
        ),
        Err(error) => fault(&error),
    })
}

/// The stored response.
fn replay(text: &Bytes) -> Response<Body> {
    match stored::read(text) {
        Some(Stored::Whole(mut response)) => {
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            response
        }
        Some(Stored::TooLarge(status)) => {
            let detail = format!(
                "the request was already executed with status {status}, and its response was too large to store"
            );
            problem(StatusCode::CONFLICT, "not-replayable", "already executed", &detail)
        }
        None => {
            tracing::error!("a stored response cannot be read");
            let detail = "the record of this Idempotency-Key is not a response";
            problem(StatusCode::INTERNAL_SERVER_ERROR, "fault", "fault", detail)
        }
    }
}

/// Executes the request and stores the response. The work is cancelled when its lease is lost.
async fn execute<R, E>(
    work: impl Future<Output = Result<Response<R>, E>>,
    execution: Execution<Bytes>,
    settings: &Settings,
) -> Result<Response<Body>, E>
where
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let lease = execution.lease();
    let worked = async {
        let (head, body) = work.await?.into_parts();
        Ok((head, read(body, settings.response_max).await))
    };
    let (head, body) = tokio::select! {
        biased;
        () = lease.lost() => return Ok(lost()),
        worked = worked => match worked {
            Ok(worked) => worked,
            Err(error) => {
                give_back(execution, "the service failed").await;
                return Err(error);
            }
        },
    };
    let body = match body {
        Ok(body) => body,
        Err(error) => {
            give_back(execution, "its response broke off").await;
            return Ok(unreadable_response(&error));
        }
    };
    let asks_again = head.status.is_client_error() && head.headers.contains_key(header::RETRY_AFTER);
    if asks_again || !(settings.store_when)(head.status) {
        give_back(execution, head.status.as_str()).await;
    } else {
        let bytes = match &body {
            Read::Whole(bytes, _) => Some(&bytes[..]),
            Read::TooLarge(_) => None,
        };
        let text = stored::write(head.status, &head.headers, &settings.keep_headers, bytes);
        // The library logs a failure and retries: the work was done, so its caller gets the response.
        if let Ok(Settled::FencedOff { .. }) = execution.complete_bytes(text).await {
            tracing::warn!("a request took longer than its lease, and was executed again meanwhile");
        }
    }
    let body = match body {
        Read::Whole(bytes, trailers) => whole(bytes, trailers),
        Read::TooLarge(body) => body,
    };
    Ok(Response::from_parts(head, body))
}

/// Allows the next request to execute. The library logs a failure and retries.
async fn give_back(execution: Execution<Bytes>, why: &str) {
    let _logged = execution.fail(why).await;
}

fn too_large(most: usize) -> Response<Body> {
    let detail = format!("requests with an Idempotency-Key have a body of at most {most} bytes");
    let mut response =
        problem(StatusCode::PAYLOAD_TOO_LARGE, "request-too-large", "request too large", &detail);
    // The rest of the body was not read.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn unreadable(error: &BoxError) -> Response<Body> {
    tracing::debug!(%error, "a request broke off");
    problem(StatusCode::BAD_REQUEST, "request-unreadable", "request unreadable", "the body broke off")
}

fn unreadable_response(error: &BoxError) -> Response<Body> {
    tracing::error!(%error, "a response broke off");
    let detail = "the response broke off";
    problem(StatusCode::INTERNAL_SERVER_ERROR, "response-unreadable", "response unreadable", detail)
}
