//! Leasehold as one process of the last part: it counts as the programs of the other libraries do.

use std::{
    fs,
    io::{Write, stdout},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use leasehold::{
    Format,
    blocking::{Leasehold, Lock},
};
use rand::RngExt;

use crate::Failure;

/// What it calls itself in the counter's file.
const NAME: &str = "leasehold";

#[derive(Args)]
pub(crate) struct Options {
    url: String,
    /// As Redisson has its locks
    #[arg(long)]
    redisson: bool,
}

/// Answers `count NAME TTL_MS TIMES FILE`, line by line.
pub(crate) fn serve(options: &Options) -> Result<(), Failure> {
    let (lines, orders) = mpsc::channel();
    leasehold_peers::orders(move |line| {
        // Fails only if this program is about to end.
        let _ = lines.send(line);
    });
    let leases = Leasehold::connect(&options.url)?;
    let format = if options.redisson { Format::Redisson } else { Format::Plain };
    say("ready")?;
    for line in orders {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["count", name, ttl_ms, times, file] => {
                let ttl = Duration::from_millis(ttl_ms.parse()?);
                let lock = leases.lock(name).format(format).ttl(ttl).without_keep_alive().wait_forever();
                say(&count(&lock, times.parse()?, file)?)?;
            }
            _ => return Err(format!("unknown order {line:?}").into()),
        }
    }
    Ok(leases.close()?)
}

fn say(line: &str) -> std::io::Result<()> {
    writeln!(stdout(), "{line}")?;
    stdout().flush()
}

fn count(lock: &Lock, times: u32, file: &str) -> Result<String, Failure> {
    let (mut changes, mut longest) = (0, Duration::ZERO);
    for done in 0..times {
        let begin = Instant::now();
        let guard = lock.clone().acquire()?;
        longest = longest.max(begin.elapsed());
        let text = fs::read_to_string(file)?;
        let (number, last) = text.trim_end().split_once(' ').ok_or("the counter is not there")?;
        thread::sleep(Duration::from_millis(1));
        if !guard.is_held() {
            return Ok(format!("stopped {done} its lease had run out before it wrote"));
        }
        fs::write(file, format!("{} {NAME}", number.parse::<u32>()? + 1))?;
        changes += u32::from(last != NAME);
        let released = guard.release()?;
        if !released.was_held() {
            return Ok(format!("stopped {} its release found {released:?}", done + 1));
        }
        thread::sleep(Duration::from_micros(rand::rng().random_range(0..4_000)));
    }
    Ok(format!("counted {times} changes={changes} longest_ms={}", longest.as_millis()))
}
