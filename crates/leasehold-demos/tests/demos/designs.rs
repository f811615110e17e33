//! Every line of `docs/designs.md` has a proof, and every proof exists.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const PAGE: &str = include_str!("../../../../docs/designs.md");

/// The last cells of all lines of all tables.
fn proofs() -> Vec<&'static str> {
    let rows = PAGE.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next().map(str::trim));
    cells.filter(|cell| *cell != "proof").collect()
}

/// The names of all functions of the project.
fn functions() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders: Vec<PathBuf> =
        ["crates", "bench", "chaos", "xtask"].map(|folder| root.join(folder)).into();
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() && !entry.is_symlink() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(entry).unwrap();
                let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
                found.extend(names.map(str::to_owned));
            }
        }
    }
    found
}

#[test]
fn every_line_has_a_test_or_a_command_that_exists() {
    let functions = functions();
    assert!(proofs().len() > 60, "{}", proofs().len());
    for proof in proofs() {
        let code = proof.strip_prefix('`').and_then(|proof| proof.strip_suffix('`')).expect(proof);
        match code.strip_prefix("leasehold ") {
            Some(command) => assert!(is_command(command), "{proof}"),
            None => assert!(functions.contains(code), "{proof}"),
        }
    }
}

fn is_command(command: &str) -> bool {
    let words: Vec<_> = command.split(' ').collect();
    match words.as_slice() {
        ["demo", name, options @ ..] => {
            let demo = leasehold_demos::find(name).is_some();
            let known = ["--unsafe", "--variant", "--topology", "stock-in-key", "sentinel", "quorum"];
            demo && options.iter().all(|option| known.contains(option))
        }
        other => [&["ls"][..], &["doctor"]].contains(&other),
    }
}

#[test]
fn all_pages_start_the_demos_by_the_command_that_is_installed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/demos");
    for page in fs::read_dir(folder).unwrap().map(|page| page.unwrap().path()) {
        let text = fs::read_to_string(&page).unwrap();
        let name = page.file_stem().unwrap().to_str().unwrap();
        assert!(text.contains(&format!("$ leasehold demo {name}\n")), "{name}");
        assert!(!text.contains("cargo run"), "{name}");
    }
}
