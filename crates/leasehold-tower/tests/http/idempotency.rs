//! The `Idempotency-Key` header.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{Extension, Router, body::Body, response::Response, routing::post};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Full};
use tokio::{sync::RwLock, task::JoinSet};
use tower::Service;

use leasehold::{Clock, Fence, Leasehold};
use leasehold_testkit::eventually_async;
use leasehold_tower::{IdempotencyLayer, LockLayer};

use crate::site::{self, LONG, Site};

/// A service that counts its executions, and can be made to wait before it answers.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU32>, Arc<RwLock<()>>);

impl Counter {
    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Answers with its number, a kept header and one that is not.
    fn app(&self, layer: IdempotencyLayer) -> Router {
        let counter = self.clone();
        let pay = async move |Extension(fence): Extension<Fence>, body: Bytes| {
            assert!(fence.get() > 0);
            let number = counter.next();
            let _let_go = counter.1.read().await;
            Response::builder()
                .status(201)
                .header("location", format!("/payouts/{number}"))
                .header("set-cookie", "secret=1")
                .body(Body::from([b"paid ", &body[..], b" \xff\n"].concat()))
                .unwrap()
        };
        Router::new().route("/payouts", post(pay.clone()).put(pay)).layer(layer)
    }
}

async fn memory() -> Leasehold {
    Leasehold::connect("memory:").await.unwrap()
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_executed_once_and_answered_alike() {
    let counter = Counter::default();
    let site = Site::serve(counter.app(IdempotencyLayer::new(memory().await))).await;
    let first = site.post("/payouts", "k1", "100").await;
    assert_eq!((first.status, first.header("location")), (StatusCode::CREATED, Some("/payouts/1")));
    assert!(!first.is_replay() && first.header("set-cookie").is_some());
    // Quoted or not, it is the same key.
    for key in ["k1", "\"k1\""] {
        let again = site.post("/payouts", key, "100").await;
        assert!(again.is_replay());
        assert_eq!((again.status, again.header("location")), (StatusCode::CREATED, Some("/payouts/1")));
        assert_eq!(again.body.as_ref().unwrap(), first.body.as_ref().unwrap());
        assert_eq!(again.header("set-cookie"), None);
    }
    assert_eq!(counter.count(), 1);
    assert!(!site.post("/payouts", "k2", "100").await.is_replay());
    assert_eq!(counter.count(), 2);
}

#[tokio::test]
async fn of_a_hundred_duplicates_at_once_one_is_executed() {
    for wait in [Duration::ZERO, LONG] {
        let counter = Counter::default();
        let layer = IdempotencyLayer::new(memory().await).wait(wait);
        let site = Arc::new(Site::serve(counter.app(layer)).await);
        let mut held = Some(counter.1.write().await);
        let mut calls = JoinSet::new();
        for _ in 0..100 {
            let site = site.clone();
            calls.spawn(async move { site.post("/payouts", "k", "100").await });
        }
        if !wait.is_zero() {
            eventually_async(LONG, "one began", || async { counter.count() == 1 }).await;
            held = None;
        }
        let (mut executed, mut replayed, mut refused) = (0, 0, 0);
        while let Some(call) = calls.join_next().await {
            let answer = call.unwrap();
            match answer.status.as_u16() {
                201 if answer.is_replay() => replayed += 1,
                201 => executed += 1,
                _ => {
                    answer.is_problem(409, "in-progress");
                    answer.says_when_to_try_again();
                    refused += 1;
                }
            }
            // Nobody but the first is still there: it was under way all the time.
            if calls.len() == 1 {
                held = None;
            }
        }
        drop(held);
        assert_eq!((counter.count(), executed, replayed + refused), (1, 1, 99));
        assert_eq!(refused, if wait.is_zero() { 99 } else { 0 }, "those who may wait get the response");
    }
}

#[tokio::test]
async fn of_a_hundred_duplicates_to_two_instances_one_is_executed() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let counter = Counter::default();
    let mut sites = Vec::new();
    for _ in 0..2 {
        let leases = Leasehold::connect(server.url()).await.unwrap();
        sites.push(Arc::new(Site::serve(counter.app(IdempotencyLayer::new(leases).wait(LONG))).await));
    }
    let held = counter.1.write().await;
    let mut calls = JoinSet::new();
    for number in 0..100 {
        let site = sites[number % 2].clone();
        calls.spawn(async move { site.post("/payouts", "k", "100").await });
    }
    eventually_async(LONG, "one began", || async { counter.count() == 1 }).await;
    drop(held);
    let answers = calls.join_all().await;
    assert!(
        answers.iter().all(|answer| answer.status == 201 && answer.header("location") == Some("/payouts/1"))
    );
    assert_eq!((counter.count(), answers.iter().filter(|answer| answer.is_replay()).count()), (1, 99));
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused() {
    let counter = Counter::default();
    let site = Site::serve(counter.app(IdempotencyLayer::new(memory().await))).await;
    assert_eq!(site.post("/payouts", "k", "100").await.status, 201);
    site.post("/payouts", "k", "200").await.is_problem(422, "mismatch");
    site.post("/payouts?fast", "k", "100").await.is_problem(422, "mismatch");
    assert_eq!(counter.count(), 1);
}

#[tokio::test]
async fn keys_are_apart_for_each_caller() {
    let counter = Counter::default();
    let layer = IdempotencyLayer::new(memory().await)
        .principal(|parts| Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned()));
    let site = Site::serve(counter.app(layer)).await;
    for user in ["a", "b", "a", "b"] {
        let request = site::post("/payouts").header("idempotency-key", "k").header("x-user", user);
        site.send(request.body("100".into()).unwrap()).await;
    }
    assert_eq!(counter.count(), 2);
}

