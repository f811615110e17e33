//! Which crate may depend on which. That code keeps to it is checked by the compiler.

use toml::{Table, Value};

use super::{Tree, Violation};

/// Crates that every store shares, and what they must not know: drivers, URLs and file formats.
const CORE: &str = "crates/leasehold-core/Cargo.toml";
const OUTSIDE_OF_CORE: [&str; 6] = ["prost", "redis", "rusqlite", "toml", "tonic", "url"];

pub(super) fn core_knows_no_store(tree: &Tree) -> Vec<Violation> {
    let named = dependencies(tree, CORE)
        .into_iter()
        .filter(|name| OUTSIDE_OF_CORE.contains(&name.as_str()) || name.starts_with("leasehold"));
    named.map(|name| Violation::new(CORE, 1, "layers", format!("the core must not know `{name}`"))).collect()
}

/// An engine is a crate that the facade turns on by a feature. It may know the core and nothing else of ours.
pub(super) fn engines_do_not_know_each_other(tree: &Tree) -> Vec<Violation> {
    let facade = dependencies(tree, "crates/leasehold/Cargo.toml").into_iter();
    let engines = facade.filter(|name| name.starts_with("leasehold-") && name != "leasehold-core");
    let mut violations = Vec::new();
    for engine in engines {
        let manifest = format!("crates/{engine}/Cargo.toml");
        let others = dependencies(tree, &manifest).into_iter();
        let others = others.filter(|name| name.starts_with("leasehold") && name != "leasehold-core");
        violations.extend(others.map(|other| {
            Violation::new(&manifest, 1, "layers", format!("`{engine}` must not know `{other}`"))
        }));
    }
    violations
}

/// The names of a crate's dependencies, without those of its tests.
fn dependencies(tree: &Tree, manifest: &str) -> Vec<String> {
    let manifest: Option<Table> = tree.files.get(manifest).and_then(|text| text.parse().ok());
    let table = manifest.as_ref().and_then(|manifest| manifest.get("dependencies")).and_then(Value::as_table);
    table.into_iter().flat_map(Table::keys).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::flagged;
    use super::*;

    #[test]
    fn a_core_with_a_driver_is_flagged() {
        for name in ["redis", "url", "leasehold-sqlite"] {
            let manifest = format!("[dependencies]\n{name}.workspace = true\n[dev-dependencies]\ntoml = '1'");
            assert_eq!(flagged(core_knows_no_store, [(CORE, &manifest)]), [format!("{CORE}:1")]);
        }
        let plain = "[dependencies]\ntokio = '1'\n[dev-dependencies]\nleasehold = '1'";
        assert!(flagged(core_knows_no_store, [(CORE, plain)]).is_empty());
    }

    #[test]
    fn an_engine_that_knows_another_is_flagged() {
        let facade =
            ("crates/leasehold/Cargo.toml", "[dependencies]\nleasehold-core = '1'\nleasehold-redis = '1'");
        let redis = "crates/leasehold-redis/Cargo.toml";
        let knows = |other: &str| format!("[dependencies]\nleasehold-core = '1'\n{other} = '1'");
        assert!(flagged(engines_do_not_know_each_other, [facade, (redis, &knows("redis"))]).is_empty());
        for other in ["leasehold-quorum", "leasehold"] {
            let files = [facade, (redis, &knows(other))];
            assert_eq!(flagged(engines_do_not_know_each_other, files), [format!("{redis}:1")], "{other}");
        }
    }
}
