//! What an operator should know about a database file.

use leasehold_core::engine::{Health, Warning};

use super::path::{DatabasePath, SharedBy};
use super::{fault::Result, file::LAYOUT, kernel, store::Store};

pub(super) fn inspect(store: &Store<'_>, path: &DatabasePath) -> Result<Health> {
    let (held, waiting) = store.counts()?;
    let journal_mode = store.pragma::<String>("journal_mode")?;
    let warnings = warnings(&journal_mode, path);
    let shared_by = match path.shared_by {
        SharedBy::Unstated | SharedBy::Host => "the processes of this host",
        SharedBy::Container => "the processes of this container",
    };
    let facts = [
        ("engine", "sqlite".to_owned()),
        ("shared by", shared_by.to_owned()),
        ("path", path.path.display().to_string()),
        ("file system", kernel::name(&path.path)),
        ("journal mode", journal_mode),
        ("layout version", LAYOUT.to_string()),
        ("names held", held.to_string()),
        ("waiters", waiting.to_string()),
    ];
    let facts = facts.into_iter().map(|(what, value)| (what.to_owned(), value)).collect();
    Ok(Health { facts, warnings })
}

fn warnings(journal_mode: &str, path: &DatabasePath) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn =
        |code, found: String, cure: &str| warnings.push(Warning { code, found, cure: cure.into() });
    if !journal_mode.eq_ignore_ascii_case("wal") {
        warn(
            "journal-mode",
            format!("the journal mode is {journal_mode}: every operation waits for the disk"),
            "move the file to a local file system that can map shared memory, so that WAL works",
        );
    }
    // It held when this client opened the file.
    if let Err(refused) = path.check() {
        warn("file-refused", refused.why, "until then no other client can open the file");
    }
    if let Some(entry) = path.replaceable() {
        warn(
            "replaceable",
            format!("every user can replace {}, and with it all locks", entry.display()),
            "chmod o-w its directory, or chmod +t it",
        );
    }
    if path.is_world_writable() {
        warn(
            "world-writable",
            "every user of this host can write the file, and so take or free any lock".into(),
            "chmod o-w the file; share it by group if several users need it",
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::tests::TempDir;

    #[test]
    fn a_warning_for_each_thing_to_change_and_none_otherwise() {
        let dir = TempDir::new();
        let file = dir.path("x.db");
        let path = DatabasePath::parse(&format!("{file}?shared-by=host")).unwrap();
        path.create().unwrap();
        let codes = |mode| warnings(mode, &path).iter().map(|warning| warning.code).collect::<Vec<_>>();
        let chmod = |path: &str, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(codes("wal").is_empty(), "{:?}", warnings("wal", &path));
        assert_eq!(codes("delete"), ["journal-mode"]);
        fs::hard_link(&file, dir.path("other name")).unwrap();
        chmod(&file, 0o666);
        chmod(&dir.path(""), 0o777);
        assert_eq!(codes("wal"), ["file-refused", "replaceable", "world-writable"]);
    }
}
