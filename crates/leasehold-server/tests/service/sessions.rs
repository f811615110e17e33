//! Sessions, two services on one store, and ends of every kind.

use leasehold::Leasehold;
use leasehold_testkit::{RedisServer, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{LONG, Request, Service};

struct Session {
    id: String,
    secret: String,
}

impl Session {
    fn open(service: &Service, ttl: &str) -> Self {
        let opened = service.post("/v1/sessions", &json!({"ttl": ttl, "label": "worker 3"}));
        assert_eq!(opened.status, 201, "{}", opened.text);
        let text = |field: &str| opened.json()[field].as_str().unwrap().to_owned();
        Self { id: text("id"), secret: text("secret") }
    }

    fn request(&self, method: &str) -> Request {
        Request::new(method, &format!("/v1/sessions/{}", self.id)).header("Leasehold-Secret", &self.secret)
    }

    fn hold(&self, service: &Service, name: &str) -> Value {
        let request = Request::new("POST", &format!("/v1/locks/{name}/acquire"));
        let request = request.header("Leasehold-Secret", &self.secret).json(&json!({"session": self.id}));
        let held = service.send(request);
        assert_eq!(held.status, 200, "{}", held.text);
        held.json()
    }
}

#[test]
fn one_heartbeat_renews_everything_and_tells_what_was_lost() {
    let service = Service::on("memory:");
    let session = Session::open(&service, "30s");
    let first = session.hold(&service, "a");
    session.hold(&service, "b");
    assert_eq!(service.get("/v1/locks/a").json()["holder"]["label"], "worker 3");
    let taken = Request::new("POST", "/v1/locks/a/force-release")
        .header("If-Match", &format!("\"{}\"", first["fence"]));
    assert_eq!(service.send(taken.json(&json!({"reason": "a test"}))).status, 200);

    for _ in 0..2 {
        let renewed = service.send(session.request("PUT")).json();
        assert_eq!(renewed["held"].as_array().unwrap().len(), 1, "{renewed}");
        assert_eq!(
            (&renewed["held"][0]["name"], &renewed["held"][0]["renewed"]),
            (&json!("b"), &json!(true))
        );
        assert_eq!(
            (&renewed["lost"][0]["name"], &renewed["lost"][0]["fence"]),
            (&json!("a"), &first["fence"])
        );
    }
    let closed = service.send(session.request("DELETE")).json();
    let outcomes: Vec<_> =
        closed["released"].as_array().unwrap().iter().map(|it| it["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["lost", "released"]);
    assert_eq!(service.send(session.request("PUT")).kind(404), "not_found");
    assert_eq!(service.get("/v1/locks/b").json()["state"], "free");
}

#[test]
fn only_its_owner_can_use_a_session() {
    let service = Service::on("memory:");
    let session = Session::open(&service, "30s");
    let other = Session { secret: "other".into(), id: session.id.clone() };
    for method in ["PUT", "DELETE"] {
        assert_eq!(service.send(other.request(method)).kind(403), "forbidden");
    }
    let request = Request::new("POST", "/v1/locks/a/acquire").json(&json!({"session": session.id}));
    assert_eq!(service.send(request).kind(403), "forbidden");
    assert_eq!(service.get("/v1/locks/a").json()["state"], "free");
    let listed = service.get("/v1/sessions");
    assert!(listed.text.contains(&session.id) && !listed.text.contains(&session.secret));
}

#[test]
fn a_session_that_is_not_renewed_ends_and_its_locks_run_out() {
    let service = Service::on("memory:");
    let session = Session::open(&service, "300ms");
    session.hold(&service, "a");
    // Nobody asks for it by its id: that would renew it.
    eventually(LONG, "it ended", || service.get("/v1/sessions").json()["items"] == json!([]));
    assert_eq!(service.send(session.request("PUT")).kind(404), "not_found");
    eventually(LONG, "its lock ran out", || service.get("/v1/locks/a").json()["state"] == "free");
}

/// A store that two services share.
fn shared_stores(test: impl Fn(&str)) {
    let folder = TempDir::new().unwrap();
    test(&format!("sqlite:{}", folder.path().join("locks.db").display()));
    if let Some(redis) = RedisServer::shared_or_skip() {
        test(&redis.url());
    }
}

#[test]
fn two_services_on_one_store_show_the_same_locks() {
    shared_stores(|store| {
        let (one, other) = (Service::on(store), Service::on(store));
        let held = one.hold("shared:deal", &json!({"label": "here"}));
        let seen = other.get("/v1/locks/shared:deal").json();
        assert_eq!((&seen["fence"], &seen["holder"]["label"]), (&held["fence"], &json!("here")));
        eventually(LONG, "it is listed", || {
            other.get("/v1/locks?prefix=shared:").json()["items"][0]["name"] == "shared:deal"
        });
        let proof = json!({"token": held["token"]});
        assert_eq!(other.post("/v1/locks/shared:deal/extend", &proof).status, 200);
        assert_eq!(other.post("/v1/locks/shared:deal/release", &proof).status, 204);
        assert_eq!(one.get("/v1/locks/shared:deal").json()["state"], "free");
    });
}

#[test]
fn a_service_that_stops_sends_its_waiters_away_and_keeps_locks_held() {
    let folder = TempDir::new().unwrap();
    let store = format!("sqlite:{}", folder.path().join("locks.db").display());
    let mut service = Service::on(&store);
    let _held = service.hold("a", &json!({"ttl": "60s"}));
    let begin = service.post("/v1/idempotency/payout/7/begin", &json!({"ttl": "60s"}));
    assert_eq!(begin.status, 201, "{}", begin.text);
    let waiter = Request::new("POST", "/v1/locks/a/acquire").header("Prefer", "wait=50").json(&json!({}));
    let waiter = waiter.open(service.address);
    eventually(LONG, "it waits", || service.get("/v1/locks/a").json()["waiting"] == 1);
    let answer =
        std::thread::spawn(move || crate::client::Answer::read(&mut std::io::BufReader::new(waiter)));
    service.stop();
    let answer = answer.join().unwrap();
    assert_eq!(answer.kind(503), "draining");
    assert!(answer.header("retry-after").is_some());

    let next = Service::on(&store);
    assert_eq!(next.get("/v1/locks/a").json()["state"], "held");
    let running = next.get("/v1/idempotency/payout/7").json();
    assert_eq!(running["state"], "running", "it may still be at work");
}

#[test]
fn a_store_that_is_gone_is_told_in_time_and_shows_in_readiness() {
    let Ok(redis) = RedisServer::start() else { return };
    let service = Service::on(&redis.url());
    eventually(LONG, "it is ready", || service.get("/readyz").status == 200);
    redis.kill();
    assert_eq!(service.post("/v1/locks/a/acquire", &json!({})).kind(503), "store_unreachable");
    eventually(LONG, "it is not ready", || service.get("/readyz").status == 503);
    assert!(service.get("/readyz").json()["since_ms"].as_u64().unwrap() > 0);
    assert_eq!(service.get("/healthz").status, 200, "the service itself lives");
    assert_eq!(service.get("/v1/overview").json()["store"]["reachable"], false);
    redis.restart();
    eventually(LONG, "it is ready again", || service.get("/readyz").status == 200);
}

/// Whatever a service has in memory, its locks in the store have a ttl.
#[test]
fn what_a_lost_service_held_runs_out() {
    let folder = TempDir::new().unwrap();
    let store = format!("sqlite:{}", folder.path().join("locks.db").display());
    let service = Service::on(&store);
    let session = Session::open(&service, "1s");
    session.hold(&service, "a");
    // As after kill -9: nobody renews, nobody releases.
    std::mem::drop(service);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let leases = Leasehold::connect(&store).await.unwrap();
        let guard = leases.lock("a").wait(LONG).acquire().await.unwrap();
        assert!(guard.release().await.unwrap().was_held());
        leases.close().await.unwrap();
    });
}
