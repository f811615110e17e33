//! Locks, attempts and the queue.

use leasehold_testkit::{eventually, poll};
use serde_json::json;

use crate::client::{LONG, Request, Service};

#[test]
fn a_lock_is_acquired_extended_and_given_back() {
    let service = Service::on("memory:");
    let held = service.hold("deal:42", &json!({"ttl": "30s", "label": "report"}));
    assert_eq!((&held["state"], &held["mode"]), (&json!("held"), &json!("exclusive")));
    let fence = held["fence"].as_u64().unwrap();
    assert_eq!(held["sequencer"], format!("deal:42:exclusive:{fence}"));
    assert!(held["valid_for_ms"].as_u64().unwrap() <= 30_000);

    let seen = service.get("/v1/locks/deal:42");
    assert_eq!(seen.header("etag"), Some(format!("\"{fence}\"").as_str()));
    assert_eq!(seen.json()["holder"]["label"], "report");
    assert!(!seen.text.contains(held["token"].as_str().unwrap()), "the token goes to its holder only");

    let busy = service.post("/v1/locks/deal:42/acquire", &json!({}));
    assert_eq!(busy.kind(409), "busy");
    assert_eq!((&busy.json()["place"], &busy.json()["holder"]["label"]), (&json!(1), &json!("report")));
    assert!(busy.header("retry-after").is_some());

    let proof = json!({"token": held["token"]});
    let longer = json!({"token": held["token"], "ttl": "60s"});
    assert_eq!(service.post("/v1/locks/deal:42/extend", &longer).json()["ttl_ms"], 60_000);
    assert_eq!(service.post("/v1/locks/deal:42/release", &proof).status, 204);
    assert_eq!(service.post("/v1/locks/deal:42/release", &proof).kind(410), "lost");
    assert_eq!(service.post("/v1/locks/deal:42/extend", &proof).kind(410), "lost");
    let next = service.hold("deal:42", &json!({}));
    assert!(next["fence"].as_u64().unwrap() > fence);
    let taken = service.post("/v1/locks/deal:42/release", &proof);
    assert_eq!(taken.kind(409), "taken");
    assert_eq!(taken.json()["fence"], next["fence"]);
}

#[test]
fn a_repeated_attempt_gets_the_same_grant() {
    let service = Service::on("memory:");
    let acquire = |name: &str, ttl: &str| {
        let request = Request::new("POST", &format!("/v1/locks/{name}/acquire"));
        service.send(request.header("Idempotency-Key", "job-1").json(&json!({"ttl": ttl})))
    };
    let first = acquire("a", "30s").json();
    let again = acquire("a", "30s").json();
    assert_eq!((&first["fence"], &first["token"]), (&again["fence"], &again["token"]));
    assert_eq!(again["attempt"], "job-1");
    assert_eq!(acquire("a", "40s").kind(422), "mismatch");
    let release = service.post("/v1/locks/a/release", &json!({"token": first["token"]}));
    assert_eq!(release.status, 204);
    assert_eq!(acquire("a", "30s").kind(410), "gone", "the attempt is over");
}

#[test]
fn an_attempt_waits_in_the_queue_beyond_its_request() {
    let service = Service::on("memory:");
    let held = service.hold("a", &json!({}));
    let request = Request::new("POST", "/v1/locks/a/acquire").header("Idempotency-Key", "later");
    let waits = service.send(request.header("Prefer", "respond-async").json(&json!({})));
    assert_eq!((waits.status, waits.header("location")), (202, Some("/v1/attempts/later")));
    eventually(LONG, "it is in the queue", || service.get("/v1/locks/a").json()["waiting"] == 1);
    let place = poll(LONG, || service.get("/v1/attempts/later").json()["place"].as_u64());
    assert_eq!(place, Some(1));
    assert_eq!(service.post("/v1/locks/a/release", &json!({"token": held["token"]})).status, 204);
    let granted = service.get("/v1/attempts/later?wait=30");
    assert_eq!(granted.status, 200, "{}", granted.text);
    assert!(granted.json()["fence"].as_u64() > held["fence"].as_u64());
    assert_eq!(service.delete("/v1/attempts/later").status, 204);
    assert_eq!(service.get("/v1/locks/a").json()["state"], "free");
}

#[test]
fn a_client_that_disconnects_leaves_the_queue() {
    let service = Service::on("memory:");
    let _held = service.hold("a", &json!({}));
    for key in [None, Some("mine")] {
        let request =
            Request::new("POST", "/v1/locks/a/acquire").header("Prefer", "wait=50").json(&json!({}));
        let request = key.map_or(request.clone(), |key| request.header("Idempotency-Key", key));
        let waiting = || service.get("/v1/locks/a").json()["waiting"].as_u64();
        let stream = request.open(service.address);
        eventually(LONG, "it waits", || waiting() == Some(1));
        drop(stream);
        eventually(LONG, "it has left", || waiting() == Some(0));
    }
}
