//! How a response is stored: one line of JSON, then the body as it is.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize};

use crate::body::{Body, full};

#[derive(Serialize, Deserialize)]
struct Head {
    v: u8,
    status: u16,
    /// Each byte of a value as a character: not all of them are UTF-8.
    headers: Vec<(String, String)>,
    /// Whether the body follows; otherwise it was too large.
    whole: bool,
}

const LAYOUT: u8 = 1;

/// The text of a response, with the headers that `keep` names; without its body if that was too large.
pub(crate) fn write(
    status: StatusCode,
    headers: &HeaderMap,
    keep: &[HeaderName],
    body: Option<&[u8]>,
) -> Bytes {
    let headers = headers
        .iter()
        .filter(|(name, _)| keep.contains(name))
        .map(|(name, value)| (name.to_string(), value.as_bytes().iter().copied().map(char::from).collect()))
        .collect();
    let head = Head { v: LAYOUT, status: status.as_u16(), headers, whole: body.is_some() };
    let body = body.unwrap_or_default();
    let mut text = BytesMut::with_capacity(256 + body.len());
    // Strings and numbers: nothing that JSON lacks.
    text.put_slice(&serde_json::to_vec(&head).unwrap_or_default());
    text.put_u8(b'\n');
    text.put_slice(body);
    text.freeze()
}

/// What was stored.
pub(crate) enum Stored {
    Whole(Response<Body>),
    /// It was done, with this status.
    TooLarge(StatusCode),
}

/// Reads it back; `None` if it is something else.
pub(crate) fn read(text: &Bytes) -> Option<Stored> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let head: Head = serde_json::from_slice(&text[..end]).ok().filter(|head: &Head| head.v == LAYOUT)?;
    let status = StatusCode::from_u16(head.status).ok()?;
    if !head.whole {
        return Some(Stored::TooLarge(status));
    }
    let mut response = Response::new(full(text.slice(end + 1..)));
    *response.status_mut() = status;
    for (name, value) in head.headers {
        let name = HeaderName::try_from(name).ok()?;
        let value = value.chars().map(u8::try_from).collect::<Result<Vec<_>, _>>().ok()?;
        response.headers_mut().append(name, HeaderValue::try_from(value).ok()?);
    }
    Some(Stored::Whole(response))
}
