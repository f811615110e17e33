//! On which file system and mount a path is.

use std::path::Path;

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
    kernel::file_system(path).unwrap_or_else(|| "unknown".into())
}

/// Whether a file is a mount by itself, apart from the directory it is in.
pub(super) fn is_mount_point(file: &Path, directory: &Path) -> bool {
    let mounts = [file, directory].map(kernel::mount_id);
    matches!(mounts, [Some(file), Some(directory)] if file != directory)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod kernel {
    use std::{fs, os::fd::AsRawFd, path::Path};

    use rustix::fs::{Mode, OFlags};

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
mod kernel {
    use std::path::Path;

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
        assert_eq!(kernel::numbered(Path::new("/proc")), None);
        for directory in ["/", "/dev/shm", "/tmp"].map(Path::new) {
            if let Some(numbered) = kernel::numbered(directory) {
                let name = name(directory);
                assert_eq!(name.starts_with("ext"), numbered == "ext4", "{name}");
                assert!(name.starts_with("ext") || name == numbered, "{name}");
            }
        }
    }
}
