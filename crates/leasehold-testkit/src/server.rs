//! A real `redis-server`, started for a test and killed with it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{env, fs};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::child::{BoundChild, bound_command, find_program};
use crate::folder::Folder;
use crate::locale::compile;
use crate::poll::poll;
use crate::port::Port;
use crate::resp::{Connection, Reply};
use crate::server_builder::{Duty, RedisServerBuilder};

const PROGRAM: &str = "redis-server";
const READY_WITHIN: Duration = Duration::from_secs(10);
/// A free port may be taken between choosing it and binding it, above all by other test processes.
const PORTS_TRIED_MAX: usize = 10;
const LOG_TAIL_LINES: usize = 15;
const ALLOW_MISSING: &str = "LEASEHOLD_ALLOW_MISSING";

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The machine has no `redis-server`.
    #[error(
        "no `redis-server` on the PATH: install the Debian package `redis-server` (`apt install redis-server`)"
    )]
    Missing,
    /// The machine has no `etcd`.
    #[error("no `etcd` on the PATH: install the Debian package `etcd-server` (`apt install etcd-server`)")]
    MissingEtcd,
    /// The machine has no PostgreSQL.
    #[error("no PostgreSQL: install the Debian package `postgresql` (`apt install postgresql`)")]
    MissingPostgres,
    /// The locale of the server's environment cannot be compiled.
    #[error("no locale `{locale}`: install the Debian package `locales` (`apt install locales`)")]
    MissingLocale {
        /// Its name.
        locale: String,
    },
    /// The process could not be started, or its folder could not be created.
    #[error("cannot start the server")]
    Io(#[from] io::Error),
    /// The process ended instead of serving.
    #[error("the server ended ({status}) before it was ready; end of its log:\n{log}")]
    Ended {
        /// Its exit status.
        status: String,
        /// The last lines it wrote.
        log: String,
    },
    /// The process runs but did not answer in time.
    #[error("the server was not ready within {READY_WITHIN:?}; end of its log:\n{log}")]
    Silent {
        /// The last lines it wrote.
        log: String,
    },
}

/// A `redis-server` on a free loopback port, without persistence, in a folder of its own.
///
/// All methods take `&self`, so one thread can break the server while another uses it. Dropping it kills the
/// process; it dies with the test process in any case.
///
/// ```no_run
/// # use leasehold_testkit::RedisServer;
/// let server = RedisServer::start()?;
/// server.cli(&["SET", "k", "v"]);
/// server.kill();
/// server.restart();
/// assert!(server.cli(&["GET", "k"]).is_nil());
/// # Ok::<(), leasehold_testkit::ServerError>(())
/// ```
#[derive(Debug)]
pub struct RedisServer {
    settings: RedisServerBuilder,
    port: Port,
    // Declared before the folder: the process ends before its folder goes.
    child: Mutex<Option<BoundChild>>,
    dir: Folder,
}

impl RedisServer {
    /// Starts a server with default settings.
    pub fn start() -> Result<Self, ServerError> {
        Self::builder().start()
    }

