//! The commands of a server, one by one, as MONITOR reports them.

use std::{
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    thread::JoinHandle,
    time::Duration,
};

use leasehold_testkit::RedisServer;

use crate::Failure;

/// A server that does not answer for that long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Comes last in the stream.
const END: &str = "the end of the watch";

/// A watch that fills `T`.
pub(crate) struct Monitor<T> {
    server: UnixStream,
    reader: JoinHandle<Result<T, String>>,
}

impl<T: Send + 'static> Monitor<T> {
    /// From here on every line is taken in: `+TIME [DB CLIENT] "COMMAND" "ARGUMENT"…`, with `lua` as the client of what a
    /// script calls.
    pub(crate) fn watch(
        server: &RedisServer,
        mut seen: T,
        take_in: impl Fn(&mut T, &str) + Send + 'static,
    ) -> Result<Self, Failure> {
        let mut stream = UnixStream::connect(server.dir().join("redis.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"MONITOR\r\n")?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        match lines.next().transpose()?.as_deref() {
            Some("+OK") => {}
            other => return Err(format!("MONITOR answered {other:?}").into()),
        }
        let read = move || {
            for line in lines {
                let line = line.map_err(|error| format!("MONITOR: {error}"))?;
                if line.contains(END) {
                    return Ok(seen);
                }
                take_in(&mut seen, &line);
            }
            Err("MONITOR ended".to_owned())
        };
        let marker = UnixStream::connect(server.dir().join("redis.sock"))?;
        drop(stream);
        Ok(Self { server: marker, reader: std::thread::spawn(read) })
    }

    pub(crate) fn end(mut self) -> Result<T, Failure> {
        self.server.write_all(format!("ECHO \"{END}\"\r\n").as_bytes())?;
        let seen = self.reader.join().map_err(|_| "the watch panicked")?;
        self.server.shutdown(Shutdown::Both)?;
        Ok(seen?)
    }
}

/// Counts what clients send over the network: neither what scripts call, nor what is asked over the server's own socket.
pub(crate) fn watch_sent(server: &RedisServer) -> Result<Monitor<usize>, Failure> {
    Monitor::watch(server, 0, |sent, line| *sent += usize::from(is_sent(line)))
}

fn is_sent(line: &str) -> bool {
    let client = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(client, _)| client);
    client.is_some_and(|client| !client.ends_with(" lua") && !client.contains(" unix:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_clients_send_counts() {
        assert!(is_sent(r#"+1.5 [0 127.0.0.1:4711] "EVALSHA" "abc" "1" "lock:x""#));
        assert!(!is_sent(r#"+1.5 [0 lua] "SET" "lock:x" "aa""#));
        assert!(!is_sent(r#"+1.5 [0 unix:/tmp/a/redis.sock] "INFO""#));
    }

    #[tokio::test]
    async fn an_acquire_and_a_release_are_two_commands() {
        let Some(server) = leasehold_testkit::redis_or_skip() else { return };
        let leases = leasehold::Leasehold::connect(server.url()).await.unwrap();
        // Loads the scripts.
        let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
        let sent = watch_sent(&server).unwrap();
        let _ = leases.lock("x").acquire().await.unwrap().release().await.unwrap();
        assert_eq!(sent.end().unwrap(), 2);
    }
}
