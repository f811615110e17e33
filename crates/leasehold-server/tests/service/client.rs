//! A service on a free port, and requests to it.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use leasehold::Leasehold;
use leasehold_server::{Builder, Server};
use serde_json::Value;
use tokio::runtime::Runtime;

/// Longest wait for an answer; only reached when a test fails.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A service in this process, stopped in the end.
pub(crate) struct Service {
    runtime: Runtime,
    server: Option<Server>,
    pub(crate) address: SocketAddr,
}

impl Service {
    pub(crate) fn on(store: &str) -> Self {
        Self::with(store, |builder| builder)
    }

    pub(crate) fn with(store: &str, settings: impl FnOnce(Builder) -> Builder) -> Self {
        Self::with_leases(Leasehold::builder(store).command_timeout(Duration::from_secs(2)), settings)
    }

    pub(crate) fn with_leases(leases: leasehold::Builder, settings: impl FnOnce(Builder) -> Builder) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let server = runtime.block_on(async {
            let leases = leases.connect_lazy().unwrap();
            let builder = Server::builder(leases).listen("127.0.0.1:0".parse().unwrap());
            settings(builder.poll_every(Duration::from_millis(100))).start().await.unwrap()
        });
        let address = server.address();
        Self { runtime, server: Some(server), address }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        Request::new("GET", path).send(self.address)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        Request::new("POST", path).json(body).send(self.address)
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        Request::new("PUT", path).json(body).send(self.address)
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        Request::new("DELETE", path).send(self.address)
    }

    pub(crate) fn send(&self, request: Request) -> Answer {
        request.send(self.address)
    }

    /// Acquires a lock that is free.
    pub(crate) fn hold(&self, name: &str, body: &Value) -> Value {
        let answer = self.post(&format!("/v1/locks/{name}/acquire"), body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    /// Stops it as TERM does.
    pub(crate) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Self { method: method.into(), path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    pub(crate) fn body(mut self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("Content-Type", kind)
    }

    pub(crate) fn bytes(&self, address: SocketAddr) -> Vec<u8> {
        let Self { method, path, headers, body } = self;
        let mut text =
            format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        let mut bytes = (text + "Connection: close\r\n\r\n").into_bytes();
        bytes.extend(body);
        bytes
    }

    pub(crate) fn send(&self, address: SocketAddr) -> Answer {
        raw(address, &self.bytes(address))
    }

    /// Sends it and leaves the answer to be read.
    pub(crate) fn open(&self, address: SocketAddr) -> TcpStream {
        let mut stream = connect(address);
        stream.write_all(&self.bytes(address)).unwrap();
        stream
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Sends these bytes, and reads one answer.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = connect(address);
    // It may refuse before it has read everything.
    let _refused_early = stream.write_all(bytes);
    Answer::read(&mut BufReader::new(stream))
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn read(stream: &mut impl BufRead) -> Self {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer but {line:?}"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_lowercase(), value.to_owned()));
        }
        let mut answer = Self { status, headers, text: String::new() };
        if answer.header("content-type") == Some("text/event-stream") {
            return answer;
        }
        let mut body = Vec::new();
        match answer.header("content-length").map(|length| length.parse().unwrap()) {
            Some(length) => {
                body.resize(length, 0);
                stream.read_exact(&mut body).unwrap();
            }
            None if answer.header("transfer-encoding").is_some() => body = chunks(stream),
            None => {}
        }
        answer.text = String::from_utf8(body).unwrap();
        answer
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The kind of a refusal with this status.
    pub(crate) fn kind(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text);
        let body = self.json();
        assert_eq!(body["status"], status, "{body}");
        body["kind"].as_str().unwrap().to_owned()
    }
}

fn chunks(stream: &mut impl BufRead) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        let mut chunk = vec![0; length + 2];
        if length == 0 || stream.read_exact(&mut chunk).is_err() {
            return body;
        }
        body.extend(&chunk[..length]);
    }
}
