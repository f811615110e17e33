//! Acquire and release of locks that nobody else wants: by one task, and by many with a lock each.

use leasehold_testkit::RedisServer;
use serde_json::Value;

use super::{Scale, contestant};
use crate::{
    Failure,
    contest::{Contest, Results, Used},
    report::{Figures, Target},
    section::{Outcome, Section},
};

/// Both runtimes of tokio, and how keys name them.
const RUNTIMES: [(&str, &str); 2] = [("mt", ""), ("ct", "_ct")];
/// Our library, the peer in Rust, and the limits.
const LIBRARIES: [(&str, &str); 4] =
    [("leasehold", "leasehold"), ("rslock", "rslock"), ("scripts", "raw scripts"), ("pings", "two PINGs")];

pub(crate) fn latency(scale: &Scale) -> Result<Section, Failure> {
    let results = contest("cycle, 1 task", scale, 1)?;
    let target = |other: &str| match other {
        "rslock" => Target::AtMost(1.10),
        "two PINGs" => Target::AtMost(1.35),
        _ => Target::None,
    };
    let outcomes = outcomes(&results, "cycle_p50", "p50_us", |other, _| target(other));
    Ok(Section::new("cycle", "Acquire and release, 1 task", results, outcomes))
}

pub(crate) fn throughput(scale: &Scale, tasks: usize) -> Result<Section, Failure> {
    let results = contest(&format!("cycle, {tasks} tasks"), scale, tasks)?;
    let target = |other: &str, runtime: &str| match (other, runtime) {
        ("rslock", "mt") => Target::AtLeast(if tasks == 64 { 1.8 } else { 1.5 }),
        ("rslock", _) => Target::AtLeast(1.0),
        _ => Target::None,
    };
    let mut outcomes = outcomes(&results, &format!("throughput_{tasks}"), "cycles_per_s", target);
    outcomes
        .extend(self::outcomes(&results, &format!("cpu_{tasks}"), "busier_side_cpu_us", |_, _| Target::None));
    let title = format!("Acquire and release, {tasks} tasks with a lock each");
    Ok(Section::new(&format!("throughput_{tasks}"), &title, results, outcomes))
}

fn contest(title: &str, scale: &Scale, tasks: usize) -> Result<Results, Failure> {
    let server = RedisServer::start()?;
    let mut contest = Contest::new(title, vec![&server]);
    let (url, tasks, ms) = (server.url(), tasks.to_string(), scale.count(250, 60).to_string());
    for (library, label) in LIBRARIES {
        for (runtime, _) in RUNTIMES {
            let prefix = format!("bench:{library}:{runtime}");
            let keys = [
                ("lib", library),
                ("runtime", runtime),
                ("url", &url),
                ("prefix", &prefix),
                ("tasks", &tasks),
                ("ms", &ms),
            ];
            contest.enter(&format!("{label} {runtime}"), 1, |_| contestant("cycle", &keys))?;
        }
    }
    contest.run(scale.count(20, 3), figures)
}

fn figures(answers: &[Value], used: &Used) -> Result<Figures, Failure> {
    let [answer] = answers else { return Err("not one answer".into()) };
    let number = |name: &str| answer[name].as_f64().ok_or_else(|| format!("no number {name} in {answer}"));
    let cycles = number("cycles")?;
    if number("errors")? > 0.0 || cycles == 0.0 {
        return Err(format!("an uncontended cycle failed: {answer}").into());
    }
    Ok(vec![
        ("p50_us", number("p50_us")?),
        ("p99_us", number("p99_us")?),
        ("cycles_per_s", cycles / number("seconds")?),
        ("client_cpu_us", used.clients * 1e6 / cycles),
        ("server_cpu_us", used.servers * 1e6 / cycles),
        // What bounds the throughput on a core each; it hardly depends on what others do to the machine.
        ("busier_side_cpu_us", used.servers.max(used.clients) * 1e6 / cycles),
    ])
}

/// Ours against everybody else on the same runtime.
fn outcomes(
    results: &Results,
    what: &str,
    figure: &str,
    target: impl Fn(&str, &str) -> Target,
) -> Vec<Outcome> {
    let others = || LIBRARIES.into_iter().skip(1);
    let pairs = RUNTIMES.into_iter().flat_map(|runtime| others().map(move |other| (runtime, other)));
    let outcome = |((runtime, suffix), (_, other)): ((&str, &str), (&str, &str))| {
        let spread = results.ratio(figure, &format!("leasehold {runtime}"), &format!("{other} {runtime}"))?;
        let key = format!("{what}_vs_{}{suffix}", other.to_lowercase().replace(' ', "_"));
        Some(Outcome { key, spread, target: target(other, runtime) })
    };
    pairs.filter_map(outcome).collect()
}
