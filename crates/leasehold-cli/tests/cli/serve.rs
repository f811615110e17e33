//! `leasehold serve` as a process: its address, its end, and what becomes of locks when it is killed.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use leasehold_testkit::{eventually, poll};
use rustix::process::Signal;

use crate::sandbox::{LONG, Sandbox, Started};

const ANY_PORT: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

/// A service of this sandbox, and its address.
pub(crate) fn start(sandbox: &Sandbox) -> (Started, String) {
    let service = sandbox.start(&ANY_PORT);
    let address = address_of(&service);
    (service, address)
}

pub(crate) fn address_of(service: &Started) -> String {
    let address = poll(LONG, || {
        let url = service.stdout().lines().next()?.to_owned();
        url.strip_prefix("http://").map(str::to_owned)
    });
    address.unwrap_or_else(|| panic!("no address: {}", service.stderr()))
}

/// The status and the body of one answer.
pub(crate) fn post(address: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    send("POST", address, path, headers, body)
}

pub(crate) fn get(address: &str, path: &str) -> (u16, String) {
    send("GET", address, path, "", "")
}

fn send(method: &str, address: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}");
    let kind = "Content-Type: application/json";
    write!(stream, "{head}{kind}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = BufReader::new(stream);
    let (mut first, mut rest) = (String::new(), String::new());
    answer.read_line(&mut first).unwrap();
    answer.read_to_string(&mut rest).unwrap();
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    (status, rest.split_once("\r\n\r\n").unwrap().1.to_owned())
}

fn field<'a>(body: &'a str, name: &str) -> &'a str {
    let (_, after) = body.split_once(&format!("\"{name}\":\"")).unwrap_or_else(|| panic!("{name}: {body}"));
    after.split('"').next().unwrap()
}

#[test]
fn a_service_says_where_it_listens_and_ends_on_term() {
    let sandbox = Sandbox::new();
    let (mut service, address) = start(&sandbox);
    let (status, body) = post(&address, "/v1/locks/job/acquire", "", "{\"ttl\":\"60s\"}");
    assert_eq!(status, 200, "{body}");
    assert_eq!(sandbox.fact("job", "state"), "held", "the command line sees it");
    service.signal(Signal::TERM);
    assert_eq!(service.end(), Some(0));
    assert_eq!(sandbox.fact("job", "state"), "held", "its client may still be at work");
}

#[test]
fn no_lock_of_a_killed_service_outlives_its_ttl() {
    let sandbox = Sandbox::new();
    let (mut service, address) = start(&sandbox);
    let (status, session) = post(&address, "/v1/sessions", "", "{\"ttl\":\"2s\"}");
    assert_eq!(status, 201, "{session}");
    let secret = format!("Leasehold-Secret: {}\r\n", field(&session, "secret"));
    let body = format!("{{\"session\":\"{}\"}}", field(&session, "id"));
    let (status, held) = post(&address, "/v1/locks/job/acquire", &secret, &body);
    assert_eq!(status, 200, "{held}");
    service.signal(Signal::KILL);
    assert_eq!(service.end(), None);
    let ran = sandbox.run(&["run", "-w", "60s", "job", "--", "true"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    // Another service on the same store knows nothing of the session.
    let (_service, address) = start(&sandbox);
    let (status, answer) = post(&address, "/v1/locks/job/acquire", &secret, &body);
    assert_eq!(status, 404, "{answer}");
}

#[test]
fn an_open_address_without_tokens_is_refused_with_the_reason() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(ran.code, Some(64), "{ran}");
    assert!(ran.stderr.contains("0.0.0.0:0") && ran.stderr.contains("tokens"), "{ran}");
    let missing = sandbox.run(&["serve", "--tokens", "none.toml"]);
    assert_eq!(missing.code, Some(64), "{missing}");
    assert!(missing.stderr.contains("none.toml"), "{missing}");
}

#[test]
fn a_store_that_is_down_does_not_keep_a_service_from_starting() {
    let sandbox = Sandbox::on("redis://127.0.0.1:1");
    let (_service, address) = start(&sandbox);
    eventually(LONG, "it is not ready", || {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let mut first = String::new();
        BufReader::new(stream).read_line(&mut first).unwrap();
        first.contains(" 503 ")
    });
}
