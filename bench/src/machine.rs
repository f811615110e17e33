//! Where and with what was measured.

use std::{fs, process::Command};

use leasehold_testkit::RedisServer;

use crate::{Failure, peers::Program, program};

/// Names and what they are, in the order of the report.
pub(crate) fn facts(peers: &[Program]) -> Result<Vec<(String, String)>, Failure> {
    let server = RedisServer::start()?;
    let fact = |name: &str, value: Option<String>| (name.to_owned(), value.unwrap_or("unknown".to_owned()));
    let kernel = rustix::system::uname();
    let mut facts = vec![
        fact("processor", processor()),
        fact("kernel", Some(format!("{:?} {:?}", kernel.sysname(), kernel.release()).replace('"', ""))),
        fact("server", server.info("redis_version").map(|version| format!("redis-server {version}"))),
        fact("compiler", output("rustc", &["--version"])),
        fact("leasehold", leasehold()),
    ];
    for package in ["rslock", "redis", "tokio"] {
        facts.push(fact(&format!("{package} (Rust)"), program::locked(package).map(str::to_owned)));
    }
    facts.extend(peers.iter().map(|peer| (peer.name.to_owned(), peer.version())));
    Ok(facts)
}

fn processor() -> Option<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().ok()?;
    Some(format!("{}, {cores} cores", model?.1))
}

fn leasehold() -> Option<String> {
    let commit = output("git", &["describe", "--always", "--dirty"])?;
    Some(format!("{} at {commit}", program::locked("leasehold")?))
}

/// What a command prints, if it succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
