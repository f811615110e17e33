//! Every operation refuses what is malformed, what is too slow or too large, who may not, and what its store cannot do.

use std::{
    io::{BufReader, Write},
    time::Duration,
};

use leasehold::{Leasehold, Policies};
use leasehold_testkit::{QuorumSet, eventually};
use serde_json::{Value, json};

use super::{schema::Operation, seen::Seen};
use crate::{
    client::{Answer, LONG, Request, Service, connect},
    limits::limited,
    security::{EVERYTHING, tokens_of, with},
};

/// A request that has all that it needs, but for its body.
fn plain(operation: &Operation) -> Request {
    filled(operation, "1")
}

fn filled(operation: &Operation, place: &str) -> Request {
    let segments = operation.path.split('/');
    let path: Vec<_> =
        segments.map(|segment| if segment.starts_with('{') { place } else { segment }).collect();
    let query = match operation.id.as_str() {
        "marks" => "?kind=k",
        "holders" => "?label=x",
        _ => "",
    };
    let mut request = Request::new(&operation.method, &(path.join("/") + query));
    for parameter in operation.value["parameters"].as_array().unwrap() {
        if parameter["in"] == "header" && parameter["required"] == true {
            request = request.header(parameter["name"].as_str().unwrap(), "1");
        }
    }
    request
}

/// A body that is good as far as its shape goes.
fn shaped(operation: &Operation) -> Value {
    match operation.id.as_str() {
        "extend" | "release" | "resign" => json!({"token": "lh1_"}),
        "force_release" => json!({"reason": "a test"}),
        "set_limit" => json!({"limit": 1}),
        "extend_execution" | "complete" => json!({"execution": "x"}),
        "fail" => json!({"execution": "x", "why": "y"}),
        "are_marked" => json!({"ids": ["x"]}),
        "set_deadline" => json!({"in": "5m"}),
        "settle_deadlines" => json!({"items": [{"id": "x", "number": 1, "as": "done"}]}),
        "acquire_by_policy" => json!({"values": {"id": "x"}}),
        _ => json!({}),
    }
}

/// Values of every type, none of which is a good text, number or word of any field.
fn strangers() -> [Value; 9] {
    let nested = (0..100).fold(json!(1), |inner, _| json!([inner]));
    [
        json!(true),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!("\u{0}"),
        json!([]),
        json!({}),
        json!([{"x": null}]),
        nested,
    ]
}

pub(super) fn of_bodies(seen: &Seen) {
    let service = Service::on("memory:");
    let small = limited(|limits| limits.body_bytes = 300);
    let hasty = limited(|limits| limits.body_time = Duration::from_millis(50));
    let with_body = |operation: &&Operation| operation.body().is_some();
    for operation in seen.document.operations.iter().filter(with_body) {
        let request = || plain(operation);
        let malformed = [
            "{",
            "[]",
            "null",
            "1",
            "\"\"",
            "{}{}",
            "[null,null]",
            "{\"\\ud800\":1}",
            "{\"nothing_of_this\":1}",
            "\u{0}",
        ];
        for text in malformed.map(str::as_bytes).into_iter().chain([&b"{\"x\":\"\xff\"}"[..]]) {
            let answer = seen.send(&service, request().body("application/json", text));
            let shown = String::from_utf8_lossy(text);
            assert_eq!(answer.kind(400), "invalid", "{} took {shown}", operation.id);
        }
        of_fields(seen, &service, operation);
        let fat = json!({"label": "x".repeat(500)});
        assert_eq!(seen.send(&small, request().json(&fat)).kind(413), "too_large");
        let form = request().body("application/x-www-form-urlencoded", "ttl=5s");
        assert_eq!(seen.send(&service, form).kind(415), "media_type");
        assert_eq!(stalled(&hasty, seen, request()).kind(408), "timeout");
    }
}

