//! What is said of several nodes at once.

use std::time::Duration;

use super::Warning;

/// A difference between two clocks that people notice.
const APART_MAX: Duration = Duration::from_secs(1);
/// A difference that soon stops something.
const APART_URGENT: Duration = Duration::from_secs(30);
/// Nodes that one text lists.
const NAMED_MAX: usize = 8;

/// How far a node's clock is ahead of ours: somewhere between these two, because its answer took a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    least_us: i128,
    most_us: i128,
}

impl ClockOffset {
    /// From the node's clock, and from ours before it was asked and after it had answered; in microseconds since 1970.
    pub fn new(asked_us: u64, node_us: u64, answered_us: u64) -> Self {
        let node = i128::from(node_us);
        Self { least_us: node - i128::from(answered_us), most_us: node - i128::from(asked_us) }
    }

    /// How far it is from ours, at least.
    pub fn from_ours(self) -> Duration {
        micros(self.least_us.max(-self.most_us))
    }
}

/// Nothing, where it is negative.
fn micros(us: i128) -> Duration {
    Duration::from_micros(u64::try_from(us.max(0)).unwrap_or(u64::MAX))
}

/// Warns when the clocks of two nodes differ. `matters` says why; `soon` is added when they are far apart.
pub fn clocks_differ(clocks: &[(&str, ClockOffset)], matters: &str, soon: &str) -> Option<Warning> {
    let (ahead, first) = clocks.iter().max_by_key(|(_, clock)| clock.least_us)?;
    let (behind, last) = clocks.iter().min_by_key(|(_, clock)| clock.most_us)?;
    let apart = micros(first.least_us - last.most_us);
    if apart <= APART_MAX {
        return None;
    }
    let soon = if apart > APART_URGENT { format!(", and {soon}") } else { String::new() };
    Some(Warning {
        code: "clocks-differ",
        found: format!(
            "the clock of {ahead} is {:.1} s ahead of that of {behind}: {matters}{soon}",
            apart.as_secs_f64()
        ),
        cure: "keep the clocks of all nodes in time, with NTP for example".into(),
    })
}

/// One warning per code and cure, which names the nodes it is about.
pub fn gather(each: impl IntoIterator<Item = (String, Warning)>) -> Vec<Warning> {
    let mut different: Vec<(Warning, Vec<String>)> = Vec::new();
    for (label, warning) in each {
        match different.iter_mut().find(|(known, _)| *known == warning) {
            Some((_, labels)) => labels.push(label),
            None => different.push((warning, vec![label])),
        }
    }
    let mut gathered: Vec<Warning> = Vec::new();
    for (warning, labels) in different {
        let found = format!("{}: {}", listed(&labels), warning.found);
        match gathered.iter_mut().find(|known| (known.code, &known.cure) == (warning.code, &warning.cure)) {
            Some(known) => known.found += &format!("; {found}"),
            None => gathered.push(Warning { found, ..warning }),
        }
    }
    gathered
}

/// Some nodes, by name.
pub fn listed<T: AsRef<str>>(labels: &[T]) -> String {
    let shown: Vec<_> = labels.iter().take(NAMED_MAX).map(AsRef::as_ref).collect();
    match labels.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    /// A clock that was read within a tenth of a second.
    fn ahead(us: u64) -> ClockOffset {
        ClockOffset::new(SECOND_US, SECOND_US + us, SECOND_US + 100_000)
    }

    #[test]
    fn a_slow_answer_is_no_difference() {
        assert_eq!(ClockOffset::new(1_000, 2_500, 9_000).from_ours(), Duration::ZERO);
        assert_eq!(ClockOffset::new(1_000, 400, 9_000).from_ours(), Duration::from_micros(600));
        assert_eq!(ClockOffset::new(1_000, 9_700, 9_000).from_ours(), Duration::from_micros(700));
        let slow = ClockOffset::new(0, 9 * SECOND_US, 9 * SECOND_US);
        assert_eq!(clocks_differ(&[("a", slow), ("b", ahead(0))], "", ""), None);
    }

    #[test]
    fn the_clocks_that_are_furthest_apart_are_named() {
        let differ = |us| {
            let clocks = [("a", ahead(1_500_000)), ("b", ahead(us)), ("c", ahead(1_000_000))];
            clocks_differ(&clocks, "it matters", "soon more")
        };
        assert_eq!(differ(500_000), None);
        let found = differ(2_700_000).unwrap().found;
        assert_eq!(found, "the clock of b is 1.6 s ahead of that of c: it matters");
        let found = differ(41_100_000).unwrap().found;
        assert_eq!(found, "the clock of b is 40.0 s ahead of that of c: it matters, and soon more");
        assert_eq!(clocks_differ(&[("a", ahead(90 * SECOND_US))], "", ""), None);
        assert_eq!(clocks_differ(&[], "", ""), None);
    }

    #[test]
    fn a_warning_about_several_nodes_is_given_once_and_names_them() {
        let warning = |label: &str, code, found: &str| {
            (label.to_owned(), Warning { code, found: found.into(), cure: "c".into() })
        };
        let gathered = gather([
            warning("a", "x", "one"),
            warning("b", "y", "two"),
            warning("c", "x", "one"),
            warning("d", "x", "three"),
        ]);
        let shown: Vec<_> = gathered.iter().map(|warning| (warning.code, warning.found.as_str())).collect();
        assert_eq!(shown, [("x", "a, c: one; d: three"), ("y", "b: two")]);
        let many: Vec<_> = (0..10).map(|n| n.to_string()).collect();
        assert_eq!(listed(&many), "0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
    }
}
