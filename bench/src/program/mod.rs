//! This program as a contestant of its own benchmark: leasehold, rslock and the limits, measured like any peer.
//!
//! A contestant says `ready`, answers each line `round` with one JSON object, and ends with `quit`. When its input ends, so does
//! the contestant, also in the middle of a round.

mod contend;
mod cycle;
mod handover;
mod hold;
mod keys;

use std::{io::Write, time::Duration};

use serde_json::{Value, json};
use tokio::{runtime, sync::mpsc};

use self::keys::Keys;
use crate::{
    Failure, allocated,
    library::{BareKeys, Kind, Library, OurKeys, Ours, Pings, Rslock, Scripts, TTL},
};

/// Threads of the multi-thread runtime, also where one core is all that the process may use: with one worker it would have
/// no second thread to wake.
const WORKERS: usize = 2;

/// Locks that are only held must not end before they are counted.
const HELD_FOR: Duration = Duration::from_secs(300);

/// Leasehold's readers, and its permits.
pub(crate) const SHARED: &str = "leasehold-shared";
pub(crate) const PERMITS: &str = "leasehold-permits";

/// Runs one workload until the input ends.
pub(crate) fn run(workload: &str, arguments: &[String]) -> Result<(), Failure> {
    let keys = Keys::parse(arguments)?;
    if workload == "version" {
        return say(&version(keys.text("lib")?)?);
    }
    let workload = workload.to_owned();
    let runtime = match keys.find("runtime").unwrap_or("mt") {
        "mt" => runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?,
        "ct" => runtime::Builder::new_current_thread().enable_all().build()?,
        other => return Err(format!("unknown runtime {other:?}: expected mt or ct").into()),
    };
    let orders = Orders::from_stdin();
    // On a worker, as an application's tasks are; the main thread would add a hop to everything.
    runtime.block_on(runtime.spawn(async move {
        if workload == "handover" {
            return handover::play(&keys, orders).await;
        }
        let (library, urls) = (keys.text("lib")?, keys.urls()?);
        if workload == "keep" && library != "leasehold" {
            return say(&json!({ "unsupported": "it does not renew" }));
        }
        let ttl = match workload.as_str() {
            "hold" => HELD_FOR,
            _ => keys.find("ttl_ms").map_or(Ok(TTL), |ms| ms.parse().map(Duration::from_millis))?,
        };
        if workload == "hold" {
            allocated::watch();
        }
        match library {
            "leasehold" | SHARED | PERMITS => {
                let kind = match library {
                    SHARED => Kind::Shared,
                    PERMITS => Kind::Permits(keys.number("permits")?),
                    _ => Kind::Exclusive,
                };
                let library = Ours::connect(&urls).await?.ttl(ttl).kind(kind);
                let library = if workload == "keep" { library.keep_alive() } else { library };
                play(&workload, library, &keys, orders).await
            }
            "rslock" => play(&workload, Rslock::open(&urls)?.ttl(ttl), &keys, orders).await,
            "scripts" => play(&workload, Scripts::connect(urls[0]).await?, &keys, orders).await,
            "pings" => play(&workload, Pings::connect(urls[0]).await?, &keys, orders).await,
            "idempotency" => play(&workload, OurKeys::connect(urls[0]).await?, &keys, orders).await,
            "bare-keys" => play(&workload, BareKeys::connect(urls[0]).await?, &keys, orders).await,
            other => Err(format!("unknown library {other:?}").into()),
        }
    }))?
}

async fn play<L: Library>(workload: &str, library: L, keys: &Keys, orders: Orders) -> Result<(), Failure> {
    match workload {
        "cycle" => cycle::play(library, keys, orders).await,
        "contend" => contend::play(library, keys, orders).await,
        "keep" | "hold" => hold::play(library, keys, orders).await,
        other => Err(format!("unknown workload {other:?}").into()),
    }
}

/// Lines of the benchmark.
struct Orders(mpsc::UnboundedReceiver<String>);

impl Orders {
    /// Read on a thread of its own, so that the runtime goes on between rounds.
    fn from_stdin() -> Self {
        let (lines, orders) = mpsc::unbounded_channel();
        leasehold_peers::orders(move |line| {
            // Fails only if this program is about to end.
            let _ = lines.send(line);
        });
        Self(orders)
    }

    /// `None` at the end.
    async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}

fn say_ready() -> Result<(), Failure> {
    write("ready")
}

fn say(answer: &Value) -> Result<(), Failure> {
    write(&answer.to_string())
}

fn write(line: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

/// What `version` answers; the versions are those that cargo locked.
fn version(library: &str) -> Result<Value, Failure> {
    let package = match library {
        "leasehold" | "rslock" => library,
        _ => "redis",
    };
    let version = locked(package).ok_or("not in Cargo.lock")?;
    Ok(json!({ "library": library, "version": version, "language": "rust" }))
}

pub(crate) fn locked(package: &str) -> Option<&'static str> {
    let lock = include_str!("../../../Cargo.lock");
    let entry =
        lock.split("[[package]]").find(|entry| entry.contains(&format!("\nname = \"{package}\"\n")))?;
    entry.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_lock_file() {
        assert_eq!(locked("leasehold"), Some(env!("CARGO_PKG_VERSION")));
        assert!(locked("rslock").is_some_and(|version| version.starts_with("0.")));
        assert_eq!(locked("no such package"), None);
    }
}
