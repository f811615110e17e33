//! A server that is none: it says what it is told about its version, its clock and its cluster, and refuses the rest.
//! For what no real server can be set up to be.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// What it says.
#[derive(Clone, Default)]
pub(crate) struct Says {
    pub(crate) info: String,
    /// How far its clock is ahead.
    pub(crate) ahead: Duration,
    /// Its answer to `CLUSTER SHARDS`, as it is sent.
    pub(crate) shards: String,
}

/// A port to be served later: some answers name the ports of all.
pub(crate) fn bind() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Serves until the test ends.
pub(crate) fn serve(listener: TcpListener, says: Says) {
    let says = Arc::new(says);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, says) = (stream.unwrap(), says.clone());
            std::thread::spawn(move || answer(stream, &says));
        }
    });
}

pub(crate) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn answer(mut to: TcpStream, says: &Says) {
    let mut from = BufReader::new(to.try_clone().unwrap());
    while let Some(words) = request(&mut from) {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let reply = match words[..] {
            ["HELLO", ..] => "%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n".to_owned(),
            ["CLIENT", ..] => "+OK\r\n".to_owned(),
            ["INFO", ..] => bulk(&says.info),
            ["EVAL", ..] => ":1\r\n".to_owned(),
            ["CLUSTER", "SHARDS"] => says.shards.clone(),
            ["TIME"] => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + says.ahead;
                format!("*2\r\n+{}\r\n+{}\r\n", now.as_secs(), now.subsec_micros())
            }
            _ => "-NOPERM no\r\n".to_owned(),
        };
        if to.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn request(from: &mut impl BufRead) -> Option<Vec<String>> {
    let words = number(from, '*')?;
    let word = |_| {
        // The line's end is part of what is read.
        let mut word = vec![0; number(from, '$')? + 2];
        from.read_exact(&mut word).ok()?;
        Some(String::from_utf8_lossy(&word).trim_end().to_owned())
    };
    (0..words).map(word).collect()
}

fn number(from: &mut impl BufRead, sign: char) -> Option<usize> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    line.trim().strip_prefix(sign)?.parse().ok()
}
