//! How long test binaries take: as in the last run on this machine, or as a table says.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use toml::{Table, Value};

/// The long ones, in the order in which they begin, with their seconds on two cores for a first run. The demos keep both
/// cores busy, so the first two, which wait for short leases, begin before them.
pub(crate) const LONG: [(&str, f64); 10] = [
    ("leasehold/conformance", 220.0),
    ("leasehold/quorum", 105.0),
    ("leasehold-demos/demos", 140.0),
    ("leasehold-cli/cli", 75.0),
    ("leasehold/quorum_simulation", 10.0),
    ("leasehold/sentinel_grace", 57.0),
    ("leasehold/torture", 50.0),
    ("leasehold/etcd", 45.0),
    ("bench/smoke", 25.0),
    ("chaos/short", 57.0),
];
/// Seconds of any other.
const SHORT: f64 = 3.0;

pub(crate) struct Durations {
    file: PathBuf,
    seconds: BTreeMap<String, f64>,
}

impl Durations {
    pub(crate) fn load(target: &Path) -> Self {
        let file = target.join("xtask").join("durations.toml");
        let seconds = parse(&fs::read_to_string(&file).unwrap_or_default());
        Self { file, seconds }
    }

    /// How long this binary will take.
    pub(crate) fn expected(&self, name: &str) -> Duration {
        let usual = || LONG.iter().find(|(long, _)| *long == name).map_or(SHORT, |(_, seconds)| *seconds);
        Duration::from_secs_f64(self.seconds.get(name).copied().unwrap_or_else(usual))
    }

    /// What begins earlier sorts first.
    pub(crate) fn turn(&self, name: &str) -> (usize, Reverse<Duration>) {
        let place = LONG.iter().position(|(long, _)| *long == name).unwrap_or(LONG.len());
        (place, Reverse(self.expected(name)))
    }

    pub(crate) fn record(&mut self, name: &str, took: Duration) {
        // Tenths are enough, and easier to read.
        self.seconds.insert(name.to_owned(), (took.as_secs_f64() * 10.0).round() / 10.0);
    }

    pub(crate) fn store(&self) -> io::Result<()> {
        let seconds = self.seconds.iter().map(|(name, seconds)| (name.clone(), Value::Float(*seconds)));
        fs::create_dir_all(self.file.parent().expect("it is inside of the target folder"))?;
        fs::write(&self.file, seconds.collect::<Table>().to_string())
    }
}

/// What is not a duration is left out: the file is a hint, and a wrong one costs a wrong estimate only.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let table = text.parse::<Table>().unwrap_or_default();
    let seconds = table.into_iter().filter_map(|(name, value)| Some((name, value.as_float()?)));
    seconds.filter(|(_, seconds)| (0.0..86_400.0).contains(seconds)).collect()
}

/// The time until all have ended: `running` need that much longer each, and whenever one ends the first of those that
/// wait begins.
pub(crate) fn time_left(
    running: impl IntoIterator<Item = Duration>,
    waiting: impl IntoIterator<Item = Duration>,
) -> Duration {
    let mut busy_for: Vec<Duration> = running.into_iter().collect();
    for next in waiting {
        match busy_for.iter_mut().min() {
            Some(first_free) => *first_free += next,
            None => busy_for.push(next),
        }
    }
    busy_for.into_iter().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: &[u64]) -> Vec<Duration> {
        seconds.iter().copied().map(Duration::from_secs).collect()
    }

    #[test]
    fn what_waits_begins_where_something_ends_first() {
        assert_eq!(time_left([], []), Duration::ZERO);
        assert_eq!(time_left(seconds(&[5, 30]), []), Duration::from_secs(30));
        // 10 begins after 5, then 20 after 5 + 10.
        assert_eq!(time_left(seconds(&[5, 30]), seconds(&[10, 20])), Duration::from_secs(35));
        assert_eq!(time_left([], seconds(&[10, 20])), Duration::from_secs(30));
    }

    #[test]
    fn the_last_run_counts_more_than_the_table() {
        let folder = std::env::temp_dir().join(format!("xtask-durations-{}", std::process::id()));
        let mut durations = Durations::load(&folder);
        let (long, seconds) = LONG[0];
        assert_eq!(durations.expected(long), Duration::from_secs_f64(seconds));
        assert_eq!(durations.expected("new/one"), Duration::from_secs(3));
        durations.record(long, Duration::from_millis(61_234));
        durations.record("new/one", Duration::from_millis(20));
        durations.store().unwrap();
        let next = Durations::load(&folder);
        assert_eq!(next.expected(long), Duration::from_millis(61_200));
        assert_eq!(next.expected("new/one"), Duration::ZERO);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        assert_eq!(parse("not TOML"), BTreeMap::new());
        assert_eq!(
            parse("a = 'x'\nb = -1.0\nc = nan\nd = inf\ne = 2.5"),
            BTreeMap::from([("e".into(), 2.5)])
        );
    }
}
