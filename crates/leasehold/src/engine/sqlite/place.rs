//! Where the file is: what a store URL may say, what kind of file system that is, and how the file comes to be.
//!
//! Nothing here opens the file. Closing any handle of it would drop every POSIX lock that SQLite holds on it in
//! this process.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use crate::{
    engine::EngineError,
    error::{Error, Result},
};

use super::fault;

const FORMS: &str = "sqlite:/absolute/path.db · sqlite:relative.db · sqlite:///absolute/path.db";

/// A checked place of a lease file, and the file system it is on.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
    file_system: FileSystem,
}

/// Which file is at a path: it changes when the file is removed or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl Place {
    /// Reads what follows `sqlite:` in a store URL. Creates nothing.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let path = std::path::absolute(path_of(text)?)
            .map_err(|error| Error::invalid("store path", text, format!("{FORMS} ({error})")))?;
        check_kind(&path)?;
        let file_system = FileSystem::of(&path);
        if let FileSystem::Network(kind) = file_system {
            return Err(Error::unsupported(
                format!("the store {}", path.display()),
                format!(
                    "it is on a network file system ({kind}), where locks between processes do not hold; \
                     use a path on a local disk, or a store that hosts can share such as redis://"
                ),
            ));
        }
        Ok(Self { path, file_system })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file_system(&self) -> &FileSystem {
        &self.file_system
    }

    /// Creates the directory (for its owner only) and an empty file (likewise) where they are missing.
    pub(super) fn prepare(&self) -> Result<(), EngineError> {
        if let Some(parent) = self.path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|error| {
                fault::of_files(&format!("cannot create the directory {}", parent.display()), &error)
            })?;
        }
        match create_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(fault::of_files(&format!("cannot create {}", self.path.display()), &error))
            }
            _ => Ok(()),
        }
    }

    /// The file that is there now.
    pub(super) fn file_id(&self) -> Option<FileId> {
        let found = fs::metadata(&self.path).ok()?;
        Some(FileId { device: found.dev(), inode: found.ino() })
    }

    /// Whether every user of the host may write the file.
    pub(super) fn is_world_writable(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.mode() & 0o002 != 0)
    }
}

fn path_of(text: &str) -> Result<&str> {
    let refuse = |allowed: &str| Err(Error::invalid("store path", text, allowed));
    let (path, parameters) = text.split_once('?').unwrap_or((text, ""));
    if let Some(first) = parameters.split('&').find(|parameter| !parameter.is_empty()) {
        let name = first.split('=').next().unwrap_or_default();
        return Err(Error::invalid("parameter", name, "none: sqlite: has no parameters"));
    }
    let path = match path.strip_prefix("//") {
        Some(rest) if rest.starts_with('/') => rest,
        Some(_) => return refuse(FORMS),
        None => path,
    };
    match path {
        "" => refuse(FORMS),
        ":memory:" => refuse("a file; for a store in memory use memory:"),
        _ if path.contains('\0') => refuse(FORMS),
        _ if path.ends_with('/') => refuse("a file, not a directory"),
        _ => Ok(path),
    }
}

