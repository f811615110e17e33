//! The id of this boot of the host. Times of the boot clock mean something only within one boot, and only to processes
//! that read the same clock.

use std::sync::OnceLock;

use leasehold_core::{Error, Result};

use super::path::SharedBy;

/// A boot id, and whether every process of the host reads the same one.
type BootId = (String, bool);

/// The id of this boot, the same for all processes that share a database file.
pub(super) fn id(shared_by: SharedBy) -> Result<&'static str> {
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
    match read() {
        Ok((id, _)) if id.is_empty() => Err("the boot id is empty".into()),
        Ok(boot) => Ok(boot),
        Err(error) => Err(format!("cannot read the boot id in {SOURCE}: {error}")),
    }
}

fn boot_clock_is_shifted(offsets: &str) -> bool {
    offsets
        .lines()
        .filter_map(|line| line.trim().strip_prefix("boottime"))
        .any(|offset| offset.split_whitespace().any(|number| number != "0"))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const SOURCE: &str = "/proc/sys/kernel/random/boot_id";
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const SOURCE: &str = "kern.bootsessionuuid";

#[cfg(any(target_os = "linux", target_os = "android"))]
fn read() -> std::io::Result<BootId> {
    let file = std::fs::File::open(SOURCE)?;
    let is_the_hosts = rustix::fs::fstatfs(&file)?.f_type == rustix::fs::PROC_SUPER_MAGIC;
    Ok((std::io::read_to_string(file)?.trim().to_owned(), is_the_hosts))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn read() -> std::io::Result<BootId> {
    let out = std::process::Command::new("sysctl").args(["-n", SOURCE]).output()?;
    Ok((String::from_utf8_lossy(&out.stdout).trim().to_owned(), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_id_stays_the_same() {
        let id = || id(SharedBy::Container).unwrap();
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
