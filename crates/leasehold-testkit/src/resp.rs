//! A small synchronous RESP2 client, to inspect a server independently of the code under test.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A stopped server must fail a test, not hang it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest bulk string (Redis' own default limit) and list that is accepted.
const BULK_BYTES_MAX: usize = 512 << 20;
const LIST_LENGTH_MAX: usize = 1 << 20;

/// One reply of the server; text that is not UTF-8 is shown with replacement characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A missing value.
    Nil,
    /// An integer.
    Int(i64),
    /// A status or a value.
    Text(String),
    /// A refusal, without the leading `-`.
    Error(String),
    /// An array.
    List(Vec<Reply>),
}

impl Reply {
    /// The integer, also where the server sends it as text.
    ///
    /// # Panics
    /// For any other reply.
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(int) => *int,
            Self::Text(text) => text.parse().unwrap_or_else(|_| panic!("not an integer: {self:?}")),
            _ => panic!("not an integer: {self:?}"),
        }
    }

    /// The text.
    ///
    /// # Panics
    /// For any other reply.
    #[track_caller]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => panic!("not a text: {self:?}"),
        }
    }

    /// The elements.
    ///
    /// # Panics
    /// For any other reply.
    #[track_caller]
    pub fn list(&self) -> &[Reply] {
        match self {
            Self::List(list) => list,
            _ => panic!("not a list: {self:?}"),
        }
    }

    /// The refusal, if it is one.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the value was missing.
    pub fn is_nil(&self) -> bool {
        *self == Self::Nil
    }
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One connection to a server.
pub struct Connection {
    stream: BufReader<Box<dyn Stream>>,
}

impl Connection {
    /// Connects over TCP.
    pub fn tcp(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(Box::new(stream)) })
    }

    /// Connects over a Unix socket.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(Box::new(stream)) })
    }

    /// Sends an inline `PING`, to which a server replies in any state; an error is a reply too.
    pub fn ping(&mut self) -> io::Result<Reply> {
        self.stream.get_mut().write_all(b"PING\r\n")?;
        self.read_reply()
    }

    /// Authenticates; a refusal is an error.
    pub fn auth(&mut self, user: Option<&str>, password: &str) -> io::Result<()> {
        let reply = match user {
            Some(user) => self.command(&["AUTH", user, password])?,
            None => self.command(&["AUTH", password])?,
        };
        match reply.error() {
            Some(error) => Err(io::Error::new(io::ErrorKind::PermissionDenied, error)),
            None => Ok(()),
        }
    }

    /// Sends one command and reads its reply. An error reply is a [`Reply::Error`], not an `Err`.
    pub fn command(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(words)?;
        self.read_reply()
    }

    /// Sends one command without waiting, for commands whose reply is late or never comes.
    pub fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)
    }

    /// Reads the next reply or pushed message.
    pub fn read_reply(&mut self) -> io::Result<Reply> {
        let line = self.read_line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(&line))?;
        match kind {
            "+" => Ok(Reply::Text(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => rest.parse().map(Reply::Int).map_err(|_| malformed(&line)),
            "$" => match self.length(rest, BULK_BYTES_MAX)? {
                None => Ok(Reply::Nil),
                Some(bytes) => self.read_bulk(bytes),
            },
            "*" => match self.length(rest, LIST_LENGTH_MAX)? {
                None => Ok(Reply::Nil),
                Some(length) => {
                    (0..length).map(|_| self.read_reply()).collect::<io::Result<_>>().map(Reply::List)
                }
            },
            _ => Err(malformed(&line)),
        }
    }

    fn length(&self, text: &str, max: usize) -> io::Result<Option<usize>> {
        if text == "-1" {
            return Ok(None);
        }
        text.parse().ok().filter(|length| *length <= max).map(Some).ok_or_else(|| malformed(text))
    }

    fn read_bulk(&mut self, bytes: usize) -> io::Result<Reply> {
        let mut value = vec![0; bytes + 2];
        self.stream.read_exact(&mut value)?;
        value.truncate(bytes);
        Ok(Reply::Text(String::from_utf8_lossy(&value).into_owned()))
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

fn malformed(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP2: {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &'static [u8]) -> io::Result<Reply> {
        let stream: Box<dyn Stream> = Box::new(io::Cursor::new(bytes.to_vec()));
        Connection { stream: BufReader::new(stream) }.read_reply()
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(parse(b"+OK\r\n").unwrap().text(), "OK");
        assert_eq!(parse(b":-2\r\n").unwrap().int(), -2);
        assert_eq!(parse(b"$2\r\n17\r\n").unwrap().int(), 17);
        assert_eq!(parse(b"-NOAUTH no\r\n").unwrap().error(), Some("NOAUTH no"));
        assert!(parse(b"$-1\r\n").unwrap().is_nil());
        assert!(parse(b"*-1\r\n").unwrap().is_nil());
        let nested = parse(b"*2\r\n*1\r\n:1\r\n$4\r\na\r\nb\r\n").unwrap();
        assert_eq!(nested.list()[0].list()[0].int(), 1);
        assert_eq!(nested.list()[1].text(), "a\r\nb");
    }

    #[test]
    fn garbage_and_a_cut_reply_are_errors() {
        for bytes in [&b"hello\r\n"[..], b"\r\n", b"$5\r\nab", b"+OK", b"$99999999999\r\n", b"*x\r\n"] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }
}
