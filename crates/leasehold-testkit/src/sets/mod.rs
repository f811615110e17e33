//! Servers that work together, started from the files in `deploy/`.

mod cluster;
mod cluster_map;
mod cluster_start;
mod quorum;
mod sentinel;
mod sentinel_start;
mod slot;
mod slot_move;

use std::io;
use std::thread;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

pub use cluster::ClusterSet;
pub use cluster_start::ClusterSetBuilder;
pub use quorum::{QuorumSet, QuorumSetBuilder};
pub use sentinel::SentinelSet;
pub use sentinel_start::SentinelSetBuilder;

use crate::resp::Reply;
use crate::server::{RedisServer, ServerError};
use crate::server_builder::RedisServerBuilder;

/// How long a whole set may take to agree, on a busy machine.
const AGREE_WITHIN: Duration = Duration::from_secs(60);

const STREAMS_WITHIN_MS: &str = "2000";

/// A write that changes nothing: only a primary accepts it.
const HARMLESS_WRITE: [&str; 2] = ["DEL", "leasehold-testkit:none"];

/// Directives for each server of a set, as given to [`RedisServerBuilder::arg`].
type Directives = Vec<(String, String)>;

/// Starts all of them at the same time.
fn launch_all(
    builders: impl IntoIterator<Item = RedisServerBuilder>,
) -> Result<Vec<RedisServer>, ServerError> {
    thread::scope(|scope| {
        let starting: Vec<_> =
            builders.into_iter().map(|builder| scope.spawn(move || builder.start())).collect();
        starting.into_iter().map(|server| server.join().expect("starting a server does not panic")).collect()
    })
}

fn with_directives(builder: RedisServerBuilder, directives: &Directives) -> RedisServerBuilder {
    directives.iter().fold(builder, |builder, (name, value)| builder.arg(name, value))
}

/// `127.0.0.1:1,127.0.0.1:2`
fn hosts(servers: &[RedisServer]) -> String {
    servers.iter().map(|server| server.addr().to_string()).collect::<Vec<_>>().join(",")
}

/// `:password@`, or nothing.
fn login(password: Option<&str>) -> String {
    password.map(|password| format!(":{}@", encode(password))).unwrap_or_default()
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Asks a server that may be killed meanwhile; an error reply counts as none.
fn ask(server: &RedisServer, words: &[&str]) -> Option<Reply> {
    let reply = server.connect().and_then(|mut connection| connection.command(words));
    reply.ok().filter(|reply| reply.error().is_none())
}

/// Whether a write to `primary` reaches this many replicas. A replica that has loaded the data of its primary is online,
/// but gets no new writes until it has acknowledged, up to a second later. Promoted meanwhile, it would lack every write in
/// between.
fn streams_to(primary: &RedisServer, replicas: usize, key: &str) -> bool {
    let written = || -> io::Result<Reply> {
        let mut connection = primary.connect()?;
        connection.command(&["SET", key, ""])?;
        connection.command(&["DEL", key])?;
        // Counts for what this connection wrote.
        connection.command(&["WAIT", &replicas.to_string(), STREAMS_WITHIN_MS])
    };
    matches!(written(), Ok(Reply::Int(reached)) if usize::try_from(reached).is_ok_and(|reached| reached >= replicas))
}

/// Whether all these fields of `INFO` have these values.
fn has_info(server: &RedisServer, fields: &[(&str, &str)]) -> bool {
    let Some(info) = ask(server, &["INFO"]) else { return false };
    let has =
        |(name, value): &(&str, &str)| info.text().lines().any(|line| line == format!("{name}:{value}"));
    fields.iter().all(has)
}

#[track_caller]
fn with_port(servers: &[RedisServer], port: u16) -> &RedisServer {
    let found = servers.iter().find(|server| server.port() == port);
    found.unwrap_or_else(|| panic!("no server of this set has port {port}"))
}
