//! Idempotency keys: begin and complete beside a lock's cycle, waiting for a result, and marks.

use super::{Setup, cycle::contest};
use crate::{
    Failure,
    contest::{OURS, Side},
    records::OfRecords,
    rounds,
    section::{Against, Better, Outcome, Section},
};

const TASKS: usize = 64;
const LOCKS: &str = "locks";

pub(super) fn measure(setup: &Setup) -> Result<Vec<Section>, Failure> {
    let sides =
        vec![Side::own("idempotency", OURS), Side::own(OURS, LOCKS), Side::own("bare-keys", "bare keys")];
    let results = contest(setup, TASKS, sides, &[])?;
    let words = format!("begin and complete by {TASKS} tasks");
    let key = format!("record_cycles_{TASKS}");
    let mut outcomes = results.compare(&key, &words, "cycles_per_s", Better::Higher);
    let beside_locks = outcomes.iter_mut().find(|outcome| outcome.key.ends_with(LOCKS));
    let beside_locks = beside_locks.ok_or("no locks beside")?;
    *beside_locks = Outcome::new(
        &format!("{key}_vs_lock_cycles"),
        &format!("{words} / cycles of locks"),
        beside_locks.spread,
        Better::Higher,
        Against::Nobody,
    );
    let title = format!("Begin and complete of new idempotency keys, {TASKS} tasks");
    let inside = "A waiting caller gets the result; 1,000 marks at once";
    Ok(vec![
        Section::of("idempotency", &title, results, outcomes)
            .charted("cycles_per_s", "begin and complete per second, higher is better"),
        rounds::section("results_and_marks", inside, setup, &[OfRecords::Wake, OfRecords::Marks])?,
    ])
}
