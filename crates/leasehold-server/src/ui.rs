//! The dashboard: files embedded in the binary, under a policy that lets pages load nothing else.

use axum::response::{IntoResponse, Response};
#[cfg(feature = "ui")]
use http::{HeaderValue, header};
use http::{Method, Uri};

use crate::problem::Problem;

/// What a page may load: its own files, and nothing inline.
#[cfg(feature = "ui")]
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Everything that is no route: a file, the page, or nothing.
pub(crate) async fn serve(method: Method, uri: Uri) -> Response {
    let path = uri.path();
    let is_api = path == "/v1" || path.starts_with("/v1/");
    let is_read = matches!(method, Method::GET | Method::HEAD);
    if !is_api
        && is_read
        && let Some(file) = file(path)
    {
        return file;
    }
    Problem::not_found(format!("nothing is at {}", shown(path))).into_response()
}

fn shown(path: &str) -> String {
    path.chars().take(200).collect()
}

#[cfg(feature = "ui")]
#[derive(rust_embed::RustEmbed)]
#[folder = "dist/"]
#[allow_missing = true]
struct Files;

/// A file of the dashboard, or its page for paths of its own.
#[cfg(feature = "ui")]
fn file(path: &str) -> Option<Response> {
    let name = path.trim_start_matches('/');
    let is_page = !name.rsplit('/').next().is_some_and(|last| last.contains('.'));
    let name = if is_page { "index.html" } else { name };
    let found = Files::get(name)?;
    let mut response = found.data.into_owned().into_response();
    let headers = response.headers_mut();
    let kept = if name.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    for (header, value) in [
        (header::CONTENT_TYPE, kind_of(name)),
        (header::CACHE_CONTROL, kept),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(header, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    Some(response)
}

#[cfg(feature = "ui")]
fn kind_of(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("json" | "webmanifest") => "application/json",
        _ => "application/octet-stream",
    }
}

/// A build without the feature `ui` has no pages.
#[cfg(not(feature = "ui"))]
fn file(_: &str) -> Option<Response> {
    None
}
