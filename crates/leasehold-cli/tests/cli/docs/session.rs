//! A shell in which the commands of one page run, and the servers that they name.

use std::{
    cell::OnceCell,
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use leasehold_testkit::{ClusterSet, QuorumSet, RedisServer, SentinelSet, poll};

use super::pages::{Page, root};
use crate::sandbox::{BINARY, Ran, Sandbox};

/// A demo on a busy machine; only reached when a test fails.
const LONG: Duration = Duration::from_secs(120);

/// Demos run as everywhere else, but for their size: their own tests run them in full.
const LEASEHOLD: &str = r#"#!/bin/sh
if [ "$1" = demo ]; then set -- "$@" --scale 2 --kills 1; fi
if [ "$1" = serve ]; then exec timeout 120 BINARY "$@"; fi
exec BINARY "$@"
"#;

pub(crate) struct Session {
    sandbox: Sandbox,
    servers: Servers,
    /// Where a service of the page listens.
    service: String,
    shell: Child,
}

impl Session {
    /// The store is the Redis that `redis-cli` talks to if the page uses that, otherwise a file.
    pub(crate) fn of(page: &Page) -> Self {
        let servers = Servers::default();
        let sandbox = match page.text.contains("$ redis-cli") {
            true => Sandbox::on(servers.redis().url()),
            false => Sandbox::new(),
        };
        let program = |name: &str, text: &str| {
            let file = sandbox.write(name, text);
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        };
        fs::create_dir_all(sandbox.path("bin")).unwrap();
        fs::create_dir_all(sandbox.path("var/lib/node_exporter")).unwrap();
        program("bin/leasehold", &LEASEHOLD.replace("BINARY", BINARY));
        program("report.sh", "#!/bin/sh\n");
        let path = std::env::var("PATH").unwrap();
        if page.text.contains("$ redis-cli") {
            let real = super::which("redis-cli");
            let port = servers.redis().port();
            program("bin/redis-cli", &format!("#!/bin/sh\nexec {real} -p {port} \"$@\"\n"));
        }
        let mut shell = sandbox.program("env");
        shell
            .args(["--default-signal", "sh"])
            .env("PATH", format!("{}:{path}", sandbox.path("bin").display()));
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        Self { sandbox, servers, service: free.unwrap().to_string(), shell }
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Runs a command of the page to its end; what it exports is there for the next.
    pub(crate) fn run(&mut self, command: &str) -> Ran {
        let [out, err, code, new] = ["out", "err", "code", "code.new"].map(|name| self.sandbox.path(name));
        let _none = fs::remove_file(&code);
        let command = self.here(command);
        let script = format!(
            "{{\n{command}\n}} </dev/null >{} 2>{}\necho $? >{new}; mv {new} {}\n",
            out.display(),
            err.display(),
            code.display(),
            new = new.display(),
        );
        self.shell.stdin.as_mut().unwrap().write_all(script.as_bytes()).unwrap();
        let read = |file: &PathBuf| fs::read_to_string(file).unwrap_or_default();
        let ended = poll(LONG, || {
            let is_over = self.shell.try_wait().unwrap().is_some();
            (is_over || code.exists()).then(|| read(&code).trim().parse().ok())
        });
        Ran { code: ended.flatten(), stdout: read(&out), stderr: read(&err) }
    }

    /// The command with names of this machine in place of the reader's.
    fn here(&self, command: &str) -> String {
        let var = format!("{}/", self.sandbox.path("var").display());
        // At the root of the repository `cargo run` is the `leasehold` binary.
        let command = command.replace("cargo run --release --", "leasehold").replace("/var/", &var);
        let command = command.replace("-g operators", "-g \"$(id -g)\"");
        let command = command.replace("127.0.0.1:7420", &self.service);
        let words = command.split_inclusive([' ', '\n']).map(|word| {
            let name = word.trim_end();
            let (before, url) = name.split_at(name.find("red").unwrap_or_default());
            match self.servers.like(url) {
                Some(real) => format!("{before}{real}{}", &word[name.len()..]),
                None => word.to_owned(),
            }
        });
        words.collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _over = self.shell.kill();
        let _reaped = self.shell.wait();
    }
}

/// Started when a command names one of their kind.
#[derive(Default)]
struct Servers {
    redis: OnceCell<RedisServer>,
    sentinel: OnceCell<SentinelSet>,
    cluster: OnceCell<ClusterSet>,
    quorum: OnceCell<QuorumSet>,
    nodes: OnceCell<Vec<RedisServer>>,
}

impl Servers {
    fn redis(&self) -> &RedisServer {
        self.redis.get_or_init(|| RedisServer::start().unwrap())
    }

    /// The address of real servers of the kind that `name` names.
    fn like(&self, name: &str) -> Option<String> {
        if let Some(port) = name.strip_prefix("127.0.0.1:700") {
            return Some(self.node(port.parse().ok()?).addr().to_string());
        }
        let (scheme, hosts) = name.split_once("://")?;
        match scheme {
            "redis" => Some(self.redis().url()),
            "redis-sentinel" => {
                Some(self.sentinel.get_or_init(|| SentinelSet::builder().start().unwrap()).url())
            }
            "redis-cluster" => {
                Some(self.cluster.get_or_init(|| ClusterSet::builder().start().unwrap()).url())
            }
            "redlock" => {
                let quorum = || QuorumSet::builder(hosts.split(',').count()).arg("appendfsync", "no").start();
                Some(self.quorum.get_or_init(|| quorum().unwrap()).url())
            }
            _ => None,
        }
    }

    /// Nodes of `deploy/` that nobody has made into a cluster yet.
    fn node(&self, nth: usize) -> &RedisServer {
        let file = || fs::read_to_string(root().join("deploy/cluster/node.conf")).unwrap();
        let start = |_| RedisServer::builder().file(file()).start().unwrap();
        &self.nodes.get_or_init(|| (0..6).map(start).collect())[nth]
    }
}
