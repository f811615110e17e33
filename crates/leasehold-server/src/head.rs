//! How long the headers of a request take: whoever sends them byte by byte would keep a connection for ever.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
};

/// Watches the requests of one connection.
#[derive(Debug)]
pub(crate) struct HeadWatch {
    state: Mutex<State>,
    began: Notify,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing was ever sent.
    Opened(Instant),
    /// Some of the headers of a request have come, the first of them then.
    Began(Instant),
    /// A request is being answered.
    Answering,
    /// The next request may take its time.
    Idle,
}

impl HeadWatch {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::Opened(Instant::now())), began: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_some(&self) {
        let mut state = self.state();
        if matches!(*state, State::Opened(_) | State::Idle) {
            *state = State::Began(Instant::now());
            drop(state);
            self.began.notify_one();
        }
    }

    /// The headers are complete. The request counts as being answered for as long as the result lives.
    pub(crate) fn complete(self: &Arc<Self>) -> Answering {
        *self.state() = State::Answering;
        Answering(self.clone())
    }

    /// Waits until headers are later than that, and returns whether any of them had come.
    pub(crate) async fn late(&self, most: Duration) -> bool {
        loop {
            let state = *self.state();
            match state {
                State::Opened(at) | State::Began(at) if at.elapsed() >= most => {
                    return matches!(state, State::Began(_));
                }
                // Looks again only then: a request that is quick sets no timer of its own.
                State::Opened(at) | State::Began(at) => tokio::time::sleep_until((at + most).into()).await,
                State::Answering | State::Idle => self.began.notified().await,
            }
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Answering(Arc<HeadWatch>);

impl Answering {
    pub(crate) fn with(self, body: axum::body::Body) -> AnswerBody {
        AnswerBody { body, _answering: self }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        *self.0.state() = State::Idle;
    }
}

/// The body of an answer; with its end the answer ends.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    body: axum::body::Body,
    _answering: Answering,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that tells the watch what comes in.
pub(crate) struct Watched<S> {
    pub(crate) stream: S,
    pub(crate) watch: Arc<HeadWatch>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        if into.filled().len() > before {
            self.watch.read_some();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
