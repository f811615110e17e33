//! Holders that keep each other out: their tenures do not overlap, and fences tell which came first.

use leasehold::Mode;

use super::{Grant, Violation};

/// The grants that were relied on, first come first. One that returned after its validity was not.
pub(super) fn relied_on(mut grants: Vec<&Grant>) -> Vec<&Grant> {
    grants.retain(|grant| grant.returned_at < grant.ended_at());
    grants.sort_by_key(|grant| (grant.returned_at, grant.ended_at()));
    grants
}

/// Whether two cannot hold a name at the same time. Permits exclude each other by their number only.
fn exclude_each_other(one: Mode, other: Mode) -> bool {
    one == Mode::Exclusive || one.as_str() != other.as_str()
}

/// The grant of each mode with the highest number, and of equals the first.
#[derive(Default)]
struct Highest<'a>(Vec<&'a Grant>);

impl<'a> Highest<'a> {
    fn add(&mut self, grant: &'a Grant, number: impl Fn(&Grant) -> u64) {
        match self.0.iter_mut().find(|highest| highest.mode.as_str() == grant.mode.as_str()) {
            Some(highest) if number(highest) >= number(grant) => {}
            Some(highest) => *highest = grant,
            None => self.0.push(grant),
        }
    }

    /// The highest of those that exclude this one.
    fn against(&self, grant: &Grant, number: impl Fn(&Grant) -> u64) -> Option<&'a Grant> {
        let others = self.0.iter().filter(|other| exclude_each_other(other.mode, grant.mode));
        others.copied().max_by_key(|other| number(other))
    }
}

pub(super) fn overlaps(name: &str, tenures: &[&Grant], violations: &mut Vec<Violation>) {
    let mut longest = Highest::default();
    for second in tenures {
        let first = longest.against(second, Grant::ended_at);
        if let Some(first) = first.filter(|first| second.returned_at < first.ended_at()) {
            let (first, second) = (first.clone(), (*second).clone());
            violations.push(Violation::Overlap { name: name.to_owned(), first, second });
        }
        longest.add(second, Grant::ended_at);
    }
}

/// Of two that exclude each other the one that was relied on first came first, whenever it had asked.
pub(super) fn phases(name: &str, tenures: &[&Grant], violations: &mut Vec<Violation>) {
    let mut by_end = tenures.to_vec();
    by_end.sort_by_key(|grant| grant.ended_at());
    let (mut ended, mut highest) = (by_end.into_iter().peekable(), Highest::default());
    let fence = |grant: &Grant| grant.fence;
    for later in tenures {
        while let Some(earlier) = ended.next_if(|grant| grant.ended_at() <= later.returned_at) {
            highest.add(earlier, fence);
        }
        let earlier = highest.against(later, fence).filter(|earlier| earlier.fence > later.fence);
        // Otherwise it is out of order already.
        if let Some(earlier) = earlier.filter(|earlier| earlier.returned_at >= later.invoked_at) {
            let (earlier, later) = (earlier.clone(), (*later).clone());
            violations.push(Violation::OutOfPhase { name: name.to_owned(), earlier, later });
        }
    }
}

/// Nothing is given back while its holder uses it, also if its validity is over by then.
pub(super) fn given_back_early(name: &str, grants: &[Grant], violations: &mut Vec<Violation>) {
    for grant in grants {
        let in_use_until = grant.released_at.unwrap_or(u64::MAX);
        if grant.given_back_at.is_some_and(|given_back_at| given_back_at < in_use_until) {
            violations.push(Violation::GivenBackEarly { name: name.to_owned(), grant: grant.clone() });
        }
    }
}