    /// Settings for a server.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// One server for all tests of this process that do not break it; use names of your own.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<RedisServer> = OnceLock::new();
        SHARED.get_or_init(|| Self::start().unwrap_or_else(|error| panic!("{}", report(&error))))
    }

    /// Like [`shared`](Self::shared), with the rule of [`redis_or_skip`] where `redis-server` is missing.
    #[track_caller]
    pub fn shared_or_skip() -> Option<&'static Self> {
        match find_program(PROGRAM) {
            Some(_) => Some(Self::shared()),
            None => skip_if_missing(Err(ServerError::Missing)),
        }
    }

    pub(crate) fn launch(settings: RedisServerBuilder) -> Result<Self, ServerError> {
        let dir = Folder::create()?;
        if let Some(locale) = settings.locale_name().filter(|locale| !compile(locale, dir.path())) {
            return Err(ServerError::MissingLocale { locale: locale.to_owned() });
        }
        let mut tried = 1;
        loop {
            let port = Port::reserve(settings.is(Duty::ClusterNode))?;
            fs::write(conf_path(dir.path()), settings.render(port.number, dir.path()))?;
            match spawn(&settings, dir.path()) {
                Ok(child) => return Ok(Self { settings, port, child: Mutex::new(Some(child)), dir }),
                Err(error) if tried < PORTS_TRIED_MAX && is_port_taken(&error) => tried += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number))
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// `redis://` or `rediss://`, with the password of the `default` user if there is one, without a database.
    pub fn url(&self) -> String {
        let scheme = self.scheme();
        let login = match self.settings.default_password() {
            Some(password) => format!(":{}@", utf8_percent_encode(password, NON_ALPHANUMERIC)),
            None => String::new(),
        };
        format!("{scheme}://{login}{}", self.addr())
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.settings.speaks_tls() { "rediss" } else { "redis" }
    }

    /// The process id.
    ///
    /// # Panics
    /// While the server is down.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.running(|child| Ok(child.pid()))
    }

    /// Its folder; a `SAVE` writes `dump.rdb` there.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// All it has logged so far, over restarts.
    pub fn log(&self) -> String {
        fs::read(log_path(self.dir()))
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    /// A new administrative connection. It uses a Unix socket, so it also works with TLS, and faults of the network under
    /// test do not affect it.
    pub fn connect(&self) -> io::Result<Connection> {
        connect(&self.settings, &socket_path(self.dir()))
    }

    /// Runs one command as administrator. An error reply is a [`Reply::Error`].
    ///
    /// # Panics
    /// When the server cannot be reached or does not answer within ten seconds.
    #[track_caller]
    pub fn cli(&self, words: &[&str]) -> Reply {
        match self.connect().and_then(|mut connection| connection.command(words)) {
            Ok(reply) => reply,
            Err(error) => panic!("cannot run {words:?} on {}: {error}", self.addr()),
        }
    }

    /// A field of `INFO`, from any section that is shown by default.
    ///
    /// # Panics
    /// Like [`cli`](Self::cli).
    #[track_caller]
    pub fn info(&self, field: &str) -> Option<String> {
        let info = self.cli(&["INFO"]);
        let mut fields = info.text().lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| *name == field).map(|(_, value)| value.to_owned())
    }

    /// Whether it runs and answers; a stopped one does not.
    pub fn is_up(&self) -> bool {
        let runs = self.child().as_ref().is_some_and(|child| child.is_running().unwrap_or(false));
        runs && answers(&socket_path(self.dir()))
    }

    /// SIGKILL, as in a crash; returns when the process is gone. Does nothing while the server is down.
    #[track_caller]
    pub fn kill(&self) {
        if let Some(child) = self.child().take() {
            child.kill().unwrap_or_else(|error| panic!("cannot kill `redis-server`: {error}"));
        }
    }

    /// SIGTERM, an orderly end. Does nothing while the server is down.
    #[track_caller]
    pub fn shutdown(&self) {
        if let Some(child) = self.child().take() {
            child.terminate().unwrap_or_else(|error| panic!("cannot shut `redis-server` down: {error}"));
        }
    }

    /// SIGSTOP: the process stops, its connections stay open. Returns when it has stopped.
    #[track_caller]
    pub fn stop(&self) {
        self.running(BoundChild::stop);
    }

    /// SIGCONT, after [`stop`](Self::stop).
    #[track_caller]
    pub fn cont(&self) {
        self.running(BoundChild::cont);
    }

    /// Kills it if it runs and starts it **empty**, on the same port with the same settings, also those that it
    /// wrote into its `redis.conf` itself: a saved dump and an append-only file are deleted.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        let deleted =
            [fs::remove_file(self.dump_path()), fs::remove_dir_all(self.dir().join("appendonlydir"))];
        for error in deleted.into_iter().filter_map(Result::err) {
            assert!(error.kind() == io::ErrorKind::NotFound, "cannot delete the data: {error}");
        }
        self.start_again();
    }

    /// Like [`restart`](Self::restart), but with the data on its disk: all of it where the test asked for an
    /// append-only file, that of the last `SAVE` otherwise.
    #[track_caller]
    pub fn restart_with_data(&self) {
        self.start_again();
    }

    /// Like [`restart`](Self::restart), but with the data of the last `SAVE`: a node that was rolled back. Not for
    /// a server with an append-only file, which reads nothing else.
    ///
    /// # Panics
    /// When nothing was saved.
    #[track_caller]
    pub fn restart_with_dump(&self) {
        assert!(self.dump_path().is_file(), "no dump to restart with: run `SAVE` first");
        self.start_again();
    }

    #[track_caller]
    fn start_again(&self) {
        self.kill();
        // The port may still be busy for a moment, for example as the local port of another connection.
        let started = poll(READY_WITHIN, || match spawn(&self.settings, self.dir()) {
            Err(error) if is_port_taken(&error) => None,
            outcome => Some(outcome),
        });
        match started {
            Some(Ok(child)) => *self.child() = Some(child),
            Some(Err(error)) => panic!("cannot restart: {}", report(&error)),
            None => panic!("cannot restart: port {} was taken meanwhile", self.port.number),
        }
    }

    fn dump_path(&self) -> PathBuf {
        self.dir().join("dump.rdb")
    }

    #[track_caller]
    fn running<T>(&self, act: impl FnOnce(&BoundChild) -> io::Result<T>) -> T {
        let child = self.child();
        let Some(child) = child.as_ref() else { panic!("`redis-server` on {} is down", self.addr()) };
        act(child).unwrap_or_else(|error| panic!("cannot signal `redis-server`: {error}"))
    }

    fn child(&self) -> MutexGuard<'_, Option<BoundChild>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server with default settings, or `None` where there is no `redis-server` and the environment has
