//! Processor time and memory of a process.

use std::{fs, time::Duration};

use crate::Failure;

/// The processor time of a process, in user and kernel mode. Where it can be, not from `/proc/PID/stat`: that counts in
/// steps of 10 ms, and a server under a light load uses five of them in ten seconds.
pub(crate) fn time_of(pid: u32) -> Result<Duration, Failure> {
    let (living, all) = (time_of_threads(pid)?, time_by_ticks(pid)?);
    // Only the ticks have the time of threads that have ended.
    Ok(if all > living + TICKS_UNSURE { all } else { living })
}

/// By so much ticks may differ, of user and kernel mode together.
const TICKS_UNSURE: Duration = Duration::from_millis(20);

fn time_by_ticks(pid: u32) -> Result<Duration, Failure> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, which may contain anything, ends with the last parenthesis; utime and stime are the 12th and 13th field after it.
    let (_, fields) = stat.rsplit_once(") ").ok_or("unknown form of stat")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(of_ticks(ticks))
}

pub(crate) fn of_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn time_of_threads(pid: u32) -> Result<Duration, Failure> {
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

    #[test]
    fn the_time_of_a_thread_that_has_ended_is_not_lost() {
        let time = || time_of(std::process::id()).unwrap();
        let before = time();
        let busy = || {
            let began = time_of_threads(std::process::id()).unwrap();
            while time_of_threads(std::process::id()).unwrap() < began + Duration::from_millis(100) {
                std::hint::black_box(began);
            }
        };
        std::thread::spawn(busy).join().unwrap();
        assert!(time() >= before + Duration::from_millis(80));
    }
}
