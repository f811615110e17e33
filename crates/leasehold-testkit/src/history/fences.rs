//! Fences are unique, grow with time, and a resource that checks them never goes back.

use leasehold::Mode;

use super::{Grant, Violation, Write};

pub(super) fn duplicates(name: &str, mut grants: Vec<&Grant>, violations: &mut Vec<Violation>) {
    grants.sort_by_key(|grant| (grant.fence, grant.returned_at));
    // Nobody tells readers apart that ask at the same time: over a quorum two of them may have the same fence.
    let read_together = |one: &Grant, other: &Grant| {
        one.mode == Mode::Shared
            && other.mode == Mode::Shared
            && one.invoked_at <= other.returned_at
            && other.invoked_at <= one.returned_at
    };
    let is_same = |pair: &&[&Grant]| pair[0].fence == pair[1].fence && !read_together(pair[0], pair[1]);
    for pair in grants.windows(2).filter(is_same) {
        let (first, second) = (pair[0].clone(), pair[1].clone());
        violations.push(Violation::DuplicateFence { name: name.to_owned(), first, second });
    }
}

pub(super) fn real_time_order(name: &str, grants: &[&Grant], violations: &mut Vec<Violation>) {
    let mut by_return = grants.to_vec();
    by_return.sort_by_key(|grant| grant.returned_at);
    let mut by_invocation = grants.to_vec();
    by_invocation.sort_by_key(|grant| grant.invoked_at);
    let mut returned = by_return.into_iter().peekable();
    let mut highest: Option<&Grant> = None;
    for later in by_invocation {
        while let Some(earlier) = returned.next_if(|grant| grant.returned_at < later.invoked_at) {
            highest = highest.filter(|highest| highest.fence >= earlier.fence).or(Some(earlier));
        }
        if let Some(earlier) = highest.filter(|earlier| earlier.fence > later.fence) {
            let (earlier, later) = (earlier.clone(), later.clone());
            violations.push(Violation::OutOfOrder { name: name.to_owned(), earlier, later });
        }
    }
}

pub(super) fn register(name: &str, writes: &[Write], violations: &mut Vec<Violation>) {
    let mut highest: Option<&Write> = None;
    for accepted in writes.iter().filter(|write| write.accepted) {
        match highest {
            Some(highest) if accepted.fence < highest.fence => {
                let (highest, accepted) = (highest.clone(), accepted.clone());
                violations.push(Violation::RegisterWentDown { name: name.to_owned(), highest, accepted });
            }
            _ => highest = Some(accepted),
        }
    }
}
