//! Processor time of a process.

use std::time::Duration;

use crate::Failure;

/// What Linux counts `/proc/PID/stat` in, on every platform that Rust supports.
const TICK: Duration = Duration::from_millis(10);

/// The processor time that a process has used so far, in user and kernel mode.
pub(crate) fn time_of(pid: u32) -> Result<Duration, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = ticks(&stat).ok_or("unknown form of /proc/PID/stat")?;
    Ok(TICK * ticks)
}

/// utime + stime: the fields 14 and 15, counted from the end of the name, which may contain anything.
fn ticks(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).take(2);
    Some(times.next()?.parse::<u32>().ok()? + times.next()?.parse::<u32>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added_whatever_the_process_is_called() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 30 0 0 20 0 1 0 5 1 1";
        assert_eq!(ticks(stat), Some(42));
        assert!(time_of(std::process::id()).is_ok());
    }
}
