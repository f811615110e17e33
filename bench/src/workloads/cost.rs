//! What the server does for a lock: alone, and for a hand-over with few and with many waiters.

use leasehold_testkit::RedisServer;

use super::{Setup, contention::figures};
use crate::{
    Failure,
    contest::Contest,
    core::Core,
    rounds,
    section::{Better, Section},
};

pub(super) fn measure(setup: &Setup) -> Result<Vec<Section>, Failure> {
    let title = "The server's work for a lone lock, and for a hand-over with 1,000 waiters instead of 10";
    let mut sections = vec![rounds::section("server_cost", title, setup, &[Core::Lone, Core::Commands])?];
    for waiters in [10, 100, 1_000].into_iter().take(setup.count(3, 1)) {
        sections.push(with_waiters(setup, waiters)?);
    }
    Ok(sections)
}

/// All in one process; each has the lock twice, or once among 1,000: libraries that poll take minutes for that.
fn with_waiters(setup: &Setup, waiters: usize) -> Result<Section, Failure> {
    let server = RedisServer::start()?;
    let servers = [&server];
    let grants = if waiters < 1_000 { 2 * waiters } else { waiters };
    let (url, tasks, grants) = (server.url(), waiters.to_string(), grants.to_string());
    let mut contest = Contest::new(&format!("server cost, {waiters} waiters"), &servers);
    for side in setup.libraries() {
        let keys = [
            ("url", url.as_str()),
            ("tasks", &tasks),
            ("name", "one"),
            ("grants", &grants),
            ("hold_us", "1000"),
        ];
        contest.enter(side, 1, "contend", &keys)?;
    }
    let results = contest.run(setup.count(2, 1), figures)?;
    let key = format!("waiters_{waiters}");
    let words = |what: &str| format!("{what} of the server per grant, up to {waiters} waiters");
    let mut outcomes =
        results.compare(&format!("{key}_commands"), &words("commands"), "commands", Better::Lower);
    outcomes.extend(results.compare(
        &format!("{key}_server_cpu"),
        &words("processor time"),
        "server_cpu_us",
        Better::Lower,
    ));
    let title = format!("What a grant costs with up to {waiters} waiters in one process");
    let section = Section::of(&key, &title, results, outcomes);
    Ok(section.charted("server_cpu_us", "processor time of the server per grant in µs, lower is better"))
}
