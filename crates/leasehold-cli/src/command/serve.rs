//! `leasehold serve`: the store over HTTP, with a dashboard.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use leasehold_server::{DEFAULT_ADDRESS, Server, Tls, Tokens};
use rustix::process::Signal;
use serde::Serialize;

use super::Global;
use crate::{
    exit::{Exit, Failure},
    output,
    signals::Signals,
    store::Store,
};

/// Serve locks over HTTP, with a dashboard
///
/// Without tokens the service listens on the loopback address only, and everybody on this host may do everything. It stops on
/// TERM or INT: waiting requests are told to ask elsewhere, and locks that clients hold stay held.
#[derive(Args)]
#[command(after_help = "\
Examples:
  leasehold serve                                              on http://127.0.0.1:7420
  leasehold serve --read-only --store redis://HOST
  leasehold serve --listen 0.0.0.0:7420 --tokens tokens.toml --tls-cert cert.pem --tls-key key.pem

A file of tokens has a table for each token; its hash is that of `printf %s \"$TOKEN\" | sha256sum`:
  [tokens.deploy]
  sha256 = \"9f86d081...\"
  rights = [{ prefix = \"deploy:\", allow = [\"read\", \"hold\"] }]")]
pub(super) struct Serve {
    /// Where to listen; an address that others reach needs --tokens
    #[arg(long, value_name = "ADDR:PORT", default_value_t = DEFAULT_ADDRESS)]
    listen: SocketAddr,

    /// Refuse everything that changes something in the store
    #[arg(long)]
    read_only: bool,

    /// The tokens that are accepted and their rights, as TOML
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,

    /// Speak TLS with this certificate chain, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Only accept clients with a certificate of this authority, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,

    /// A pool of deadlines that the dashboard shows; can be given several times
    #[arg(long = "pool", value_name = "POOL")]
    pools: Vec<String>,
}

#[derive(Serialize)]
struct Listening {
    address: String,
    url: String,
    store: String,
}

impl Serve {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let tokens = self.tokens.as_deref().map(Tokens::load).transpose()?;
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some(Tls::load(cert, key, self.client_ca.as_deref())?),
            _ => None,
        };
        // Before it listens: whoever sees the address may stop it.
        let mut signals = Signals::listen(&[Signal::TERM, Signal::INT])?;
        // The store may be down while the service starts: readiness tells.
        let leases = Store::choose_any(global)?.connect_lazy()?;
        let (store, scheme) = (leases.store().to_owned(), if tls.is_some() { "https" } else { "http" });
        let mut server = Server::builder(leases).listen(self.listen).pools(self.pools);
        if let Some(tokens) = tokens {
            server = server.tokens(tokens);
        }
        if let Some(tls) = tls {
            server = server.tls(tls);
        }
        if self.read_only {
            server = server.read_only();
        }
        let server = server.start().await?;
        let address = server.address();
        let url = format!("{scheme}://{address}");
        let text = format!("{url}\n");
        global.output().print(Listening { address: address.to_string(), url, store }, || text)?;
        signals.next().await;
        if !global.json {
            output::say("stopping: locks that clients hold stay held");
        }
        server.stop().await;
        Ok(Exit::OK)
    }
}
