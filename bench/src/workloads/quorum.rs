//! A majority of 3 and of 5 nodes: all healthy, one stopped, one killed.

use std::{thread, time::Duration};

use leasehold_testkit::{QuorumSet, RedisServer};
use serde_json::Value;

use super::{Setup, cycle::figures, number};
use crate::{
    Failure,
    contest::{Contest, OURS, Side, Turn, Watch, Watched, one_by_one, pin_servers, round_of, start},
    contestant::Contestant,
    rounds,
    section::{Against, Better, Outcome, Section},
    topologies::Topology,
    votes,
};

/// Tasks with a lock each; nodes share a core.
const TASKS: usize = 64;
/// How long the load runs before the fault: calls are under way when it happens.
const BEFORE_FAULT: Duration = Duration::from_millis(20);
/// A peer that waits for a node that is gone is given up then.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn measure(setup: &Setup) -> Result<Vec<Section>, Failure> {
    let mut sections = Vec::new();
    for nodes in [3, 5].into_iter().take(setup.count(2, 1)) {
        sections.push(healthy(setup, nodes, 1)?);
        sections.push(healthy(setup, nodes, TASKS)?);
        sections.push(faulty(setup, nodes, Fault::Stopped)?);
        sections.push(faulty(setup, nodes, Fault::Killed)?);
    }
    let title = "An uncontended acquire by a quorum of 3, beside bare votes and one node";
    sections.push(rounds::section("quorum", title, setup, &[Topology::Quorum, Topology::Stopped])?);
    Ok(sections)
}

fn healthy(setup: &Setup, nodes: usize, tasks: usize) -> Result<Section, Failure> {
    let set = admitted(nodes)?;
    let servers: Vec<_> = set.nodes().iter().collect();
    let mut contest = Contest::new(&format!("quorum of {nodes}, tasks: {tasks}"), &servers);
    let (urls, tasks_text, ms) = (urls(&set), tasks.to_string(), setup.count(250, 50).to_string());
    let own = [OURS, "rslock"].into_iter().flat_map(|library| Side::on_both(library, library));
    for side in own.chain(setup.peers()) {
        contest.enter(side, 1, "cycle", &[("urls", &urls), ("tasks", &tasks_text), ("ms", &ms)])?;
    }
    let results = contest.run(setup.count(20, 3), figures)?;
    let (key, outcomes, (figure, caption)) = if tasks == 1 {
        let words = format!("p50 of a cycle on {nodes} nodes");
        let key = format!("quorum_{nodes}_cycle_p50");
        let outcomes = results.compare(&key, &words, "p50_us", Better::Lower);
        (key, outcomes, ("p50_us", "p50 of one acquire and release in µs, lower is better"))
    } else {
        let words = format!("cycles of {tasks} tasks on {nodes} nodes");
        let key = format!("quorum_{nodes}_throughput");
        let outcomes = results.compare(&key, &words, "cycles_per_s", Better::Higher);
        (key, outcomes, ("cycles_per_s", "acquire and release per second, higher is better"))
    };
    let title = format!("Acquire and release by a quorum of {nodes}, tasks: {tasks}");
    Ok(Section::of(&key, &title, results, outcomes).charted(figure, caption))
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// Stands still, with its connections open.
    Stopped,
    Killed,
}

impl Fault {
    fn word(self) -> &'static str {
        if self == Self::Stopped { "stopped" } else { "killed" }
    }

    fn happen(self, node: &RedisServer) {
        match self {
            Self::Stopped => node.stop(),
            Self::Killed => node.kill(),
        }
    }
}

