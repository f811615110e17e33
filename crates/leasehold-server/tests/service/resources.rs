//! Everything that is no plain lock: records, marks, deadlines, elections, the dashboard's answers, events.

use std::io::{BufRead, BufReader};

use leasehold_testkit::{eventually, poll};
use serde_json::{Value, json};

use crate::client::{Answer, LONG, Request, Service};

#[test]
fn a_request_is_executed_once_and_everybody_gets_its_result() {
    let service = Service::on("memory:");
    let begin = || service.post("/v1/idempotency/payout/42/begin", &json!({"fingerprint": "EUR 100"}));
    let mine = begin();
    assert_eq!(mine.status, 201, "{}", mine.text);
    assert_eq!(begin().kind(409), "in_progress");
    let other = service.post("/v1/idempotency/payout/42/begin", &json!({"fingerprint": "EUR 9"}));
    assert_eq!(other.kind(422), "mismatch");
    let proof = json!({"execution": mine.json()["execution"]});
    assert_eq!(
        service.post("/v1/idempotency/payout/42/extend", &proof).json()["fence"],
        mine.json()["fence"]
    );
    assert_eq!(service.post("/v1/idempotency/payout/43/extend", &proof).kind(410), "gone");
    let done = json!({"execution": mine.json()["execution"], "result": {"receipt": 7}});
    assert_eq!(service.post("/v1/idempotency/payout/42/complete", &done).json()["state"], "stored");
    assert_eq!(service.post("/v1/idempotency/payout/42/complete", &done).kind(410), "gone");
    let replay = begin().json();
    assert_eq!((&replay["state"], &replay["result"]["receipt"]), (&json!("completed"), &json!(7)));
    let listed = service.get("/v1/idempotency?operation=payout&state=completed").json();
    assert_eq!(
        (&listed["items"][0]["id"], &listed["items"][0]["result"]),
        (&json!("42"), &json!("{\"receipt\":7}"))
    );
    assert_eq!(service.delete("/v1/idempotency/payout/42").status, 204);
    assert_eq!(service.delete("/v1/idempotency/payout/42").kind(404), "not_found");
    assert_eq!(service.get("/v1/idempotency/payout/42").kind(404), "not_found");
    let failing = begin().json();
    let why = json!({"execution": failing["execution"], "why": "no such account"});
    assert_eq!(service.post("/v1/idempotency/payout/42/fail", &why).json()["state"], "stored");
    assert_eq!(begin().status, 201, "the next one may try");
}

#[test]
fn marks_are_set_tested_and_cleared() {
    let service = Service::on("memory:");
    assert_eq!(service.put("/v1/markers/upload/a.csv", &json!({"ttl": "1m"})).json()["marked"], true);
    assert_eq!(service.put("/v1/markers/upload/a.csv", &json!({"if_absent": true})).json()["marked"], false);
    assert_eq!(service.get("/v1/markers/upload/a.csv").json()["marked"], true);
    let tested = service.post("/v1/markers/upload/test", &json!({"ids": ["a.csv", "b.csv"]}));
    assert_eq!(tested.json()["marked"], json!([true, false]));
    let listed = service.get("/v1/markers?kind=upload").json();
    assert_eq!(
        (&listed["items"][0]["key"], &listed["items"][0]["state"]),
        (&json!("upload:a.csv"), &json!("marked"))
    );
    assert_eq!(service.delete("/v1/markers/upload/a.csv").json()["outcome"], "cleared");
    assert_eq!(service.delete("/v1/markers/upload/a.csv").json()["outcome"], "not_marked");
}

#[test]
fn deadlines_are_claimed_settled_and_brought_back() {
    let service = Service::on("memory:");
    let set = |id: &str, body: Value| service.put(&format!("/v1/deadlines/payments/{id}"), &body).status;
    assert_eq!(set("tx:1", json!({"in": "0s", "context": {"order": 7}})), 204);
    assert_eq!(set("tx:2", json!({"in": "1h"})), 204);
    assert_eq!(set("tx:3", json!({})), 400);
    let claim = || service.post("/v1/deadlines/payments/claim", &json!({"visibility": "1m"})).json();
    let claimed = poll(LONG, || Some(claim()).filter(|claimed| claimed["items"][0].is_object())).unwrap();
    let due = &claimed["items"][0];
    assert_eq!(
        (&due["id"], &due["context"]["order"], &due["attempt"]),
        (&json!("tx:1"), &json!(7), &json!(1))
    );
    let bury = json!({"items": [{"id": "tx:1", "number": due["number"], "as": "bury", "why": "no account"}]});
    let settle =
        || service.post("/v1/deadlines/payments/settle", &bury).json()["items"][0]["outcome"].clone();
    assert_eq!((settle(), settle()), (json!("settled"), json!("stale")));
    let dead = service.get("/v1/deadlines/payments/dead").json();
    assert_eq!((&dead["items"][0]["id"], &dead["items"][0]["why"]), (&json!("tx:1"), &json!("no account")));
    assert_eq!(service.post("/v1/deadlines/payments/dead/tx:1/requeue", &json!({})).status, 204);
    assert_eq!(service.post("/v1/deadlines/payments/dead/tx:1/requeue", &json!({})).kind(404), "not_found");
    let standing = service.get("/v1/deadlines/payments").json();
    assert_eq!((&standing["pending"], &standing["dead"]), (&json!(2), &json!(0)));
    assert_eq!(standing["items"][0]["id"], "tx:1");
    assert_eq!(service.get("/v1/deadlines").json()["items"][0]["name"], "payments");
    assert_eq!(service.delete("/v1/deadlines/payments/tx:2").json()["cancelled"], true);
    let by = service.get("/v1/audit").json();
    assert_eq!((&by["items"][0]["action"], &by["items"][0]["outcome"]), (&json!("requeue"), &json!("done")));
}

