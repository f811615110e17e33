//! Servers by their addresses.

use std::fmt;

use redis::{Client, ConnectionAddr};

/// Where a server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Endpoint {
    /// A host, with or without the brackets of an IPv6 address.
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Self { host: host.trim_start_matches('[').trim_end_matches(']').to_owned(), port }
    }

    /// Host and port as a node at `asked` reports them: one that does not know its own host means the one we asked.
    pub(crate) fn reported(host: Option<&str>, port: u16, asked: &str) -> Self {
        Self::new(host.filter(|host| !matches!(*host, "" | "?")).unwrap_or(asked), port)
    }

    /// `HOST:PORT`, reported by a node at `asked`.
    pub(crate) fn parse(text: &str, asked: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::reported(Some(host), port.parse().ok()?, asked))
    }

    /// The same login at this server.
    pub(crate) fn client(&self, login: &Client) -> Client {
        let info = login.get_connection_info().clone();
        let Self { host, port } = self.clone();
        let addr = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Client::open(info.set_addr(addr)).expect("nothing is left to be parsed")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
