//! What depends on the kernel: the id of a boot, file systems and mounts, new files, and the addresses of hints.
//!
//! Times of the boot clock mean something only within one boot, and only to processes that read the same clock.

use std::{path::Path, sync::OnceLock};

use leasehold_core::{Error, Result};

use super::path::SharedBy;
pub(super) use platform::{address, create_file};

/// File systems of one host, by the names that kernels give them.
const LOCAL: &str = "ext2 ext3 ext4 xfs btrfs zfs bcachefs f2fs jfs reiserfs nilfs2 ubifs ecryptfs vfat exfat ntfs3 \
    fuseblk tmpfs ramfs rootfs overlay fuse.fuse-overlayfs aufs shiftfs apfs hfs hfsplus ufs";
/// File systems that hosts share.
const NETWORK: &str = "nfs nfs4 cifs smb3 smbfs afs afpfs coda ncpfs webdav ceph fuse.ceph-fuse gfs2 ocfs2 lustre \
    beegfs gpfs vboxsf fuse.sshfs fuse.glusterfs";

/// Whether hosts may share a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// One host's own.
    Local,
    /// Shared between hosts.
    Network,
    /// Passed through by a program or a hypervisor, or not known here.
    Unsure,
}

/// Classifies a file system by its name.
pub(super) fn reach(name: &str) -> Reach {
    let is_in = |list: &str| list.split(' ').any(|listed| listed == name);
    match name {
        "" => Reach::Unsure,
        _ if is_in(LOCAL) => Reach::Local,
        _ if is_in(NETWORK) => Reach::Network,
        _ => Reach::Unsure,
    }
}

/// The name of the file system that a path is on; `unknown` where the kernel does not tell.
pub(super) fn name(path: &Path) -> String {
    platform::file_system(path).unwrap_or_else(|| "unknown".into())
}

/// Whether a file is a mount by itself, apart from the directory it is in.
pub(super) fn is_mount_point(file: &Path, directory: &Path) -> bool {
    let mounts = [file, directory].map(platform::mount_id);
    matches!(mounts, [Some(file), Some(directory)] if file != directory)
}

/// A boot id, and whether every process of the host reads the same one.
type BootId = (String, bool);

/// The id of this boot, the same for all processes that share a database file.
pub(super) fn boot_id(shared_by: SharedBy) -> Result<&'static str> {
    static READ: OnceLock<Result<BootId, String>> = OnceLock::new();
    let why = match READ.get_or_init(checked) {
        Ok((id, true)) => return Ok(id),
        // A container's own id changes when the container restarts, which ends all its processes too.
        Ok((id, false)) if shared_by == SharedBy::Container => return Ok(id),
        Ok(_) => {
            "another file is mounted over the kernel's boot id, as LXC, Incus and systemd-nspawn do, so leases of \
             other containers would look expired; add ?shared-by=container to the URL if only this container uses \
             the file, or run `umount /proc/sys/kernel/random/boot_id` in each container that shares it, or use \
             a store such as redis://"
        }
        Err(why) => why,
    };
    Err(Error::unsupported("the store sqlite:", why))
}

fn checked() -> Result<BootId, String> {
    // Leases of other processes would end too early, or too late.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    if boot_clock_is_shifted(&offsets) {
        let why = "this process runs in a time namespace whose boot clock differs from the host's; start it without one";
        return Err(why.into());
    }
    match platform::read_boot_id() {
        Ok((id, _)) if id.is_empty() => Err("the boot id is empty".into()),
        Ok(boot) => Ok(boot),
        Err(error) => Err(format!("cannot read the boot id in {}: {error}", platform::BOOT_ID)),
    }
}

