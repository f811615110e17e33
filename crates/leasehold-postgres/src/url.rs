//! Store URLs: `postgres://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?PARAMETERS]`. Nothing is dialled.

#[cfg(feature = "tls")]
mod tls;

use std::{future::Future, path::Path, str::FromStr};

use percent_encoding::percent_decode_str;
use tokio_postgres::{Client, Config, NoTls, Socket, config::Host, config::SslMode};

use leasehold_core::{
    engine::EngineOptions,
    error::{Error, Result},
    text::redact,
};

/// Parameters of this engine; everything else is the driver's.
const OWN: [&str; 7] = ["listen", "pool", "password-file", "ca", "cert", "key", "sslmode"];
/// Connections that a client has unless the URL says otherwise.
const POOL: usize = 8;
const POOL_RANGE: std::ops::RangeInclusive<usize> = 2..=200;

pub(super) struct StoreUrl {
    /// The URL as people may see it.
    shown: String,
    config: Config,
    parameters: Vec<(String, String)>,
}

impl StoreUrl {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let shown = redact(text);
        let syntax = "postgres://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]";
        let refuse = |expected: &str| Error::invalid("store URL", &shown, expected);
        let (plain, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut parameters, mut others) = (Vec::new(), Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if OWN.contains(&name) {
                let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
                parameters.push((name.to_owned(), value));
            } else if name == "host" {
                // The folder of a Unix socket.
                others.push(pair);
            } else {
                let got = if name.contains('@') { "…" } else { name };
                let what = format!("parameter of the store URL {shown}");
                return Err(Error::invalid(what, got, [&OWN[..], &["host"]].concat().join(", ")));
            }
        }
        let plain =
            if others.is_empty() { plain.to_owned() } else { format!("{plain}?{}", others.join("&")) };
        // The driver's own words might quote a password.
        let mut config = Config::from_str(&plain).map_err(|_| refuse(syntax))?;
        if config.get_hosts().is_empty() {
            return Err(refuse(&format!("a host name, as in {syntax}")));
        }
        let mut url = Self { shown, config: Config::new(), parameters };
        if let Some(path) = url.parameter("password-file") {
            let password = std::fs::read_to_string(path).map_err(|error| {
                Error::invalid("password-file", path, format!("a readable file ({error})"))
            })?;
            config.password(password.trim_end_matches(['\r', '\n']));
        }
        config.ssl_mode(url.ssl_mode()?);
        url.config = config;
        Ok(url)
    }

    /// With `sslmode`, or a file that only TLS needs, the server's certificate must verify.
    fn ssl_mode(&self) -> Result<SslMode> {
        let has_files = ["ca", "cert", "key"].iter().any(|file| self.parameter(file).is_some());
        match self.parameter("sslmode") {
            Some("require" | "verify-full") => Ok(SslMode::Require),
            Some("disable") if has_files => Err(self.refuse("ca, cert and key only with TLS")),
            None if has_files => Ok(SslMode::Require),
            None | Some("disable") => Ok(SslMode::Disable),
            Some(got) => {
                Err(Error::invalid("sslmode", got, "require (certificates are always verified) or disable"))
            }
        }
    }

    fn refuse(&self, expected: &str) -> Error {
        Error::invalid("store URL", &self.shown, expected)
    }

    /// The last value of a parameter.
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rfind(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// How many connections the pool may have.
    pub(super) fn connections(&self, options: &EngineOptions) -> Result<usize> {
        let Some(text) = self.parameter("pool") else { return Ok(options.connections.max(POOL)) };
        let number = text.parse().ok().filter(|number| POOL_RANGE.contains(number));
        number.ok_or_else(|| Error::invalid("pool", text, "2 to 200 connections"))
    }

    /// The database.
    pub(super) fn target(&self, options: &EngineOptions) -> Result<Target> {
        self.at(self.config.clone(), self.shown.clone(), options)
    }

    /// Where notifications come from: the database itself where a pooler stands before it.
    pub(super) fn listen_target(&self, options: &EngineOptions) -> Result<Target> {
        let Some(listen) = self.parameter("listen") else { return self.target(options) };
        if listen.contains("://") {
            let url = Self::parse(listen)?;
            return url.target(options);
        }
        // Host and port alone; the login is the same.
        let expected = "HOST[:PORT] or a postgres:// URL of the database itself";
        let at = Config::from_str(&format!("postgres://{listen}"));
        let at = at.ok().filter(|at| !at.get_hosts().is_empty());
        let at = at.ok_or_else(|| Error::invalid("listen", redact(listen), expected))?;
        let mut config = Config::new();
        for host in at.get_hosts() {
            match host {
                Host::Tcp(host) => config.host(host),
                #[cfg(unix)]
                Host::Unix(path) => config.host_path(path),
            };
        }
        for port in at.get_ports() {
            config.port(*port);
        }
        let from = &self.config;
        from.get_user().map(|user| config.user(user));
        from.get_password().map(|password| config.password(password));
        from.get_dbname().map(|name| config.dbname(name));
        config.ssl_mode(from.get_ssl_mode());
        self.at(config, redact(listen), options)
    }

    fn at(&self, mut config: Config, shown: String, options: &EngineOptions) -> Result<Target> {
        // The only one that poolers let through, and what people see in pg_stat_activity.
        let name = if options.client_name.is_empty() { "leasehold" } else { &options.client_name };
        config.application_name(name);
        config.tcp_user_timeout(std::time::Duration::from_secs(30));
        let tls = self.tls(config.get_ssl_mode())?;
        Ok(Target { config, tls, shown })
    }

    fn tls(&self, mode: SslMode) -> Result<Tls> {
        if mode == SslMode::Disable {
            return Ok(Tls::None);
        }
        #[cfg(feature = "tls")]
        return self.rustls();
        #[cfg(not(feature = "tls"))]
        Err(Error::unsupported(
            "TLS to PostgreSQL",
            "this build lacks the feature \"tls\"; add it with: cargo add leasehold --features postgres,tls",
        ))
    }
}

