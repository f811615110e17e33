//! Which run of the host this is.
//!
//! Times of the boot clock mean something only within one boot, and only to processes that read the same clock.

use std::sync::OnceLock;

use crate::error::{Error, Result};

/// The id of this boot, the same for every process of the host until it restarts.
pub(super) fn id() -> Result<&'static str> {
    static ID: OnceLock<Result<String>> = OnceLock::new();
    match ID.get_or_init(|| same_clock().and_then(|()| read())) {
        Ok(id) => Ok(id),
        Err(error) => Err(error.clone()),
    }
}

fn unsupported(why: impl Into<String>) -> Error {
    Error::unsupported("the store sqlite:", why)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn read() -> Result<String> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let id = std::fs::read_to_string(PATH)
        .map_err(|error| unsupported(format!("it needs the boot id of {PATH}: {error}")))?;
    checked(&id)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn read() -> Result<String> {
    const NAME: &str = "kern.bootsessionuuid";
    let out = std::process::Command::new("sysctl")
        .args(["-n", NAME])
        .output()
        .map_err(|error| unsupported(format!("it needs the boot id of sysctl {NAME}: {error}")))?;
    checked(&String::from_utf8_lossy(&out.stdout))
}

fn checked(id: &str) -> Result<String> {
    let id = id.trim();
    if id.is_empty() { Err(unsupported("the boot id is empty")) } else { Ok(id.into()) }
}

/// Refuses a Linux time namespace with a boot clock of its own: leases of other processes would end too early.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn same_clock() -> Result<()> {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    if boot_clock_is_shifted(&offsets) {
        return Err(unsupported(
            "this process runs in a time namespace whose boot clock differs from the host's; start it without one",
        ));
    }
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn same_clock() -> Result<()> {
    Ok(())
}

#[cfg(any(target_os = "linux", target_os = "android", test))]
fn boot_clock_is_shifted(offsets: &str) -> bool {
    offsets
        .lines()
        .filter_map(|line| line.trim().strip_prefix("boottime"))
        .any(|offset| offset.split_whitespace().any(|number| number != "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_id_stays_the_same() {
        assert_eq!(id().unwrap(), id().unwrap());
        assert!(id().unwrap().len() >= 8);
    }

    #[test]
    fn a_shifted_boot_clock_is_noticed() {
        assert!(!boot_clock_is_shifted(""));
        assert!(!boot_clock_is_shifted("monotonic           5         0\nboottime            0         0\n"));
        assert!(boot_clock_is_shifted("monotonic           0         0\nboottime      -86400         0\n"));
    }
}
