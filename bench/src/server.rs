//! What a server reports about itself.

use leasehold_testkit::RedisServer;

use crate::Failure;

/// Commands so far, those that scripts call included, without the one that asks.
pub(crate) fn commands(server: &RedisServer) -> u64 {
    calls(server, |command| command != "info")
}

/// Calls of scripts so far.
pub(crate) fn script_calls(server: &RedisServer) -> u64 {
    calls(server, |command| command == "evalsha" || command == "eval")
}

fn calls(server: &RedisServer, counts: impl Fn(&str) -> bool) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = |line: &str| {
        let (command, numbers) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let calls = numbers.strip_prefix("calls=")?.split(',').next()?;
        counts(command).then(|| calls.parse::<u64>().ok())?
    };
    stats.text().lines().filter_map(calls).sum()
}

/// The time that scripts have taken so far, in microseconds.
pub(crate) fn script_us(server: &RedisServer) -> f64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let us = |line: &str| {
        let numbers = line.strip_prefix("cmdstat_evalsha:").or_else(|| line.strip_prefix("cmdstat_eval:"))?;
        numbers.split(',').find_map(|number| number.strip_prefix("usec=")?.parse::<f64>().ok())
    };
    stats.text().lines().filter_map(us).sum()
}

/// Bytes in use, without the buffers of connections.
pub(crate) fn memory(server: &RedisServer) -> Result<f64, Failure> {
    Ok(number(server, "used_memory")? - number(server, "mem_clients_normal")?)
}

pub(crate) fn number(server: &RedisServer, field: &str) -> Result<f64, Failure> {
    Ok(server.info(field).ok_or_else(|| format!("INFO has no {field}"))?.parse()?)
}