#[tokio::test]
async fn a_key_that_is_missing_or_broken_is_refused_where_it_counts() {
    let counter = Counter::default();
    let strict = Site::serve(counter.app(IdempotencyLayer::new(memory().await).required())).await;
    let bare = || site::post("/payouts").body("100".into()).unwrap();
    strict.send(bare()).await.is_problem(400, "key-missing");
    for bad in ["a b", "\"a", "", &"x".repeat(256)] {
        strict.post("/payouts", bad, "100").await.is_problem(400, "key-invalid");
    }
    let twice = site::post("/payouts").header("idempotency-key", "a").header("idempotency-key", "b");
    strict.send(twice.body("100".into()).unwrap()).await.is_problem(400, "key-invalid");
    assert_eq!(counter.count(), 0);
    // Other methods are idempotent by themselves, or harmless.
    let get = http::Request::get("/payouts").header("host", "localhost").body("".into()).unwrap();
    assert_eq!(strict.send(get).await.status, StatusCode::METHOD_NOT_ALLOWED);
    let app = Router::new().route("/payouts", post(async || "paid"));
    let lenient = Site::serve(app.layer(IdempotencyLayer::new(memory().await))).await;
    for _ in 0..2 {
        let answer = lenient.send(bare()).await;
        assert!(answer.status == 200 && !answer.is_replay());
    }
}

#[tokio::test]
async fn a_server_error_is_not_kept_and_a_refusal_is() {
    let counter = Counter::default();
    let fails = {
        let counter = counter.clone();
        async move |body: Bytes| {
            let number = counter.next();
            let status = if body == "bad" {
                StatusCode::BAD_REQUEST
            } else if number <= 2 {
                StatusCode::BAD_GATEWAY
            } else {
                StatusCode::OK
            };
            (status, number.to_string())
        }
    };
    let app = Router::new().route("/payouts", post(fails));
    let leases = memory().await;
    let site = Site::serve(app.clone().layer(IdempotencyLayer::new(leases.clone()))).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let answer = site.post("/payouts", "k", "100").await;
        seen.push((answer.status.as_u16(), answer.text().to_owned(), answer.is_replay()));
    }
    let expected = [(502, "1", false), (502, "2", false), (200, "3", false), (200, "3", true)];
    assert_eq!(seen, expected.map(|(status, text, replay)| (status, text.to_owned(), replay)));
    assert_eq!(site.post("/payouts", "k2", "bad").await.status, 400);
    assert!(site.post("/payouts", "k2", "bad").await.is_replay());
    // By policy a server error is kept as well.
    counter.0.store(0, Ordering::SeqCst);
    let layer = IdempotencyLayer::new(leases).operation("other").store_when(|_| true);
    let site = Site::serve(app.layer(layer)).await;
    assert_eq!(site.post("/payouts", "k", "100").await.status, 502);
    let again = site.post("/payouts", "k", "100").await;
    assert!(again.status == 502 && again.is_replay() && counter.count() == 1);
}

