//! What a server reports about itself.

use leasehold_testkit::{RedisServer, resp::Reply};

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

/// The longer calls of scripts from here on, one by one, by the server's own clock.
pub(crate) struct ScriptLog<'a>(&'a RedisServer);

/// One call.
pub(crate) struct ScriptCall {
    pub(crate) script: String,
    pub(crate) us: f64,
}

impl<'a> ScriptLog<'a> {
    /// Shorter calls are left out, and so is what a script calls: to log all of it would take longer than the script.
    const LEAST_US: &'static str = "20";
    const LENGTH: &'static str = "1000";

    pub(crate) fn begin(server: &'a RedisServer) -> Self {
        server.cli(&[
            "CONFIG",
            "SET",
            "slowlog-log-slower-than",
            Self::LEAST_US,
            "slowlog-max-len",
            Self::LENGTH,
        ]);
        server.cli(&["SLOWLOG", "RESET"]);
        Self(server)
    }

    pub(crate) fn end(self) -> Vec<ScriptCall> {
        self.0.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
        let log = self.0.cli(&["SLOWLOG", "GET", Self::LENGTH]);
        // An entry is its number, when it was, how long it took, its words, and whose it was.
        let calls = log.list().iter().filter_map(|entry| match entry.list() {
            [_, _, us, words, ..] => match words.list() {
                [command, script, ..] if command.text().eq_ignore_ascii_case("evalsha") => {
                    Some(ScriptCall { script: script.text().to_owned(), us: us.int() as f64 })
                }
                _ => None,
            },
            _ => None,
        });
        calls.collect()
    }
}

/// Bytes in use, without the buffers of connections.
pub(crate) fn memory(server: &RedisServer) -> Result<f64, Failure> {
    Ok(number(server, "used_memory")? - number(server, "mem_clients_normal")?)
}

/// The bytes of the keys that match the pattern, whatever else the server allocates meanwhile.
pub(crate) fn memory_of(server: &RedisServer, pattern: &str) -> i64 {
    let keys = server.cli(&["KEYS", pattern]);
    let usage = |key: &Reply| server.cli(&["MEMORY", "USAGE", key.text(), "SAMPLES", "0"]).int();
    keys.list().iter().map(usage).sum()
}

pub(crate) fn number(server: &RedisServer, field: &str) -> Result<f64, Failure> {
    Ok(server.info(field).ok_or_else(|| format!("INFO has no {field}"))?.parse()?)
}