fn boot_clock_is_shifted(offsets: &str) -> bool {
    offsets
        .lines()
        .filter_map(|line| line.trim().strip_prefix("boottime"))
        .any(|offset| offset.split_whitespace().any(|number| number != "0"))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod platform {
    #[cfg(target_os = "android")]
    use std::os::android::net::SocketAddrExt;
    #[cfg(target_os = "linux")]
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::{fs::PermissionsExt, net::SocketAddr};
    use std::{fs, io, os::fd::AsRawFd, path::Path};

    use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, fstat, fstatfs, mknodat};

    pub(super) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

    pub(super) fn read_boot_id() -> io::Result<super::BootId> {
        let file = fs::File::open(BOOT_ID)?;
        let is_the_hosts = fstatfs(&file)?.f_type == PROC_SUPER_MAGIC;
        Ok((io::read_to_string(file)?.trim().to_owned(), is_the_hosts))
    }

    /// Creates an empty file for its owner, and for its group where `shared`, without a handle of it.
    pub(crate) fn create_file(path: &Path, shared: bool) -> io::Result<()> {
        mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0)?;
        if !shared {
            return Ok(());
        }
        // Apart, because of the umask; and never through what somebody else has put there meanwhile.
        let handle =
            rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&handle)?;
        let is_ours = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            && found.st_uid == rustix::process::geteuid().as_raw()
            && found.st_nlink == 1;
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        if is_ours { fs::set_permissions(path, fs::Permissions::from_mode(0o660)) } else { Ok(()) }
    }

    /// Where the hints of an engine go.
    pub(crate) fn address(engine: &str) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("leasehold-{engine}"))
    }

    /// The mount of a path. A handle of a mere path (`O_PATH`) drops no POSIX locks when it is closed.
    pub(super) fn mount_id(path: &Path) -> Option<String> {
        let handle =
            rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd())).ok()?;
        Some(facts.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().to_owned())
    }

    pub(super) fn file_system(path: &Path) -> Option<String> {
        mounted(path).or_else(|| numbered(path).map(str::to_owned))
    }

    fn mounted(path: &Path) -> Option<String> {
        let id = mount_id(path)?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find(|line| line.split(' ').next() == Some(&id))?;
        Some(mount.split_once(" - ")?.1.split(' ').next()?.to_owned())
    }

    /// Common local file systems by number, for a `chroot` into a directory of a mount that is not visible inside.
    pub(super) fn numbered(path: &Path) -> Option<&'static str> {
        Some(match rustix::fs::statfs(path).ok()?.f_type as u32 {
            0x0000_EF53 => "ext4",
            0x5846_5342 => "xfs",
            0x9123_683E => "btrfs",
            0x2FC1_2FC1 => "zfs",
            0xCA45_1A4E => "bcachefs",
            0xF2F5_2010 => "f2fs",
            0x0102_1994 => "tmpfs",
            0x794C_7630 => "overlay",
            _ => return None,
        })
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod platform {
    use std::os::unix::{
        fs::{OpenOptionsExt, PermissionsExt},
        net::SocketAddr,
    };
    use std::{fs, io, path::Path, process::Command};

    pub(super) const BOOT_ID: &str = "kern.bootsessionuuid";

    pub(super) fn read_boot_id() -> io::Result<super::BootId> {
        let out = Command::new("sysctl").args(["-n", BOOT_ID]).output()?;
        Ok((String::from_utf8_lossy(&out.stdout).trim().to_owned(), true))
    }

    /// Creates an empty file for its owner, and for its group where `shared`. A new file has no locks that closing could drop.
    pub(crate) fn create_file(path: &Path, shared: bool) -> io::Result<()> {
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        if shared { file.set_permissions(fs::Permissions::from_mode(0o660)) } else { Ok(()) }
    }

    /// No way to other processes: their waiters poll.
    pub(crate) fn address(_: &str) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn mount_id(_: &Path) -> Option<String> {
        None
    }

    #[cfg(target_vendor = "apple")]
    pub(super) fn file_system(path: &Path) -> Option<String> {
        let found = rustix::fs::statfs(path).ok()?;
        Some(found.f_fstypename.iter().map(|c| *c as u8 as char).take_while(|c| *c != '\0').collect())
    }

    #[cfg(not(target_vendor = "apple"))]
    pub(super) fn file_system(_: &Path) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_that_are_known_to_be_one_hosts_own_are_local() {
        for name in
            ["ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "tmpfs", "overlay", "fuse.fuse-overlayfs"]
        {
            assert_eq!(reach(name), Reach::Local, "{name}");
        }
        for name in ["nfs", "nfs4", "cifs", "smb3", "ceph", "gfs2", "ocfs2", "lustre", "vboxsf", "fuse.sshfs"]
        {
            assert_eq!(reach(name), Reach::Network, "{name}");
        }
        for name in ["9p", "virtiofs", "fuse", "fuse.s3fs", "orangefs", "unknown", ""] {
            assert_eq!(reach(name), Reach::Unsure, "{name}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_names_file_systems() {
        assert_eq!(name(Path::new("/proc/self")), "proc");
        assert_eq!(name(Path::new("/nowhere at all")), "unknown");
        assert_eq!(platform::numbered(Path::new("/proc")), None);
        for directory in ["/", "/dev/shm", "/tmp"].map(Path::new) {
            if let Some(numbered) = platform::numbered(directory) {
                let name = name(directory);
                assert_eq!(name.starts_with("ext"), numbered == "ext4", "{name}");
                assert!(name.starts_with("ext") || name == numbered, "{name}");
            }
        }
    }

    #[test]
    fn the_boot_id_stays_the_same() {
        let id = || boot_id(SharedBy::Container).unwrap();
        assert_eq!(id(), id());
        assert!(id().len() >= 8);
    }

    #[test]
    fn a_shifted_boot_clock_is_noticed() {
        assert!(!boot_clock_is_shifted(""));
        assert!(!boot_clock_is_shifted("monotonic           5         0\nboottime            0         0\n"));
        assert!(boot_clock_is_shifted("monotonic           0         0\nboottime      -86400         0\n"));
    }
}
