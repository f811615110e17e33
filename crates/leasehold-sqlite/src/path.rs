//! Where the database file is, who shares it, and what must be true of it, or processes that use it would not exclude each
//! other: SQLite keeps a log and shared memory beside the file, under its name. Processes that reach one file by two names
//! have two logs, so each sees only its own locks.
//!
//! Nothing here opens the file. Closing any handle of it would drop every POSIX lock that SQLite holds on it in
//! this process.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use leasehold_core::engine::EngineError;
use leasehold_core::{Error, Result};

use super::fault::{self, Failure};
use super::kernel::{self, Reach, create_file};

const FORMS: &str = "sqlite:/absolute/path.db · sqlite:relative.db · sqlite:///absolute/path.db";

/// The file, and what SQLite keeps beside it.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];
const WRITABLE_BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// A directory whose files belong to its group, which can write it.
const OF_GROUP: u32 = 0o2020;

/// The path of a database file, as a URL gives it.
#[derive(Clone, Debug)]
pub(super) struct DatabasePath {
    pub(super) path: PathBuf,
    pub(super) shared_by: SharedBy,
}

/// Which processes use the file, as far as its user stated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedBy {
    /// Not stated: whatever could be shared with another host or container is refused.
    Unstated,
    /// Processes of this host only.
    Host,
    /// Processes of this container only.
    Container,
}

/// Device and inode of the file at a path: they change when the file is removed or replaced.
pub(super) type FileId = (u64, u64);

impl DatabasePath {
    /// Reads what follows `sqlite:` in a store URL. Creates nothing.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let (path, parameters) = text.split_once('?').unwrap_or((text, ""));
        let mut shared_by = SharedBy::Unstated;
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            shared_by = match parameter.split_once('=').unwrap_or((parameter, "")) {
                ("shared-by", "host") => SharedBy::Host,
                ("shared-by", "container") => SharedBy::Container,
                ("shared-by", other) => return Err(Error::invalid("shared-by", other, "host or container")),
                (name, _) => return Err(Error::invalid("parameter", name, "shared-by")),
            };
        }
        let path = std::path::absolute(path_of(path)?)
            .map_err(|error| Error::invalid("store path", text, format!("{FORMS} ({error})")))?;
        match unusable(&path).map(str::to_owned).or_else(|| missing_directory(&path)) {
            Some(expected) => Err(Error::invalid("store path", path.display().to_string(), expected)),
            None => Ok(Self { path, shared_by }),
        }
    }

    /// Creates an empty file if it is missing: for its owner only, or also for the group that shares the directory.
    pub(super) fn create(&self) -> Result<(), EngineError> {
        let is_shared = mode(self.directory()) & OF_GROUP == OF_GROUP;
        match create_file(&self.path, is_shared) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(fault::of_files(&format!("cannot create {}", self.path.display()), &error))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a file that other processes may not share as they seem to, or that another user may have planted.
    /// Returns the path to open it by, with the symbolic links of its directory resolved.
    pub(super) fn check(&self) -> Result<PathBuf, EngineError> {
        let given = self.directory();
        let directory = fs::canonicalize(given)
            .map_err(|error| fault::of_files(&format!("cannot find {}", given.display()), &error))?;
        let real = directory.join(self.path.file_name().unwrap_or_default());
        check_file_system(&directory, self.shared_by)?;
        for suffix in SUFFIXES {
            let mut file = real.clone().into_os_string();
            file.push(suffix);
            check_file(&directory, Path::new(&file))?;
            check_owner(&directory, Path::new(&file))?;
        }
        for (directory, entry) in [&self.path, &real].into_iter().flat_map(|path| entries(path)) {
            check_owner(directory, entry)?;
        }
        Ok(real)
    }

    /// What any user of the host can replace on the way to the file.
    pub(super) fn replaceable(&self) -> Option<&Path> {
        let is_open = |directory| mode(directory) & (WRITABLE_BY_ALL | STICKY) == WRITABLE_BY_ALL;
        entries(&self.path).find(|(directory, _)| is_open(directory)).map(|(_, entry)| entry)
    }

    /// Whether every user of the host may write the file.
    pub(super) fn is_world_writable(&self) -> bool {
        mode(&self.path) & WRITABLE_BY_ALL != 0
    }

    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// The file that is there now.
    pub(super) fn file_id(&self) -> Option<FileId> {
        fs::symlink_metadata(&self.path).ok().map(|found| (found.dev(), found.ino()))
    }
}

fn path_of(text: &str) -> Result<&str> {
    let path = match text.strip_prefix("//") {
        Some(rest) if rest.starts_with('/') => rest,
        Some(_) => "",
        None => text,
    };
    let expected = match path {
        ":memory:" => "a file; for a store in memory use memory:",
        _ if path.is_empty() || path.contains('\0') => FORMS,
        _ if path.ends_with('/') => "a file, not a directory",
        _ => return Ok(path),
    };
    Err(Error::invalid("store path", text, expected))
}

/// What is expected instead of a path that cannot be a database file, whoever asks.
fn unusable(path: &Path) -> Option<&'static str> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Some("a file, not a directory"),
        Ok(found) if found.is_symlink() => Some("the path of the file itself, not of a symbolic link to it"),
        Ok(found) if !found.is_file() => Some("a regular file"),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Some("a path whose parents are directories")
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => Some("a shorter path"),
        // Anything else is found out when the file is opened.
        _ => None,
    }
}

