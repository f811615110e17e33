//! `cargo xtask matrix`: the Redis suites on every server version that this machine can get.

mod servers;

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use clap::Args;
use servers::{Server, VERSIONS, Version};

use crate::failures::Failures;
use crate::tally::Tally;
use crate::{cargo, packages};

/// Names the folder that the testkit searches for servers before the path.
const SERVERS: &str = "LEASEHOLD_SERVERS";

#[derive(Args)]
pub(crate) struct Options {
    /// Run only versions and suites with this prefix, such as `valkey-9` or `cluster`; can be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List versions and suites, and which versions this machine already has
    #[arg(long)]
    list: bool,
}

/// Test binaries of the library that run together.
#[derive(Debug)]
struct Suite {
    name: &'static str,
    /// As for `cargo test --test`.
    binaries: &'static [&'static str],
    /// Tests whose name has one of these; all if there is none.
    filters: &'static [&'static str],
}

const SUITES: [Suite; 6] = [
    Suite { name: "conformance", binaries: &["conformance"], filters: &["redis", "quorum"] },
    Suite { name: "redis", binaries: &["redis*", "*_redis"], filters: &[] },
    Suite { name: "sentinel", binaries: &["sentinel*"], filters: &[] },
    Suite { name: "cluster", binaries: &["cluster*"], filters: &[] },
    Suite { name: "quorum", binaries: &["quorum"], filters: &[] },
    Suite { name: "sets", binaries: &["*_sets", "nodes_differ"], filters: &[] },
];

/// The result of one version.
struct Row {
    version: String,
    outcome: Result<Vec<Tally>, String>,
}

/// Prints the table; true if nothing failed. A version that is unavailable is listed and does not fail.
pub(crate) fn run(root: &Path, options: &Options) -> bool {
    let cache = root.join("target/servers");
    let versions = chosen(&VERSIONS, &options.only, |version| version.name);
    let suites = chosen(&SUITES, &options.only, |suite| suite.name);
    if let Some(unknown) = options.only.iter().find(|only| !is_known(only)) {
        eprintln!(
            "error: no version or suite begins with `{unknown}`; `cargo xtask matrix --list` names them"
        );
        return false;
    }
    if options.list {
        list(&versions, &suites, &cache);
        return true;
    }
    if !packages::ensure(false) {
        return false;
    }
    let rows: Vec<Row> = versions.iter().map(|version| run_version(root, version, &suites, &cache)).collect();
    println!();
    print!("{}", table(&suites, &rows));
    rows.iter().flat_map(|row| row.outcome.iter().flatten()).all(|tally| tally.failed == 0)
}

/// The versions or suites that `--only` names; all, if it names none of them.
fn chosen<'a, T>(all: &'a [T], only: &[String], name: impl Fn(&T) -> &str) -> Vec<&'a T> {
    let is_named = |one: &T| only.iter().any(|only| name(one).starts_with(only.as_str()));
    let named: Vec<_> = all.iter().filter(|one| is_named(one)).collect();
    if named.is_empty() { all.iter().collect() } else { named }
}

fn is_known(only: &str) -> bool {
    let names = VERSIONS.iter().map(|version| version.name).chain(SUITES.iter().map(|suite| suite.name));
    names.into_iter().any(|name| name.starts_with(only))
}

fn list(versions: &[&Version], suites: &[&Suite], cache: &Path) {
    for version in versions {
        let found = match version.find(cache) {
            Some(Server { number, folder: None }) => format!("{number}, installed"),
            Some(Server { number, folder: Some(_) }) => format!("{number}, unpacked before"),
            None => "to be unpacked from another Debian release".to_owned(),
        };
        println!("{:<12} {found}", version.name);
    }
    for suite in suites {
        println!("{:<12} {}", suite.name, suite.binaries.join(", "));
    }
}

