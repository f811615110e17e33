//! The step `deny`: licences, bans and sources of all dependencies, by the rules in deny.toml.
//!
//! cargo-deny takes longer to build than all else here together. So this reads its file and applies those rules to
//! what manifests declare; hosted CI runs cargo-deny itself, which also compares the texts of licences.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use toml::Table;

use crate::cargo;
use crate::tally::Tally;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The rules that this applies. Another one in the file would have no effect, so it fails.
const KNOWN: [&str; 12] = [
    "graph.all-features",
    "graph.targets",
    "advisories.yanked",
    "advisories.unmaintained",
    "licenses.allow",
    "licenses.confidence-threshold",
    "bans.multiple-versions",
    "bans.wildcards",
    "bans.allow-wildcard-paths",
    "bans.deny",
    "sources.unknown-registry",
    "sources.unknown-git",
];

/// Prints every violation; true if there is none. Advisories need cargo-deny and its database, or are skipped.
pub(crate) fn check(root: &Path, tally: &mut Tally) -> bool {
    let rules = std::fs::read_to_string(root.join("deny.toml")).expect("deny.toml is in the repository");
    let rules: Table = rules.parse().expect("deny.toml is TOML");
    let Some(metadata) = metadata(root, &rules) else { return false };
    let found = violations(&rules, &metadata);
    found.iter().for_each(|violation| println!("{violation}"));
    for (name, versions) in duplicates(&metadata) {
        println!("warning: {name} is there {} times: {}", versions.len(), versions.join(", "));
    }
    found.is_empty() & advisories(root, tally)
}

fn advisories(root: &Path, tally: &mut Tally) -> bool {
    let mut version = Command::new("cargo-deny");
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let database = std::env::home_dir().unwrap_or_default().join(".cargo/advisory-dbs");
    if !database.exists() || !version.status().is_ok_and(|status| status.success()) {
        tally.skips.add(1, "known vulnerabilities: needs `cargo install cargo-deny && cargo deny fetch`");
        return true;
    }
    cargo::succeeds(&mut cargo::command(root, &["deny", "--offline", "check", "advisories"]))
}

