//! A proxy that closes a connection as soon as a client sends a word over it.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Serves until the test ends; returns its store URL.
pub(crate) async fn proxy(server: SocketAddr, word: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            tokio::spawn(pass(client, server, word));
        }
    });
    url
}

async fn pass(client: TcpStream, server: SocketAddr, word: &str) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = TcpStream::connect(server).await?.into_split();
    let requests = async {
        let mut bytes = [0; 65536];
        loop {
            let count = from_client.read(&mut bytes).await?;
            let sent = &bytes[..count];
            if sent.is_empty() || sent.windows(word.len()).any(|some| some == word.as_bytes()) {
                return Ok(());
            }
            to_server.write_all(sent).await?;
        }
    };
    tokio::select! {
        ended = requests => ended,
        ended = tokio::io::copy(&mut from_server, &mut to_client) => ended.map(drop),
    }
}
