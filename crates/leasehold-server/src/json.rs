//! What comes in: bodies, queries and headers, checked; each refusal says where.

use std::{borrow::Cow, fmt, marker::PhantomData, time::Duration};

use axum::{
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use leasehold::config::parse_duration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{
    limits::Limits,
    problem::{Problem, Result},
    state::App,
};

/// A JSON body. One that is missing is an empty object.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self> {
        let is_json = is_json(request.headers());
        let body = read(request, &app.options.limits).await?;
        if body.is_empty() {
            return parse(b"{}").map(Self);
        }
        if !is_json {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "media_type",
                "not JSON",
                "send the body as Content-Type: application/json",
            ));
        }
        parse(&body).map(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// The whole body, within its limits of size and time.
async fn read(request: Request, limits: &Limits) -> Result<Bytes> {
    let (most, time) = (limits.body_bytes, limits.body_time);
    let body = Limited::new(request.into_body(), most).collect();
    match tokio::time::timeout(time, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            "body too large",
            format!("a body has at most {most} bytes"),
        )),
        Ok(Err(_)) => Err(Problem::invalid("the body ended too early or is not framed correctly")),
        Err(_) => {
            let detail = format!("the body did not arrive within {time:?}");
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", "body too slow", detail))
        }
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let mut text = serde_json::Deserializer::from_slice(body);
    let Named(value) = serde_path_to_error::deserialize(&mut text).map_err(|error| {
        let pointer = pointer(error.path());
        let at = if pointer.is_empty() { String::new() } else { format!(" at {pointer}") };
        Problem::invalid(format!("the body is refused{at}: {}", error.inner())).at(pointer)
    })?;
    text.end()
        .map_err(|error| Problem::invalid(format!("something follows the JSON of the body: {error}")))?;
    Ok(value)
}

/// An object with named fields. Serde alone also takes an array, whose values would be the fields in their order.
#[derive(Debug)]
pub(crate) struct Named<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Named<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Named)
            }
        }

        from.deserialize_map(Fields(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let segments = path.iter().map(|segment| match segment {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        Segment::Enum { variant } => format!("/{variant}"),
        Segment::Unknown => "/?".into(),
    });
    segments.collect()
}

/// The values of a query; unknown ones are refused.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let read = Query::from_request_parts(parts, app).await;
        let Query(value) = read.map_err(|error| Problem::invalid(error.body_text()))?;
        Ok(Self(value))
    }
}

/// The percent-decoded places of a path.
pub(crate) struct Places<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for Places<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let read = Path::from_request_parts(parts, app).await;
        let Path(value) = read.map_err(|error| Problem::invalid(error.body_text()))?;
        Ok(Self(value))
    }
}

/// An answer in JSON.
pub(crate) fn answer(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => {
            let detail = format!("the answer could not be written: {error}");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "internal error", detail)
                .into_response()
        }
    }
}

/// An answer of 200 in JSON.
pub(crate) fn ok(body: &impl Serialize) -> Response {
    answer(StatusCode::OK, body)
}

/// A duration as on the command line: `250ms`, `30s`, `5m`, `1h`, `0`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(from)?;
        parse_duration(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "a duration with its unit",
            "pattern": "^(0|([0-9]+(ns|us|ms|s|m|h|d|w))+)$",
            "examples": ["250ms", "30s", "5m", "1h30m"],
        })
    }
}

/// A header as text.
pub(crate) fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>> {
    let read =
        |value: &'a http::HeaderValue| value.to_str().map_err(|_| format!("the header {name} is not text"));
    headers.get(name).map(read).transpose().map_err(Problem::invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Two {
        ttl: Option<Span>,
        #[expect(dead_code, reason = "only its place matters")]
        items: Option<Vec<u8>>,
    }

    #[test]
    fn a_refusal_says_where() {
        for (body, says) in [
            ("{\"ttl\":3}", "/ttl"),
            ("{\"ttl\":\"soon\"}", "/ttl"),
            ("{\"items\":[1,\"x\"]}", "/items/1"),
            ("{\"tll\":\"3s\"}", "tll"),
            ("{} {}", "something follows"),
            ("[\"3s\",[]]", "expected an object"),
            ("{", "EOF"),
        ] {
            let problem = parse::<Two>(body.as_bytes()).expect_err(body);
            assert!(problem.detail().contains(says), "{body}: {}", problem.detail());
        }
        assert_eq!(parse::<Two>(b"{\"ttl\":\"3s\"}").unwrap().ttl, Some(Span(Duration::from_secs(3))));
    }
}