/// `LEASEHOLD_ALLOW_MISSING=1`; the skip is printed past the capture of the test harness.
///
/// # Panics
/// When it does not start, for any other reason or without that variable.
#[track_caller]
pub fn redis_or_skip() -> Option<RedisServer> {
    RedisServer::builder().start_or_skip()
}

#[track_caller]
pub(crate) fn skip_if_missing<T>(outcome: Result<T, ServerError>) -> Option<T> {
    match outcome {
        Ok(server) => Some(server),
        Err(
            error @ (ServerError::Missing | ServerError::MissingEtcd | ServerError::MissingLocale { .. }),
        ) if env::var_os(ALLOW_MISSING).is_some_and(|value| value == "1") => {
            // The macros would be captured, and a silent skip looks like a pass.
            let _ = io::Write::write_all(&mut io::stderr(), format!("skipped: {error}\n").as_bytes());
            None
        }
        Err(error) => panic!("{}", report(&error)),
    }
}

/// Starts it with the `redis.conf` in `dir`, which the server may have rewritten since it was made.
fn spawn(settings: &RedisServerBuilder, dir: &Path) -> Result<BoundChild, ServerError> {
    let program = find_program(PROGRAM).ok_or(ServerError::Missing)?;
    let (socket, log) = (socket_path(dir), log_path(dir));
    // Of an earlier run that was killed; the end of this run's log must not be about that one.
    let _ = fs::remove_file(&socket);
    let logged_before = fs::metadata(&log).map_or(0, |log| log.len());
    let mut command = bound_command(program);
    command.arg(conf_path(dir));
    if settings.is(Duty::Sentinel) {
        command.arg("--sentinel");
    }
    if let Some(locale) = settings.locale_name() {
        command.env("LOCPATH", dir).env("LC_ALL", locale);
    }
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = BoundChild::spawn(command)?;
    let ready = poll(READY_WITHIN, || match child.exited() {
        Err(error) => Some(Err(error.into())),
        Ok(Some(status)) => {
            Some(Err(ServerError::Ended { status: status.to_string(), log: log_tail(&log, logged_before) }))
        }
        Ok(None) => answers(&socket).then_some(Ok(())),
    });
    match ready {
        Some(outcome) => outcome.and_then(|()| Ok(prepare(settings, &socket)?)).map(|()| child),
        None => Err(ServerError::Silent { log: log_tail(&log, logged_before) }),
    }
}

fn prepare(settings: &RedisServerBuilder, socket: &Path) -> io::Result<()> {
    if settings.commands_once_up().is_empty() {
        return Ok(());
    }
    let mut connection = connect(settings, socket)?;
    for words in settings.commands_once_up() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        connection.command(&words)?;
    }
    Ok(())
}

fn connect(settings: &RedisServerBuilder, socket: &Path) -> io::Result<Connection> {
    let mut connection = Connection::unix(socket)?;
    if let Some((user, password)) = settings.credentials() {
        connection.auth(user, password)?;
    }
    Ok(connection)
}

/// Asked through the socket in its own folder: on the port, another process that was faster might reply.
fn answers(socket: &Path) -> bool {
    let reply = Connection::unix(socket).and_then(|mut connection| connection.ping());
    match reply {
        Ok(Reply::Error(refusal)) => !refusal.starts_with("LOADING"),
        Ok(_) => true,
        Err(_) => false,
    }
}

fn is_port_taken(error: &ServerError) -> bool {
    matches!(error, ServerError::Ended { log, .. } if log.contains("Address already in use"))
}

fn conf_path(dir: &Path) -> PathBuf {
    dir.join("redis.conf")
}

pub(crate) fn socket_path(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}

pub(crate) fn log_path(dir: &Path) -> PathBuf {
    dir.join("redis.log")
}

fn log_tail(log: &Path, skip_bytes: u64) -> String {
    let log = fs::read(log).unwrap_or_default();
    let skip = usize::try_from(skip_bytes).unwrap_or(usize::MAX).min(log.len());
    let text = String::from_utf8_lossy(&log[skip..]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

/// The error with its causes, for a panic message.
fn report(error: &ServerError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
