//! Requests that are meant to be read in two ways, or to reach what they may not.

use std::io::{Read, Write};

use serde_json::json;

use crate::{
    client::{Request, Service, connect, raw},
    security::{guarded, with},
};

#[test]
fn a_request_that_two_readers_see_differently_is_refused() {
    let service = Service::on("memory:");
    let address = service.address;
    let head =
        format!("POST /v1/locks/a/acquire HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n");
    for more in [
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "Content-Length: x\r\n\r\n{}",
        "Content-Length: 2, 2\r\n\r\n{}",
        "Content-Length: +2\r\n\r\n{}",
        "Content-Length: 0x2\r\n\r\n{}",
        "Content-Length: 18446744073709551617\r\n\r\n{}",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Host: elsewhere.example\r\nContent-Length: 2\r\n\r\n{}",
        "X: a\r\n folded\r\nContent-Length: 2\r\n\r\n{}",
        "X: a\0b\r\nContent-Length: 2\r\n\r\n{}",
        "Bad Header: 1\r\n\r\n",
    ] {
        let answer = raw(address, format!("{head}{more}").as_bytes());
        assert!([400, 411].contains(&answer.status), "{more:?}: {} {}", answer.status, answer.text);
    }
    for text in ["GET /v1/locks HTTP/1.1\r\nConnection: close\r\n\r\n", "nonsense\r\n\r\n"] {
        assert_eq!(raw(address, text.as_bytes()).status, 400, "{text:?}");
    }
    assert_eq!(service.get("/v1/locks/a").json()["state"], "free");
}

/// Whatever follows a request that was refused for its framing is not taken for another one.
#[test]
fn nothing_is_smuggled_behind_a_request() {
    let service = Service::on("memory:");
    let address = service.address;
    let hidden = format!(
        "POST /v1/locks/hidden/acquire HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    let length = hidden.len();
    for framing in [
        format!("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{hidden}"),
        format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{hidden}\r\n0\r\n\r\n"),
        format!("Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n{hidden}"),
    ] {
        let mut stream = connect(address);
        let head = format!("POST /v1/locks/open/extend HTTP/1.1\r\nHost: {address}\r\n");
        let _refused_early = stream.write_all(format!("{head}{framing}").as_bytes());
        let mut text = Vec::new();
        let _reset_at_the_end = stream.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{framing:?}: {text}");
        assert_eq!(service.get("/v1/locks/hidden").json()["state"], "free", "{framing:?}");
    }
}

#[test]
fn names_of_every_kind_stay_what_they_are() {
    let service = Service::on("memory:");
    for (path, name) in
        [("a%2Fb", "a/b"), ("..%2F..%2Fetc", "../../etc"), ("%7Btag%7D:x", "{tag}:x"), ("%C3%BC%20x", "ü x")]
    {
        assert_eq!(service.hold(path, &json!({}))["name"], name);
    }
    for path in
        ["/../v1/locks", "//v1/locks", "/v1/../healthz", "/%2e%2e/etc/passwd", "/assets/../../Cargo.toml"]
    {
        let answer = service.get(path);
        assert!(!answer.text.contains("[package]") && [400, 404, 200].contains(&answer.status), "{path}");
    }
}

/// A path is read once, and never as another one.
#[test]
fn a_path_reaches_what_it_names_and_nothing_else() {
    let service = guarded();
    let acquire = |path: &str| service.send(with("deploy", "POST", path).json(&json!({})));
    for (path, status) in [
        ("/v1/locks/deploy:x/../payout/acquire", 404),
        ("/v1/locks/deploy:x/%2e%2e/payout/acquire", 404),
        ("/v1/locks/deploy:%2F..%2F..%2Fpayout/acquire", 200),
        ("/v1/locks/deploy:x%00/acquire", 400),
        ("/v1/locks/deploy:x%0d%0aX-Y:%20z/acquire", 400),
        ("/v1//locks/deploy:x/acquire", 404),
        ("//v1/locks/deploy:x/acquire", 404),
        ("/v1/locks/deploy:x/acquire/", 404),
        ("/v1/locks//acquire", 403),
        ("/V1/locks/deploy:x/acquire", 404),
        ("/v1/locks/deploy%3Ay/acquire", 200),
        ("/v1/locks/%64eploy:z/acquire", 200),
        ("/v1/locks/deploy%253Ax/acquire", 403),
        ("/v1/locks/payout%23deploy:/acquire", 403),
        ("/v1/locks/payout;deploy:/acquire", 403),
        ("/v1/locks/payout/acquire?name=deploy:x", 403),
        ("/v1/idempotency/deploy:a%3Apayout/1/begin", 403),
    ] {
        assert_eq!(acquire(path).status, status, "{path}: {}", acquire(path).text);
    }
    let raw_nul = format!("GET /v1/locks/a\0b HTTP/1.1\r\nHost: {}\r\n\r\n", service.address);
    assert_eq!(raw(service.address, raw_nul.as_bytes()).status, 400);
    let absolute = format!(
        "GET http://evil.example/v1/whoami HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        service.address
    );
    assert_eq!(raw(service.address, absolute.as_bytes()).kind(401), "unauthorized");
    for name in ["payout", "/payout", "deploy:x"] {
        let path = format!("/v1/locks/{}", name.replace('/', "%2F"));
        assert_eq!(service.send(with("all", "GET", &path)).json()["state"], "free", "{name}");
    }
}

/// The token counts, and nothing that looks like one.
#[test]
fn a_token_is_only_taken_from_its_header() {
    let service = guarded();
    for request in [
        Request::new("GET", "/v1/locks?token=all"),
        Request::new("GET", "/v1/locks?access_token=all"),
        Request::new("GET", "/v1/locks").header("Cookie", "token=all"),
        Request::new("GET", "/v1/locks").header("Authorization", "Basic all"),
        Request::new("GET", "/v1/locks").header("Authorization", "Bearer"),
        Request::new("GET", "/v1/locks").header("Authorization", "Bearer all all"),
        Request::new("GET", "/v1/locks").header("Authorization", "Bearer ALL"),
        Request::new("GET", "/v1/locks").header("X-Forwarded-User", "all"),
        with("guess", "GET", "/v1/locks").header("Authorization", "Bearer all"),
        with("old", "GET", "/v1/locks"),
    ] {
        assert_eq!(service.send(request).kind(401), "unauthorized");
    }
    assert_eq!(service.send(with("all", "GET", "/v1/locks")).status, 200);
}
