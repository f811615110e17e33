//! What one client can take up: time, connections, bytes.

use std::{
    io::{BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use leasehold_server::{Builder, Limits};
use leasehold_testkit::eventually;
use rustix::process::{Resource, getrlimit};
use serde_json::json;

use crate::{
    client::{Answer, LONG, Request, Service, connect},
    security::{EVERYTHING, tokens_of, with},
};

/// How many connections that do nothing are opened.
const IDLE: &str = "LEASEHOLD_IDLE_CONNECTIONS";

pub(crate) fn limited(change: impl FnOnce(&mut Limits)) -> Service {
    let mut limits = Limits::default();
    change(&mut limits);
    Service::with("memory:", |builder: Builder| builder.limits(limits))
}

const SHORT: Duration = Duration::from_millis(200);

#[test]
fn bodies_and_headers_have_bounds() {
    let service = limited(|limits| limits.body_bytes = 1_000);
    let body = json!({"label": "x".repeat(2_000)});
    assert_eq!(service.post("/v1/locks/a/acquire", &body).kind(413), "too_large");
    let long = Request::new("GET", &format!("/v1/locks?prefix={}", "x".repeat(10_000)));
    assert_eq!(service.send(long).kind(414), "uri_too_long");
    let fat = Request::new("GET", "/v1/locks").header("X-Fat", &"x".repeat(40_000));
    assert_eq!(service.send(fat).kind(431), "headers_too_large");
    let many =
        (0..300).fold(Request::new("GET", "/v1/locks"), |request, n| request.header(&format!("X-{n}"), "x"));
    assert_eq!(service.send(many).status, 431);
    let endless = Request::new("GET", "/v1/locks").header("X-Fat", &"x".repeat(1_000_000));
    assert_eq!(service.send(endless).status, 431);
}

/// What a connection gets until its end.
fn all_of(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn headers_that_come_too_slowly_are_refused_in_time() {
    let service = limited(|limits| limits.header_time = SHORT);
    let mut slow = connect(service.address);
    slow.write_all(b"GET /v1/locks HTTP/1.1\r\nHost: localh").unwrap();
    let answer = Answer::read(&mut BufReader::new(slow));
    assert_eq!(answer.kind(408), "timeout");
    assert_eq!(answer.header("connection"), Some("close"));

    // However often another byte comes.
    let mut drips = connect(service.address);
    let mut reader = drips.try_clone().unwrap();
    drips.write_all(b"GET /v1/locks HTTP/1.1\r\n").unwrap();
    let dripping = std::thread::spawn(move || {
        while drips.write_all(b"x").is_ok() {
            std::thread::sleep(SHORT / 10);
        }
    });
    let mut status = [0; 12];
    reader.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 408");
    drop(reader);
    dripping.join().unwrap();

    assert_eq!(all_of(connect(service.address)), "", "who says nothing is told nothing");
}

#[test]
fn a_connection_between_two_requests_has_time() {
    let service = limited(|limits| limits.header_time = SHORT);
    let mut stream = connect(service.address);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", service.address);
    for _ in 0..2 {
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(Answer::read(&mut reader).status, 200);
        std::thread::sleep(SHORT * 2);
    }
    // The second request is as slow as the first one may be.
    stream.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
    assert_eq!(Answer::read(&mut reader).kind(408), "timeout");

    let service = limited(|limits| limits.idle_time = SHORT);
    let mut stream = connect(service.address);
    stream.write_all(request.as_bytes()).unwrap();
    let text = all_of(stream);
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("{\"status\":\"ok\"}"), "{text}");
}

/// An answer that lasts is not late.
#[test]
fn events_go_on_for_longer_than_headers_may_take() {
    let service = limited(|limits| limits.header_time = SHORT);
    let stream = Request::new("GET", "/v1/events?topics=locks").open(service.address);
    let mut reader = BufReader::new(stream);
    assert_eq!(Answer::read(&mut reader).status, 200);
    std::thread::sleep(SHORT * 3);
    service.hold("late", &json!({}));
    let mut seen = String::new();
    while !seen.contains("late") {
        let mut bytes = [0; 256];
        let count = reader.read(&mut bytes).unwrap();
        assert!(count > 0, "the stream ended: {seen}");
        seen += &String::from_utf8_lossy(&bytes[..count]);
    }
}

#[test]
fn a_body_that_comes_too_slowly_is_refused_in_time() {
    let service = limited(|limits| limits.body_time = SHORT);
    let mut slow = connect(service.address);
    let head = format!(
        "POST /v1/locks/a/acquire HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{{",
        service.address
    );
    slow.write_all(head.as_bytes()).unwrap();
    assert_eq!(Answer::read(&mut BufReader::new(slow)).kind(408), "timeout");
    assert_eq!(service.get("/v1/locks/a").json()["state"], "free");
}

#[test]
fn a_token_has_so_many_connections() {
    let tables = [("few", format!("{EVERYTHING}\nconnections = 2")), ("other", EVERYTHING.to_owned())];
    let tables = tables.each_ref().map(|(name, rest)| (*name, rest.as_str()));
    let service = Service::with("memory:", |builder| builder.tokens(tokens_of(&tables)));
    let kept = || {
        let mut stream = connect(service.address);
        let request = format!(
            "GET /v1/whoami HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer few\r\n\r\n",
            service.address
        );
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(Answer::read(&mut BufReader::new(stream.try_clone().unwrap())).status, 200);
        stream
    };
    let (one, other) = (kept(), kept());
    let refused = service.send(with("few", "GET", "/v1/whoami"));
    assert_eq!(refused.kind(429), "too_many_requests");
    assert_eq!(refused.json()["title"], "too many connections");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(service.send(with("other", "GET", "/v1/whoami")).status, 200, "others have their own");
    drop(one);
    eventually(LONG, "there is room again", || service.send(with("few", "GET", "/v1/whoami")).status == 200);
    drop(other);
}

#[test]
fn many_connections_that_do_nothing_hold_nobody_up() {
    let wanted = std::env::var(IDLE).map_or(2_000, |text| text.parse().expect(IDLE));
    let service = limited(|limits| limits.header_time = LONG);
    // Both ends are in this process.
    let most = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |files| files.saturating_sub(1_000) / 2);
    let idle = most.min(wanted);
    eprintln!("{idle} connections");
    let mut idle: Vec<_> = (0..idle).map(|_| connect(service.address)).collect();
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", service.address);
    for stream in &mut idle {
        stream.write_all(request.as_bytes()).unwrap();
    }
    for stream in &idle {
        assert_eq!(Answer::read(&mut BufReader::new(stream)).status, 200);
    }
    let seen = service.get("/v1/nodes").json()["service"]["connections"].as_u64().unwrap();
    assert!(seen > idle.len() as u64, "{seen} connections");
    service.hold("a", &json!({}));
    let mut half = connect(service.address);
    half.write_all(b"GET /v1/lo").unwrap();
    assert_eq!(service.get("/v1/locks").status, 200);
}
