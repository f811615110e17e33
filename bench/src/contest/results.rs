//! What the rounds of a contest gave, and how ours compares.

use super::{DISTURBED, RUNTIMES};
use crate::{
    report::Figures,
    section::{Against, Better, Outcome},
    spread::Spread,
};

pub(crate) const OURS: &str = "leasehold";
/// Not libraries: what no library can do without.
const LIMITS: [&str; 4] = ["raw scripts", "two PINGs", "PUBLISH", "bare keys"];

/// The figures of all rounds.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) entrants: Vec<Entrant>,
    /// What others used in each turn, as a share of a core.
    pub(crate) others: Vec<f64>,
    /// Who is missing, and why.
    pub(crate) notes: Vec<String>,
}

#[derive(Default)]
pub(crate) struct Entrant {
    pub(crate) label: String,
    /// One value for each round, in the order of the first.
    pub(crate) figures: Vec<(&'static str, Vec<f64>)>,
}

impl Entrant {
    fn values(&self, figure: &str) -> Option<&[f64]> {
        self.figures.iter().find(|(name, _)| *name == figure).map(|(_, values)| values.as_slice())
    }
}

/// Whether an entrant is a limit, on whatever runtime.
pub(crate) fn is_limit(label: &str) -> bool {
    LIMITS.contains(&parts(label).0)
}

impl Results {
    /// Tables list entrants in this order.
    pub(super) fn enter(&mut self, label: &str) {
        self.entrants.push(Entrant { label: label.to_owned(), ..Entrant::default() });
    }

    pub(super) fn add(&mut self, label: &str, figures: Figures) {
        let entrant = self.entrants.iter_mut().find(|entrant| entrant.label == label);
        let entrant = entrant.expect("it has entered");
        for (name, value) in figures {
            match entrant.figures.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => entrant.figures.push((name, vec![value])),
            }
        }
    }

    pub(super) fn leave(&mut self, label: &str, why: &str) {
        self.entrants.retain(|entrant| entrant.label != label);
        self.notes.push(format!("{label}: {why}"));
    }

    /// Turns during which others used the machine, and the most that they used.
    pub(crate) fn disturbed(&self) -> (usize, f64) {
        let turns = self.others.iter().filter(|share| **share >= DISTURBED).count();
        (turns, self.others.iter().copied().fold(0.0, f64::max))
    }

    /// A figure of one entrant, over all rounds.
    pub(crate) fn spread(&self, label: &str, figure: &str) -> Option<Spread> {
        let entrant = self.entrants.iter().find(|entrant| entrant.label == label)?;
        Some(Spread::of(entrant.values(figure)?.iter().copied()))
    }

    /// A figure of ours as an outcome.
    pub(crate) fn own(&self, key: &str, words: &str, label: &str, figure: &str) -> Option<Outcome> {
        let spread = self.spread(label, figure)?;
        Some(Outcome::new(key, words, spread, Better::Lower, Against::Nobody))
    }

    /// Ours over each of the others on the same runtime, round by round: `KEY_vs_OTHER` on the multi-thread runtime,
    /// `KEY_vs_OTHER_ct` on the other. Peers in other languages are compared with both.
    pub(crate) fn compare(
        &self,
        key: &str,
        words: &str,
        figure: &'static str,
        better: Better,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let (ours, others): (Vec<_>, Vec<_>) =
            self.entrants.iter().partition(|entrant| parts(&entrant.label).0 == OURS);
        for (ours, runtime) in ours.iter().map(|ours| (ours, parts(&ours.label).1)) {
            for other in &others {
                let (name, of_other) = parts(&other.label);
                if of_other.is_some() && of_other != runtime {
                    continue;
                }
                let (Some(one), Some(two)) = (ours.values(figure), other.values(figure)) else {
                    continue;
                };
                let spread = Spread::of(one.iter().zip(two).map(|(one, two)| one / two));
                let (suffix, on) = match runtime {
                    Some("ct") => ("_ct", ", current-thread"),
                    _ => ("", ""),
                };
                let slug = name.to_lowercase().replace([' ', '-'], "_");
                let against = if is_limit(name) { Against::Limit } else { Against::Peer };
                outcomes.push(Outcome::new(
                    &format!("{key}_vs_{slug}{suffix}"),
                    &format!("{words}{on} / {name}"),
                    spread,
                    better,
                    against,
                ));
            }
        }
        outcomes
    }
}

/// The library, and its runtime if the label has one.
fn parts(label: &str) -> (&str, Option<&str>) {
    match label.rsplit_once(' ') {
        Some((library, runtime)) if RUNTIMES.contains(&runtime) => (library, Some(runtime)),
        _ => (label, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(rounds: &[&[(&str, f64)]]) -> Results {
        let mut results = Results::default();
        for (label, _) in rounds[0] {
            results.enter(label);
        }
        for (label, value) in rounds.iter().copied().flatten() {
            results.add(label, vec![("p50_us", *value)]);
        }
        results
    }

    #[test]
    fn ratios_are_paired_by_round() {
        let rounds: [&[_]; 3] = [
            &[("leasehold mt", 1.0), ("rslock mt", 2.0)],
            &[("leasehold mt", 30.0), ("rslock mt", 60.0)],
            &[("leasehold mt", 5.0), ("rslock mt", 5.0)],
        ];
        let outcomes = results(&rounds).compare("p50", "p50", "p50_us", Better::Lower);
        assert_eq!(outcomes.len(), 1);
        assert_eq!(outcomes[0].key, "p50_vs_rslock");
        let Spread { median, min, max } = outcomes[0].spread;
        assert_eq!((median, min, max), (0.5, 0.5, 1.0));
    }

    #[test]
    fn runtimes_are_not_mixed_and_other_languages_meet_both() {
        let round: &[_] = &[
            ("leasehold mt", 1.0),
            ("leasehold ct", 2.0),
            ("rslock mt", 1.0),
            ("rslock ct", 1.0),
            ("two PINGs ct", 1.0),
            ("redis-py", 4.0),
        ];
        let outcomes = results(&[round]).compare("p50", "p50", "p50_us", Better::Lower);
        let keys: Vec<_> = outcomes.iter().map(|outcome| outcome.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "p50_vs_rslock",
                "p50_vs_redis_py",
                "p50_vs_rslock_ct",
                "p50_vs_two_pings_ct",
                "p50_vs_redis_py_ct"
            ]
        );
        assert!(matches!(outcomes[3].against, Against::Limit));
    }
}
