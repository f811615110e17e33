//! A real etcd, of one member or several, started for a test and killed with it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, fs};

use crate::certificates::Certificates;
use crate::child::{BoundChild, bound_command, find_program};
use crate::folder::Folder;
use crate::poll::poll;
use crate::port::Port;
use crate::server::{ServerError, skip_if_missing};

const PROGRAM: &str = "etcd";
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOG_TAIL_LINES: usize = 15;

/// Settings of an [`EtcdSet`] before it starts.
#[derive(Debug, Clone)]
#[must_use = "a builder starts nothing until start() is called"]
pub struct EtcdSetBuilder {
    members: usize,
    arguments: Vec<String>,
    tls: Option<Certificates>,
}

impl EtcdSetBuilder {
    /// An argument for every member.
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Members accept clients with TLS and a certificate of the same authority only.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self
    }

    /// Starts all members at the same time and waits until they have a leader.
    pub fn start(self) -> Result<EtcdSet, ServerError> {
        let folder = Folder::create()?;
        // Nothing outlives the test, so nothing has to reach a disk.
        let memory = Folder::in_memory()?;
        let made = |number| {
            let ports = [Port::reserve(false)?, Port::reserve(false)?, Port::reserve(false)?];
            let (log, data) =
                (folder.path().join(format!("m{number}.log")), memory.path().join(format!("m{number}")));
            Ok(EtcdMember {
                name: format!("m{number}"),
                ports,
                log,
                data,
                arguments: Vec::new(),
                child: Mutex::default(),
            })
        };
        let mut members = (0..self.members).map(made).collect::<io::Result<Vec<_>>>()?;
        let url =
            |member: &EtcdMember| format!("{}=http://127.0.0.1:{}", member.name, member.ports[1].number);
        let cluster = members.iter().map(url).collect::<Vec<_>>().join(",");
        for member in &mut members {
            member.arguments = self.arguments_of(member, &cluster);
        }
        for member in &members {
            *member.child() = Some(member.spawn()?);
        }
        for member in &members {
            member.until_ready()?;
        }
        Ok(EtcdSet { tls: self.tls, members, _folders: [folder, memory] })
    }

    /// Like [`start`](Self::start), for tests: see [`redis_or_skip`](crate::redis_or_skip).
    #[track_caller]
    pub fn start_or_skip(self) -> Option<EtcdSet> {
        skip_if_missing(self.start())
    }

    fn arguments_of(&self, member: &EtcdMember, cluster: &str) -> Vec<String> {
        let [clients, peers, metrics] = member.ports.each_ref().map(|port| port.number);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut arguments = vec![
            format!("--name={}", member.name),
            format!("--data-dir={}", member.data.display()),
            format!("--listen-client-urls={scheme}://127.0.0.1:{clients}"),
            format!("--advertise-client-urls={scheme}://127.0.0.1:{clients}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peers}"),
            format!("--initial-advertise-peer-urls=http://127.0.0.1:{peers}"),
            format!("--listen-metrics-urls=http://127.0.0.1:{metrics}"),
            format!("--initial-cluster={cluster}"),
            "--initial-cluster-state=new".to_owned(),
            "--log-outputs=stderr".to_owned(),
            "--logger=zap".to_owned(),
        ];
        if let Some(tls) = &self.tls {
            arguments.push(format!("--cert-file={}", tls.server_cert().display()));
            arguments.push(format!("--key-file={}", tls.server_key().display()));
            arguments.push(format!("--trusted-ca-file={}", tls.ca().display()));
            arguments.push("--client-cert-auth".to_owned());
        }
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }
}

/// The members of one etcd, on free loopback ports, each with data of its own.
///
/// ```no_run
/// # use leasehold_testkit::EtcdSet;
/// let Some(etcd) = EtcdSet::builder(3).start_or_skip() else { return };
/// assert!(etcd.url().starts_with("etcd://127.0.0.1:"));
/// etcd.members()[0].kill();
/// ```
#[derive(Debug)]
pub struct EtcdSet {
    tls: Option<Certificates>,
    members: Vec<EtcdMember>,
    _folders: [Folder; 2],
}

impl EtcdSet {
    /// Settings for so many members.
    pub fn builder(members: usize) -> EtcdSetBuilder {
        EtcdSetBuilder { members, arguments: Vec::new(), tls: None }
    }

