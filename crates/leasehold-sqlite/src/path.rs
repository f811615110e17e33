//! Where the database file is, and who shares it: what a store URL may say, and how the file is created.
//!
//! Nothing here opens the file. Closing any handle of it would drop every POSIX lock that SQLite holds on it in
//! this process.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use leasehold_core::{
    engine::EngineError,
    error::{Error, Result},
};

use super::fault;

const FORMS: &str = "sqlite:/absolute/path.db · sqlite:relative.db · sqlite:///absolute/path.db";

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
        match unusable(&path) {
            Some(expected) => Err(Error::invalid("store path", path.display().to_string(), expected)),
            None => Ok(Self { path, shared_by }),
        }
    }

    /// Creates the directory and an empty file where they are missing, both for their owner only.
    pub(super) fn create(&self) -> Result<(), EngineError> {
        let failed = |error| fault::of_files(&format!("cannot create {}", self.path.display()), &error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.directory()).map_err(failed)?;
        match create_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// The path with the symbolic links of its directory resolved.
    pub(super) fn resolve(&self) -> Result<PathBuf, EngineError> {
        let directory = self.directory();
        let real = fs::canonicalize(directory)
            .map_err(|error| fault::of_files(&format!("cannot find {}", directory.display()), &error))?;
        Ok(real.join(self.path.file_name().unwrap_or_default()))
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

#[cfg(any(target_os = "linux", target_os = "android"))]
fn create_file(path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    Ok(mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn create_file(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    // A new file has no locks that closing could drop.
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

#[cfg(test)]
mod tests {
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
    fn file_and_directory_are_created_for_their_owner_only() {
        let dir = TempDir::new();
        let path = DatabasePath::parse(&dir.path("a/b/x.db")).unwrap();
        path.create().unwrap();
        path.create().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&path.path), 0o600);
        assert_eq!(mode(path.path.parent().unwrap()), 0o700);
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
}
