//! What an operator should know about a lease file.

use crate::engine::{Health, Warning};

use super::{
    fault::Failure,
    file::LAYOUT,
    place::{FileSystem, Place},
    store::Store,
};

pub(super) fn look(store: &Store<'_>, place: &Place) -> Result<Health, Failure> {
    let (held, waiting) = store.counts()?;
    let journal_mode = store.journal_mode()?;
    let warnings = warnings(&journal_mode, place.file_system(), place.is_world_writable());
    let facts = [
        ("engine", "sqlite".to_owned()),
        ("shared by", "the processes of this host".to_owned()),
        ("path", place.path().display().to_string()),
        ("file system", place.file_system().to_string()),
        ("journal mode", journal_mode),
        ("layout version", LAYOUT.to_string()),
        ("names held", held.to_string()),
        ("waiters", waiting.to_string()),
    ];
    let facts = facts.into_iter().map(|(what, value)| (what.to_owned(), value)).collect();
    Ok(Health { facts, warnings })
}

fn warnings(journal_mode: &str, file_system: &FileSystem, world_writable: bool) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if !journal_mode.eq_ignore_ascii_case("wal") {
        warnings.push(Warning {
            code: "journal-mode",
            found: format!("the journal mode is {journal_mode}: every operation waits for the disk"),
            cure: "move the file to a local file system that can map shared memory, so that WAL works".into(),
        });
    }
    if let FileSystem::Unsure(kind) = file_system {
        warnings.push(Warning {
            code: "file-system",
            found: format!(
                "the file is on {kind}: if other hosts see it too, their locks do not exclude ours"
            ),
            cure: "move the file to a local disk unless this file system is this host's own".into(),
        });
    }
    if world_writable {
        warnings.push(Warning {
            code: "world-writable",
            found: "every user of this host can write the file, and so take or free any lock".into(),
            cure: "chmod o-w the file; share it by group if several users need it".into(),
        });
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_for_each_thing_to_change_and_none_otherwise() {
        let local = FileSystem::Local("ext4".into());
        let codes = |mode, system: &FileSystem, writable| {
            warnings(mode, system, writable).iter().map(|warning| warning.code).collect::<Vec<_>>()
        };
        assert!(codes("wal", &local, false).is_empty());
        assert_eq!(codes("delete", &local, false), ["journal-mode"]);
        assert_eq!(codes("wal", &FileSystem::Unsure("FUSE"), true), ["file-system", "world-writable"]);
    }
}