#[tokio::test]
async fn a_refusal_for_the_moment_is_not_kept() {
    let leases = memory().await;
    let app = Router::new().route("/payouts", post(async || "paid"));
    // The lock is inside of the other layer, so its refusal is a response to be stored or not.
    let busy = LockLayer::new(leases.clone(), |_| Some("account".into()));
    let site = Site::serve(app.layer(busy).layer(IdempotencyLayer::new(leases.clone()))).await;
    let guard = leases.lock("account").acquire().await.unwrap();
    site.post("/payouts", "k", "100").await.is_problem(409, "busy");
    let _ = guard.release().await.unwrap();
    let answer = site.post("/payouts", "k", "100").await;
    assert!(answer.status == 200 && !answer.is_replay() && answer.text() == "paid", "{}", answer.text());
    assert!(site.post("/payouts", "k", "100").await.is_replay());

    let counter = Counter::default();
    let hurried = {
        let counter = counter.clone();
        async move || match counter.next() {
            1 => StatusCode::TOO_MANY_REQUESTS,
            2 => StatusCode::REQUEST_TIMEOUT,
            3 => StatusCode::TOO_EARLY,
            4 => StatusCode::UNAUTHORIZED,
            5 => StatusCode::FORBIDDEN,
            _ => StatusCode::CONFLICT,
        }
    };
    let app = Router::new().route("/payouts", post(hurried));
    let site = Site::serve(app.layer(IdempotencyLayer::new(leases).operation("hurried"))).await;
    let mut seen = Vec::new();
    for _ in 0..7 {
        let answer = site.post("/payouts", "k", "100").await;
        seen.push((answer.status.as_u16(), answer.is_replay()));
    }
    let passed_on = [429, 408, 425, 401, 403, 409].map(|status| (status, false));
    assert_eq!(seen, [&passed_on[..], &[(409, true)]].concat());
}

#[tokio::test]
async fn a_kept_header_is_replayed_byte_by_byte() {
    let place = "/r\u{e9}cepiss\u{e9}s/\u{6f22}".as_bytes();
    let place = [place, b"\xff \"7\""].concat();
    let answer = {
        let place = place.clone();
        async move || Response::builder().header("location", place.as_slice()).body(Body::empty()).unwrap()
    };
    let app = Router::new().route("/payouts", post(answer));
    let site = Site::serve(app.layer(IdempotencyLayer::new(memory().await))).await;
    for replayed in [false, true] {
        let answer = site.post("/payouts", "k", "100").await;
        assert_eq!(answer.is_replay(), replayed);
        assert_eq!(answer.headers.get("location").map(|value| value.as_bytes()), Some(&place[..]));
    }
}

#[tokio::test]
async fn a_response_that_is_too_large_passes_and_is_never_computed_again() {
    let counter = Counter::default();
    let large = {
        let counter = counter.clone();
        async move || {
            counter.next();
            "x".repeat(300_000)
        }
    };
    let app = Router::new().route("/payouts", post(large));
    let site = Site::serve(app.layer(IdempotencyLayer::new(memory().await).response_max(1000))).await;
    assert_eq!(site.post("/payouts", "k", "100").await.text().len(), 300_000);
    let again = site.post("/payouts", "k", "100").await;
    again.is_problem(409, "not-replayable");
    assert!(again.text().contains("200 OK") && counter.count() == 1);
}

#[tokio::test]
async fn trailers_of_a_request_and_of_its_first_response_are_passed_on() {
    let echo = async |body: Body| {
        let sent = body.collect().await.unwrap();
        let trailers = sent.trailers().cloned().unwrap();
        Response::new(Body::new(Full::new(sent.to_bytes()).with_trailers(ready(Some(Ok(trailers))))))
    };
    let mut app = Router::new()
        .route("/payouts", post(echo))
        .layer(IdempotencyLayer::new(memory().await).request_max(10).response_max(3));
    for (key, body) in [("kept", "100"), ("too large to be kept", "1000000")] {
        let trailers = HeaderMap::from_iter([(header::EXPIRES, HeaderValue::from_static("never"))]);
        let body = Full::new(Bytes::from(body)).with_trailers(ready(Some(Ok(trailers.clone()))));
        let request = site::post("/payouts").header("idempotency-key", key.replace(' ', "-"));
        let response = app.call(request.body(Body::new(body)).unwrap()).await.unwrap();
        let given = response.into_body().collect().await.unwrap();
        assert_eq!(given.trailers(), Some(&trailers), "{key}");
    }
}

