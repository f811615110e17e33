//! Steps derived from the manifests, so that a new feature or a new crate is covered automatically.

use std::path::Path;

use toml::{Table, Value};

use crate::cargo;

/// A feature that compiles only together with another is a feature that users cannot choose. Builds that lack one are
/// also where the error that names it can be tested.
pub(crate) fn features(root: &Path) -> bool {
    let mut builds = Vec::new();
    for package in ["leasehold", "leasehold-cli"] {
        let features = feature_names(&read(&root.join("crates").join(package).join("Cargo.toml")));
        builds.extend(features.into_iter().chain([String::new()]).map(|feature| (package, feature)));
    }
    // No early return: one run names every feature that is broken.
    let mut all = true;
    for (package, feature) in &builds {
        let mut clippy =
            cargo::command(root, &["clippy", "-p", package, "--no-default-features", "--features"]);
        all &= cargo::succeeds(clippy.args([feature, "--", "-D", "warnings"]));
    }
    let mut test = cargo::command(root, &["test", "-p", "leasehold", "--no-default-features"]);
    all & cargo::succeeds(test.args(["--lib", "connect"]))
}

/// Packages all published crates together, so that those not on crates.io yet find each other.
///
/// Offline, because the steps before have brought everything here. Unverified, because they have compiled it.
pub(crate) fn package(root: &Path) -> bool {
    let mut package = cargo::command(root, &["package", "--allow-dirty", "--no-verify", "--offline"]);
    for (_, name) in published(root) {
        package.args(["-p", &name]);
    }
    let packaged = cargo::succeeds(&mut package);
    if !packaged {
        eprintln!(
            "hint: is a crate of this workspace `not found`? A dev-dependency on it that closes a circle"
        );
        eprintln!("      must be a path without a version, which cargo leaves out of the package");
    }
    packaged
}

pub(crate) fn feature_names(manifest: &Table) -> Vec<String> {
    let features = manifest.get("features").and_then(Value::as_table);
    features.into_iter().flat_map(Table::keys).filter(|name| *name != "default").cloned().collect()
}

/// The crates that get published: folder and name.
pub(crate) fn published(root: &Path) -> Vec<(String, String)> {
    let members = members(&read(&root.join("Cargo.toml"))).into_iter();
    let name = |member: &String| published_name(&read(&root.join(member).join("Cargo.toml")));
    members.filter_map(|member| name(&member).map(|name| (member, name))).collect()
}

pub(crate) fn members(workspace: &Table) -> Vec<String> {
    let members = workspace.get("workspace").and_then(|workspace| workspace.get("members"));
    let members = members.and_then(Value::as_array).into_iter().flatten();
    members.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn published_name(manifest: &Table) -> Option<String> {
    let package = manifest.get("package")?;
    let published = package.get("publish").and_then(Value::as_bool).unwrap_or(true);
    published.then(|| package.get("name")?.as_str().map(str::to_owned)).flatten()
}

pub(crate) fn read(path: &Path) -> Table {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(text: &str) -> Table {
        text.parse().expect("valid TOML")
    }

    #[test]
    fn every_feature_counts_but_default() {
        let manifest = manifest("[features]\ndefault = ['redis']\nredis = []\ntls = ['redis']");
        assert_eq!(feature_names(&manifest), ["redis", "tls"]);
        assert!(feature_names(&Table::new()).is_empty());
    }

    #[test]
    fn crates_are_published_unless_they_say_no() {
        let members = members(&manifest("[workspace]\nmembers = ['a', 'b']"));
        assert_eq!(members, ["a", "b"]);
        assert_eq!(published_name(&manifest("[package]\nname = 'a'")).as_deref(), Some("a"));
        assert_eq!(published_name(&manifest("[package]\nname = 'b'\npublish = false")), None);
    }
}
