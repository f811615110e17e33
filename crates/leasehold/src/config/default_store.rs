//! The store where nobody named one: a SQLite file, of the host where that is safe, or else of the user.
//!
//! All users of a host share locks in `/var/lib/leasehold`, as far as root lets them: whoever can write the file can take and
//! free every lock in it. So the folder is root's, root creates it for itself, and its group is who shares it.

use super::sources::Environment;
use crate::Result;

#[cfg(all(unix, feature = "sqlite"))]
pub(super) use of_host::choose;

/// There is none without SQLite.
#[cfg(not(all(unix, feature = "sqlite")))]
pub(super) fn choose(_: Environment<'_>) -> Result<(String, Option<String>)> {
    Err(crate::Error::invalid("store", "", super::settings::STORE_PLACES))
}

#[cfg(all(unix, feature = "sqlite"))]
mod of_host {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    use std::path::{Path, PathBuf};
    use std::{fs, io};

    use rustix::fs::{Access, AtFlags, CWD, accessat};
    use rustix::process::geteuid;

    use super::{Environment, Result};
    use crate::{Error, config::sources::user_folder};

    const FOLDER: &str = "/var/lib/leasehold";
    const FILE: &str = "leasehold.db";

    /// The URL of the store and, if another default store exists, what to say about it. Its folder is created.
    pub(in crate::config) fn choose(env: Environment<'_>) -> Result<(String, Option<String>)> {
        let own = user_folder(env, "XDG_STATE_HOME", ".local/state").map(|folder| folder.join("leasehold"));
        choose_between(Path::new(FOLDER), own, geteuid().is_root())
    }

    fn choose_between(host: &Path, own: Option<PathBuf>, is_root: bool) -> Result<(String, Option<String>)> {
        let url = |folder: &Path| format!("sqlite:{}", folder.join(FILE).display());
        let besides = match examine(host) {
            HostFolder::Unusable(why) if is_root => return Err(refused(host, &format!("which {why}"))),
            HostFolder::Unusable(why) => Some(format!("not {}, which {why}", host.display())),
            HostFolder::Missing if !is_root => None,
            HostFolder::Missing | HostFolder::Usable => {
                make_private(host)?;
                let other = own.map(|own| own.join(FILE)).filter(|file| file.exists());
                return Ok((url(host), other.map(|file| format!("{} exists too", file.display()))));
            }
        };
        let own = own.ok_or_else(|| refused(Path::new("~"), "and HOME is not set"))?;
        make_private(&own)?;
        Ok((url(&own), besides))
    }

    enum HostFolder {
        Missing,
        Usable,
        /// With what keeps this user from using it.
        Unusable(String),
    }

    fn examine(folder: &Path) -> HostFolder {
        let found = match fs::metadata(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return HostFolder::Missing,
            Err(error) => return HostFolder::Unusable(format!("cannot be examined ({error})")),
            Ok(found) => found,
        };
        HostFolder::Unusable(if !found.is_dir() {
            "is not a directory".to_owned()
        } else if ![0, geteuid().as_raw()].contains(&found.uid()) {
            format!("belongs to user {}", found.uid())
        } else if found.mode() & 0o002 != 0 {
            "every user can write (chmod o-w)".to_owned()
        } else if accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_err() {
            "this user cannot write".to_owned()
        } else {
            return HostFolder::Usable;
        })
    }

    fn refused(folder: &Path, why: &str) -> Error {
        let expected = "a folder for the default store; name a store with --store or LEASEHOLD_STORE";
        Error::invalid("default store", format!("{}, {why}", folder.display()), expected)
    }

    /// Creates a folder that only its user can enter.
    fn make_private(folder: &Path) -> Result<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| refused(folder, &format!("which cannot be created ({error})")))
    }
}
