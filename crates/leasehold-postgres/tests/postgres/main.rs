//! The engine on real servers: the functions against the decider of the core, checks within transactions, migrations, and what
//! happens when connections, servers and callers go away.

mod checks;
mod doctor;
mod documented;
mod faults;
#[path = "../../../leasehold/tests/latch_walk/mod.rs"]
mod latch_walk;
mod latches;
mod migration;
mod mutants;
mod names;
mod servers;
mod sessions;
mod statements;
mod walk;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use leasehold::{
    Clock, Fence, Leasehold, Name,
    engine::{Acks, Answer, Claim, Engine, Format, Grant, Mode, Queue, postgres::script},
    owner::{Holder, Owner},
};
use leasehold_testkit::PostgresServer;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(300);

/// One server for all tests that do not end it.
fn server() -> Option<&'static PostgresServer> {
    static SERVER: OnceLock<Option<PostgresServer>> = OnceLock::new();
    let start = || {
        let server = PostgresServer::start_or_skip()?;
        server.install(&script());
        Some(server)
    };
    SERVER.get_or_init(start).as_ref()
}

/// A database of its own, and its server.
fn database() -> Option<(&'static PostgresServer, String)> {
    let server = server()?;
    Some((server, server.database()))
}

fn engine(url: &str) -> Arc<dyn Engine> {
    let builder = Leasehold::builder(url).command_timeout(Duration::from_secs(20));
    builder.into_engine().unwrap()
}

/// The end of a call that nothing holds up.
fn soon() -> leasehold::clock::Until {
    Clock::system().now() + Duration::from_secs(30)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A claim that asks once.
fn claim(random: u128, lock: &str, mode: Mode, ttl: Duration) -> Claim {
    let label = format!("a{random}");
    Claim {
        name: name(lock),
        owner: Owner::new(random, &Holder::this_process(&label, 5_000)),
        mode,
        format: Format::Plain,
        ttl,
        lock_delay: Duration::ZERO,
        queue: None,
        acks: Acks::None,
    }
}

fn waits(claim: Claim) -> Claim {
    Claim { queue: Some(Queue { wait: LONG, poll_every: Duration::from_secs(60) }), ..claim }
}

async fn granted(engine: &Arc<dyn Engine>, claim: &Claim) -> Grant {
    match engine.leases().claim(claim, soon()).await.unwrap() {
        Answer::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

async fn is_granted(engine: &Arc<dyn Engine>, claim: &Claim) -> bool {
    matches!(engine.leases().claim(claim, soon()).await.unwrap(), Answer::Granted(_))
}

/// A session of an application, beside the engine's own.
async fn session(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// SQLSTATE of a failed statement.
fn state<T: std::fmt::Debug>(answer: Result<T, tokio_postgres::Error>) -> String {
    answer.unwrap_err().code().expect("the server answered").code().to_owned()
}

async fn assert_held(
    session: &tokio_postgres::Client,
    lock: &str,
    fence: Fence,
) -> Result<(), tokio_postgres::Error> {
    session.query("SELECT leasehold.assert_held($1, $2)", &[&lock, &fence.as_i64()]).await.map(drop)
}
