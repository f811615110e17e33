//! Servers by their addresses.

use std::fmt;

use redis::ConnectionAddr;

use leasehold_core::engine::{EngineError, Fault};

/// Where a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
        match host {
            None | Some("" | "?") => Self::new(asked, port),
            Some(host) => Self::new(host, port),
        }
    }

    /// `HOST:PORT`, reported by a node at `asked`.
    pub(crate) fn parse(text: &str, asked: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::reported(Some(host), port.parse().ok()?, asked))
    }

    /// Where a client leads.
    pub(crate) fn of(client: &redis::Client) -> Self {
        match client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Self::new(host, *port)
            }
            _ => Self::new("", 0),
        }
    }

    /// The same login at this server.
    pub(crate) fn client(&self, template: &redis::Client) -> Result<redis::Client, EngineError> {
        let info = template.get_connection_info().clone();
        let Self { host, port } = self.clone();
        let addr = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        redis::Client::open(info.set_addr(addr))
            .map_err(|error| EngineError::new(Fault::Unreachable, format!("{self}: {error}")))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
