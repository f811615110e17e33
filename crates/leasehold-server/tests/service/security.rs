//! Who may do what, and what is refused.

use std::{fs, io::Write};

use leasehold_server::{Limits, Tokens};
use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::client::{Answer, Request, Service, raw};

fn tokens() -> Tokens {
    let hash =
        |token: &str| Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let text = format!(
        "[tokens.all]\nsha256 = \"{}\"\nrights = [{{ allow = [\"read\", \"hold\", \"force\"] }}]\n\
         [tokens.deploy]\nsha256 = \"{}\"\nrights = [{{ prefix = \"deploy:\", allow = [\"read\", \"hold\"] }}]\n\
         [tokens.none]\nsha256 = \"{}\"\nrights = [{{ prefix = \"nothing:\", allow = [] }}]\n\
         [tokens.slow]\nsha256 = \"{}\"\nrights = [{{ allow = [\"read\"] }}]\nrequests-per-second = 2\nconnections = 1\n\
         [tokens.old]\nsha256 = \"{}\"\nrights = [{{ allow = [\"read\"] }}]\nexpires = 2001-01-01T00:00:00Z\n",
        hash("all"),
        hash("deploy"),
        hash("none"),
        hash("slow"),
        hash("old"),
    );
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tokens.toml");
    fs::write(&file, text).unwrap();
    Tokens::load(&file).unwrap()
}

fn guarded() -> Service {
    Service::with("memory:", |builder| builder.tokens(tokens()))
}

fn with(token: &str, method: &str, path: &str) -> Request {
    Request::new(method, path).header("Authorization", &format!("Bearer {token}"))
}

/// Every operation of the document, with a value for every place of its path.
fn operations(service: &Service) -> Vec<(String, String, bool)> {
    let document = service.get("/openapi.json").json();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let filled = path.split('/').map(|segment| if segment.starts_with('{') { "x" } else { segment });
        let filled: Vec<_> = filled.collect();
        for (method, operation) in methods.as_object().unwrap() {
            let is_open = operation["security"].as_array().unwrap().is_empty();
            found.push((method.to_uppercase(), filled.join("/"), is_open));
        }
    }
    assert!(found.len() > 50, "{} operations", found.len());
    found
}

