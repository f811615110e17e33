//! One request at a time, per name.

use std::{sync::Arc, time::Duration};

use axum::{Extension, Router, body::Body, routing::post};
use bytes::Bytes;
use futures::Gate;
use http_body_util::BodyExt;
use leasehold::{Clock, Fence, Lease, Leasehold};
use leasehold_testkit::eventually_async;
use leasehold_tower::LockLayer;
use tower::Service;

use crate::site::{self, Answer, LONG, Site};

/// A door that opens once.
mod futures {
    #[derive(Clone, Default)]
    pub(super) struct Gate(std::sync::Arc<tokio::sync::Notify>);

    impl Gate {
        pub(super) fn open(&self) {
            self.0.notify_one();
        }

        pub(super) async fn opened(&self) {
            self.0.notified().await;
        }
    }
}

fn by_user(leases: &Leasehold) -> LockLayer {
    LockLayer::new(leases.clone(), |parts| {
        Some(format!("account:{}", parts.headers.get("x-user")?.to_str().ok()?))
    })
}

async fn send(site: &Site, user: &str) -> Answer {
    site.send(site::post("/").header("x-user", user).body("".into()).unwrap()).await
}

/// An application that waits until it may answer.
fn gated(begun: &Gate, go_on: &Gate) -> Router {
    let (begun, go_on) = (begun.clone(), go_on.clone());
    let work = async move |Extension(fence): Extension<Fence>, Extension(lease): Extension<Lease>| {
        assert!(lease.is_held() && lease.fence() == fence);
        begun.open();
        go_on.opened().await;
        fence.to_string()
    };
    Router::new().route("/", post(work))
}

#[tokio::test]
async fn one_request_at_a_time_has_the_lock_and_its_fence() {
    let leases = Leasehold::connect("memory:").await.unwrap();
    let (begun, go_on) = (Gate::default(), Gate::default());
    let site = Arc::new(Site::serve(gated(&begun, &go_on).layer(by_user(&leases))).await);
    let first = {
        let site = site.clone();
        tokio::spawn(async move { send(&site, "a").await })
    };
    begun.opened().await;
    let busy = send(&site, "a").await;
    busy.is_problem(409, "busy");
    busy.says_when_to_try_again();
    go_on.open();
    let first: u64 = first.await.unwrap().text().parse().unwrap();
    let free = || async { leases.inspect("account:a").await.unwrap().held().is_none() };
    eventually_async(LONG, "it is given back", free).await;
    go_on.open();
    let second: u64 = send(&site, "a").await.text().parse().unwrap();
    assert!(second > first);
}

#[tokio::test]
async fn requests_wait_their_turn_if_they_may_and_others_do_not_wait_for_them() {
    let leases = Leasehold::connect("memory:").await.unwrap();
    let (begun, go_on) = (Gate::default(), Gate::default());
    let app = gated(&begun, &go_on).layer(by_user(&leases).wait(LONG));
    let site = Arc::new(Site::serve(app).await);
    let call = |user: &'static str| {
        let site = site.clone();
        tokio::spawn(async move { send(&site, user).await })
    };
    let first = call("a");
    begun.opened().await;
    let second = call("a");
    let queued = || async { leases.inspect("account:a").await.unwrap().waiting == 1 };
    eventually_async(LONG, "the second waits", queued).await;
    // Another name is free.
    let other = call("b");
    begun.opened().await;
    eventually_async(LONG, "all are answered", || async {
        go_on.open();
        first.is_finished() && second.is_finished() && other.is_finished()
    })
    .await;
    for call in [first, second, other] {
        assert_eq!(call.await.unwrap().status, 200);
    }
    // A wait that is too short.
    let guard = leases.lock("account:c").acquire().await.unwrap();
    let hasty =
        Site::serve(gated(&begun, &go_on).layer(by_user(&leases).wait(Duration::from_millis(50)))).await;
    send(&hasty, "c").await.is_problem(409, "busy");
    let _ = guard.release().await.unwrap();
}

