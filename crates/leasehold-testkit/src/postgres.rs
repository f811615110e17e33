//! A real PostgreSQL, started for a test and killed with it.

mod pgbouncer;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs};

use crate::certificates::Certificates;
use crate::child::{BoundChild, bound_command, find_program};
use crate::folder::Folder;
use crate::poll::poll;
use crate::port::Port;
use crate::server::ServerError;

pub use pgbouncer::PgBouncer;

const READY_WITHIN: Duration = Duration::from_secs(60);
/// The database that others are copied from.
const TEMPLATE: &str = "leasehold_template";
/// The superuser of every server.
const USER: &str = "leasehold";
/// PostgreSQL refuses to run as root: then it runs as `nobody`.
const NOBODY: u32 = 65534;
/// A crash of this machine ends the test as well, so nothing waits for its disk.
const SETTINGS: &str = "fsync = off\nfull_page_writes = off\nmax_connections = 900\nshared_buffers = 64MB\n\
    listen_addresses = '127.0.0.1'\nautovacuum_naptime = 10s\nlog_min_messages = warning\n";

/// A PostgreSQL on a free loopback port, in a folder of its own, whose superuser needs no password.
#[derive(Debug)]
pub struct PostgresServer {
    port: Port,
    // Declared before the folder: the process ends before its folder goes.
    child: Mutex<Option<BoundChild>>,
    dir: Folder,
    /// The size of a disk of its own.
    disk: Option<u32>,
    databases: AtomicU64,
}

impl PostgresServer {
    /// Starts a server.
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with("", None, None)
    }

    /// A server, or `None` where PostgreSQL is missing and the environment has `LEASEHOLD_ALLOW_MISSING=1`.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn start_or_skip() -> Option<Self> {
        Self::start_with_or_skip("")
    }

    /// The same with lines added to its configuration.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn start_with_or_skip(settings: &str) -> Option<Self> {
        Self::start_or_skip_on(settings, None, None)
    }

    /// One with a disk of its own of so many megabytes, in the folder `disk` of its [folder](Self::dir); nothing is there
    /// but what a tablespace puts there. Skipped where the machine does not let it mount one.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn start_with_disk_or_skip(megabytes: u32) -> Option<Self> {
        let mut mount = Command::new("unshare");
        mount.args(["-m", "sh", "-c", "mount -t tmpfs none /mnt"]).stderr(Stdio::null());
        if !mount.status().is_ok_and(|status| status.success()) {
            return skip_because("a disk of its own for PostgreSQL needs the right to mount one");
        }
        Self::start_or_skip_on("", Some(megabytes), None)
    }

    /// One that also speaks TLS.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn start_tls_or_skip(certificates: &Certificates) -> Option<Self> {
        let settings = "ssl = on\nssl_cert_file = '../server.pem'\nssl_key_file = '../server.key'";
        Self::start_or_skip_on(settings, None, Some(certificates))
    }

    #[track_caller]
    fn start_or_skip_on(
        settings: &str,
        disk: Option<u32>,
        certificates: Option<&Certificates>,
    ) -> Option<Self> {
        match Self::start_with(settings, disk, certificates) {
            Err(ServerError::MissingPostgres) => skip("postgresql"),
            started => Some(started.unwrap_or_else(|error| panic!("cannot start PostgreSQL: {error}"))),
        }
    }

    fn start_with(
        settings: &str,
        disk: Option<u32>,
        certificates: Option<&Certificates>,
    ) -> Result<Self, ServerError> {
        if program("initdb").is_none() || program("psql").is_none() {
            return Err(ServerError::MissingPostgres);
        }
        let dir = Folder::create()?;
        give_away(dir.path())?;
        if let Some(certificates) = certificates {
            for file in [certificates.server_cert(), certificates.server_key()] {
                let copy = dir.path().join(file.file_name().unwrap_or_default());
                fs::copy(file, &copy)?;
                fs::set_permissions(&copy, fs::Permissions::from_mode(0o600))?;
                give_away(&copy)?;
            }
        }
        if disk.is_some() {
            fs::create_dir(dir.path().join("disk"))?;
        }
        let data = dir.path().join("data");
        let mut init = as_user("initdb");
        init.arg("-D").arg(&data).args(["-U", USER, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]);
        run(init)?;
        let port = Port::reserve(false)?;
        let more = format!(
            "{SETTINGS}port = {}\nunix_socket_directories = '{}'\n{settings}\n",
            port.number,
            dir.path().display()
        );
        let conf = data.join("postgresql.conf");
        let before = fs::read_to_string(&conf)?;
        fs::write(&conf, before + &more)?;
        let server = Self { port, child: Mutex::default(), dir, disk, databases: AtomicU64::new(0) };
        server.spawn()?;
        Ok(server)
    }

    fn spawn(&self) -> io::Result<()> {
        let mut command = match self.disk {
            None => as_user("postgres"),
            Some(megabytes) => in_own_mounts(&self.dir.path().join("disk"), megabytes),
        };
        let log = fs::File::options().create(true).append(true).open(self.dir.path().join("log"))?;
        command.arg("-D").arg(self.dir.path().join("data"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = BoundChild::spawn(command)?;
        let ready = poll(READY_WITHIN, || match child.exited() {
            Ok(None) => self.try_sql("postgres", "SELECT 1").is_ok().then_some(true),
            _ => Some(false),
        });
        if ready != Some(true) {
            return Err(io::Error::other(format!("it ended or does not answer:\n{}", self.log())));
        }
        *self.child() = Some(child);
        Ok(())
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number))
    }

    /// The store URL of a database.
    pub fn url(&self, database: &str) -> String {
        url(self.addr(), database)
    }

    /// Its folder, which also has its Unix socket.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// All it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Installs what every later [`database`](Self::database) begins with.
    ///
    /// # Panics
    /// When the script fails.
    #[track_caller]
    pub fn install(&self, script: &str) {
        self.sql("postgres", &format!("CREATE DATABASE {TEMPLATE}"));
        self.sql(TEMPLATE, script);
    }

    /// A new database, a copy of what was [installed](Self::install), and its name.
    ///
    /// # Panics
    /// When it cannot be created.
    #[track_caller]
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.database_named(&name);
        name
    }

    /// The same with a name.
    ///
    /// # Panics
    /// When it cannot be created.
    #[track_caller]
    pub fn database_named(&self, name: &str) {
        self.sql("postgres", &format!("CREATE DATABASE \"{name}\" TEMPLATE {TEMPLATE}"));
    }

    /// Runs SQL as the superuser with `psql`, and returns the rows, without headers, columns divided by `|`.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn sql(&self, database: &str, sql: &str) -> String {
        self.try_sql(database, sql).unwrap_or_else(|error| panic!("psql failed on {database}: {error}"))
    }

    /// The same, with the words of the error.
    ///
    /// # Errors
    /// What `psql` prints.
    pub fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let file = self.dir.path().join(format!("{}.sql", self.databases.fetch_add(1, Ordering::Relaxed)));
        fs::write(&file, sql).map_err(|error| error.to_string())?;
        let mut psql = psql(&self.port, database)?;
        let answer = answer_of(psql.arg("-h").arg(self.dir.path()).arg("-f").arg(&file));
        let _ = fs::remove_file(&file);
        answer
    }

    /// Ends the server without a checkpoint, as a crash does. It recovers at its [start](Self::start_again).
    ///
    /// # Panics
    /// When it cannot be ended.
    #[track_caller]
    pub fn crash(&self) {
        self.end("immediate");
    }

    /// Ends the server in an orderly way.
    ///
    /// # Panics
    /// When it cannot be ended.
    #[track_caller]
    pub fn shutdown(&self) {
        self.end("fast");
    }

    #[track_caller]
    fn end(&self, mode: &str) {
        let Some(child) = self.child().take() else { return };
        let mut end = as_user("pg_ctl");
        end.arg("-D").arg(self.dir.path().join("data")).args(["-m", mode, "-w", "stop"]);
        run(end).unwrap_or_else(|error| panic!("cannot end PostgreSQL: {error}"));
        let _ = child.wait(READY_WITHIN);
    }

    /// Starts it again after [`crash`](Self::crash), on the same port with its data.
    ///
    /// # Panics
    /// When it does not start.
    #[track_caller]
    pub fn start_again(&self) {
        self.spawn().unwrap_or_else(|error| panic!("cannot start PostgreSQL again: {error}"));
    }

    /// Ends the connections to a database, as an administrator does.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn terminate_backends(&self, database: &str) {
        let sql = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}' \
             AND pid <> pg_backend_pid()"
        );
        self.sql("postgres", &sql);
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<BoundChild>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client, which prints rows without headers and columns divided by `|`.
fn psql(port: &Port, database: &str) -> Result<Command, String> {
    let mut psql = Command::new(program("psql").ok_or("psql is missing")?);
    psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database]);
    psql.args(["-p", &port.number.to_string()]).stdin(Stdio::null());
    Ok(psql)
}

