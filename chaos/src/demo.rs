//! Runs the demos, each on the servers that its design names, while those servers fail.

use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

use leasehold::Leasehold;
use leasehold_demos::{DEMOS, Demo};

use crate::{
    Failure, fault_loop,
    schedule::Schedule,
    topology::{Fault, Kind, Topology, cluster::Cluster, quorum::Quorum, sentinel::Sentinel, single::Single},
};

/// More work and more kills than in a run for a user.
const SCALE: u32 = 300;
const KILLS: u32 = 40;
/// Time without faults between two faults.
const REST: Duration = Duration::from_secs(2);

/// Runs the demo of that name, or `all`; returns whether every invariant held.
pub(crate) fn run(name: &str) -> Result<bool, Failure> {
    let chosen: Vec<_> = DEMOS.into_iter().filter(|demo| name == "all" || demo.name == name).collect();
    if chosen.is_empty() {
        let names: Vec<_> = DEMOS.iter().map(|demo| demo.name).collect();
        return Err(format!("no demo \"{name}\": expected all, {}", names.join(", ")).into());
    }
    let mut held = true;
    for demo in chosen {
        held &= match demo.name {
            // The fence in its database makes up for locks that a server lost.
            "flash-sale" => run_demo::<Sentinel>(demo, Kind::Sentinel, |_| true)?,
            // Writes that a primary has not replicated yet are lost with it, deadlines included.
            "recovery" => run_demo::<Cluster>(demo, Kind::Cluster, |fault| !fault.may_lose_writes)?,
            "crawler" => run_demo::<Quorum>(demo, Kind::Quorum, |_| true)?,
            _ => run_demo::<Single>(demo, Kind::Single, |_| true)?,
        };
    }
    Ok(held)
}

fn run_demo<T: Topology>(
    demo: &'static Demo,
    topology: Kind,
    wanted: impl Fn(&Fault<T>) -> bool,
) -> Result<bool, Failure> {
    let set = T::start(&fault_loop::Options::quiet(topology))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.spawn(stay_in_touch(set.url(), T::MAX_TTL));
    set.await_whole();
    let options = leasehold_demos::Options {
        store: Some(set.url()),
        scale: SCALE,
        kills: KILLS,
        ..leasehold_demos::Options::default()
    };
    let faults: Vec<_> = T::FAULTS.iter().filter(|fault| wanted(fault)).collect();
    let demo_run = thread::spawn(move || leasehold_demos::run(demo, &options));
    let mut inflicted = 0;
    for planned in Schedule::new(rand::random(), faults.len()) {
        rest(|| demo_run.is_finished());
        if demo_run.is_finished() {
            break;
        }
        let fault = faults[planned.fault];
        let victims = (fault.inflict)(&set, planned.dice);
        thread::sleep(planned.outage);
        (fault.mend)(&set, &victims);
        set.await_whole();
        inflicted += 1;
    }
    let code = demo_run.join().map_err(|_| "the demo panicked")?;
    writeln!(std::io::stdout(), "  faults of its {topology:?} servers: {inflicted}\n")?;
    Ok(code == 0)
}

/// Uses the servers all the time, also while the demo starts and ends: clients readmit nodes that lost their data.
async fn stay_in_touch(url: String, max_ttl: Duration) {
    let builder =
        Leasehold::builder(url).configure(|config| (config.ttl, config.max_ttl) = (max_ttl, max_ttl));
    let Ok(leases) = builder.connect_lazy() else { return };
    loop {
        let _whatever = leases.lock("chaos:in-touch").try_acquire().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn rest(is_over: impl Fn() -> bool) {
    let until = Instant::now() + REST;
    while Instant::now() < until && !is_over() {
        thread::sleep(Duration::from_millis(50));
    }
}
