//! The settings of a server, and the `redis.conf` that is generated from them.

use std::fmt::Write;
use std::path::Path;

use crate::certificates::Certificates;
use crate::server::{RedisServer, ServerError, log_path, skip_if_missing, socket_path};

/// The user the testkit itself connects as, so that a test may restrict or disable `default`.
pub(crate) const ADMIN: &str = "leasehold-testkit";

/// Settings of a [`RedisServer`] before it starts.
///
/// ```no_run
/// # use leasehold_testkit::RedisServer;
/// let server = RedisServer::builder()
///     .arg("--maxmemory", "3mb")
///     .password("secret")
///     .acl_line("user worker on >pw ~lock:* +@all")
///     .start()?;
/// # Ok::<(), leasehold_testkit::ServerError>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a builder starts nothing until start() is called"]
pub struct RedisServerBuilder {
    directives: Vec<(String, String)>,
    password: Option<String>,
    acl_lines: Vec<String>,
    tls: Option<Certificates>,
    requires_client_certificate: bool,
    duty: Duty,
    file: Option<String>,
    once_up: Vec<Vec<String>>,
    locale: Option<String>,
}

/// What the program is started as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Duty {
    #[default]
    Node,
    /// Listens on a second port for its neighbours.
    ClusterNode,
    Sentinel,
}

impl RedisServerBuilder {
    /// Any directive of `redis.conf`, with or without leading dashes; the value is written as it would be there.
    /// A later one overrides an earlier one and the defaults.
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.directives.push((name.trim_start_matches('-').to_owned(), value.to_owned()));
        self
    }

    /// The locale of the server's environment, such as `en_US.UTF-8`: scripts compare strings by its rules. It is
    /// compiled for this server, from the Debian package `locales`.
    pub fn locale(mut self, locale: &str) -> Self {
        self.locale = Some(locale.to_owned());
        self
    }

    /// The password of the `default` user.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// A line as in an ACL file: `user NAME RULES…`.
    pub fn acl_line(mut self, line: &str) -> Self {
        assert!(line.starts_with("user "), "an ACL line starts with `user `: {line:?}");
        self.acl_lines.push(line.to_owned());
        self
    }

    /// Speaks TLS only, with the server certificate of `certificates`; clients need no certificate.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self
    }

    /// With [`tls`](Self::tls): refuses clients without a certificate of the same authority.
    pub fn require_client_certificate(mut self) -> Self {
        self.requires_client_certificate = true;
        self
    }

    /// The text of a `redis.conf`, in place of the defaults (no persistence). What a test needs to find its server
    /// (address, folder, log, socket) comes after it, and so does every other setting of this builder.
    pub fn file(mut self, text: impl Into<String>) -> Self {
        self.file = Some(text.into());
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Result<RedisServer, ServerError> {
        RedisServer::launch(self)
    }

    /// Like [`start`](Self::start), for tests: see [`redis_or_skip`](crate::redis_or_skip).
    #[track_caller]
    pub fn start_or_skip(self) -> Option<RedisServer> {
        skip_if_missing(self.start())
    }

    pub(crate) fn duty(mut self, duty: Duty) -> Self {
        self.duty = duty;
        self
    }

    /// A command to run after each start, for settings that `redis.conf` lacks. An error is ignored: not every version of
    /// the server has every command.
    pub(crate) fn once_up(mut self, words: &[&str]) -> Self {
        self.once_up.push(words.iter().map(|word| (*word).to_owned()).collect());
        self
    }

    /// [`password`](Self::password), also shown to the primary that this node follows.
    pub(crate) fn password_of_all_nodes(self, password: Option<&str>) -> Self {
        match password {
            Some(password) => self.password(password).arg("masterauth", &quote(Path::new(password))),
            None => self,
        }
    }

    pub(crate) fn is(&self, duty: Duty) -> bool {
        self.duty == duty
    }

    pub(crate) fn commands_once_up(&self) -> &[Vec<String>] {
        &self.once_up
    }

    pub(crate) fn locale_name(&self) -> Option<&str> {
        self.locale.as_deref()
    }

    pub(crate) fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn default_password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// User and password for the testkit's own connections.
    pub(crate) fn credentials(&self) -> Option<(Option<&str>, &str)> {
        if self.acl_lines.is_empty() {
            self.password.as_deref().map(|password| (None, password))
        } else {
            Some((Some(ADMIN), ADMIN))
        }
    }

    /// The text of `redis.conf`. A file instead of arguments: no password in the process list, and values with
    /// spaces mean the same to every server version.
    pub(crate) fn render(&self, port: u16, dir: &Path) -> String {
        let mut conf = String::new();
        match &self.file {
            Some(file) => writeln!(conf, "{file}").expect("writing to a string cannot fail"),
            None => conf.push_str("save \"\"\nappendonly no\n"),
        }
        let mut line = |name: &str, value: &str| {
            let value = if value.is_empty() { "\"\"" } else { value };
            writeln!(conf, "{name} {value}").expect("writing to a string cannot fail");
        };
        line("bind", "127.0.0.1");
        line("daemonize", "no");
        line("dir", &quote(dir));
        line("logfile", &quote(&log_path(dir)));
        line("unixsocket", &quote(&socket_path(dir)));
        match &self.tls {
            None => line("port", &port.to_string()),
            Some(certificates) => {
                line("port", "0");
                line("tls-port", &port.to_string());
                line("tls-cert-file", &quote(&certificates.server_cert()));
                line("tls-key-file", &quote(&certificates.server_key()));
                line("tls-ca-cert-file", &quote(&certificates.ca()));
                line("tls-auth-clients", if self.requires_client_certificate { "yes" } else { "no" });
            }
        }
        if let Some(password) = &self.password {
            line("requirepass", &quote(Path::new(password)));
        }
        if !self.acl_lines.is_empty() {
            line("user", &format!("{ADMIN} on >{ADMIN} ~* &* +@all"));
        }
        for (name, value) in &self.directives {
            line(name, value);
        }
        for acl in &self.acl_lines {
            conf.push_str(acl);
            conf.push('\n');
        }
        conf
    }
}

pub(crate) fn quote(value: &Path) -> String {
    let value = value.to_str().expect("paths and passwords in redis.conf are UTF-8");
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(builder: &RedisServerBuilder) -> String {
        builder.render(7000, Path::new("/d"))
    }

    #[test]
    fn what_the_test_asks_for_comes_after_the_defaults() {
        let conf = conf(&RedisServer::builder().arg("--appendonly", "yes").arg("save", ""));
        assert!(conf.find("appendonly no").unwrap() < conf.find("appendonly yes").unwrap(), "{conf}");
        assert!(conf.contains("save \"\"\n"), "{conf}");
    }

    #[test]
    fn a_password_is_quoted() {
        let conf = conf(&RedisServer::builder().password("a \"b\\"));
        assert!(conf.contains(r#"requirepass "a \"b\\""#), "{conf}");
    }

    #[test]
    fn own_acl_lines_bring_the_admin_user_along() {
        let builder = RedisServer::builder().password("p").acl_line("user default off");
        assert_eq!(builder.credentials(), Some((Some(ADMIN), ADMIN)));
        assert!(conf(&builder).contains("user leasehold-testkit on"));
        assert!(!conf(&RedisServer::builder()).contains("user "));
    }
}