fn answer_of(psql: &mut Command) -> Result<String, String> {
    let output = psql.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn url(at: SocketAddr, database: &str) -> String {
    format!("postgres://{USER}@{at}/{database}")
}

/// A program on the search path, or where Debian keeps those of a server: the highest version.
fn program(name: &str) -> Option<PathBuf> {
    if name == "pgbouncer" {
        return find_program(name)
            .or_else(|| Some(PathBuf::from("/usr/sbin/pgbouncer")).filter(|file| file.is_file()));
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<u32> =
        versions.filter_map(|folder| folder.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable();
    let of_debian =
        versions.pop().map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin/{name}")));
    of_debian.filter(|file| file.is_file()).or_else(|| find_program(name))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A server's program, as a user that may run it.
fn as_user(name: &str) -> Command {
    let program = program(name).unwrap_or_else(|| name.into());
    if !is_root() {
        return bound_command(program);
    }
    let mut command = bound_command("setpriv");
    let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
    // Once more, because a change of the user clears it.
    command.args([&user, &group, "--clear-groups", "--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// The server where only it and its children see a small file system in a folder.
fn in_own_mounts(folder: &Path, megabytes: u32) -> Command {
    let server = as_user("postgres");
    let options = format!("size={megabytes}m,uid={NOBODY},gid={NOBODY},mode=700");
    let mount = r#"mount -t tmpfs -o "$0" none "$1" && shift && exec "$@""#;
    let mut command = bound_command("unshare");
    command.args(["-m", "sh", "-c", mount]).arg(options).arg(folder).arg(server.get_program());
    command.args(server.get_args());
    command
}

fn give_away(folder: &Path) -> io::Result<()> {
    if is_root() { chown(folder, Some(NOBODY), Some(NOBODY)) } else { Ok(()) }
}

fn run(mut command: Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let words =
        || format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(io::Error::other(words())) }
}

#[track_caller]
fn skip<T>(package: &str) -> Option<T> {
    let words = format!("the Debian package `{package}` is not installed (`apt install {package}`)");
    assert!(env::var_os("LEASEHOLD_ALLOW_MISSING").is_some_and(|value| value == "1"), "{words}");
    skip_because(&words)
}

fn skip_because<T>(words: &str) -> Option<T> {
    // The macros would be captured, and a silent skip looks like a pass.
    let _ = io::Write::write_all(&mut io::stderr(), format!("skipped: {words}\n").as_bytes());
    None
}
