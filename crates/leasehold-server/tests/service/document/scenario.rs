//! A play through everything that succeeds, and through refusals that need a past.

use leasehold_testkit::{eventually, poll};
use serde_json::{Value, json};

use super::{refusals::service_on, seen::Seen};
use crate::{
    client::{LONG, Request, Service},
    limits::limited,
    security::{EVERYTHING, tokens_of, with},
};

pub(super) fn play(seen: &Seen) {
    let service = service_on("memory:");
    let play = Play { seen, service: &service };
    play.service_itself();
    play.locks();
    play.attempts();
    play.force();
    play.sessions();
    play.elections();
    play.records();
    play.marks();
    play.deadlines();
    play.dashboard();
    play.playground();
    play.full();
}

struct Play<'a> {
    seen: &'a Seen,
    service: &'a Service,
}

impl Play<'_> {
    fn get(&self, path: &str, status: u16) -> Value {
        let answer = self.seen.get(self.service, path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        if answer.header("content-type").is_some_and(|kind| kind.ends_with("json")) {
            answer.json()
        } else {
            Value::Null
        }
    }

    fn post(&self, path: &str, body: &Value, status: u16) -> Value {
        self.with(Request::new("POST", path).json(body), status)
    }

    fn put(&self, path: &str, body: &Value, status: u16) -> Value {
        self.with(Request::new("PUT", path).json(body), status)
    }

    fn delete(&self, path: &str, status: u16) -> Value {
        self.with(Request::new("DELETE", path), status)
    }

    fn with(&self, request: Request, status: u16) -> Value {
        let path = request.path.clone();
        let answer = self.seen.send(self.service, request);
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        if answer.text.is_empty() { Value::Null } else { answer.json() }
    }

    fn service_itself(&self) {
        self.get("/healthz", 200);
        eventually(LONG, "it is ready", || self.seen.get(self.service, "/readyz").status == 200);
        self.get("/metrics", 200);
        self.get("/openapi.json", 200);
        let tokens = tokens_of(&[("all", EVERYTHING)]);
        let guarded = Service::with("memory:", |builder| builder.tokens(tokens));
        self.seen.send(&guarded, with("all", "GET", "/v1/whoami"));
        self.get("/v1/nodes", 200);
        self.get("/v1/policies", 200);
    }

    fn locks(&self) {
        let whole = json!({
            "ttl": "30s", "wait": "30s", "label": "whole", "lock_delay": "1ms", "mode": "permits", "of": 4, "permits": 2,
        });
        let held = self.post("/v1/locks/p/acquire", &whole, 200);
        let proof = json!({"token": held["token"]});
        self.post("/v1/locks/p/extend", &json!({"token": held["token"], "ttl": "60s"}), 200);
        let other = json!({"mode": "permits", "of": 5});
        self.post("/v1/locks/p/acquire", &other, 409);
        self.post("/v1/elections/p/campaign", &other, 409);
        self.put("/v1/semaphores/p/limit", &json!({"limit": 6}), 204);
        self.get("/v1/locks/p", 200);
        eventually(LONG, "it is listed", || {
            let query =
                "prefix=p&state=held,waiting&mode=permits&holder=whole&sort=age&limit=1&waiting=false&from=0";
            self.get(&format!("/v1/locks?{query}"), 200)["items"][0]["permits_used"] == 2
        });
        self.post("/v1/locks/p/release", &proof, 204);
        self.post("/v1/locks/p/release", &proof, 410);
        self.post("/v1/locks/p/extend", &proof, 410);
        for path in ["/v1/locks/acked/acquire", "/v1/elections/acked/campaign"] {
            self.post(path, &json!({"acks": 1}), 501);
        }
        let exclusive = self.post("/v1/locks/x/acquire", &json!({}), 200);
        self.put("/v1/semaphores/x/limit", &json!({"limit": 6}), 409);
        let proof = json!({"token": exclusive["token"]});
        self.post("/v1/locks/x/release", &proof, 204);
        self.post("/v1/locks/x/acquire", &json!({}), 200);
        self.post("/v1/locks/x/release", &proof, 409);
        let by_policy = |policy: &str, body: Value, status| {
            self.post(&format!("/v1/policies/{policy}/acquire"), &body, status)
        };
        let values = json!({"id": 7.to_string()});
        let whole = json!({"values": values, "ttl": "5s", "wait": "1s", "label": "by policy"});
        by_policy("few", whole, 200);
        by_policy("lone", json!({"values": values}), 200);
        by_policy("lone", json!({"values": values}), 409);
        by_policy("1", json!({"values": values}), 501);
    }

    /// Everything that an attempt with an id can become, by all three ways to make one.
    fn attempts(&self) {
        let ways = [
            ("a", "/v1/locks/q/acquire", "/v1/locks/r/acquire", json!({})),
            ("e", "/v1/elections/s/campaign", "/v1/elections/t/campaign", json!({})),
            ("p", "/v1/policies/lone/acquire", "/v1/policies/lone/acquire", json!({"values": {"id": "u"}})),
        ];
        for (id, path, next, body) in ways {
            let attempt = |id: &str, prefer: &str, path: &str, body: &Value| {
                let request =
                    Request::new("POST", path).header("Idempotency-Key", id).header("Prefer", prefer);
                self.seen.send(self.service, request.json(body))
            };
            let [first, second] = ["1", "2"].map(|number| format!("{id}{number}"));
            let mut named = body.clone();
            named["label"] = "the holder".into();
            let held = attempt(&first, "wait=1", path, &named).json();
            assert_eq!(attempt(&first, "wait=1", path, &named).status, 200);
            let mut changed = body.clone();
            changed["ttl"] = "7s".into();
            assert_eq!(attempt(&first, "wait=1", path, &changed).status, 422);
            assert_eq!(attempt(&second, "respond-async", path, &body).status, 202);
            eventually(LONG, "it knows its place", || {
                self.get(&format!("/v1/attempts/{second}"), 202)["place"] == 1
            });
            self.delete(&format!("/v1/attempts/{second}"), 204);
            let proof = json!({"token": held["token"]});
            let name = held["name"].as_str().unwrap();
            self.post(&format!("/v1/locks/{name}/release"), &proof, 204);
            assert_eq!(attempt(&first, "wait=1", path, &named).status, 410);
            self.get(&format!("/v1/attempts/{first}?wait=1"), 410);
            let mut lost = body.clone();
            lost["session"] = "none".into();
            self.with(Request::new("POST", next).header("Leasehold-Secret", "x").json(&lost), 404);
        }
        self.get("/v1/attempts/none", 404);
        self.delete("/v1/attempts/none", 404);
        self.post("/v1/locks/v/acquire", &json!({}), 200);
        let brief = Request::new("POST", "/v1/locks/v/acquire").header("Idempotency-Key", "v2");
        self.with(brief.header("Prefer", "respond-async").json(&json!({"wait": "100ms"})), 202);
        let status = || self.seen.get(self.service, "/v1/attempts/v2?wait=1").status;
        eventually(LONG, "its time is over", || status() == 409);
        let granted = Request::new("POST", "/v1/locks/w/acquire").header("Idempotency-Key", "w1");
        self.with(granted.json(&json!({})), 200);
        self.get("/v1/attempts/w1?wait=1", 200);
        self.delete("/v1/attempts/w1", 204);
    }

    fn force(&self) {
        let held = self.post("/v1/locks/f/acquire", &json!({"label": "stuck"}), 200);
        let force = |tag: Option<&Value>, status| {
            let request = Request::new("POST", "/v1/locks/f/force-release").json(&json!({"reason": "stuck"}));
            let request = match tag {
                None => request,
                Some(tag) => request.header("If-Match", &format!("\"{tag}\"")),
            };
            self.with(request, status)
        };
        force(None, 428);
        force(Some(&json!(12345)), 412);
        force(Some(&held["fence"]), 200);
        self.get("/v1/audit?name=f&from=0&limit=1", 200);
    }

    fn sessions(&self) {
        let opened = self.post("/v1/sessions", &json!({"ttl": "30s", "label": "worker"}), 201);
        let secret = opened["secret"].as_str().unwrap();
        let session = |method: &str, status| {
            let request = Request::new(method, &format!("/v1/sessions/{}", opened["id"].as_str().unwrap()));
            self.with(request.header("Leasehold-Secret", secret), status)
        };
        let take = |path: &str, body: Value| {
            let mut body = body;
            body["session"] = opened["id"].clone();
            self.with(Request::new("POST", path).header("Leasehold-Secret", secret).json(&body), 200)
        };
        let lost = take("/v1/locks/s1/acquire", json!({}));
        take("/v1/elections/s2/campaign", json!({"mode": "exclusive"}));
        take("/v1/policies/lone/acquire", json!({"values": {"id": "s3"}}));
        let force = Request::new("POST", "/v1/locks/s1/force-release");
        let force = force.header("If-Match", &format!("\"{}\"", lost["fence"]));
        self.with(force.json(&json!({"reason": "a test"})), 200);
        session("PUT", 200);
        self.get("/v1/sessions", 200);
        session("DELETE", 200);
        session("PUT", 404);
        session("DELETE", 404);
    }

    fn elections(&self) {
        self.get("/v1/elections/e", 200);
        let whole = json!({
            "ttl": "30s", "wait": "30s", "label": "one", "lock_delay": "1ms", "mode": "exclusive",
        });
        let led = self.post("/v1/elections/e/campaign", &whole, 200);
        let permits = json!({"mode": "permits", "of": 2, "permits": 1});
        self.post("/v1/elections/many/campaign", &permits, 200);
        let next = Request::new("POST", "/v1/elections/e/campaign").header("Prefer", "respond-async");
        self.with(next.json(&json!({"label": "two"})), 202);
        eventually(LONG, "it is a candidate", || {
            self.get("/v1/elections/e?watch=1&fence=0", 200)["candidates"][0].is_object()
        });
        self.get("/v1/elections", 200);
        let proof = json!({"token": led["token"]});
        self.post("/v1/elections/e/resign", &proof, 204);
        eventually(LONG, "the next one leads", || {
            self.get("/v1/elections/e", 200)["leader"]["label"] == "two"
        });
        self.post("/v1/elections/e/resign", &proof, 409);
        let led = self.post("/v1/elections/d/campaign", &json!({}), 200);
        let proof = json!({"token": led["token"]});
        self.post("/v1/elections/d/resign", &proof, 204);
        self.post("/v1/elections/d/resign", &proof, 410);
    }

    fn records(&self) {
        let begin = |key: &str, body: Value, status| {
            self.post(&format!("/v1/idempotency/pay/{key}/begin"), &body, status)
        };
        let whole = json!({
            "fingerprint": "EUR 1", "ttl": "30s", "keep": "1h", "on_failure": "replay", "label": "payer",
        });
        let request = Request::new("POST", "/v1/idempotency/pay/1/begin").header("Prefer", "wait=0");
        let begun = self.with(request.json(&whole), 201);
        begin("1", whole.clone(), 409);
        begin("1", json!({"fingerprint": "EUR 2"}), 422);
        self.get("/v1/idempotency/pay/1", 200);
        let proof = json!({"execution": begun["execution"]});
        self.post("/v1/idempotency/pay/1/extend", &proof, 200);
        let done = json!({"execution": begun["execution"], "result": {"receipt": 7}});
        self.post("/v1/idempotency/pay/1/complete", &done, 200);
        for act in ["extend", "complete"] {
            self.post(&format!("/v1/idempotency/pay/1/{act}"), &proof, 410);
        }
        begin("1", whole, 200);
        self.get("/v1/idempotency/pay/1", 200);
        for (key, on_failure) in [("2", "replay"), ("3", "quarantine")] {
            let body = json!({"on_failure": on_failure});
            let begun = begin(key, body.clone(), 201);
            let failed = json!({"execution": begun["execution"], "why": "no such account"});
            let path = format!("/v1/idempotency/pay/{key}/fail");
            self.post(&path, &failed, 200);
            self.post(&path, &failed, 410);
            begin(key, body, 200);
            self.get(&format!("/v1/idempotency/pay/{key}"), 200);
        }
        // What begins after the end of an execution fences it off.
        for (key, act) in [("4", "complete"), ("5", "fail")] {
            let first = begin(key, json!({"ttl": "30s"}), 201);
            self.delete(&format!("/v1/idempotency/pay/{key}"), 204);
            begin(key, json!({}), 201);
            let mut late = json!({"execution": first["execution"]});
            if act == "fail" {
                late["why"] = "late".into();
            }
            self.post(&format!("/v1/idempotency/pay/{key}/{act}"), &late, 409);
        }
        self.get("/v1/idempotency?operation=pay&state=completed&limit=1", 200);
        let next = self.get("/v1/idempotency?operation=pay&limit=1", 200)["next"].clone();
        self.get(&format!("/v1/idempotency?from={}", next.as_str().unwrap()), 200);
        self.get("/v1/idempotency/pay/none", 404);
        self.delete("/v1/idempotency/pay/none", 404);
    }

    fn marks(&self) {
        self.put("/v1/markers/k/1", &json!({"ttl": "1m", "if_absent": true}), 200);
        self.put("/v1/markers/k/2", &json!({}), 200);
        self.get("/v1/markers/k/1", 200);
        self.post("/v1/markers/k/test", &json!({"ids": ["1", "3"]}), 200);
        let next = self.get("/v1/markers?kind=k&limit=1", 200)["next"].clone();
        self.get(&format!("/v1/markers?kind=k&from={}", next.as_str().unwrap()), 200);
        self.delete("/v1/markers/k/1", 200);
    }

    fn deadlines(&self) {
        self.put("/v1/deadlines/d/1", &json!({"in": "0s", "context": {"order": 7}}), 204);
        self.put("/v1/deadlines/d/2", &json!({"at_ms": 1, "context": "late"}), 204);
        self.put("/v1/deadlines/d/3", &json!({"in": "1h"}), 204);
        self.put("/v1/deadlines/d/4", &json!({"in": "0s"}), 204);
        eventually(LONG, "three are due", || self.get("/v1/deadlines/d?limit=10", 200)["due"] == 3);
        let claim = || self.post("/v1/deadlines/d/claim", &json!({"limit": 10, "visibility": "1m"}), 200);
        let claimed = poll(LONG, || Some(claim()).filter(|claimed| claimed["items"][2].is_object())).unwrap();
        let number = |index: usize| claimed["items"][index]["number"].clone();
        let id = |index: usize| claimed["items"][index]["id"].clone();
        let settle = json!({"items": [
            {"id": id(0), "number": number(0), "as": "bury", "why": "no account"},
            {"id": id(1), "number": number(1), "as": "postpone", "by": "1m"},
            {"id": id(2), "number": number(2), "as": "bury"},
        ]});
        self.post("/v1/deadlines/d/settle", &settle, 200);
        self.get("/v1/deadlines/d/dead?limit=1&from=", 200);
        let requeue = format!("/v1/deadlines/d/dead/{}/requeue", id(0).as_str().unwrap());
        self.post(&requeue, &json!({"in": "1h"}), 204);
        self.post(&requeue, &json!({}), 404);
        self.get("/v1/deadlines", 200);
        self.delete("/v1/deadlines/d/3", 200);
    }

    fn dashboard(&self) {
        let held =
            self.post("/v1/locks/hot/acquire", &json!({"label": "report", "mode": "permits", "of": 1}), 200);
        let waits = json!({"label": "import", "mode": "permits", "of": 1});
        for _ in 0..10 {
            let request = Request::new("POST", "/v1/locks/hot/acquire").header("Prefer", "respond-async");
            self.with(request.json(&waits), 202);
        }
        eventually(LONG, "there is a page after it", || self.get("/v1/locks?limit=1", 200)["next"] == "1");
        eventually(LONG, "a convoy is found", || {
            let lints = self.get("/v1/overview", 200)["lints"].clone();
            lints.as_array().unwrap().iter().any(|lint| lint["code"] == "convoy")
        });
        eventually(LONG, "a pair is seen", || {
            self.get("/v1/contention?holder=report&limit=10", 200)["items"][0]["waiter_ms"].as_u64() > Some(0)
        });
        self.get("/v1/locks/hot", 200);
        self.post("/v1/locks/hot/release", &json!({"token": held["token"]}), 204);
        eventually(LONG, "the tenure has ended", || {
            let tenures = self.get("/v1/locks/hot/history", 200)["tenures"].clone();
            tenures.as_array().unwrap().iter().any(|tenure| tenure["ended"] == "handed_over")
        });
        self.get("/v1/locks/f/history", 200);
        self.get("/v1/holders?label=report", 200);
        let events = Request::new("GET", "/v1/events?topics=locks&prefix=x").header("Last-Event-ID", "1-1");
        self.with(events, 200);
    }

    fn playground(&self) {
        for _ in 0..8 {
            self.post("/v1/playground/workers", &json!({}), 201);
        }
        self.post("/v1/playground/workers", &json!({}), 409);
        let holder = poll(LONG, || self.get("/v1/playground", 200)["holder"].as_u64()).unwrap();
        self.post(&format!("/v1/playground/workers/{holder}/pause"), &json!({"for": "5s"}), 200);
        self.get("/v1/playground", 200);
        let other = holder % 8 + 1;
        self.post(&format!("/v1/playground/workers/{other}/crash"), &json!({}), 200);
        self.delete(&format!("/v1/playground/workers/{}", other % 8 + 1), 200);
        for act in ["crash", "pause"] {
            self.post(&format!("/v1/playground/workers/99/{act}"), &json!({}), 404);
        }
        self.delete("/v1/playground/workers/99", 404);
        self.post("/v1/playground/reset", &json!({}), 200);
    }

    /// A service that has no room for anything.
    fn full(&self) {
        let service = limited(|limits| {
            (limits.sessions, limits.attempts, limits.executions, limits.event_clients) = (0, 0, 0, 0);
        });
        assert_eq!(self.seen.post(&service, "/v1/sessions", &json!({})).kind(503), "overloaded");
        assert_eq!(self.seen.get(&service, "/v1/events").kind(503), "overloaded");
        assert_eq!(self.seen.post(&service, "/v1/idempotency/a/b/begin", &json!({})).kind(503), "overloaded");
        let request = Request::new("POST", "/v1/locks/a/acquire").header("Idempotency-Key", "a");
        assert_eq!(self.seen.send(&service, request.json(&json!({}))).kind(503), "overloaded");
    }
}
