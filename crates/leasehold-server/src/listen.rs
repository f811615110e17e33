//! Connections: accepted up to a limit, with time limits of their own, and drained at the end.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::Router;
use futures_util::TryFutureExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::{
    connection::Peer,
    head::{HeadWatch, Watched},
    limits::HANDSHAKE_TIMEOUT,
    problem::Problem,
    state::App,
    tls::Tls,
};

/// Pause after an accept that failed: descriptors may be used up.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long telling a client that it is too slow may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where connections go.
#[derive(Clone)]
pub(crate) struct Entrance {
    pub(crate) app: App,
    pub(crate) router: Router,
    pub(crate) tls: Option<Tls>,
    pub(crate) connections: TaskTracker,
}

impl Entrance {
    /// Accepts until the service stops.
    pub(crate) async fn accept(self, listener: TcpListener) {
        let room = Arc::new(Semaphore::new(self.app.options.limits.connections));
        let draining = self.app.draining.clone();
        loop {
            let next = async {
                let permit = room.clone().acquire_owned().await.map_err(io::Error::other)?;
                Ok::<_, io::Error>((listener.accept().await?, permit))
            };
            let accepted = tokio::select! {
                biased;
                () = draining.cancelled() => return,
                accepted = next => accepted,
            };
            match accepted {
                Ok(((stream, address), permit)) => {
                    let entrance = self.clone();
                    self.connections.spawn(async move { entrance.serve(stream, address, permit).await });
                }
                Err(error) => {
                    self.app.metrics.rejected_connections.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve(self, stream: TcpStream, address: SocketAddr, _permit: OwnedSemaphorePermit) {
        let _counted = Counted::new(&self.app);
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection delays small writes");
        }
        match &self.tls {
            None => self.speak(stream, address).await,
            Some(tls) => {
                let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.0.accept(stream)).await;
                match handshake {
                    Ok(Ok(stream)) => self.speak(stream, address).await,
                    Ok(Err(error)) => tracing::debug!(%address, %error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!(%address, "a TLS handshake took too long"),
                }
            }
        }
    }

    async fn speak(&self, stream: impl AsyncRead + AsyncWrite + Unpin, address: SocketAddr) {
        let (peer, watch) = (Arc::new(Peer::new(address)), HeadWatch::new());
        let answering = watch.clone();
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            let answering = answering.complete();
            request.extensions_mut().insert(peer.clone());
            let answer = self.router.clone().oneshot(request.map(axum::body::Body::new));
            answer.map_ok(|answer| answer.map(|body| answering.with(body)))
        });
        let limits = &self.app.options.limits;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(limits.idle_time).max_buf_size(64 * 1024);
        let stream = TokioIo::new(Watched { stream, watch: watch.clone() });
        let mut connection = http.serve_connection(stream, service);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            has_begun = watch.late(limits.header_time) => {
                if has_begun {
                    too_slow(connection.into_parts().io.into_inner(), limits.header_time).await;
                }
                return;
            }
            () = self.app.draining.cancelled() => {
                // What is under way is answered, and then the connection ends.
                Pin::new(&mut connection).graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%address, %error, "a connection ended early");
        }
    }
}

/// Tells a client that its headers came too slowly.
async fn too_slow(mut stream: impl AsyncWrite + Unpin, most: Duration) {
    let detail = format!("the headers of the request did not arrive within {most:?}");
    let problem = Problem::new(http::StatusCode::REQUEST_TIMEOUT, "timeout", "headers too slow", detail);
    let answer = problem.message();
    let told = async {
        stream.write_all(&answer).await?;
        stream.shutdown().await
    };
    if !tokio::time::timeout(LAST_WORDS, told).await.is_ok_and(|told| told.is_ok()) {
        tracing::debug!("a client that was too slow was not told so");
    }
}

/// A connection that is counted while it lives.
struct Counted(App);

impl Counted {
    fn new(app: &App) -> Self {
        app.connections.fetch_add(1, Ordering::Relaxed);
        Self(app.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets the process have as many connections as the system allows.
pub(crate) fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}
