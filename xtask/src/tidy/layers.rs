//! Which modules of the library may depend on which, checked by searching the source.

use super::{Tree, Violation, has_word, numbered};
use crate::manifests;

const SOURCE: &str = "crates/leasehold/src/";

/// `engine/connect.rs` and `engine/mod.rs` choose an engine; `fence.rs` offers the fence to users of the client.
const MAY_NAME_REDIS: [&str; 3] = ["engine/connect.rs", "engine/mod.rs", "fence.rs"];

pub(super) fn redis_stays_in_its_engine(tree: &Tree) -> Vec<Violation> {
    let outside = library(tree).filter(|(file, _)| engine_of(file) != Some("redis"));
    flag(outside.filter(|(file, _)| !MAY_NAME_REDIS.contains(file)), |_, line| {
        (starts_path(line, "redis::") || has_word(line, "EVALSHA"))
            .then(|| "only `engine/redis` speaks to Redis".to_owned())
    })
}

pub(super) fn sqlite_stays_in_its_engine(tree: &Tree) -> Vec<Violation> {
    flag(library(tree).filter(|(file, _)| engine_of(file) != Some("sqlite")), |_, line| {
        has_word(line, "rusqlite").then(|| "only `engine/sqlite` speaks to SQLite".to_owned())
    })
}

pub(super) fn engines_do_not_know_each_other(tree: &Tree) -> Vec<Violation> {
    let engines = engines(tree);
    flag(library(tree), |file, line| {
        let own = engine_of(file).filter(|own| engines.contains(own))?;
        let others = engines.iter().filter(|other| **other != own);
        let mut named = others.filter(|other| {
            has_word(line, &format!("engine::{other}")) || has_word(line, &format!("super::{other}"))
        });
        named.next().map(|other| format!("`engine/{own}` must not depend on `engine/{other}`"))
    })
}

/// A module of `engine` is an engine when a feature of the same name turns it on; the others are shared.
fn engines(tree: &Tree) -> Vec<&str> {
    let manifest = tree.files.get("crates/leasehold/Cargo.toml").and_then(|text| text.parse().ok());
    let features = manifest.as_ref().map(manifests::feature_names).unwrap_or_default();
    let mut engines: Vec<_> = library(tree).filter_map(|(file, _)| engine_of(file)).collect();
    engines.dedup();
    engines.retain(|engine| features.iter().any(|feature| feature == engine));
    engines
}

/// Rust files of the library, by path inside its source folder.
fn library(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.with_extension(&["rs"]).filter_map(|(path, text)| Some((path.strip_prefix(SOURCE)?, text)))
}

/// `engine/<name>.rs` and all of `engine/<name>/` belong to the module `engine::<name>`.
fn engine_of(file: &str) -> Option<&str> {
    let name = file.strip_prefix("engine/")?.split('/').next()?;
    Some(name.strip_suffix(".rs").unwrap_or(name))
}

/// Whether `path` begins a path in `line`: `redis::Client`, not `engine::redis::Engine`.
fn starts_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].strip_suffix("::").unwrap_or(&line[..at]);
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
    })
}

fn flag<'a>(
    files: impl Iterator<Item = (&'a str, &'a str)>,
    why: impl Fn(&str, &str) -> Option<String>,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, text) in files {
        for (number, line) in numbered(text) {
            let found = why(file, line);
            violations
                .extend(found.map(|why| Violation::new(&format!("{SOURCE}{file}"), number, "layers", why)));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::tests::flagged;
    use super::*;

    #[test]
    fn redis_outside_its_engine_is_flagged() {
        for line in ["use redis::Client;", "use ::redis::Client;", "call(redis::cmd(\"GET\"))", "// EVALSHA"]
        {
            let place = ["crates/leasehold/src/lock.rs:1"];
            assert_eq!(flagged(redis_stays_in_its_engine, [("crates/leasehold/src/lock.rs", line)]), place);
        }
    }

    #[test]
    fn redis_is_known_where_it_may_be() {
        for file in
            ["engine/redis/script.rs", "engine/redis.rs", "engine/connect.rs", "engine/mod.rs", "fence.rs"]
        {
            let path = format!("{SOURCE}{file}");
            assert!(flagged(redis_stays_in_its_engine, [(&path, "use redis::Client;")]).is_empty(), "{file}");
        }
        let reexport = [("crates/leasehold/src/lib.rs", "pub use engine::redis::Redis;")];
        assert!(flagged(redis_stays_in_its_engine, reexport).is_empty());
        assert!(flagged(redis_stays_in_its_engine, [("bench/src/main.rs", "use redis::Client;")]).is_empty());
    }

    #[test]
    fn sqlite_outside_its_engine_is_flagged() {
        let line = "use rusqlite::Connection;";
        let place = ["crates/leasehold/src/error.rs:1"];
        assert_eq!(flagged(sqlite_stays_in_its_engine, [("crates/leasehold/src/error.rs", line)]), place);
        assert!(
            flagged(sqlite_stays_in_its_engine, [("crates/leasehold/src/engine/sqlite/file.rs", line)])
                .is_empty()
        );
    }

    #[test]
    fn an_engine_that_names_another_is_flagged() {
        let manifest = ("crates/leasehold/Cargo.toml", "[features]\nmemory = []\nredis = []");
        let redis =
            ("crates/leasehold/src/engine/redis/mod.rs", "use super::wait::Wait;\nuse super::redis::Script;");
        let memory = "crates/leasehold/src/engine/memory/mod.rs";
        let wait = ("crates/leasehold/src/engine/wait/mod.rs", "use crate::engine::redis::Redis;");
        for line in
            ["use crate::engine::redis::Redis;", "use super::redis::Redis;", "use super::super::redis;"]
        {
            let files = [manifest, redis, (memory, line), wait];
            assert_eq!(flagged(engines_do_not_know_each_other, files), [format!("{memory}:1")], "{line}");
        }
    }
}
