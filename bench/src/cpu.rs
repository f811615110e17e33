//! Processor time and memory of a process.

use std::{fs, time::Duration};

use crate::Failure;

/// The processor time of the threads that a process has now, in user and kernel mode. Not from `/proc/PID/stat`: that counts
/// in steps of 10 ms, and a server under a light load uses five of them in ten seconds.
pub(crate) fn time_of(pid: u32) -> Result<Duration, Failure> {
    let mut time = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has ended since is not one of them.
        let Ok(schedstat) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let running = schedstat.split_whitespace().next().ok_or("unknown form of schedstat")?;
        time += Duration::from_nanos(running.parse()?);
    }
    Ok(time)
}

/// Bytes of memory that it has in use.
pub(crate) fn resident_bytes(pid: u32) -> Result<f64, Failure> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("unknown form of status")?.trim().parse::<f64>()? * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_grows_with_what_it_does() {
        let time = || time_of(std::process::id()).unwrap();
        let before = time();
        while time() < before + Duration::from_millis(1) {
            std::hint::black_box(before);
        }
    }
}