/// Refuses what cannot be a lease file, whoever asks.
fn check_kind(path: &Path) -> Result<()> {
    let refuse = |allowed: &str| Err(Error::invalid("store path", path.display().to_string(), allowed));
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => refuse("a file, not a directory"),
        Ok(found) if !found.is_file() => refuse("a regular file"),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            refuse("a path whose parents are directories")
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => refuse("a shorter path"),
        // Anything else is found out when the file is opened.
        _ => Ok(()),
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

/// The kind of file system, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android", test)),
    expect(dead_code, reason = "only Linux numbers its file systems")
)]
pub(super) enum FileSystem {
    /// One host's own.
    Local(String),
    /// Passed through by a program or a hypervisor: nobody can tell whether other hosts see it too.
    Unsure(&'static str),
    /// Shared between hosts.
    Network(&'static str),
    /// This platform does not say.
    Unknown,
}

impl FileSystem {
    /// The file system of a path, or of its nearest parent that exists.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn of(path: &Path) -> Self {
        path.ancestors()
            .find_map(|path| rustix::fs::statfs(path).ok())
            .map_or(Self::Unknown, |found| Self::from_magic(found.f_type as u32))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn of(_: &Path) -> Self {
        Self::Unknown
    }

    /// Reads the kernel's number for a file system (`statfs(2)`).
    #[cfg(any(target_os = "linux", target_os = "android", test))]
    fn from_magic(magic: u32) -> Self {
        match magic {
            0x0000_6969 => Self::Network("NFS"),
            0x0000_517B => Self::Network("SMB"),
            0xFE53_4D42 => Self::Network("SMB2"),
            0xFF53_4D42 => Self::Network("CIFS"),
            0x5346_414F | 0x6B41_4653 => Self::Network("AFS"),
            0x7375_7245 => Self::Network("Coda"),
            0x0000_564C => Self::Network("NCP"),
            0x00C3_6400 => Self::Network("Ceph"),
            0x0116_1970 => Self::Network("GFS2"),
            0x7461_636F => Self::Network("OCFS2"),
            0x0BD0_0BD0 => Self::Network("Lustre"),
            0x1983_0326 => Self::Network("BeeGFS"),
            0x4750_4653 => Self::Network("GPFS"),
            0x0102_1997 => Self::Unsure("9P"),
            0x786F_4256 => Self::Network("VirtualBox shared folder"),
            0x6573_5546 => Self::Unsure("FUSE"),
            0x0000_EF53 => Self::Local("ext4".into()),
            0x5846_5342 => Self::Local("XFS".into()),
            0x9123_683E => Self::Local("Btrfs".into()),
            0x2FC1_2FC1 => Self::Local("ZFS".into()),
            0xF2F5_2010 => Self::Local("F2FS".into()),
            0x0102_1994 => Self::Local("tmpfs".into()),
            0x794C_7630 => Self::Local("overlayfs".into()),
            other => Self::Local(format!("type {other:#x}")),
        }
    }
}

impl std::fmt::Display for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Local(kind) => kind,
            Self::Unsure(kind) | Self::Network(kind) => kind,
            Self::Unknown => "unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine::sqlite::tests::TempDir, error::ErrorKind};

    #[test]
    fn a_path_has_three_forms() {
        for (text, path) in [
            ("/var/x.db", "/var/x.db"),
            ("x.db", "x.db"),
            ("///var/x.db", "/var/x.db"),
            ("a/x.db?", "a/x.db"),
        ] {
            assert_eq!(path_of(text).unwrap(), path);
        }
    }

    #[test]
    fn a_path_that_cannot_be_is_invalid_and_says_what_is_allowed() {
        let dir = TempDir::new();
        fs::write(dir.path("file"), "").unwrap();
        let directory = dir.path("");
        let below_a_file = dir.path("file/x.db");
        for (text, word) in [
            ("", "sqlite:/absolute"),
            ("//", "sqlite:/absolute"),
            ("//host/x.db", "sqlite:/absolute"),
            (":memory:", "memory:"),
            ("x.db?mode=ro&a=b", "\"mode\""),
            ("dir/", "not a directory"),
            (directory.trim_end_matches('/'), "not a directory"),
            (&below_a_file, "parents"),
            ("/dev/null", "regular file"),
        ] {
            let error = Place::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn file_systems_that_hosts_share_are_known() {
        for magic in [
            0x6969,
            0x517B,
            0xFE53_4D42,
            0xFF53_4D42,
            0x5346_414F,
            0x7375_7245,
            0x564C,
            0x00C3_6400,
            0x0116_1970,
            0x7461_636F,
            0x0BD0_0BD0,
            0x1983_0326,
            0x4750_4653,
        ] {
            assert!(matches!(FileSystem::from_magic(magic), FileSystem::Network(_)), "{magic:#x}");
        }
        for magic in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0x1234] {
            assert!(matches!(FileSystem::from_magic(magic), FileSystem::Local(_)), "{magic:#x}");
        }
        assert_eq!(FileSystem::from_magic(0x6573_5546), FileSystem::Unsure("FUSE"));
        assert_eq!(FileSystem::from_magic(0x0102_1997), FileSystem::Unsure("9P"));
    }

    #[test]
    fn file_and_directory_are_created_for_their_owner_only() {
        let dir = TempDir::new();
        let place = Place::parse(&dir.path("a/b/x.db")).unwrap();
        place.prepare().unwrap();
        place.prepare().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(place.path()), 0o600);
        assert_eq!(mode(place.path().parent().unwrap()), 0o700);
        assert!(!place.is_world_writable());
    }

    #[test]
    fn a_removed_file_is_noticed() {
        let dir = TempDir::new();
        let place = Place::parse(&dir.path("x.db")).unwrap();
        place.prepare().unwrap();
        let first = place.file_id();
        fs::rename(place.path(), dir.path("away")).unwrap();
        assert_eq!(place.file_id(), None);
        place.prepare().unwrap();
        assert_ne!(place.file_id(), first);
    }
}