/// How connections are encrypted.
#[derive(Clone)]
enum Tls {
    None,
    #[cfg(feature = "tls")]
    Rustls(tokio_postgres_rustls::MakeRustlsConnect),
}

/// A database, and how it is reached.
#[derive(Clone)]
pub(super) struct Target {
    config: Config,
    tls: Tls,
    /// As people may see it.
    pub(super) shown: String,
}

/// The task of a connection, with or without encryption.
pub(super) enum Connection {
    Plain(Box<tokio_postgres::Connection<Socket, tokio_postgres::tls::NoTlsStream>>),
    #[cfg(feature = "tls")]
    Encrypted(Box<tls::Connection>),
}

impl Target {
    /// Names that have no schema are looked for in this one.
    pub(super) fn search_in(&mut self, schema: &str) {
        self.config.options(format!("-c search_path={schema}"));
    }

    pub(super) async fn connect(&self) -> Result<(Client, Connection), tokio_postgres::Error> {
        match &self.tls {
            Tls::None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                Ok((client, Connection::Plain(Box::new(connection))))
            }
            #[cfg(feature = "tls")]
            Tls::Rustls(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                Ok((client, Connection::Encrypted(Box::new(connection))))
            }
        }
    }

    /// Whether what is sent cannot be read on the way: by TLS, or because it does not leave the host.
    pub(super) fn is_encrypted(&self) -> bool {
        let is_local = |host: &Host| match host {
            Host::Tcp(host) => {
                host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
            }
            #[cfg(unix)]
            Host::Unix(path) => Path::new(path).is_absolute(),
        };
        !matches!(self.tls, Tls::None) || self.config.get_hosts().iter().all(is_local)
    }
}

impl Connection {
    /// The next message of the server; `None` at its orderly end.
    pub(super) fn poll_message(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<tokio_postgres::AsyncMessage, tokio_postgres::Error>>> {
        match self {
            Self::Plain(connection) => connection.poll_message(context),
            #[cfg(feature = "tls")]
            Self::Encrypted(connection) => connection.poll_message(context),
        }
    }
}

/// Runs until the connection ends.
impl Future for Connection {
    type Output = Result<(), tokio_postgres::Error>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        loop {
            match std::task::ready!(self.poll_message(context)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return std::task::Poll::Ready(Err(error)),
                None => return std::task::Poll::Ready(Ok(())),
            }
        }
    }
}
