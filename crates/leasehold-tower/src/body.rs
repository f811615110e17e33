//! Bodies: of one type, read up to a limit, or holding a lock.

use std::{
    collections::VecDeque,
    future::ready,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use leasehold::Guard;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of requests that a layer passes on, and of its responses.
pub struct Body(UnsyncBoxBody<Bytes, BoxError>);

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Body")
    }
}

pub(crate) fn boxed<B>(body: B) -> Body
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Body(body.map_err(Into::into).boxed_unsync())
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    boxed(Full::new(bytes.into()))
}

/// A body that was read.
pub(crate) enum Read {
    Whole(Bytes, Option<HeaderMap>),
    /// It is larger than the limit; this is still all of it.
    TooLarge(Body),
}

/// A body of these bytes, then these trailers.
pub(crate) fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Body {
    match trailers {
        Some(trailers) => boxed(Full::new(bytes).with_trailers(ready(Some(Ok(trailers))))),
        None => full(bytes),
    }
}

/// Reads a body of at most `most` bytes.
pub(crate) async fn read<B>(body: B, most: usize) -> Result<Read, BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut rest = boxed(body);
    let (mut frames, mut length, mut trailers) = (VecDeque::new(), 0, None);
    while let Some(frame) = rest.frame().await {
        let data = match frame?.into_data() {
            Ok(data) => data,
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                continue;
            }
        };
        length += data.len();
        frames.push_back(data);
        if length > most {
            return Ok(Read::TooLarge(boxed(Resumed { frames, rest })));
        }
    }
    let mut whole = BytesMut::with_capacity(length);
    frames.iter().for_each(|data| whole.extend_from_slice(data));
    Ok(Read::Whole(whole.freeze(), trailers))
}

/// A body of which some frames were read already.
struct Resumed {
    frames: VecDeque<Bytes>,
    rest: Body,
}

impl HttpBody for Resumed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.frames.pop_front() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }
}

/// A body that holds a lock until it has been sent, and ends with an error if the lock is lost.
pub(crate) struct Holding {
    pub(crate) body: Body,
    pub(crate) guard: Option<Guard>,
}

impl HttpBody for Holding {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.guard.as_ref().is_some_and(|guard| !guard.is_held()) {
            self.guard = None;
            return Poll::Ready(Some(Err("the lock was lost before the response was sent".into())));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            // Released in the background.
            self.guard = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
