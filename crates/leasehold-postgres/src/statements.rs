//! Named statements. To parse a call takes the server longer than to run it, so a statement is named when it is first used.
//!
//! A name belongs to a session of the server. Behind a pooler the next call may be in another session, in which the name stands
//! for something else. So names are used only where the other end is the session itself: then the process that a request to
//! cancel would name is the one that answers. A pooler hands out numbers of its own for that.

use std::{
    collections::HashMap,
    future::{Ready, ready},
    io,
    pin::Pin,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::future::join;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::{
    Client, Error, Row, Statement,
    tls::{ChannelBinding, TlsConnect, TlsStream},
    types::{ToSql, Type},
};

use super::pool::{Param, locked};

/// More than the engine has.
const NAMED_MAX: usize = 64;
/// What a client sends first that wants TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// The named statements of one connection.
pub(super) struct Statements {
    /// Whether the connection is a session of the server.
    is_session: AtomicBool,
    named: Mutex<HashMap<String, Statement>>,
}

impl Statements {
    /// None yet; never any behind a pooler.
    pub(super) async fn of(client: &Client) -> Self {
        let answers = async {
            let rows = client.query_typed("SELECT pg_backend_pid()", &[]).await.ok()?;
            rows.first()?.try_get::<_, i32>(0).ok()
        };
        let (would_cancel, answers) = join(would_cancel(client), answers).await;
        let is_session = would_cancel.is_some() && would_cancel == answers;
        Self { is_session: AtomicBool::new(is_session), named: Mutex::default() }
    }

    /// Gives a statement a name, if it has none and may have one.
    pub(super) async fn name(&self, client: &Client, sql: &str, params: &[Param<'_>]) -> Result<(), Error> {
        if !self.is_session.load(Ordering::Relaxed)
            || self.named(sql).is_some()
            || locked(&self.named).len() >= NAMED_MAX
        {
            return Ok(());
        }
        let types: Vec<Type> = params.iter().map(|(_, of)| of.clone()).collect();
        let named = client.prepare_typed(sql, &types).await?;
        locked(&self.named).insert(sql.to_owned(), named);
        Ok(())
    }

    fn named(&self, sql: &str) -> Option<Statement> {
        locked(&self.named).get(sql).cloned()
    }

    /// Runs a statement, by its name if it has one.
    pub(super) async fn run(
        &self,
        client: &Client,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Error> {
        let Some(named) = self.named(sql) else { return client.query_typed(sql, params).await };
        let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
        client.query(&named, &values).await
    }

    /// Names nothing any more: the server did not have a name, or had it in another form.
    pub(super) fn give_up(&self) {
        self.is_session.store(false, Ordering::Relaxed);
        locked(&self.named).clear();
    }
}

/// The process that a request to cancel would name. The driver tells it only in such a request, which goes nowhere here.
async fn would_cancel(client: &Client) -> Option<i32> {
    let (near, mut far) = tokio::io::duplex(64);
    let token = client.cancel_token();
    let sends = token.cancel_query_raw(near, InTheClear);
    let reads = async {
        let mut head = [0; 8];
        far.read_exact(&mut head).await?;
        if head == SSL_REQUEST {
            far.write_all(b"S").await?;
            far.read_exact(&mut head).await?;
        }
        far.read_i32().await
    };
    let (_sent, process) = join(sends, reads).await;
    process.ok()
}

/// What stands for TLS between two ends of one process.
struct InTheClear;

struct Clear(DuplexStream);

impl TlsConnect<DuplexStream> for InTheClear {
    type Stream = Clear;
    type Error = io::Error;
    type Future = Ready<io::Result<Clear>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(Clear(stream)))
    }
}

impl TlsStream for Clear {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Clear {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Clear {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
