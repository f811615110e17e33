//! Names of folders and modules, their places on the code map, and the required entries of every manifest.

use toml::{Table, Value};

use super::{Tree, Violation, extension, numbered};

/// A vague name attracts unrelated code.
const VAGUE: [&str; 4] = ["utils", "common", "helpers", "manager"];

pub(super) fn no_vague_names(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.iter() {
        let mut flag = |line, name| {
            let why = format!("`{name}` is vague; name it after its subject");
            violations.push(Violation::new(path, line, "name", why));
        };
        vague_in_path(path).into_iter().for_each(|name| flag(1, name));
        if extension(path) == "rs" {
            let modules =
                numbered(text).filter_map(|(number, line)| Some((number, vague(inline_module(line)?)?)));
            modules.for_each(|(number, name)| flag(number, name));
        }
    }
    violations
}

const MAP: &str = "ARCHITECTURE.md";
/// Crates whose modules are all on the map.
const MAPPED: [&str; 8] = [
    "leasehold",
    "leasehold-core",
    "leasehold-etcd",
    "leasehold-postgres",
    "leasehold-quorum",
    "leasehold-redis",
    "leasehold-server",
    "leasehold-sqlite",
];

/// A stranger finds the place of a question on the map, so every module of the library is named there.
pub(super) fn modules_are_on_the_map(tree: &Tree) -> Vec<Violation> {
    let Some((_, text)) = tree.iter().find(|(path, _)| *path == MAP) else { return Vec::new() };
    let map = text.split("\n## ").find(|section| section.starts_with("Code map")).unwrap_or_default();
    let words: Vec<_> = map.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let missing =
        tree.iter().filter(|(path, _)| module_on_the_map(path).is_some_and(|name| !words.contains(&name)));
    missing
        .map(|(path, _)| Violation::new(path, 1, "map", format!("the code map of {MAP} does not name it")))
        .collect()
}

/// The name by which the map has a module; `None` for tests and for what is no module of the library.
fn module_on_the_map(path: &str) -> Option<&str> {
    let (package, module) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let module = module.strip_suffix(".rs")?;
    let name = module.strip_suffix("/mod").unwrap_or(module).rsplit('/').next()?;
    let is_test = module.split('/').any(|part| part == "tests");
    (MAPPED.contains(&package) && !is_test && name != "lib").then_some(name)
}

/// What package managers and compilers of other languages fetch and write.
const FETCHED: [&str; 9] = ["class", "crate", "deb", "gz", "jar", "pyc", "tgz", "whl", "zip"];

/// Whatever is fetched stays under `target/`.
pub(super) fn no_fetched_packages(tree: &Tree) -> Vec<Violation> {
    let fetched = tree.with_extension(&FETCHED);
    let why = "a fetched package; whatever fetched it must run in a folder under `target/`";
    fetched.map(|(path, _)| Violation::new(path, 1, "fetched", why)).collect()
}

fn vague_in_path(path: &str) -> Option<&'static str> {
    let module = path.strip_suffix(".rs").unwrap_or(path);
    let is_rust = module.len() < path.len();
    let (folders, file) = module.rsplit_once('/').unwrap_or(("", module));
    folders.split('/').chain(is_rust.then_some(file)).find_map(vague)
}

fn vague(name: &str) -> Option<&'static str> {
    VAGUE.into_iter().find(|vague| *vague == name)
}

/// The name in `mod name {`; a module without a body is checked by its file name.
fn inline_module(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("mod ")?;
    let is_item = before.trim().is_empty() || before.trim_start().starts_with("pub");
    let name = after.trim_end().strip_suffix('{')?.trim();
    is_item.then_some(name)
}

pub(super) fn lints_are_shared(tree: &Tree) -> Vec<Violation> {
    let manifests = tree.iter().filter(|(path, _)| *path == "Cargo.toml" || path.ends_with("/Cargo.toml"));
    let unclear = manifests.filter(|(_, text)| match text.parse::<Table>() {
        Ok(manifest) => manifest.contains_key("package") && !shares_lints(&manifest),
        Err(_) => true,
    });
    let why = "every crate has `[lints] workspace = true`";
    unclear.map(|(path, _)| Violation::new(path, 1, "lints", why)).collect()
}

fn shares_lints(manifest: &Table) -> bool {
    let workspace = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    workspace.and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::super::tests::flagged;
    use super::*;

    #[test]
    fn vague_folders_and_modules_are_flagged() {
        for path in
            ["src/utils/clock.rs", "src/utils.rs", "tests/common/mod.rs", "helpers/x.lua", "a/manager.rs"]
        {
            assert_eq!(flagged(no_vague_names, [(path, "")]), [format!("{path}:1")]);
        }
        for line in ["mod utils {", "    pub(crate) mod helpers {"] {
            assert_eq!(flagged(no_vague_names, [("src/lib.rs", &format!("\n{line}"))]), ["src/lib.rs:2"]);
        }
    }

    #[test]
    fn a_vague_word_inside_a_name_is_fine() {
        let files = [
            ("src/common_case.rs", "// the mod utils {"),
            ("docs/common.md", ""),
            ("src/lib.rs", "mod lock;"),
        ];
        assert!(flagged(no_vague_names, files).is_empty());
    }

    #[test]
    fn a_module_that_the_map_does_not_name_is_flagged() {
        let map = (
            "ARCHITECTURE.md",
            "# A\n\n## Code map\n\n  lock/ guard.rs  the guard\n\n## Later\n\nnames reaper\n",
        );
        let files = |path| [map, (path, "")];
        for path in ["crates/leasehold-core/src/reaper.rs", "crates/leasehold/src/lease/mod.rs"] {
            assert_eq!(flagged(modules_are_on_the_map, files(path)), [format!("{path}:1")]);
        }
        for path in [
            "crates/leasehold-core/src/lock/mod.rs",
            "crates/leasehold-core/src/guard.rs",
            "crates/leasehold-core/src/lib.rs",
            "crates/leasehold-core/src/reaper/tests.rs",
            "crates/leasehold-core/tests/reaper.rs",
            "crates/leasehold-cli/src/reaper.rs",
        ] {
            assert!(flagged(modules_are_on_the_map, files(path)).is_empty(), "{path}");
        }
    }

    #[test]
    fn a_fetched_package_is_flagged() {
        let files = [("redis-8.1.0-py3-none-any.whl", ""), ("peers/java/Orders.java", ""), ("a/b.jar", "")];
        assert_eq!(flagged(no_fetched_packages, files), ["a/b.jar:1", "redis-8.1.0-py3-none-any.whl:1"]);
    }

    #[test]
    fn a_crate_with_lints_of_its_own_is_flagged() {
        for lints in ["", "[lints]\nworkspace = false", "[lints.rust]\nunused = 'allow'"] {
            let manifest = format!("[package]\nname = 'a'\n{lints}");
            assert_eq!(
                flagged(lints_are_shared, [("a/Cargo.toml", &manifest)]),
                ["a/Cargo.toml:1"],
                "{lints}"
            );
        }
        let shared = "[package]\nname = 'a'\n[lints]\nworkspace = true";
        assert!(
            flagged(lints_are_shared, [("a/Cargo.toml", shared), ("Cargo.toml", "[workspace]")]).is_empty()
        );
    }
}