#[test]
fn an_election_is_watched_until_its_leader_changes() {
    let service = Service::on("memory:");
    assert_eq!(service.get("/v1/elections/scheduler").json()["state"], "vacant");
    let lead = service.post("/v1/elections/scheduler/campaign", &json!({"label": "one"})).json();
    let seen = service.get("/v1/elections/scheduler?watch=20&fence=0").json();
    assert_eq!(
        (&seen["state"], &seen["fence"], &seen["leader"]["label"]),
        (&json!("led"), &lead["fence"], &json!("one"))
    );
    assert_eq!(service.get("/v1/elections").json()["items"][0]["name"], "scheduler");
    let watch = Request::new("GET", &format!("/v1/elections/scheduler?watch=50&fence={}", lead["fence"]));
    let watching = watch.open(service.address);
    let resigned = service.post("/v1/elections/scheduler/resign", &json!({"token": lead["token"]}));
    assert_eq!(resigned.status, 204);
    let answer = Answer::read(&mut BufReader::new(watching));
    assert_eq!(answer.json()["state"], "vacant");
}

#[test]
fn readers_share_a_lock_and_permits_have_a_limit() {
    let service = Service::on("memory:");
    service.hold("config", &json!({"mode": "shared"}));
    service.hold("config", &json!({"mode": "shared"}));
    assert_eq!(service.post("/v1/locks/config/acquire", &json!({})).kind(409), "busy");
    let two = service.hold("gpu", &json!({"mode": "permits", "of": 2, "permits": 2}));
    assert_eq!((&two["mode"], &two["permits"]), (&json!("permits"), &json!(2)));
    assert_eq!(
        service.post("/v1/locks/gpu/acquire", &json!({"mode": "permits", "of": 3})).kind(409),
        "other_limit"
    );
    assert_eq!(service.put("/v1/semaphores/gpu/limit", &json!({"limit": 3})).status, 204);
    service.hold("gpu", &json!({"mode": "permits", "of": 3}));
    let seen = service.get("/v1/locks/gpu").json();
    assert_eq!(
        (&seen["permits_used"], &seen["limit"], &seen["holders_total"]),
        (&json!(3), &json!(3), &json!(2))
    );
}

