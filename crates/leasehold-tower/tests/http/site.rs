//! An axum server on a free port, and requests to it.

use std::{net::SocketAddr, time::Duration};

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    server: JoinHandle<()>,
}

impl Site {
    pub(crate) async fn serve(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, server }
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        connection.abort();
        Answer { status: head.status, headers: head.headers, body }
    }

    /// POSTs with a key.
    pub(crate) async fn post(&self, path: &str, key: &str, body: &str) -> Answer {
        self.send(post(path).header("idempotency-key", key).body(body.to_owned().into()).unwrap()).await
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub(crate) fn post(path: &str) -> http::request::Builder {
    Request::builder().method("POST").uri(path).header("host", "localhost")
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Result<Bytes, hyper::Error>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.body.as_ref().unwrap()).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// Checks that it is a problem of that status and type.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, word: &str) {
        let text = self.text();
        assert_eq!(self.status.as_u16(), status, "{text}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert!(text.contains(&format!("\"type\":\"urn:leasehold:{word}\"")), "{text}");
        assert!(text.contains(&format!("\"status\":{status}")), "{text}");
    }

    #[track_caller]
    pub(crate) fn says_when_to_try_again(&self) {
        assert!(self.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    }
}
