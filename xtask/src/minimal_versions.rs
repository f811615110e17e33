//! `cargo xtask minimal-versions`: the published crates compile with the lowest versions that their manifests accept.
//!
//! Whoever depends on us may have an old version of a dependency in a lock file. cargo can choose the lowest version of
//! each direct dependency, as an unstable option, which only makes the lock file here: what compiles is stable.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::{cargo, manifests};

pub(crate) fn run(root: &Path) -> bool {
    let folder = cargo::target_folder(root).join("minimal-versions");
    let workspace = match copy(root, &folder) {
        Ok(workspace) => workspace,
        Err(error) => {
            eprintln!("error: cannot make a workspace in {}: {error}", folder.display());
            return false;
        }
    };
    let mut lock = cargo::command(&workspace, &["generate-lockfile", "-Zdirect-minimal-versions"]);
    if !cargo::succeeds(lock.env("RUSTC_BOOTSTRAP", "1")) {
        eprintln!("hint: raise the version that is too low in the Cargo.toml of the workspace");
        return false;
    }
    let mut check = cargo::command(&workspace, &["check", "--workspace", "--all-features", "--locked"]);
    cargo::succeeds(check.env("CARGO_TARGET_DIR", &folder))
}

/// A workspace of the published crates only, with their folders by link: a lock file beside the usual one.
fn copy(root: &Path, folder: &Path) -> io::Result<PathBuf> {
    let workspace = folder.join("workspace");
    // Links to crates that are gone would stay.
    let _absent = fs::remove_dir_all(&workspace);
    let mut manifest = manifests::read(&root.join("Cargo.toml"));
    let published = manifests::published(root);
    for (member, _) in &published {
        let link = workspace.join(member);
        fs::create_dir_all(link.parent().expect("it is inside of the workspace"))?;
        std::os::unix::fs::symlink(root.join(member), link)?;
    }
    let members: Vec<_> = published.into_iter().map(|(member, _)| Value::from(member)).collect();
    if let Some(table) = manifest.get_mut("workspace").and_then(Value::as_table_mut) {
        table.insert("members".to_owned(), Value::Array(members));
    }
    fs::write(workspace.join("Cargo.toml"), Table::to_string(&manifest))?;
    Ok(workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_has_the_published_crates_and_no_lock_file() {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace");
        let folder = std::env::temp_dir().join(format!("xtask-minimal-versions-{}", std::process::id()));
        let workspace = copy(root, &folder).unwrap();
        let members = manifests::members(&manifests::read(&workspace.join("Cargo.toml")));
        assert!(members.contains(&"crates/leasehold".to_owned()), "{members:?}");
        assert!(!members.contains(&"xtask".to_owned()), "{members:?}");
        assert!(members.iter().all(|member| workspace.join(member).join("Cargo.toml").exists()));
        assert!(!workspace.join("Cargo.lock").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
