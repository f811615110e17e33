//! One lock that many tasks of four processes want.

use leasehold_testkit::RedisServer;
use serde_json::Value;

use super::{Setup, number};
use crate::{
    Failure,
    contest::{Contest, OURS, Used, pin_servers, round_of, start},
    report::Figures,
    section::{Against, Better, Outcome, Section},
    server_order::ServerOrder,
    spread::Spread,
};

const PROCESSES: usize = 4;
const NAME: &str = "one";

pub(super) fn measure(setup: &Setup, tasks: usize) -> Result<Section, Failure> {
    let (server, per_task) = (RedisServer::start()?, setup.count(4, 2));
    let (url, grants, tasks_text) = (server.url(), (tasks * per_task).to_string(), tasks.to_string());
    let hold_us = setup.count(2_000, 200).to_string();
    let keys: [(&str, &str); 5] =
        [("url", &url), ("tasks", &tasks_text), ("name", NAME), ("grants", &grants), ("hold_us", &hold_us)];
    let servers = [&server];
    let mut contest = Contest::new(&format!("contention, {PROCESSES} × {tasks} tasks"), &servers);
    for side in setup.libraries() {
        contest.enter(side, PROCESSES, "contend", &keys)?;
    }
    let results = contest.run(setup.count(if tasks > 50 { 2 } else { 5 }, 1), figures)?;
    let overtakings = overtakings(setup, &keys, PROCESSES * tasks * per_task)?;

    let key = format!("contention_{tasks}");
    let words = |what: &str| format!("{what}, {PROCESSES} × {tasks} tasks");
    let mut outcomes = results.compare(&key, &words("total time"), "total_per_holds", Better::Lower);
    outcomes.extend(results.compare(
        &format!("{key}_fairness"),
        &words("longest / median wait"),
        "longest_per_median_wait",
        Better::Lower,
    ));
    let own =
        |what: &str, text: &str, figure| results.own(&format!("{key}_{what}"), &words(text), OURS, figure);
    outcomes.extend(own("total_vs_holds", "total time / sum of holds", "total_per_holds"));
    outcomes.extend(own("longest_vs_median_wait", "longest / median wait", "longest_per_median_wait"));
    outcomes.push(Outcome::new(
        &format!("{key}_overtakings"),
        &words("grants to somebody who queued later"),
        Spread::of([overtakings]),
        Better::Lower,
        Against::Nobody,
    ));
    let title = format!("One lock, {PROCESSES} processes with {tasks} tasks each");
    let section = Section::of(&key, &title, results, outcomes);
    Ok(section.charted("total_per_holds", "total time / sum of holds, lower is better, 1 is the limit"))
}

/// From the processes together.
pub(super) fn figures(answers: &[Value], used: &Used) -> Result<Figures, Failure> {
    let numbers =
        |name: &str| answers.iter().map(|answer| number(answer, name)).collect::<Result<Vec<_>, _>>();
    let waits = |place: usize| {
        let wait = |answer: &Value| answer["waits_us"][place].as_f64().ok_or("no waits_us");
        answers.iter().map(wait).collect::<Result<Vec<_>, _>>()
    };
    let sum = |name: &str| Ok::<f64, Failure>(numbers(name)?.iter().sum());
    let (grants, holds) = (sum("grants")?, sum("hold_seconds")?);
    if sum("errors")? > 0.0 || grants == 0.0 {
        return Err("not everybody got the lock".into());
    }
    let first = numbers("first_s")?.into_iter().fold(f64::INFINITY, f64::min);
    let last = numbers("last_s")?.into_iter().fold(0.0, f64::max);
    // The last grant is held, too.
    let total = last - first + holds / grants;
    let (longest, median) = (waits(2)?.into_iter().fold(0.0, f64::max), Spread::of(waits(0)?).median);
    Ok(vec![
        ("total_per_holds", total / holds),
        ("gap_us", (total - holds) * 1e6 / grants),
        ("median_wait_ms", median / 1e3),
        ("longest_per_median_wait", longest / median.max(1.0)),
        ("commands", used.commands / grants),
        ("server_cpu_us", used.servers * 1e6 / grants),
        ("client_cpu_us", used.clients * 1e6 / grants),
    ])
}

/// In a round that is not measured: a server that shows its commands is slower.
fn overtakings(setup: &Setup, keys: &[(&str, &str)], grants: usize) -> Result<f64, Failure> {
    let server = RedisServer::start()?;
    pin_servers(&[&server]);
    let url = server.url();
    let keys: Vec<_> =
        keys.iter().map(|(key, value)| (*key, if *key == "url" { &url } else { *value })).collect();
    let ours = setup.libraries().swap_remove(0);
    let mut contestants = start(&ours, PROCESSES, "contend", &keys)??;
    let order = ServerOrder::watch(&server, &format!("bench:{OURS}:{NAME}"))?;
    round_of(&mut contestants)?;
    for contestant in contestants {
        contestant.quit()?;
    }
    let seen = order.end()?;
    if seen.grants != grants {
        return Err(format!("the server shows {} grants of {grants}", seen.grants).into());
    }
    Ok(seen.overtakings as f64)
}