fn run_version(root: &Path, version: &Version, suites: &[&Suite], cache: &Path) -> Row {
    let server = match version.fetch(cache) {
        Ok(server) => server,
        Err(why) => {
            println!("{}: skipped: {why}", version.name);
            return Row { version: version.name.to_owned(), outcome: Err(why) };
        }
    };
    let label = format!("{} ({})", version.name, server.number);
    let tallies = suites.iter().map(|suite| run_suite(root, &label, &server, suite)).collect();
    Row { version: label, outcome: Ok(tallies) }
}

fn run_suite(root: &Path, label: &str, server: &Server, suite: &Suite) -> Tally {
    println!("\n==> {label}: {}", suite.name);
    let mut test = cargo::command(root, &["test", "--workspace", "--all-features", "--no-fail-fast"]);
    test.args(suite.binaries.iter().flat_map(|binary| ["--test", binary]));
    test.arg("--").arg("--show-output").args(suite.filters).env_remove(SERVERS);
    if let Some(folder) = &server.folder {
        test.env(SERVERS, folder);
    }
    let started = Instant::now();
    let (mut tally, mut failed) = (Tally::default(), Failures::default());
    let succeeded = cargo::succeeds_reading(&mut test, |line| {
        if line.starts_with("test ") && !line.ends_with(" ok") {
            println!("{line}");
        }
        tally.read(line);
        failed.read(line);
    });
    // A crash or a compile error has no failed test.
    if !succeeded && tally.failed == 0 {
        tally.failed = 1;
    }
    failed.lines().for_each(|line| println!("{line}"));
    println!("<== {label}: {}: {tally} ({:.0}s)", suite.name, started.elapsed().as_secs_f64());
    tally
}

/// A line per version, a column per suite: how many passed, and how many did not.
fn table(suites: &[&Suite], rows: &[Row]) -> String {
    let mut text = format!("{:<20}", "");
    suites.iter().for_each(|suite| write!(text, " {:<16}", suite.name).expect("writing to a string works"));
    for Row { version, outcome } in rows {
        text = format!("{}\n{version:<20}", text.trim_end());
        match outcome {
            Ok(tallies) => tallies.iter().for_each(|tally| text += &format!(" {:<16}", cell(tally))),
            Err(why) => text += &format!(" skipped: {why}"),
        }
    }
    format!("{}\n", text.trim_end())
}

fn cell(Tally { passed, failed, .. }: &Tally) -> String {
    if *failed == 0 { format!("{passed} ok") } else { format!("{passed} ok, {failed} FAILED") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chooses_versions_and_suites_by_how_they_begin() {
        let names = |only: &[&str]| -> (Vec<_>, Vec<_>) {
            let only: Vec<_> = only.iter().map(|name| (*name).to_owned()).collect();
            let versions = chosen(&VERSIONS, &only, |version| version.name);
            let suites = chosen(&SUITES, &only, |suite| suite.name);
            (
                versions.iter().map(|version| version.name).collect(),
                suites.iter().map(|suite| suite.name).collect(),
            )
        };
        assert_eq!(names(&["valkey"]).0, ["valkey-8", "valkey-9"]);
        assert_eq!(names(&["valkey-9", "cl"]), (vec!["valkey-9"], vec!["cluster"]));
        assert_eq!(names(&[]).1.len(), SUITES.len());
        assert!(is_known("sent") && !is_known("mysql"));
    }

    #[test]
    fn the_table_has_a_line_per_version_and_says_why_one_is_missing() {
        let suites: Vec<_> = SUITES[..2].iter().collect();
        let tally = |passed, failed| Tally { passed, failed, ..Tally::default() };
        let rows = [
            Row { version: "redis-8 (8.0.2)".into(), outcome: Ok(vec![tally(6, 0), tally(9, 1)]) },
            Row { version: "valkey-9".into(), outcome: Err("no archive".into()) },
        ];
        let table = table(&suites, &rows);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["conformance", "redis"]);
        assert_eq!(lines[1], ["redis-8", "(8.0.2)", "6", "ok", "9", "ok,", "1", "FAILED"]);
        assert_eq!(lines[2], ["valkey-9", "skipped:", "no", "archive"]);
    }
}
