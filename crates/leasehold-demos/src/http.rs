//! A small HTTP client for the load of demos that are services, and where services listen.

use std::{net::SocketAddr, time::Duration};

use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::Result;

/// A free port; for an instance that was started again the one that it had before.
pub(crate) async fn listen(before: Option<u16>) -> Result<(TcpListener, u16)> {
    let listener = match TcpListener::bind(("127.0.0.1", before.unwrap_or(0))).await {
        Ok(listener) => listener,
        Err(_taken) => TcpListener::bind("127.0.0.1:0").await?,
    };
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// The longest wait for an answer. A request that is sent while its connection closes may never get one.
const LIMIT: Duration = Duration::from_secs(10);

/// A connection that stays open while the peer runs.
pub(crate) struct Client {
    address: SocketAddr,
    sender: Option<http1::SendRequest<Full<Bytes>>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, sender: None }
    }

    /// Sends a request and reads the whole answer. An error means that the peer went away: whether it executed the request
    /// is unknown.
    pub(crate) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<(StatusCode, Bytes)> {
        let mut sender = match self.sender.take() {
            Some(sender) if sender.is_ready() => sender,
            _ => self.dial().await?,
        };
        let mut request = Request::builder().method(method).uri(path).header("host", "demo");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into()))?;
        let (status, body) = tokio::time::timeout(LIMIT, async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            Ok::<_, hyper::Error>((status, answer.into_body().collect().await?.to_bytes()))
        })
        .await??;
        self.sender = Some(sender);
        Ok((status, body))
    }

    async fn dial(&self) -> Result<http1::SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        sender.ready().await?;
        Ok(sender)
    }
}