    /// `etcd://HOST:PORT,…`, or `etcds://` with the certificates of a client.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(|member| member.addr().to_string()).collect();
        let hosts = hosts.join(",");
        match &self.tls {
            None => format!("etcd://{hosts}"),
            Some(tls) => format!(
                "etcds://{hosts}?ca={}&cert={}&key={}",
                tls.ca().display(),
                tls.client_cert().display(),
                tls.client_key().display()
            ),
        }
    }

    /// The members, always in the same order.
    pub fn members(&self) -> &[EtcdMember] {
        &self.members
    }

    /// The member that leads, if there is one.
    pub fn leader(&self) -> Option<&EtcdMember> {
        self.members.iter().find(|member| member.metric("etcd_server_is_leader") == Some(1.0))
    }

    /// Runs `etcdctl` against the members that are up, and returns what it prints.
    ///
    /// # Panics
    /// When it fails, or is not installed (Debian package `etcd-client`).
    #[track_caller]
    pub fn ctl(&self, words: &[&str]) -> String {
        self.ctl_with(words, "")
    }

    /// The same, with something to read.
    ///
    /// # Panics
    /// As [`ctl`](Self::ctl).
    #[track_caller]
    pub fn ctl_with(&self, words: &[&str], input: &str) -> String {
        let up = self.members.iter().filter(|member| member.runs());
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoints: Vec<_> = up.map(|member| format!("{scheme}://{}", member.addr())).collect();
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", endpoints.join(",")));
        if let Some(tls) = &self.tls {
            command.arg(format!("--cacert={}", tls.ca().display()));
            command.arg(format!("--cert={}", tls.client_cert().display()));
            command.arg(format!("--key={}", tls.client_key().display()));
        }
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = command.spawn().and_then(|mut child| {
            child.stdin.take().expect("piped").write_all(input.as_bytes())?;
            child.wait_with_output()
        });
        let output =
            run.unwrap_or_else(|error| panic!("cannot run `etcdctl` (Debian: etcd-client): {error}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`etcdctl {words:?}` failed: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// One member. Dropping it kills the process; it dies with the test process in any case.
#[derive(Debug)]
pub struct EtcdMember {
    name: String,
    /// For clients, for the other members, and for metrics.
    ports: [Port; 3],
    log: PathBuf,
    data: PathBuf,
    arguments: Vec<String>,
    child: Mutex<Option<BoundChild>>,
}

impl EtcdMember {
    /// Where it listens for clients.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[0].number))
    }

    /// All it has logged so far, over restarts.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    /// SIGKILL, as in a crash. Does nothing while it is down.
    #[track_caller]
    pub fn kill(&self) {
        if let Some(child) = self.child().take() {
            child.kill().unwrap_or_else(|error| panic!("cannot kill `etcd`: {error}"));
        }
    }

    /// SIGSTOP: the process stops, its connections stay open.
    #[track_caller]
    pub fn stop(&self) {
        self.running(BoundChild::stop);
    }

    /// SIGCONT, after [`stop`](Self::stop).
    #[track_caller]
    pub fn cont(&self) {
        self.running(BoundChild::cont);
    }

    /// Kills it if it runs, and starts it with its data. It may have no leader yet.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        let started = self.spawn().unwrap_or_else(|error| panic!("cannot restart `etcd`: {error}"));
        *self.child() = Some(started);
    }

    /// Waits until it has a leader and serves.
    #[track_caller]
    pub fn wait(&self) {
        self.until_ready().unwrap_or_else(|error| panic!("{error}"));
    }

    /// A number that it reports.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.http("/metrics").ok()?;
        let line = text.lines().find(|line| line.split(' ').next() == Some(name))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    fn http(&self, path: &str) -> io::Result<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[2].number));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    fn spawn(&self) -> Result<BoundChild, ServerError> {
        let program = find_program(PROGRAM).ok_or(ServerError::MissingEtcd)?;
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = bound_command(program);
        // Settings of the machine's own etcd are not for this one.
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD")) {
            command.env_remove(name);
        }
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok(BoundChild::spawn(command)?)
    }

    fn until_ready(&self) -> Result<(), ServerError> {
        let ready = poll(READY_WITHIN, || match self.child().as_ref().map(BoundChild::exited) {
            Some(Ok(Some(status))) => {
                Some(Err(ServerError::Ended { status: status.to_string(), log: log_tail(&self.log) }))
            }
            _ => self.http("/health").is_ok_and(|text| text.contains("\"true\"")).then_some(Ok(())),
        });
        ready.unwrap_or_else(|| Err(ServerError::Silent { log: log_tail(&self.log) }))
    }

    /// Whether its process runs.
    pub fn runs(&self) -> bool {
        self.child().as_ref().is_some_and(|child| child.is_running().unwrap_or(false))
    }

    #[track_caller]
    fn running<T>(&self, act: impl FnOnce(&BoundChild) -> io::Result<T>) -> T {
        let child = self.child();
        let Some(child) = child.as_ref() else { panic!("`etcd` on {} is down", self.addr()) };
        act(child).unwrap_or_else(|error| panic!("cannot signal `etcd`: {error}"))
    }

    fn child(&self) -> MutexGuard<'_, Option<BoundChild>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}