/// A field takes the types of its schema, and no other.
fn of_fields(seen: &Seen, service: &Service, operation: &Operation) {
    let schema = operation.body().unwrap();
    let name = schema["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
    let fields = &seen.document.root["components"]["schemas"][name]["properties"];
    for field in fields.as_object().unwrap().keys() {
        for value in strangers() {
            let mut body = shaped(operation);
            body[field] = value;
            let fits = seen.document.check(schema, &body, "", &mut Default::default());
            let answer = seen.send(service, plain(operation).json(&body));
            assert!(answer.status < 500, "{} answered {}: {}", operation.id, answer.status, answer.text);
            if let Err(why) = fits {
                assert_eq!(answer.status, 400, "{} took {body}, though {why}: {}", operation.id, answer.text);
                assert!(
                    answer.json()["pointer"].as_str().unwrap().contains(field.as_str()),
                    "{}",
                    answer.text
                );
            }
        }
    }
}

/// Says that a body follows, and sends none of it.
fn stalled(service: &Service, seen: &Seen, request: Request) -> Answer {
    let request = request.json(&json!({}));
    let bytes = request.bytes(service.address);
    let mut stream = connect(service.address);
    stream.write_all(&bytes[..bytes.len() - 1]).unwrap();
    let answer = Answer::read(&mut BufReader::new(stream));
    seen.note(&request, &answer);
    answer
}

pub(super) fn of_callers(seen: &Seen) {
    let tables = [
        ("all", EVERYTHING),
        ("none", "rights = [{ prefix = \"nothing:\", allow = [] }]"),
        ("slow", "rights = [{ prefix = \"nothing:\", allow = [] }]\nrequests-per-second = 1"),
    ];
    let service = Service::with("memory:", |builder| builder.tokens(tokens_of(&tables)));
    let as_token = |token: &str, operation: &Operation| {
        let request = plain(operation).json(&shaped(operation));
        request.header("Authorization", &format!("Bearer {token}"))
    };
    for operation in &seen.document.operations {
        if operation.has(401) {
            assert_eq!(
                seen.send(&service, plain(operation).json(&shaped(operation))).kind(401),
                "unauthorized"
            );
            let statuses = std::iter::repeat_with(|| seen.send(&service, as_token("slow", operation)).status);
            assert!(statuses.take(50).any(|status| status == 429), "{} has no rate", operation.id);
        }
        if operation.has(403) {
            assert_eq!(seen.send(&service, as_token("none", operation)).kind(403), "forbidden");
        }
        if operation.has(400) && operation.body().is_none() {
            let query = operation.parameters("query").next().is_some();
            let request = if query {
                let mut request = plain(operation);
                request.path += if request.path.contains('?') { "&nothing=1" } else { "?nothing=1" };
                request
            } else {
                filled(operation, &"x".repeat(3_000))
            };
            let answer = seen.send(&service, request.header("Authorization", "Bearer all"));
            assert_eq!(answer.kind(400), "invalid", "{}", operation.id);
        }
    }
    assert_eq!(service.send(with("all", "GET", "/v1/locks")).json()["items"], json!([]), "nothing was done");
}

/// Asks for every operation that documents this status, all at once.
fn ask_all(seen: &Seen, service: &Service, status: u16, token: &str) {
    std::thread::scope(|scope| {
        for operation in seen.document.operations.iter().filter(|it| it.has(status) && it.id != "events") {
            let mut body = shaped(operation);
            match operation.id.as_str() {
                "extend" | "release" | "resign" => body["token"] = token.into(),
                "acquire" | "campaign" if status == 501 => body["acks"] = 1.into(),
                _ => {}
            }
            let request = plain(operation);
            let request = if operation.body().is_some() { request.json(&body) } else { request };
            scope.spawn(move || seen.send(service, request));
        }
    });
}

fn policies() -> Policies {
    let text = "prefix = \"p\"\n\
                [locks.1]\nkey = \"one:{id}\"\ndescription = \"one\"\nttl = \"30s\"\nwait = \"0s\"\nacks = 1\n\
                [locks.few]\nkey = \"few:{id}\"\nkind = \"permits\"\nof = 3\npermits = 1\nkeep-alive = true\n\
                [locks.lone]\nkey = \"lone:{id}\"\n\
                [idempotency.mail]\nkey = \"mail:{user}\"\nttl = \"24h\"\n\
                [markers.busy]\nkey = \"busy:{file}\"\nttl = \"5m\"";
    Policies::parse(text, "a test").unwrap()
}

/// A service with policies and a pool.
pub(super) fn service_on(store: &str) -> Service {
    let leases = Leasehold::builder(store).policies(policies()).command_timeout(Duration::from_secs(1));
    Service::with_leases(leases, |builder| builder.pools(["1".to_owned()]))
}

/// A store that cannot do everything, and one that goes away.
pub(super) fn of_stores(seen: &Seen, set: &QuorumSet) {
    let quorum = service_on(&set.url());
    ask_all(seen, &quorum, 501, "");
    seen.get(&quorum, "/v1/nodes");
    drop(quorum);

    let service = service_on(&set.nodes()[0].url());
    let token = service.hold("1", &json!({}))["token"].as_str().unwrap().to_owned();
    let begun = ["complete", "fail"].map(|key| {
        let begun = service.post(&format!("/v1/idempotency/gone/{key}/begin"), &json!({})).json();
        json!({"execution": begun["execution"], "why": "x"})
    });
    let kept = Request::new("POST", "/v1/locks/kept/acquire").header("Idempotency-Key", "kept");
    assert_eq!(service.send(kept.json(&json!({}))).status, 200);
    assert_eq!(service.get("/v1/elections/1").status, 200);
    set.nodes()[0].kill();

    ask_all(seen, &service, 503, &token);
    let [mut complete, fail] = begun;
    complete.as_object_mut().unwrap().remove("why");
    let problem = |answer: Answer| assert_eq!(answer.kind(503), "store_unreachable");
    problem(seen.post(&service, "/v1/idempotency/gone/complete/complete", &complete));
    problem(seen.post(&service, "/v1/idempotency/gone/fail/fail", &fail));
    problem(seen.delete(&service, "/v1/attempts/kept"));
    let later = Request::new("POST", "/v1/locks/later/acquire").header("Idempotency-Key", "later");
    seen.send(&service, later.header("Prefer", "respond-async").json(&json!({})));
    problem(seen.get(&service, "/v1/attempts/later?wait=30"));
    eventually(LONG, "it is not ready", || seen.get(&service, "/readyz").status == 503);
    seen.get(&service, "/v1/overview");
    seen.get(&service, "/v1/nodes");
}