#[test]
fn a_lock_is_taken_only_from_the_holder_that_was_seen() {
    let service = Service::on("memory:");
    let held = service.hold("a", &json!({}));
    let force = |tag: &str, body: Value| {
        service.send(Request::new("POST", "/v1/locks/a/force-release").header("If-Match", tag).json(&body))
    };
    let none = service.post("/v1/locks/a/force-release", &json!({"reason": "stuck"}));
    assert_eq!(none.kind(428), "precondition_required");
    let changed = force("\"7\"", json!({"reason": "stuck"}));
    assert_eq!((changed.kind(412).as_str(), &changed.json()["fence"]), ("changed", &held["fence"]));
    let tag = format!("\"{}\"", held["fence"]);
    assert_eq!(force(&tag, json!({"reason": " "})).kind(400), "invalid");
    assert_eq!(force(&tag, json!({"reason": "stuck"})).json()["outcome"], "free");
    assert_eq!(force(&tag, json!({"reason": "stuck"})).kind(412), "changed");
    let audit = service.get("/v1/audit?name=a").json();
    let outcomes: Vec<_> =
        audit["items"].as_array().unwrap().iter().map(|entry| entry["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes.len(), 3, "{audit}");
    assert_eq!(
        (outcomes[1], &audit["items"][1]["reason"], &audit["items"][1]["kept"]),
        ("free", &json!("stuck"), &json!("store"))
    );
    assert!(outcomes[0].starts_with("failed: ") && audit["next"].is_null());
}

/// The audit is in the store: another service shows it.
#[test]
fn the_audit_outlives_its_service() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = format!("sqlite:{}", folder.path().join("locks.db").display());
    let service = Service::on(&store);
    let held = service.hold("a", &json!({}));
    let force =
        Request::new("POST", "/v1/locks/a/force-release").header("If-Match", &held["fence"].to_string());
    assert_eq!(service.send(force.json(&json!({"reason": "stuck"}))).status, 200);
    drop(service);
    let entry = Service::on(&store).get("/v1/audit").json()["items"][0].clone();
    assert_eq!(
        (&entry["action"], &entry["outcome"], &entry["by"]),
        (&json!("force_release"), &json!("free"), &json!("anonymous"))
    );
}

#[test]
fn the_dashboard_sees_who_waited_for_whom() {
    let service = Service::on("memory:");
    let held = service.hold("a", &json!({"label": "report"}));
    let request = Request::new("POST", "/v1/locks/a/acquire").header("Prefer", "respond-async");
    assert_eq!(service.send(request.json(&json!({"label": "import"}))).status, 202);
    let pair = poll(LONG, || {
        let items = service.get("/v1/contention").json()["items"].clone();
        Some(items[0].clone()).filter(|pair| pair["waiter_ms"].as_u64() > Some(0))
    });
    let pair = pair.expect("a pair");
    assert_eq!(
        (&pair["holder"], &pair["waiter"], &pair["names"]),
        (&json!("report"), &json!("import"), &json!(["a"]))
    );
    assert_eq!(service.post("/v1/locks/a/release", &json!({"token": held["token"]})).status, 204);
    eventually(LONG, "the tenure has ended", || {
        let tenures = service.get("/v1/locks/a/history").json()["tenures"].clone();
        tenures.as_array().unwrap().iter().any(|tenure| tenure["ended"] == "handed_over")
    });
    let by = service.get("/v1/holders?label=report").json();
    assert_eq!((&by["items"][0]["name"], &by["items"][0]["fence"]), (&json!("a"), &held["fence"]));
    let overview = service.get("/v1/overview").json();
    assert_eq!((&overview["counters"]["held"], &overview["hot"][0]["name"]), (&json!(1), &json!("a")));
    let nodes = service.get("/v1/nodes").json();
    assert_eq!((&nodes["engine"], &nodes["service"]["pid"]), (&json!("memory"), &json!(std::process::id())));
    let metrics = service.get("/metrics").text;
    for line in
        ["leasehold_locks_held 1", "leasehold_store_up 1", "leasehold_acquired_total{mode=\"exclusive\"} 2"]
    {
        assert!(metrics.lines().any(|it| it == line), "no {line}");
    }
}

/// The next event of this kind, with its id.
fn event(stream: &mut impl BufRead, kind: &str) -> (String, Value) {
    let (mut id, mut found) = (String::new(), String::new());
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended before {kind}");
        match line.trim_end().split_once(": ") {
            Some(("id", value)) => id = value.to_owned(),
            Some(("event", value)) => found = value.to_owned(),
            Some(("data", data)) if found == kind => return (id, serde_json::from_str(data).unwrap()),
            _ => {}
        }
    }
}

#[test]
fn events_begin_with_a_snapshot_and_go_on_where_they_were() {
    let service = Service::on("memory:");
    let open = |after: Option<&str>| {
        let request = Request::new("GET", "/v1/events?topics=locks,overview");
        let request = after.map_or(request.clone(), |id| request.header("Last-Event-ID", id));
        let mut stream = BufReader::new(request.open(service.address));
        assert_eq!(Answer::read(&mut stream).status, 200);
        // What follows comes in chunks, whose sizes are lines of their own.
        stream
    };
    let mut stream = open(None);
    let (_, snapshot) = event(&mut stream, "snapshot");
    assert!(snapshot["overview"]["series"]["step_ms"].is_u64(), "{snapshot}");
    service.hold("a", &json!({}));
    let (id, changed) = event(&mut stream, "locks");
    assert_eq!(changed["changed"][0]["name"], "a");
    drop(stream);
    service.hold("b", &json!({}));
    let (_, changed) = event(&mut open(Some(&id)), "locks");
    assert_eq!(changed["changed"][0]["name"], "b", "what was missed, and nothing before");
    let (_, snapshot) = event(&mut open(Some("1-1")), "snapshot");
    assert!(snapshot["seq"].is_u64(), "an id of another service");
}

#[test]
fn a_late_write_bounces_off_the_fence_in_the_playground() {
    let service = Service::on("memory:");
    for _ in 0..2 {
        assert_eq!(service.post("/v1/playground/workers", &json!({})).status, 201);
    }
    let state = || service.get("/v1/playground").json();
    let holder = poll(LONG, || state()["holder"].as_u64()).expect("a holder");
    let pause = service.post(&format!("/v1/playground/workers/{holder}/pause"), &json!({"for": "6s"}));
    assert_eq!(pause.status, 200, "{}", pause.text);
    eventually(LONG, "its late write is refused", || state()["register"]["rejected"].as_u64() > Some(0));
    assert_eq!(service.post("/v1/playground/workers/1/crash", &json!({})).status, 200);
    eventually(LONG, "it crashed", || state()["workers"][0]["state"] == "crashed");
    assert_eq!(service.post("/v1/playground/workers/1/crash", &json!({})).kind(404), "not_found");
    assert_eq!(service.post("/v1/playground/reset", &json!({})).json()["workers"], json!([]));
    assert_eq!(service.get("/v1/locks").json()["total"], 0, "nothing of it is in the store");
}
