//! What must be true of a database file, or processes that use it would not exclude each other.
//!
//! SQLite keeps a log and shared memory beside the file, under its name. Processes that reach one file by two names
//! have two logs, so each sees only its own locks.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use leasehold_core::engine::{EngineError, Fault};

use super::{
    file_system::{self, Reach},
    path::{DatabasePath, SharedBy},
};

/// The file, and what SQLite keeps beside it.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];
const WRITABLE_BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Refuses a file that other processes may not share as they seem to, or that another user may have planted.
/// Returns the path to open it by.
pub(super) fn check(path: &DatabasePath) -> Result<PathBuf, EngineError> {
    let real = path.resolve()?;
    let directory = real.parent().unwrap_or(&real);
    check_file_system(directory, path.shared_by)?;
    for suffix in SUFFIXES {
        let mut file = real.clone().into_os_string();
        file.push(suffix);
        check_file(directory, Path::new(&file))?;
        check_owner(directory, Path::new(&file))?;
    }
    for (directory, entry) in [&path.path, &real].into_iter().flat_map(|path| entries(path)) {
        check_owner(directory, entry)?;
    }
    Ok(real)
}

fn check_file_system(directory: &Path, shared_by: SharedBy) -> Result<(), EngineError> {
    let name = file_system::name(directory);
    let why = match file_system::reach(&name) {
        Reach::Network => {
            "that hosts share, where locks between processes do not hold; use a path on a local disk, or a network \
             store such as redis://"
        }
        Reach::Unsure if shared_by == SharedBy::Unstated => {
            "that other hosts may share, and their locks would not exclude ours; use a path on a local disk, or add \
             ?shared-by=host to the URL if only this host uses the file"
        }
        _ => return Ok(()),
    };
    Err(refused(directory, &format!("is on a file system ({name}) {why}")))
}

fn check_file(directory: &Path, file: &Path) -> Result<(), EngineError> {
    let Ok(found) = fs::symlink_metadata(file) else { return Ok(()) };
    let why = if !found.is_file() {
        "is not a regular file".to_owned()
    } else if found.nlink() > 1 {
        format!(
            "has {} hard links, and processes that open it by different names do not exclude each other; remove the \
             other names (find them with `find -samefile`)",
            found.nlink()
        )
    } else if file_system::is_mount_point(file, directory) {
        "is a mount point, so processes elsewhere keep another log beside the file and do not exclude ours; mount its \
         directory instead"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(refused(file, &why))
}

/// Whoever may create files in a directory may have planted this one.
fn check_owner(directory: &Path, entry: &Path) -> Result<(), EngineError> {
    let (Ok(around), Ok(found)) = (fs::metadata(directory), fs::symlink_metadata(entry)) else {
        return Ok(());
    };
    let owner = found.uid();
    if around.mode() & WRITABLE_BY_ALL == 0 || owner == 0 || owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let why = format!(
        "belongs to user {owner}, who may have planted it: every user can create files in {}; use another directory, \
         which only those who share the locks can write",
        directory.display()
    );
    Err(refused(entry, &why))
}

/// What any user of the host can replace on the way to the file.
pub(super) fn replaceable(path: &DatabasePath) -> Option<PathBuf> {
    let is_open = |directory: &Path| {
        fs::metadata(directory)
            .is_ok_and(|found| found.mode() & (WRITABLE_BY_ALL | STICKY) == WRITABLE_BY_ALL)
    };
    entries(&path.path).find(|(directory, _)| is_open(directory)).map(|(_, entry)| entry.to_owned())
}

/// Whether every user of the host may write the file.
pub(super) fn is_world_writable(path: &DatabasePath) -> bool {
    fs::metadata(&path.path).is_ok_and(|found| found.mode() & WRITABLE_BY_ALL != 0)
}

/// Each step of a path, as a directory and its entry, from the file up.
fn entries(path: &Path) -> impl Iterator<Item = (&Path, &Path)> {
    path.ancestors().filter_map(|entry| Some((entry.parent()?, entry)))
}

fn refused(what: &Path, why: &str) -> EngineError {
    EngineError::new(
        Fault::Refused(leasehold_core::error::Refusal::Other),
        format!("{} {why}", what.display()),
    )
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn an_unsure_file_system_needs_a_statement_of_its_user() {
        use super::*;
        let directory = Path::new("/proc");
        assert!(check_file_system(directory, SharedBy::Unstated).unwrap_err().why.contains("(proc)"));
        assert!(check_file_system(directory, SharedBy::Host).is_ok());
        assert!(check_file_system(directory, SharedBy::Container).is_ok());
    }
}
