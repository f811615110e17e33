//! `cargo xtask test --quick`: what runs in it. Everything else is left out, and the end of the run says so.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::binaries::Binary;
use crate::cargo;

/// Integration tests of a quick run, and the tests in them that run: those with one of these texts in their name, or all.
/// Unit tests always run.
const BINARIES: &[(&str, &[&str])] = &[
    ("leasehold/conformance", &["memory_conforms", "sqlite_conforms", "redis_conforms"]),
    ("leasehold/examples", &[]),
    ("leasehold-cli/cli", &["run::", "usage::"]),
    ("xtask/command_line", &[]),
];

/// The arguments of cargo that build what a quick run needs.
pub(crate) fn build_args() -> Vec<&'static str> {
    let mut args = vec!["test", "--workspace", "--all-features", "--lib", "--bins", "--examples"];
    for (name, _) in BINARIES {
        args.extend(["--test", name.split_once('/').map_or(*name, |(_, target)| target)]);
    }
    args
}

/// What of the binaries that were built runs, with the tests in it that run.
pub(crate) fn choose(binaries: Vec<Binary>) -> Vec<Binary> {
    let chosen = binaries.into_iter().filter_map(|binary| {
        if !binary.is_integration_test {
            return Some(binary);
        }
        let (_, filters) = BINARIES.iter().find(|(name, _)| *name == binary.name)?;
        Some(binary.with_filters(filters))
    });
    chosen.collect()
}

/// For the end of the run.
pub(crate) fn left_out(root: &Path, steps: &[String]) -> String {
    let tests = integration_tests(root);
    let others = tests.iter().filter(|test| BINARIES.iter().all(|(name, _)| name != test)).count();
    let parts = BINARIES.iter().filter(|(_, filters)| !filters.is_empty());
    let parts = parts.map(|(name, _)| *name).collect::<Vec<_>>().join(" and ");
    format!(
        "left out: {}; of the tests, {others} of {} integration tests, and most of {parts}\n\
         all of it: cargo xtask test",
        steps.join(", "),
        tests.len()
    )
}

/// Every integration test of the workspace, as `PACKAGE/TARGET`.
fn integration_tests(root: &Path) -> Vec<String> {
    let mut metadata = cargo::command(root, &["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let output = metadata.stderr(Stdio::null()).output().map(|output| output.stdout).unwrap_or_default();
    let metadata: Value = serde_json::from_slice(&output).unwrap_or_default();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .flat_map(|package| {
            let folder = Path::new(package["manifest_path"].as_str().unwrap_or_default()).parent();
            let folder = folder.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
            let targets = package["targets"].as_array().into_iter().flatten();
            let tests = targets.filter(|target| target["kind"][0] == "test");
            tests.filter_map(move |test| Some(format!("{}/{}", folder.as_ref()?, test["name"].as_str()?)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
    }

    /// The text of an integration test's own file.
    fn source(name: &str) -> String {
        let (package, target) = name.split_once('/').expect("PACKAGE/TARGET");
        let folders = ["crates", "."].map(|folder| root().join(folder).join(package).join("tests"));
        let files = folders
            .iter()
            .flat_map(|folder| [folder.join(format!("{target}.rs")), folder.join(target).join("main.rs")]);
        files.filter_map(|file| std::fs::read_to_string(file).ok()).next().unwrap_or_default()
    }

    #[test]
    fn what_a_quick_run_names_exists() {
        let tests = integration_tests(root());
        assert!(tests.len() > 50, "{tests:?}");
        for (name, filters) in BINARIES {
            assert!(tests.iter().any(|test| test == name), "{name} is gone");
            for filter in *filters {
                let found = match filter.strip_suffix("::") {
                    Some(module) => source(name).contains(&format!("\nmod {module};\n")),
                    None => source(name).contains(&format!("fn {filter}()")),
                };
                assert!(found, "{name} has no {filter}");
            }
        }
    }

    #[test]
    fn what_takes_long_exists() {
        let tests = integration_tests(root());
        for (name, _) in crate::durations::LONG {
            assert!(tests.iter().any(|test| test == name), "{name} is gone");
        }
    }

    #[test]
    fn unit_tests_and_what_is_named_is_chosen() {
        let named = |name| {
            let mut binary = Binary::named(name);
            binary.is_integration_test = true;
            binary
        };
        let binaries = vec![
            Binary::named("leasehold-core/leasehold_core"),
            named("leasehold/conformance"),
            named("leasehold/torture"),
        ];
        let names: Vec<_> = choose(binaries).into_iter().map(|binary| binary.name).collect();
        assert_eq!(names, ["leasehold-core/leasehold_core", "leasehold/conformance (in part)"]);
    }

    #[test]
    fn the_end_says_what_was_left_out() {
        let text = left_out(root(), &["clippy".into(), "api".into()]);
        assert!(text.starts_with("left out: clippy, api; of the tests, "), "{text}");
        assert!(text.contains("most of leasehold/conformance and leasehold-cli/cli\n"), "{text}");
    }
}