#[test]
fn every_route_needs_a_token_with_the_right() {
    let service = guarded();
    for (method, path, is_open) in operations(&service) {
        let plain = service.send(Request::new(&method, &path).json(&json!({})));
        let foreign = service.send(with("guess", &method, &path).json(&json!({})));
        let old = service.send(with("old", &method, &path).json(&json!({})));
        if is_open {
            assert_ne!(plain.status, 401, "{method} {path}");
            continue;
        }
        for answer in [plain, foreign, old] {
            assert_eq!(answer.kind(401), "unauthorized", "{method} {path}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        let is_for_all = path.starts_with("/v1/playground") || path == "/v1/whoami";
        if !is_for_all {
            let powerless = service.send(with("none", &method, &path).json(&json!({})));
            assert_eq!(powerless.kind(403), "forbidden", "{method} {path}");
        }
    }
}

#[test]
fn rights_are_those_of_a_prefix() {
    let service = guarded();
    let acquire = |name: &str| {
        service.send(with("deploy", "POST", &format!("/v1/locks/{name}/acquire")).json(&json!({})))
    };
    assert_eq!(acquire("deploy:web").status, 200);
    assert_eq!(acquire("payout:1").kind(403), "forbidden");
    let force = with("deploy", "POST", "/v1/locks/deploy:web/force-release").header("If-Match", "\"1\"");
    assert_eq!(service.send(force.json(&json!({"reason": "x"}))).kind(403), "forbidden");
    assert_eq!(service.send(with("deploy", "GET", "/v1/overview")).kind(403), "forbidden");
    let other = service.send(with("all", "POST", "/v1/locks/payout:1/acquire").json(&json!({})));
    assert_eq!(other.status, 200);
    leasehold_testkit::eventually(crate::client::LONG, "both are seen", || {
        service.send(with("all", "GET", "/v1/locks")).json()["total"] == 2
    });
    let listed = service.send(with("deploy", "GET", "/v1/locks"));
    assert_eq!(listed.json()["items"].as_array().unwrap().len(), 1, "{}", listed.text);
    assert!(!listed.text.contains("payout"));
    let held = service.send(with("all", "GET", "/v1/locks/payout:1")).json();
    assert_eq!(held["holder"]["label"], "all", "the token's name is the label");
}

#[test]
fn a_token_has_its_rate() {
    let service = guarded();
    let statuses: Vec<_> = (0..6).map(|_| service.send(with("slow", "GET", "/v1/whoami")).status).collect();
    assert!(statuses.contains(&429) && statuses[0] == 200, "{statuses:?}");
}

#[test]
fn a_read_only_service_changes_nothing() {
    let service = Service::with("memory:", leasehold_server::Builder::read_only);
    let held = service.post("/v1/locks/a/acquire", &json!({}));
    assert_eq!(held.kind(403), "read_only");
    let force = Request::new("POST", "/v1/locks/a/force-release").header("If-Match", "\"1\"");
    assert_eq!(service.send(force.json(&json!({"reason": "x"}))).kind(403), "read_only");
    assert_eq!(service.put("/v1/markers/k/i", &json!({})).kind(403), "read_only");
    assert_eq!(service.get("/v1/locks/a").status, 200);
    assert_eq!(service.get("/v1/whoami").json()["read_only"], true);
    assert_eq!(
        service.post("/v1/playground/workers", &json!({})).status,
        201,
        "nothing of it is in the store"
    );
}

#[test]
fn another_site_cannot_make_a_browser_send_anything() {
    let service = Service::on("memory:");
    let acquire = |name: &str, value: &str| {
        service.send(Request::new("POST", "/v1/locks/a/acquire").header(name, value).json(&json!({})))
    };
    assert_eq!(acquire("Origin", "https://evil.example").kind(403), "cross_site");
    assert_eq!(acquire("Origin", "null").kind(403), "cross_site");
    assert_eq!(acquire("Sec-Fetch-Site", "cross-site").kind(403), "cross_site");
    assert_eq!(acquire("Sec-Fetch-Site", "same-site").kind(403), "cross_site");
    let form = Request::new("POST", "/v1/locks/a/acquire").body("text/plain", "{\"ttl\":\"5s\"}");
    assert_eq!(service.send(form).kind(415), "media_type");
    let own = format!("http://{}", service.address);
    assert_eq!(acquire("Origin", &own).status, 200);
    let text = "GET /v1/locks HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n";
    assert_eq!(raw(service.address, text.as_bytes()).kind(403), "cross_site");
}

#[test]
fn what_is_malformed_is_refused_with_its_place() {
    let service = Service::on("memory:");
    let acquire = "/v1/locks/a/acquire";
    for (body, pointer) in [
        (json!({"ttl": 5}), "/ttl"),
        (json!({"ttl": "soon"}), "/ttl"),
        (json!({"mode": "permits"}), "/of"),
        (json!({"of": 0, "mode": "permits"}), "/of"),
        (json!({"permits": 2}), "/permits"),
        (json!({"acks": "all"}), "/acks"),
    ] {
        let refused = service.post(acquire, &body);
        assert_eq!(refused.kind(400), "invalid", "{body}");
        assert_eq!(refused.json()["pointer"], pointer, "{}", refused.text);
    }
    for body in ["{", "[]", "null", "{\"tll\":\"5s\"}", "{} x", "\u{0}"] {
        let refused = service.send(Request::new("POST", acquire).body("application/json", body));
        assert_eq!(refused.kind(400), "invalid", "{body}");
    }
    for body in [json!({"ttl": "1ms"}), json!({"ttl": "9h"}), json!({"label": "x".repeat(200)})] {
        assert_eq!(service.post(acquire, &body).kind(400), "invalid", "{body}");
    }
    let long = format!("/v1/locks/{}/acquire", "x".repeat(600));
    for path in ["/v1/locks/%0A/acquire", "/v1/locks/%FF/acquire", "/v1/locks/a%7D/acquire", long.as_str()] {
        assert_eq!(service.post(path, &json!({})).kind(400), "invalid", "{path}");
    }
    let refusals = [
        ("GET", "/v1/locks?limit=0", 400),
        ("GET", "/v1/locks?limit=x", 400),
        ("GET", "/v1/locks?unknown=1", 400),
        ("GET", "/v1/locks?from=x", 400),
        ("GET", "/v1/locks?state=gone", 400),
        ("GET", "/v1/markers", 400),
        ("GET", "/v1/events?topics=other", 400),
        ("GET", "/v1/elections/a?watch=100", 400),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1", 404),
        ("POST", "/v1/locks/a", 405),
        ("PATCH", "/v1/locks", 405),
    ];
    for (method, path, status) in refusals {
        service.send(Request::new(method, path)).kind(status);
    }
    let prefer = Request::new("POST", acquire).header("Prefer", "wait=100").json(&json!({}));
    assert_eq!(service.send(prefer).kind(400), "invalid");
    let key = Request::new("POST", acquire).header("Idempotency-Key", "a b").json(&json!({}));
    assert_eq!(service.send(key).kind(400), "invalid");
    assert_eq!(service.get("/v1/locks/a").json()["state"], "free", "nothing was done");
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

#[test]
fn bodies_and_headers_have_bounds() {
    let limits = |builder: leasehold_server::Builder| {
        let mut limits = Limits::default();
        limits.body_bytes = 1_000;
        builder.limits(limits)
    };
    let service = Service::with("memory:", limits);
    let body = json!({"label": "x".repeat(2_000)});
    assert_eq!(service.post("/v1/locks/a/acquire", &body).kind(413), "too_large");
    let long = Request::new("GET", &format!("/v1/locks?prefix={}", "x".repeat(10_000)));
    assert_eq!(service.send(long).kind(414), "uri_too_long");
    let fat = Request::new("GET", "/v1/locks").header("X-Fat", &"x".repeat(40_000));
    assert_eq!(service.send(fat).kind(431), "headers_too_large");
}

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

#[test]
fn many_connections_are_served() {
    let service = Service::on("memory:");
    let idle: Vec<_> = (0..500).map(|_| crate::client::connect(service.address)).collect();
    assert_eq!(service.get("/healthz").status, 200);
    let mut half = crate::client::connect(service.address);
    half.write_all(b"GET /v1/lo").unwrap();
    assert_eq!(service.get("/v1/locks").status, 200);
    drop((idle, half));
}

#[test]
fn another_address_needs_tokens() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let leases = leasehold::Leasehold::connect("memory:").await.unwrap();
        let open = leasehold_server::Server::builder(leases.clone()).listen("0.0.0.0:0".parse().unwrap());
        let refused = open.start().await.unwrap_err().to_string();
        assert!(refused.contains("0.0.0.0:0") && refused.contains("tokens"), "{refused}");
        let open = leasehold_server::Server::builder(leases).listen("0.0.0.0:0".parse().unwrap());
        open.tokens(tokens()).start().await.unwrap().stop().await;
    });
}

#[test]
fn no_secret_is_in_a_page_or_an_error() {
    let service = guarded();
    let held = service.send(with("all", "POST", "/v1/locks/a/acquire").json(&json!({}))).json();
    let token = held["token"].as_str().unwrap();
    let secret = &token[token.len() - 40..];
    let paths = [
        "/v1/locks",
        "/v1/locks/a",
        "/v1/locks/a/history",
        "/v1/overview",
        "/v1/audit",
        "/v1/nodes",
        "/metrics",
    ];
    let answers: Vec<Answer> = paths.iter().map(|path| service.send(with("all", "GET", path))).collect();
    for answer in answers {
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(!answer.text.contains(secret));
    }
    let wrong = service.send(with("all", "POST", "/v1/locks/b/release").json(&json!({"token": token})));
    assert_eq!(wrong.kind(400), "invalid");
    assert!(!wrong.text.contains(secret));
}
