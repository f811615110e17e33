//! Who may do what, and what is refused.

use std::fs;

use leasehold_server::Tokens;
use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::client::{Answer, Request, Service, raw};

/// Tokens of these names, each its own secret, and what follows in their tables.
pub(crate) fn tokens_of(tables: &[(&str, &str)]) -> Tokens {
    let table = |(name, rest): &(&str, &str)| {
        let hash: String = Sha256::digest(name).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[tokens.{name}]\nsha256 = \"{hash}\"\n{rest}\n")
    };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tokens.toml");
    fs::write(&file, tables.iter().map(table).collect::<String>()).unwrap();
    Tokens::load(&file).unwrap()
}

pub(crate) const EVERYTHING: &str = "rights = [{ allow = [\"read\", \"hold\", \"force\"] }]";

fn tokens() -> Tokens {
    tokens_of(&[
        ("all", EVERYTHING),
        ("deploy", "rights = [{ prefix = \"deploy:\", allow = [\"read\", \"hold\"] }]"),
        ("none", "rights = [{ prefix = \"nothing:\", allow = [] }]"),
        ("slow", "rights = [{ allow = [\"read\"] }]\nrequests-per-second = 2"),
        ("old", "rights = [{ allow = [\"read\"] }]\nexpires = 2001-01-01T00:00:00Z"),
    ])
}

pub(crate) fn guarded() -> Service {
    Service::with("memory:", |builder| builder.tokens(tokens()))
}

pub(crate) fn with(token: &str, method: &str, path: &str) -> Request {
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
