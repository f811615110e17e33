//! As much of HTTP as the measurements need: one kept connection, one request at a time.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::Failure;

pub(super) struct Client {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
    line: String,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn json(&self) -> Result<Value, Failure> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    pub(super) fn with(self, status: u16) -> Result<Self, Failure> {
        if self.status == status {
            return Ok(self);
        }
        Err(format!("{} instead of {status}: {}", self.status, String::from_utf8_lossy(&self.body)).into())
    }
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), address, line: String::new() })
    }

    /// `headers` are whole lines.
    pub(super) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> Result<Answer, Failure> {
        self.write(method, path, headers, body).await?;
        let (status, length, is_chunked) = self.head().await?;
        let mut answer = Answer { status, body: vec![0; length] };
        self.stream.read_exact(&mut answer.body).await?;
        if is_chunked {
            while self.chunk(&mut answer.body).await? {}
        }
        Ok(answer)
    }

    /// False for the last chunk, which is empty.
    async fn chunk(&mut self, body: &mut Vec<u8>) -> Result<bool, Failure> {
        let (size, start) = (usize::from_str_radix(self.next_line().await?, 16)?, body.len());
        body.resize(start + size, 0);
        self.stream.read_exact(&mut body[start..]).await?;
        self.next_line().await?;
        Ok(size > 0)
    }

    async fn write(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Result<(), Failure> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            self.address,
            body.len()
        );
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// Opens a stream that has no end, and reads its first event.
    pub(super) async fn events(&mut self) -> Result<(), Failure> {
        self.write("GET", "/v1/events", "", "").await?;
        let (status, ..) = self.head().await?;
        while !self.next_line().await?.starts_with("data:") {}
        if status == 200 { Ok(()) } else { Err(format!("events answered {status}").into()) }
    }

    /// The status, the length, and whether the body comes in chunks.
    async fn head(&mut self) -> Result<(u16, usize, bool), Failure> {
        let status = self.next_line().await?.split(' ').nth(1).ok_or("no answer")?.parse()?;
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let line = self.next_line().await?.to_lowercase();
            match line.split_once(": ") {
                None => return Ok((status, length, is_chunked)),
                Some(("content-length", value)) => length = value.parse()?,
                Some(("transfer-encoding", _)) => is_chunked = true,
                Some(_) => {}
            }
        }
    }

    async fn next_line(&mut self) -> Result<&str, Failure> {
        self.line.clear();
        if self.stream.read_line(&mut self.line).await? == 0 {
            return Err("the service closed the connection".into());
        }
        Ok(self.line.trim_end())
    }
}
