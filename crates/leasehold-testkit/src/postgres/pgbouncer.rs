//! A pooler before a PostgreSQL.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use super::{PostgresServer, READY_WITHIN, USER, answer_of, as_user, give_away, program, psql, skip, url};
use crate::child::BoundChild;
use crate::folder::Folder;
use crate::poll::poll;
use crate::port::Port;

/// A pgbouncer in transaction mode before a server.
#[derive(Debug)]
pub struct PgBouncer {
    port: Port,
    _child: BoundChild,
    dir: Folder,
}

impl PgBouncer {
    /// Starts one that lends at most `pool` connections to each of these databases, which need not be there yet, by the
    /// rule of [`PostgresServer::start_or_skip`].
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn start_or_skip(
        server: &PostgresServer,
        pool: usize,
        databases: impl IntoIterator<Item = String>,
    ) -> Option<Self> {
        if program("pgbouncer").is_none() {
            return skip("pgbouncer");
        }
        let started = Self::start(server, pool, databases);
        Some(started.unwrap_or_else(|error| panic!("cannot start pgbouncer: {error}")))
    }

    fn start(
        server: &PostgresServer,
        pool: usize,
        databases: impl IntoIterator<Item = String>,
    ) -> io::Result<Self> {
        let (dir, port) = (Folder::create()?, Port::reserve(false)?);
        give_away(dir.path())?;
        let (number, path, upstream) = (port.number, dir.path(), server.port.number);
        // Each by its name: pgbouncer 1.18 may abort when it makes one up for a client. Whoever comes is the superuser.
        let listed: String = databases
            .into_iter()
            .map(|name| format!("{name} = user={USER} host=127.0.0.1 port={upstream}\n"))
            .collect();
        let conf = format!(
            "[databases]\n{listed}[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {number}\n\
             unix_socket_dir =\nauth_type = any\nadmin_users = {USER}\npool_mode = transaction\ndefault_pool_size = {pool}\n\
             max_client_conn = 2000\nserver_idle_timeout = 20\nlogfile = {}\n",
            path.join("log").display(),
        );
        fs::write(path.join("ini"), conf)?;
        let mut command = as_user("pgbouncer");
        command.arg("-q").arg(path.join("ini"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = BoundChild::spawn(command)?;
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, number));
        let ready = poll(READY_WITHIN, || match child.exited() {
            Ok(None) => std::net::TcpStream::connect(at).is_ok().then_some(true),
            _ => Some(false),
        });
        if ready != Some(true) {
            let log = fs::read_to_string(path.join("log")).unwrap_or_default();
            return Err(io::Error::other(format!("it ended or does not answer:\n{log}")));
        }
        Ok(Self { port, _child: child, dir })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number))
    }

    /// The store URL of a database behind it.
    pub fn url(&self, database: &str) -> String {
        url(self.addr(), database)
    }

    /// Ends all connections to a database, those of clients and its own, and runs `work` before it lends others.
    ///
    /// # Panics
    /// When it does not obey.
    #[track_caller]
    pub fn without_clients(&self, database: &str, work: impl FnOnce()) {
        self.tell(&format!("KILL {database}"));
        work();
        self.tell(&format!("RESUME {database}"));
    }

    #[track_caller]
    fn tell(&self, command: &str) {
        let told = psql(&self.port, "pgbouncer")
            .and_then(|mut psql| answer_of(psql.args(["-h", "127.0.0.1", "-c", command])));
        told.unwrap_or_else(|error| panic!("pgbouncer does not obey {command}: {error}\n{}", self.log()));
    }

    /// All it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}
