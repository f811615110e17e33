//! The layer for the `Idempotency-Key` header.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, Method, StatusCode, header, request::Parts};
use leasehold::{Leasehold, idempotency::RESULT_MAX_LIMIT};
use tower::Layer;

use crate::service::IdempotencyService;

/// Room for the first line of a stored response, besides its body.
pub(crate) const HEAD_BYTES: usize = 64 * 1024;

/// The header that marks a replayed response, with the value `true`.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Executes requests with the same `Idempotency-Key` once, and replays the response to the others.
///
/// - It handles POST and PATCH; other methods pass.
/// - A key belongs to one caller ([`principal`](Self::principal)), method and path. The path is the one the layer sees:
///   without the prefix that an outer router has stripped. So layers inside two nested routers need an
///   [`operation`](Self::operation) each, or one layer around both.
/// - Two requests are the same if method, path, query and body are equal; otherwise the second is refused with 422.
/// - The work continues when its caller hangs up: it runs in its own task.
/// - The response is read to its end, or until it is too large to be stored, before the caller gets any of it: do not
///   use keys for requests whose response is a stream.
/// - The first response is passed on as it is. A replay has the status, the [headers that are kept](Self::keep_headers) and
///   the body, but no trailers.
/// - Responses that may differ next time are not stored, and the next request executes again: 5xx, 401, 403, 408, 425, 429
///   ([`store_when`](Self::store_when)), and any 4xx with `Retry-After`, such as that of a [`LockLayer`](crate::LockLayer)
///   inside this one.
/// - A response that is too large is passed on but not stored: later requests are refused with 409.
/// - If work outlives its lease and another request begins, both callers get their own response, and the later one is
///   stored. Give the [`Fence`](leasehold::Fence), which is among the request's extensions, to what you write to.
///
/// In the store a key is `idempotency:OPERATION:SCOPE.KEY`, SCOPE being 32 hex digits.
#[derive(Clone)]
pub struct IdempotencyLayer {
    pub(crate) settings: Settings,
}

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) leases: Leasehold,
    pub(crate) operation: String,
    pub(crate) required: bool,
    pub(crate) methods: Vec<Method>,
    pub(crate) principal: Option<Principal>,
    pub(crate) keep_headers: Vec<HeaderName>,
    pub(crate) request_max: usize,
    pub(crate) response_max: usize,
    pub(crate) store_when: StoreWhen,
    pub(crate) lease_ttl: Duration,
    pub(crate) keep_result_for: Duration,
    pub(crate) wait: Duration,
}

type Principal = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;
type StoreWhen = Arc<dyn Fn(StatusCode) -> bool + Send + Sync>;

const KEPT_HEADERS: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LOCATION,
    header::LOCATION,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
];

impl IdempotencyLayer {
    /// A layer with the defaults.
    pub fn new(leases: Leasehold) -> Self {
        Self {
            settings: Settings {
                leases,
                operation: "http".into(),
                required: false,
                methods: vec![Method::POST, Method::PATCH],
                principal: None,
                keep_headers: KEPT_HEADERS.to_vec(),
                request_max: 1024 * 1024,
                response_max: 192 * 1024,
                store_when: Arc::new(is_final),
                lease_ttl: Duration::from_secs(30),
                keep_result_for: Duration::from_secs(86_400),
                wait: Duration::ZERO,
            },
        }
    }

    /// Refuses requests without a key. Default: they pass.
    pub fn required(mut self) -> Self {
        self.settings.required = true;
        self
    }

    /// The methods it handles. Default: POST and PATCH.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.settings.methods = methods.into_iter().collect();
        self
    }

    /// The caller, such as the authenticated user. Without it all callers share one namespace of keys, and a caller that
    /// guesses another's key and request gets the other's response: omit it only if there is a single caller.
    pub fn principal(mut self, who: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.settings.principal = Some(Arc::new(who));
        self
    }

    /// The name of the operation in the store. Default: `http`. Services that share a store need one each.
    pub fn operation(mut self, operation: impl Into<String>) -> Self {
        self.settings.operation = operation.into();
        self
    }

    /// The headers that a replay has. Default: type, encoding, language and location of the content, `Location`, `ETag`,
    /// `Last-Modified` and `Link`.
    pub fn keep_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.keep_headers = names.into_iter().collect();
        self
    }

    /// Largest request body in bytes; it is read before the work begins. Default 1 MiB.
    pub fn request_max(mut self, bytes: usize) -> Self {
        self.settings.request_max = bytes;
        self
    }

    /// Largest response body in bytes that is stored. Default 192 KiB.
    ///
    /// # Panics
    /// For more than 64 MiB less 64 KiB, because no store keeps a longer result.
    pub fn response_max(mut self, bytes: usize) -> Self {
        let most = RESULT_MAX_LIMIT - HEAD_BYTES;
        assert!(bytes <= most, "response_max is {bytes} bytes; expected at most {most}");
        self.settings.response_max = bytes;
        self
    }

    /// Which responses are stored and replayed; after others the next request executes again. Default: all but 5xx, 401,
    /// 403, 408, 425 and 429. A 4xx with `Retry-After` is never stored.
    pub fn store_when(mut self, stored: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.settings.store_when = Arc::new(stored);
        self
    }

    /// How long a crashed execution blocks others. Default 30 s; it is renewed while the work runs.
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.settings.lease_ttl = ttl;
        self
    }

    /// How long a response is kept. Default 24 h.
    pub fn keep_result_for(mut self, time: Duration) -> Self {
        self.settings.keep_result_for = time;
        self
    }

    /// How long a duplicate waits for the response of the first. Default: not at all, it is answered with 409.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }
}

/// Whether a response would be the same later: a caller may authenticate, be granted a permission, or retry later.
fn is_final(status: StatusCode) -> bool {
    !status.is_server_error() && !matches!(status.as_u16(), 401 | 403 | 408 | 425 | 429)
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService { inner, settings: Arc::new(self.settings.clone()) }
    }
}