/// All packages that are built on any of the targets, as cargo describes them.
fn metadata(root: &Path, rules: &Table) -> Option<Value> {
    let mut metadata =
        cargo::command(root, &["metadata", "--format-version=1", "--all-features", "--locked"]);
    metadata.args(strings(rules, "graph", "targets").flat_map(|target| ["--filter-platform", target]));
    let output = metadata.stderr(Stdio::inherit()).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

fn violations(rules: &Table, metadata: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (section, keys) in rules {
        let keys = keys.as_table().into_iter().flat_map(Table::keys).map(|key| format!("{section}.{key}"));
        let unknown = keys.filter(|key| !KNOWN.contains(&key.as_str()));
        found.extend(unknown.map(|key| format!("deny.toml: {key} has no effect in xtask/src/deny.rs")));
    }
    let allowed: Vec<_> = strings(rules, "licenses", "allow").collect();
    let banned = rules.get("bans").and_then(|bans| bans.get("deny")?.as_array());
    let banned: Vec<_> = banned.into_iter().flatten().filter_map(|ban| ban.get("crate")?.as_str()).collect();
    for package in list(metadata, "packages") {
        let [name, version, license] =
            ["name", "version", "license"].map(|key| package[key].as_str().unwrap_or_default());
        let mut add = |why: &str| found.push(format!("{name} {version}: {why}"));
        if !is_allowed(license, &allowed) {
            add(&format!("its license {license:?} is not allowed"));
        }
        if banned.contains(&name) {
            add("banned");
        }
        if package["source"].as_str().is_some_and(|source| source != CRATES_IO) {
            add(&format!("from {}, not from crates.io", package["source"]));
        }
        // A path without a version is meant: it is left out of a package.
        let wildcards = list(package, "dependencies").filter(|on| on["req"] == "*" && on["path"].is_null());
        if package["source"].is_null() {
            wildcards.for_each(|on| add(&format!("accepts any version of {}", on["name"])));
        }
    }
    found
}

fn duplicates(metadata: &Value) -> BTreeMap<&str, Vec<&str>> {
    let mut versions = BTreeMap::<&str, Vec<&str>>::new();
    for package in list(metadata, "packages") {
        let [name, version] = ["name", "version"].map(|key| package[key].as_str().unwrap_or_default());
        versions.entry(name).or_default().push(version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
}

/// Whether a choice in this SPDX expression needs nothing but what is allowed.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    // `/` is how old manifests write OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    any_of(&mut rest, allowed) && rest.is_empty()
}

fn any_of(rest: &mut &[&str], allowed: &[&str]) -> bool {
    let mut is_allowed = all_of(rest, allowed);
    while take(rest, "OR") {
        is_allowed |= all_of(rest, allowed);
    }
    is_allowed
}

fn all_of(rest: &mut &[&str], allowed: &[&str]) -> bool {
    let mut is_allowed = one(rest, allowed);
    while take(rest, "AND") {
        is_allowed &= one(rest, allowed);
    }
    is_allowed
}

fn one(rest: &mut &[&str], allowed: &[&str]) -> bool {
    if take(rest, "(") {
        let inner = any_of(rest, allowed);
        return take(rest, ")") && inner;
    }
    let Some((license, after)) = rest.split_first() else { return false };
    *rest = after;
    match take(rest, "WITH").then(|| rest.split_off_first()) {
        None => allowed.contains(license),
        Some(exception) => {
            exception.is_some_and(|with| allowed.contains(&format!("{license} WITH {with}").as_str()))
        }
    }
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    rest.split_first().filter(|(first, _)| **first == word).map(|(_, after)| *rest = after).is_some()
}

fn strings<'a>(rules: &'a Table, section: &str, key: &str) -> impl Iterator<Item = &'a str> {
    let values = rules.get(section).and_then(|section| section.get(key)?.as_array());
    values.into_iter().flatten().filter_map(toml::Value::as_str)
}

fn list<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    of[key].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_allowed_if_one_of_its_choices_is() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"];
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "(GPL-3.0 OR MIT) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT",
            "MIT Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "Unicode-3.0 AND (GPL-3.0 OR ISC)",
        ] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception", &["Apache-2.0 WITH LLVM-exception"]));
    }

    #[test]
    fn every_violation_is_named() {
        let rules =
            "[licenses]\nallow = ['MIT']\nexceptions = []\n[bans]\ndeny = [{ crate = 'openssl-sys' }]";
        let package = |name: &str, license: &str, source: Option<&str>| {
            let on = serde_json::json!([{"name": "any", "req": "*"}, {"name": "near", "req": "*", "path": "/near"}]);
            serde_json::json!({"name": name, "version": "1.0.0", "license": license, "source": source, "dependencies": on})
        };
        let packages = [
            package("ours", "MIT", None),
            package("openssl-sys", "MIT", Some(CRATES_IO)),
            package("copyleft", "GPL-3.0", Some(CRATES_IO)),
            package("forked", "MIT", Some("git+https://example.com/forked")),
        ];
        assert_eq!(
            violations(&rules.parse().unwrap(), &serde_json::json!({ "packages": packages })),
            [
                "deny.toml: licenses.exceptions has no effect in xtask/src/deny.rs",
                "ours 1.0.0: accepts any version of \"any\"",
                "openssl-sys 1.0.0: banned",
                "copyleft 1.0.0: its license \"GPL-3.0\" is not allowed",
                "forked 1.0.0: from \"git+https://example.com/forked\", not from crates.io",
            ]
        );
    }

    #[test]
    fn versions_of_the_same_crate_are_found() {
        let packages = [("syn", "1.0.0"), ("syn", "2.0.0"), ("quote", "1.0.0")]
            .map(|(name, version)| serde_json::json!({"name": name, "version": version}));
        let metadata = serde_json::json!({ "packages": packages });
        assert_eq!(duplicates(&metadata), BTreeMap::from([("syn", vec!["1.0.0", "2.0.0"])]));
    }
}