/// A directory is not created for a path that may be misspelt: the locks of a new file exclude nobody.
fn missing_directory(path: &Path) -> Option<String> {
    let directory = path.parent()?;
    let is_missing = fs::metadata(directory).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let directory = directory.display();
    is_missing
        .then(|| format!("a path in an existing directory; if it is right: mkdir -p -m 700 {directory}"))
}

fn check_file_system(directory: &Path, shared_by: SharedBy) -> Result<(), EngineError> {
    let name = kernel::name(directory);
    let why = match kernel::reach(&name) {
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
    } else if kernel::is_mount_point(file, directory) {
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
    let Ok(owner) = fs::symlink_metadata(entry).map(|found| found.uid()) else { return Ok(()) };
    let trusted = [0, rustix::process::geteuid().as_raw()];
    if mode(directory) & WRITABLE_BY_ALL == 0 || trusted.contains(&owner) {
        return Ok(());
    }
    let why = format!(
        "belongs to user {owner}, who may have planted it: every user can create files in {}; use another directory, \
         which only those who share the locks can write",
        directory.display()
    );
    Err(refused(entry, &why))
}

/// The rights of what a path leads to, if anything.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).map_or(0, |found| found.mode())
}

/// Each step of a path, as a directory and its entry, from the file up.
fn entries(path: &Path) -> impl Iterator<Item = (&Path, &Path)> {
    path.ancestors().filter_map(|entry| Some((entry.parent()?, entry)))
}

fn refused(what: &Path, why: &str) -> EngineError {
    Failure::refused(format!("{} {why}", what.display())).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::tests::TempDir;
    use leasehold_core::error::ErrorKind;

    #[test]
    fn a_path_has_three_forms() {
        for (text, path) in
            [("/var/x.db", "/var/x.db"), ("x.db", "x.db"), ("///var/x.db", "/var/x.db"), ("a/x.db", "a/x.db")]
        {
            assert_eq!(path_of(text).unwrap(), path);
        }
    }

    #[test]
    fn a_url_may_state_who_shares_the_file() {
        for (text, shared_by) in [
            ("x.db", SharedBy::Unstated),
            ("x.db?", SharedBy::Unstated),
            ("x.db?shared-by=host", SharedBy::Host),
            ("x.db?shared-by=container", SharedBy::Container),
        ] {
            let path = DatabasePath::parse(text).unwrap();
            assert_eq!(path.shared_by, shared_by);
            assert!(path.path.ends_with("x.db"));
        }
    }

    #[test]
    fn a_path_that_cannot_be_is_invalid_and_says_what_is_allowed() {
        let dir = TempDir::new();
        fs::write(dir.path("file"), "").unwrap();
        std::os::unix::fs::symlink("file", dir.path("link")).unwrap();
        let directory = dir.path("");
        let below_a_file = dir.path("file/x.db");
        for (text, word) in [
            ("", "sqlite:/absolute"),
            ("//", "sqlite:/absolute"),
            ("//host/x.db", "sqlite:/absolute"),
            (":memory:", "memory:"),
            ("x.db?mode=ro&a=b", "\"mode\""),
            ("x.db?shared-by=all", "host or container"),
            ("dir/", "not a directory"),
            (directory.trim_end_matches('/'), "not a directory"),
            (&below_a_file, "parents"),
            (&dir.path("link"), "symbolic link"),
            ("/dev/null", "regular file"),
        ] {
            let error = DatabasePath::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn a_file_is_created_for_its_owner_or_for_the_group_of_its_directory() {
        let dir = TempDir::new();
        let path = DatabasePath::parse(&dir.path("x.db")).unwrap();
        for (directory, file) in [(0o700, 0o600), (0o755, 0o600), (0o770, 0o600), (0o2770, 0o660)] {
            fs::set_permissions(path.directory(), fs::Permissions::from_mode(directory)).unwrap();
            path.create().unwrap();
            path.create().unwrap();
            assert_eq!(mode(&path.path) & 0o777, file, "{directory:o}");
            fs::remove_file(&path.path).unwrap();
        }
    }

    #[test]
    fn a_directory_is_not_created() {
        let dir = TempDir::new();
        let error = DatabasePath::parse(&dir.path("a/b/x.db")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().ends_with(&format!("mkdir -p -m 700 {}", dir.path("a/b"))), "{error}");
        assert!(!Path::new(&dir.path("a")).exists());
    }

    #[test]
    fn a_removed_file_is_noticed() {
        let dir = TempDir::new();
        let path = DatabasePath::parse(&dir.path("x.db")).unwrap();
        path.create().unwrap();
        let first = path.file_id();
        fs::rename(&path.path, dir.path("away")).unwrap();
        assert_eq!(path.file_id(), None);
        path.create().unwrap();
        assert_ne!(path.file_id(), first);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_unsure_file_system_needs_a_statement_of_its_user() {
        let directory = Path::new("/proc");
        assert!(check_file_system(directory, SharedBy::Unstated).unwrap_err().why.contains("(proc)"));
        assert!(check_file_system(directory, SharedBy::Host).is_ok());
        assert!(check_file_system(directory, SharedBy::Container).is_ok());
    }
}