#[tokio::test]
async fn the_lock_is_held_until_the_last_byte_of_the_response() {
    let leases = Leasehold::connect("memory:").await.unwrap();
    let (half, go_on) = (Gate::default(), Gate::default());
    let work = {
        let (half, go_on) = (half.clone(), go_on.clone());
        async move || {
            let (sender, body) = http_body_channel();
            let (half, go_on) = (half.clone(), go_on.clone());
            tokio::spawn(async move {
                sender.send(Bytes::from_static(b"one ")).await.unwrap();
                half.open();
                go_on.opened().await;
                sender.send(Bytes::from_static(b"two")).await.unwrap();
            });
            Body::new(body)
        }
    };
    let app = Router::new().route("/", post(work)).layer(by_user(&leases));
    let site = Arc::new(Site::serve(app).await);
    let call = {
        let site = site.clone();
        tokio::spawn(async move { send(&site, "a").await })
    };
    half.opened().await;
    assert!(leases.inspect("account:a").await.unwrap().held().is_some());
    go_on.open();
    assert_eq!(call.await.unwrap().text(), "one two");
    let free = || async { leases.inspect("account:a").await.unwrap().held().is_none() };
    eventually_async(LONG, "it is given back", free).await;
}

/// A body that is written by another task.
fn http_body_channel() -> (tokio::sync::mpsc::Sender<Bytes>, Written) {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    (sender, Written(receiver))
}

struct Written(tokio::sync::mpsc::Receiver<Bytes>);

impl http_body::Body for Written {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|data| data.map(|data| Ok(http_body::Frame::data(data))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_no_more_of_a_response_does_not_hold_the_lock_for_ever() {
    for (layer, most) in
        [(by_user as fn(&Leasehold) -> LockLayer, 300), (|leases| by_user(leases).max_lifetime(secs(40)), 40)]
    {
        let leases = Leasehold::builder("memory:").clock(Clock::tokio()).connect().await.unwrap();
        let mut app = Router::new().route("/", post(async || "never read")).layer(layer(&leases));
        let request = site::post("/").header("x-user", "a").body(Body::empty()).unwrap();
        let response = app.call(request).await.unwrap();
        tokio::time::sleep(secs(most - 5)).await;
        assert!(leases.inspect("account:a").await.unwrap().held().is_some(), "kept alive until then");
        tokio::time::sleep(secs(5 + 30 + 1)).await;
        assert!(leases.inspect("account:a").await.unwrap().held().is_none(), "its ttl is over");
        let read = response.into_body().collect().await;
        assert!(read.unwrap_err().to_string().contains("the lock was lost"));
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[tokio::test]
async fn work_that_loses_its_lock_is_cancelled() {
    let leases = Leasehold::connect("memory:").await.unwrap();
    let (begun, never) = (Gate::default(), Gate::default());
    let app = gated(&begun, &never).layer(by_user(&leases).ttl(Duration::from_secs(1)));
    let site = Arc::new(Site::serve(app).await);
    let call = {
        let site = site.clone();
        tokio::spawn(async move { send(&site, "a").await })
    };
    begun.opened().await;
    let held = leases.inspect("account:a").await.unwrap().held().cloned().unwrap();
    assert!(leases.force_release("account:a", held.fence).await.unwrap().was_held());
    let answer = call.await.unwrap();
    answer.is_problem(503, "lease-lost");
    answer.says_when_to_try_again();
}

#[tokio::test]
async fn a_caller_that_hangs_up_gives_the_lock_back() {
    let leases = Leasehold::connect("memory:").await.unwrap();
    let (begun, never) = (Gate::default(), Gate::default());
    let site = Arc::new(Site::serve(gated(&begun, &never).layer(by_user(&leases))).await);
    let call = {
        let site = site.clone();
        tokio::spawn(async move { send(&site, "a").await })
    };
    begun.opened().await;
    call.abort();
    let free = || async { leases.inspect("account:a").await.unwrap().held().is_none() };
    eventually_async(LONG, "it is given back", free).await;
}

#[tokio::test]
async fn without_a_name_requests_pass_and_without_a_store_they_do_not() {
    let lazy = Leasehold::builder("redis://127.0.0.1:1").command_timeout(Duration::from_millis(300));
    let app = Router::new().route("/", post(async || "done"));
    let site = Site::serve(app.layer(by_user(&lazy.connect_lazy().unwrap()))).await;
    let answer = site.send(site::post("/").body("".into()).unwrap()).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "done"));
    let answer = send(&site, "a").await;
    answer.is_problem(503, "store-unavailable");
    answer.says_when_to_try_again();
}
