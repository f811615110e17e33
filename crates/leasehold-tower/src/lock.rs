//! The layer that processes one request at a time, per name.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, request::Parts};
use http_body::Body as HttpBody;
use leasehold::{Attempt, Error, Guard, Leasehold};
use tower::{Layer, Service};

use crate::{
    body::{Body, BoxError, Holding, boxed},
    problem::{again_in, fault, lost, problem},
};

/// `Retry-After` for a request whose wait timed out.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// Longest time that a request holds its lock, unless set otherwise.
const LIFETIME_MAX: Duration = Duration::from_secs(300);

/// Holds a lock while a request is processed, until its response has been sent.
///
/// - The closure names the lock. A request without a name is not locked.
/// - The lock is kept alive, up to its [maximum lifetime](Self::max_lifetime): a caller that stops reading the response does
///   not hold it for ever. When it is lost, the work is cancelled and answered with 503; a response that is being sent
///   breaks off.
/// - The [`Fence`](leasehold::Fence) and the [`Lease`](leasehold::Lease) are among the request's extensions.
/// - When the caller hangs up, the work is dropped and the lock released.
/// - It is released in the background once the last byte was handed to the server: a caller that asks again at once may
///   find it held for a moment, and [waits](Self::wait) if the layer allows it.
#[derive(Clone)]
pub struct LockLayer {
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    leases: Leasehold,
    name: NameOf,
    ttl: Duration,
    max_lifetime: Option<Duration>,
    wait: Duration,
}

type NameOf = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

impl LockLayer {
    /// A layer whose closure names the lock of a request.
    pub fn new(leases: Leasehold, name: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        let settings = Settings {
            leases,
            name: Arc::new(name),
            ttl: Duration::from_secs(30),
            max_lifetime: None,
            wait: Duration::ZERO,
        };
        Self { settings }
    }

    /// How long the lock stays held after a crash of the server. Default 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// Longest time that one request holds the lock, including the time its caller takes to read the response. After
    /// that the lock is lost, and free within its ttl. At least the ttl. Default 5 min, or the ttl if that is longer.
    pub fn max_lifetime(mut self, most: Duration) -> Self {
        self.settings.max_lifetime = Some(most);
        self
    }

    /// How long a request waits for the lock. Default: it does not wait, and gets 409.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }
}

impl<S> Layer<S> for LockLayer {
    type Service = LockService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService { inner, settings: self.settings.clone() }
    }
}

/// A service that processes one request at a time, per name; made by [`LockLayer`].
#[derive(Clone)]
pub struct LockService<S> {
    inner: S,
    settings: Settings,
}

impl<S, B, R> Service<Request<B>> for LockService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
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
        let mut inner = std::mem::replace(&mut self.inner, copy);
        let settings = self.settings.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let guard = match (settings.name)(&parts) {
                None => None,
                Some(name) => match settings.acquire(&name).await {
                    Ok(guard) => Some(guard),
                    Err(answer) => return Ok(answer),
                },
            };
            let Some(guard) = guard else {
                let response = inner.call(Request::from_parts(parts, body)).await?;
                return Ok(response.map(boxed));
            };
            parts.extensions.insert(guard.fence());
            parts.extensions.insert(guard.lease());
            let response = tokio::select! {
                biased;
                () = guard.lost() => return Ok(lost()),
                response = inner.call(Request::from_parts(parts, body)) => response?,
            };
            Ok(response.map(|body| boxed(Holding { body: boxed(body), guard: Some(guard) })))
        })
    }
}

impl Settings {
    async fn acquire(&self, name: &str) -> Result<Guard, Response<Body>> {
        let most = self.max_lifetime.unwrap_or(LIFETIME_MAX.max(self.ttl));
        let lock = self.leases.lock(name).ttl(self.ttl).keep_alive().max_lifetime(most);
        let busy = |pause| {
            let detail = "another request holds the lock";
            again_in(problem(StatusCode::CONFLICT, "busy", "busy", detail), pause)
        };
        if self.wait.is_zero() {
            return match lock.try_acquire().await {
                Ok(Attempt::Held(guard)) => Ok(guard),
                Ok(Attempt::Busy { retry_after, .. }) => Err(busy(retry_after)),
                Err(error) => Err(fault(&error)),
            };
        }
        match lock.wait(self.wait).acquire().await {
            Ok(guard) => Ok(guard),
            Err(Error::TimedOut { .. }) => Err(busy(BUSY_PAUSE)),
            Err(error) => Err(fault(&error)),
        }
    }
}