#[tokio::test]
async fn a_limit_of_responses_that_the_store_cannot_keep_is_refused_when_the_layer_is_made() {
    let most = 64 * 1024 * 1024 - 64 * 1024;
    let leases = memory().await;
    let counter = Counter::default();
    let layer = IdempotencyLayer::new(leases.clone()).response_max(most);
    let site = Site::serve(counter.app(layer)).await;
    assert_eq!(site.post("/payouts", "k", "100").await.status, 201);
    let made = tokio::spawn(async move { drop(IdempotencyLayer::new(leases).response_max(most + 1)) });
    let panic = made.await.unwrap_err().into_panic();
    assert!(panic.downcast::<String>().unwrap().contains(&most.to_string()));
}

#[tokio::test]
async fn a_request_that_is_too_large_to_compare_is_refused() {
    let counter = Counter::default();
    let site = Site::serve(counter.app(IdempotencyLayer::new(memory().await).request_max(10))).await;
    assert_eq!(site.post("/payouts", "k", &"x".repeat(10)).await.status, 201);
    site.post("/payouts", "k2", &"x".repeat(11)).await.is_problem(413, "request-too-large");
    assert_eq!(counter.count(), 1);
}

#[tokio::test]
async fn the_work_goes_on_when_its_caller_hangs_up() {
    let (begun, go_on) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let slow = {
        let (begun, go_on) = (begun.clone(), go_on.clone());
        async move || {
            begun.notify_one();
            go_on.notified().await;
            "done"
        }
    };
    let app = Router::new().route("/payouts", post(slow));
    let leases = memory().await;
    let site = Arc::new(Site::serve(app.layer(IdempotencyLayer::new(leases.clone()))).await);
    let call = {
        let site = site.clone();
        tokio::spawn(async move { site.post("/payouts", "k", "100").await })
    };
    begun.notified().await;
    call.abort();
    assert!(call.await.err().unwrap().is_cancelled());
    go_on.notify_one();
    eventually_async(LONG, "the response is stored", || async { leases.stats().executed == 1 }).await;
    let again = site.post("/payouts", "k", "100").await;
    assert!(again.is_replay() && again.text() == "done");
}

#[tokio::test]
async fn work_that_panics_is_the_next_ones() {
    let counter = Counter::default();
    let panics = {
        let counter = counter.clone();
        async move || {
            assert!(counter.next() > 1, "as the test wants");
            "done"
        }
    };
    let app = Router::new().route("/payouts", post(panics));
    let site = Arc::new(Site::serve(app.layer(IdempotencyLayer::new(memory().await).wait(LONG))).await);
    let first = {
        let site = site.clone();
        tokio::spawn(async move { site.post("/payouts", "k", "100").await })
    };
    assert!(first.await.is_err(), "the connection was closed");
    assert_eq!(site.post("/payouts", "k", "100").await.text(), "done");
}

#[tokio::test]
async fn without_its_store_nothing_is_executed() {
    let counter = Counter::default();
    // Nobody listens there.
    let leases = Leasehold::builder("redis://127.0.0.1:1").command_timeout(Duration::from_millis(300));
    let site = Site::serve(counter.app(IdempotencyLayer::new(leases.connect_lazy().unwrap()))).await;
    let answer = site.post("/payouts", "k", "100").await;
    answer.is_problem(503, "store-unavailable");
    answer.says_when_to_try_again();
    assert_eq!(counter.count(), 0);
}

#[tokio::test]
async fn what_was_done_elsewhere_is_not_done_again() {
    let counter = Counter::default();
    let store = || Leasehold::builder("memory:done-elsewhere");
    let (leases, engine) = (store().connect().await.unwrap(), store().into_engine().unwrap());
    let site = Site::serve(counter.app(IdempotencyLayer::new(leases.clone()))).await;
    site.post("/payouts", "k", "100").await;
    let until = Clock::system().now() + LONG;
    let page = engine.records().unwrap().scan("idempotency:http:", None, 10, until).await.unwrap();
    let [record] = &page.items[..] else { panic!("{page:?}") };
    // A bare mark, as another program would set it.
    let key = record.key.as_str().strip_prefix("idempotency:http:").unwrap();
    let record = leases.idempotency("http").key(key);
    assert!(record.remove().await.unwrap());
    assert!(record.at_most_once().await.unwrap().is_first());
    site.post("/payouts", "k", "100").await.is_problem(409, "not-replayable");
    assert_eq!(counter.count(), 1);
}
