//! Readers and permits: beside exclusive locks, and against those of Redisson.

use clap::ValueEnum;

use super::{Setup, cycle::contest};
use crate::{
    Failure,
    contest::{OURS, Side},
    family::Family,
    program::{PERMITS, SHARED},
    rounds,
    section::{Better, Section},
};

const TASKS: usize = 64;

pub(super) fn measure(setup: &Setup) -> Result<Vec<Section>, Failure> {
    let title = "Readers and permits beside exclusive locks, on one server";
    let mut sections = vec![rounds::section("family", title, setup, Family::value_variants())?];
    for [ours, theirs, key, what] in [
        [SHARED, "redisson-shared", "family_shared_64", "readers"],
        [PERMITS, "redisson-permits", "family_permits_64", "permits"],
    ] {
        let Some(theirs) = setup.peer(theirs) else { continue };
        let sides = || vec![Side::own(ours, OURS), theirs.clone().labelled("redisson")];
        let title = format!("Acquire and release of {what}, {TASKS} tasks");
        sections.push(against(setup, sides(), key, &format!("{title} with a name each"), TASKS)?);
        let key = format!("{key}_one_name");
        sections.push(against(setup, sides(), &key, &format!("{title} that share one name"), 1)?);
    }
    Ok(sections)
}

/// Nobody waits: there is a permit for every task.
fn against(
    setup: &Setup,
    sides: Vec<Side<'_>>,
    key: &str,
    title: &str,
    names: usize,
) -> Result<Section, Failure> {
    let (names, permits) = (names.to_string(), TASKS.to_string());
    let results = contest(setup, TASKS, sides, &[("names", &names), ("permits", &permits)])?;
    let outcomes = results.compare(key, &title.to_lowercase(), "cycles_per_s", Better::Higher);
    let section = Section::of(key, title, results, outcomes);
    Ok(section.charted("cycles_per_s", "acquire and release per second, higher is better"))
}