fn faulty(setup: &Setup, nodes: usize, fault: Fault) -> Result<Section, Failure> {
    let title = format!("quorum of {nodes}, one {}", fault.word());
    // A peer that waits for the node takes its time: not in a quick run.
    let sides = setup.libraries().into_iter().take(setup.count(usize::MAX, 1)).collect();
    let results = one_by_one(&title, sides, setup.count(3, 1), |side| turn(setup, side, nodes, fault))?;
    let key = format!("quorum_{nodes}_{}", fault.word());
    let words = format!("cycles of {TASKS} tasks on {nodes} nodes with one {}", fault.word());
    let mut outcomes = results.compare(&key, &words, "cycles_per_s", Better::Higher);
    for (what, when, figure) in
        [("_first_second", " in the first second", "first_second_vs_healthy"), ("", "", "vs_healthy")]
    {
        let spread = results.spread(OURS, figure).ok_or("ours took no part")?;
        outcomes.push(Outcome::new(
            &format!("{key}{what}_vs_healthy"),
            &format!("{words}{when} / healthy"),
            spread,
            Better::Higher,
            Against::Nobody,
        ));
    }
    let title = format!("Acquire and release by a quorum of {nodes} with one node {}", fault.word());
    let caption = "throughput in the first second after the fault / before it, higher is better";
    Ok(Section::of(&key, &title, results, outcomes).charted("first_second_vs_healthy", caption))
}

/// On nodes of its own: a node that was killed votes again only after a while.
fn turn(setup: &Setup, side: &Side<'_>, nodes: usize, fault: Fault) -> Result<Turn, Failure> {
    let set = admitted(nodes)?;
    let servers: Vec<_> = set.nodes().iter().collect();
    pin_servers(&servers);
    let (urls, tasks, ms) = (urls(&set), TASKS.to_string(), setup.count(1_000, 200).to_string());
    let keys = [("urls", urls.as_str()), ("tasks", &tasks), ("ms", &ms)];
    let mut contestants = match start(side, 1, "cycle", &keys)? {
        Ok(contestants) => contestants,
        Err(why) => return Ok(Err(why)),
    };
    let watched = || Watched { servers: &[], clients: Vec::new(), idle: set_pids(&set, &contestants) };
    let watch = Watch::begin(watched())?;
    round_of(&mut contestants)?;
    let healthy = several(&mut contestants, 2)?;
    let others_share = watch.end()?.others_share;
    contestants[0].wait_at_most(PATIENCE);
    let first = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(BEFORE_FAULT);
            fault.happen(&set.nodes()[nodes - 1]);
        });
        several(&mut contestants, 1)
    })?;
    let later = several(&mut contestants, 2)?;
    if fault == Fault::Stopped {
        set.nodes()[nodes - 1].cont();
    }
    contestants.swap_remove(0).quit()?;
    let figures = vec![
        ("healthy_cycles_per_s", healthy.per_s),
        ("first_second_vs_healthy", first.per_s / healthy.per_s),
        ("vs_healthy", later.per_s / healthy.per_s),
        ("cycles_per_s", later.per_s),
        ("p50_us", later.p50_us),
        ("errors", first.errors + later.errors),
    ];
    Ok(Ok((figures, others_share)))
}

fn set_pids(set: &QuorumSet, contestants: &[Contestant]) -> Vec<u32> {
    let servers = set.nodes().iter().map(RedisServer::pid);
    servers.chain(contestants.iter().map(Contestant::pid)).collect()
}

/// Some rounds, taken together.
struct Load {
    per_s: f64,
    p50_us: f64,
    errors: f64,
}

fn several(contestants: &mut [Contestant], rounds: usize) -> Result<Load, Failure> {
    let (mut cycles, mut seconds, mut errors, mut p50_us) = (0.0, 0.0, 0.0, 0.0);
    for _ in 0..rounds {
        let answer: Value = round_of(contestants)?.swap_remove(0);
        cycles += number(&answer, "cycles")?;
        seconds += number(&answer, "seconds")?;
        errors += number(&answer, "errors")?;
        p50_us += number(&answer, "p50_us")? / rounds as f64;
    }
    Ok(Load { per_s: cycles / seconds, p50_us, errors })
}

fn admitted(nodes: usize) -> Result<QuorumSet, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(votes::admitted(nodes))
}

fn urls(set: &QuorumSet) -> String {
    set.nodes().iter().map(RedisServer::url).collect::<Vec<_>>().join(",")
}
