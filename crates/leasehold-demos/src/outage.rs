//! A store that can be made unreachable: the embedded one, or a server behind our own proxy.

use std::path::PathBuf;

use rusqlite::Connection;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::Result;

/// Stores that a proxy can stand before, and their ports.
const LINES: [(&str, u16); 2] = [("redis://", 6379), ("postgres://", 5432)];
/// What a URL has whose clients would find another way, or would refuse a proxy.
const ASIDE: [&str; 5] = ["sslmode=", "ca=", "cert=", "host=", "listen="];

/// How a demo's store is made unreachable.
pub(crate) enum Switch {
    /// A file that can be locked.
    File(PathBuf),
    /// A proxy through which all clients connect.
    Line(watch::Sender<bool>),
    /// Not at all.
    None,
}

/// The store is unreachable until this is dropped.
pub(crate) enum Outage {
    File { _busy: Connection },
    Line(watch::Sender<bool>),
}

impl Switch {
    /// A switch for the store of a URL, and the URL that clients must use for it.
    pub(crate) async fn before(url: &str) -> Result<(Self, String)> {
        if let Some(path) = crate::leftovers::file_of(url) {
            return Ok((Self::File(path), url.into()));
        }
        let line = |(scheme, port)| Some((scheme, port, url.strip_prefix(scheme)?));
        let line = LINES.into_iter().find_map(line);
        let Some((scheme, port, rest)) = line.filter(|_| !ASIDE.iter().any(|aside| url.contains(aside)))
        else {
            return Ok((Self::None, url.into()));
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (login, host) =
            rest[..end].rsplit_once('@').map_or(("", &rest[..end]), |(login, host)| (login, host));
        let server = if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let here = listener.local_addr()?;
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(pass_on(listener, server, is_cut));
        let login = if login.is_empty() { String::new() } else { format!("{login}@") };
        Ok((Self::Line(cut), format!("{scheme}{login}{here}{}", &rest[end..])))
    }

    /// Makes the store unreachable; `None` if that is not possible.
    pub(crate) fn cut(&self) -> Result<Option<Outage>> {
        match self {
            Self::File(file) => {
                // Writers wait for this transaction.
                let busy = Connection::open(file)?;
                busy.busy_timeout(std::time::Duration::from_secs(30))?;
                busy.execute_batch("begin exclusive")?;
                Ok(Some(Outage::File { _busy: busy }))
            }
            Self::Line(cut) => {
                cut.send_replace(true);
                Ok(Some(Outage::Line(cut.clone())))
            }
            Self::None => Ok(None),
        }
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        if let Self::Line(cut) = self {
            cut.send_replace(false);
        }
    }
}

/// Forwards connections, except while the line is cut: then connections end and new ones wait.
async fn pass_on(listener: TcpListener, server: String, is_cut: watch::Receiver<bool>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let (server, mut is_cut) = (server.clone(), is_cut.clone());
        tokio::spawn(async move {
            is_cut.wait_for(|cut| !cut).await.ok()?;
            let mut server = TcpStream::connect(server).await.ok()?;
            tokio::select! {
                ended = copy_bidirectional(&mut client, &mut server) => ended.ok().map(drop),
                cut = is_cut.wait_for(|cut| *cut) => cut.ok().map(drop),
            }
        });
    }
}
