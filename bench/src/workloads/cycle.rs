//! Acquire and release of locks that nobody else wants: by one task, and by many with a lock each.

use leasehold_testkit::RedisServer;
use serde_json::Value;

use super::{Setup, number};
use crate::{
    Failure,
    contest::{Contest, OURS, Results, Side, Used},
    report::Figures,
    section::{Better, Section},
};

pub(super) fn latency(setup: &Setup) -> Result<Section, Failure> {
    let results = contest(setup, 1, sides(setup), &[])?;
    let outcomes = results.compare("cycle_p50", "p50 of a cycle", "p50_us", Better::Lower);
    let section = Section::of("cycle", "Acquire and release, 1 task", results, outcomes);
    Ok(section.charted("p50_us", "p50 of one acquire and release in µs, lower is better"))
}

pub(super) fn throughput(setup: &Setup, tasks: usize) -> Result<Section, Failure> {
    let results = contest(setup, tasks, sides(setup), &[])?;
    let key = format!("throughput_{tasks}");
    let mut outcomes =
        results.compare(&key, &format!("cycles of {tasks} tasks"), "cycles_per_s", Better::Higher);
    // Between libraries in one language it says more than wall time where the machine is busy.
    let words = format!("processor time of the busier side, {tasks} tasks");
    let cpu = results.compare(&format!("cpu_{tasks}"), &words, "busier_cpu_us", Better::Lower);
    outcomes.extend(cpu.into_iter().filter(|outcome| outcome.key.contains("rslock")));
    let title = format!("Acquire and release, {tasks} tasks with a lock each");
    let section = Section::of(&key, &title, results, outcomes);
    Ok(section.charted("cycles_per_s", "acquire and release per second, higher is better"))
}

/// Ours, rslock, the limits, and the peers.
fn sides(setup: &Setup) -> Vec<Side<'_>> {
    let own = [(OURS, OURS), ("rslock", "rslock"), ("scripts", "raw scripts"), ("pings", "two PINGs")];
    let own = own.into_iter().flat_map(|(library, label)| Side::on_both(library, label));
    own.chain(setup.peers()).collect()
}

pub(super) fn contest(
    setup: &Setup,
    tasks: usize,
    sides: Vec<Side<'_>>,
    more: &[(&str, &str)],
) -> Result<Results, Failure> {
    let server = RedisServer::start()?;
    let servers = [&server];
    let mut contest = Contest::new(&format!("cycle, tasks: {tasks}"), &servers);
    let (url, tasks, ms) = (server.url(), tasks.to_string(), setup.count(250, 50).to_string());
    let keys = [more, &[("url", url.as_str()), ("tasks", tasks.as_str()), ("ms", ms.as_str())]].concat();
    for side in sides {
        contest.enter(side, 1, "cycle", &keys)?;
    }
    contest.run(setup.count(20, 3), figures)
}

pub(super) fn figures(answers: &[Value], used: &Used) -> Result<Figures, Failure> {
    let [answer] = answers else { return Err("not one answer".into()) };
    let cycles = number(answer, "cycles")?;
    if number(answer, "errors")? > 0.0 || cycles == 0.0 {
        return Err(format!("an uncontended cycle failed: {answer}").into());
    }
    Ok(vec![
        ("p50_us", number(answer, "p50_us")?),
        ("p99_us", number(answer, "p99_us")?),
        ("cycles_per_s", cycles / number(answer, "seconds")?),
        ("client_cpu_us", used.clients * 1e6 / cycles),
        ("server_cpu_us", used.servers * 1e6 / cycles),
        // What bounds the throughput on a core each; it hardly depends on what others do to the machine.
        ("busier_cpu_us", used.servers.max(used.clients) * 1e6 / cycles),
        ("commands", used.commands / cycles),
    ])
}
