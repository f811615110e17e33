//! From just before a release to the next holder's `acquire` returning, beside a bare message.

use leasehold_testkit::RedisServer;

use super::{Setup, number};
use crate::{
    Failure,
    contest::{Contest, OURS, Side},
    section::{Better, Section},
};

pub(super) fn measure(setup: &Setup) -> Result<Section, Failure> {
    let server = RedisServer::start()?;
    let servers = [&server];
    let (url, count) = (server.url(), setup.count(100, 20).to_string());
    let mut contest = Contest::new("hand-over", &servers);
    for (library, label) in [(OURS, OURS), ("publish", "PUBLISH")] {
        for side in Side::on_both(library, label) {
            contest.enter(side, 1, "handover", &[("url", &url), ("count", &count)])?;
        }
    }
    let results = contest.run(setup.count(20, 2), |answers, used| {
        let passed = number(&answers[0], "handovers")?;
        Ok(vec![
            ("p50_us", number(&answers[0], "p50_us")?),
            ("p99_us", number(&answers[0], "p99_us")?),
            ("client_cpu_us", used.clients * 1e6 / passed),
            ("server_cpu_us", used.servers * 1e6 / passed),
        ])
    })?;
    let outcomes = results.compare("handover_p50", "p50 of a hand-over", "p50_us", Better::Lower);
    let section = Section::of("handover", "From a release to the next holder", results, outcomes);
    Ok(section.charted("p50_us", "p50 of a hand-over in µs, lower is better"))
}
