//! One seed from beginning to end, and the verdict on it.

use std::{sync::Arc, time::Duration};

use leasehold::{Name, engine::Members};
use leasehold_testkit::history::{Event, History, Violation, check};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    fleet::{Diary, Member},
    memory::Memory,
    network::{Network, Weather},
    node::Flaw,
    plan::{Plan, TTL_MAX, Trouble},
};

const MS: Duration = Duration::from_millis(1);
/// How long it takes until nothing is held any more once nobody holds it: far less than the longest ttl.
const SETTLES: Duration = Duration::from_millis(2500);

/// What one run showed.
#[derive(Default)]
pub(crate) struct Report {
    /// Promises that were not kept.
    pub(crate) broken: Vec<String>,
    pub(crate) granted: usize,
    /// Grants that needed the second phase.
    pub(crate) confirmed: u64,
    pub(crate) events: Vec<Event>,
}

/// Runs a seed on virtual time.
pub(crate) fn run(seed: u64, flaw: Option<Flaw>) -> Report {
    virtually(simulate(Plan::of(seed), flaw))
}

/// Runs something on virtual time: it moves on when everybody waits.
pub(crate) fn virtually<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime needs no resources");
    runtime.block_on(future)
}

async fn simulate(plan: Plan, flaw: Option<Flaw>) -> Report {
    let network = Network::new(plan.seed, plan.nodes, TTL_MAX, flaw);
    network.set_weather(plan.weather);
    let diary = Arc::new(Diary::default());
    let members: Vec<_> =
        (0..plan.skews_us.len()).map(|number| Member::new(&network, &plan, number, flaw, &diary)).collect();
    let fate = tokio::spawn(trouble(network.clone(), plan.clone()));
    let workers: Vec<_> = members.into_iter().map(|member| tokio::spawn(member.work(plan.clone()))).collect();
    let rolled_back = fate.await.expect("no trouble panics");
    let mut members = Vec::new();
    for worker in workers {
        members.push(worker.await.expect("no client panics"));
    }
    network.set_weather(Weather::CALM);
    if plan.trouble != Trouble::ForgetsAll {
        nothing_stays_held(&network, &plan, &rolled_back, &diary).await;
        all_vote_again(&network, &plan, &mut members, &diary).await;
        let mut fresh = Member::new(&network, &plan, members.len(), flaw, &diary);
        for number in 0..plan.names {
            fresh.last(&format!("name{number}")).await;
        }
    }
    let confirmed = members.iter().map(|member| member.quorum.rounds().confirmed).sum();
    judge(&plan, &diary, confirmed)
}

/// What befalls the nodes. Tells which of them were rolled back.
async fn trouble(network: Arc<Network>, plan: Plan) -> Vec<bool> {
    let mut chance = StdRng::seed_from_u64(plan.seed ^ 0x7157);
    let mut rolled_back = vec![false; plan.nodes];
    let end = network.clock.now() + plan.lasts;
    while plan.trouble != Trouble::None && network.clock.now() < end {
        tokio::time::sleep(MS * chance.random_range(50..1000)).await;
        let node = chance.random_range(0..plan.nodes);
        let others = network.admitted() - usize::from(network.touch(node, |node, _| node.is_admitted()));
        let may_forget = plan.forgets() && (plan.trouble == Trouble::ForgetsAll || others > plan.nodes / 2);
        match chance.random_range(0..8) {
            6 | 7 => {
                let (client, still) =
                    (chance.random_range(0..plan.skews_us.len()), MS * chance.random_range(300..3000));
                // Some of the nodes, often more than half of them.
                let cut = (0..plan.nodes).filter(|_| chance.random_bool(0.6));
                cut.for_each(|node| network.cut(client, node, still));
            }
            0 | 1 => network.hang(node, MS * chance.random_range(20..1200)),
            2 => network.touch(node, |node, _| node.dump = Some(node.memory.clone())),
            3 if may_forget => network.touch(node, |node, _| node.restart(Memory::default())),
            4 if may_forget => {
                network.touch(node, |node, _| {
                    let memory = node.dump.clone().unwrap_or_else(|| node.memory.clone());
                    node.restart(memory);
                });
                rolled_back[node] = true;
            }
            5 if may_forget => network.touch(node, |node, _| node.memory = Memory::default()),
            _ => {}
        }
    }
    for node in 0..plan.nodes {
        network.hang(node, Duration::ZERO);
        (0..plan.skews_us.len()).for_each(|client| network.cut(client, node, Duration::ZERO));
    }
    rolled_back
}

/// Whatever was given back, dropped or overtaken by its own end is free long before its ttl.
async fn nothing_stays_held(network: &Arc<Network>, plan: &Plan, rolled_back: &[bool], diary: &Diary) {
    let names: Vec<_> = (0..plan.names).map(|number| Name::new(format!("name{number}")).unwrap()).collect();
    // A node that was rolled back may have got back what its holder does not know of.
    let settles = |node: usize| if rolled_back[node] { 2 * TTL_MAX } else { SETTLES };
    for node in 0..plan.nodes {
        let until = network.clock.now() + settles(node);
        for name in &names {
            while network.touch(node, |node, now| node.is_held(name, now)) {
                if network.clock.now() >= until {
                    diary.complain(format!("node{node} still holds {name} although nobody does"));
                    break;
                }
                tokio::time::sleep(50 * MS).await;
            }
        }
    }
}

/// Nodes that forgot are brought back by whoever uses the quorum.
async fn all_vote_again(network: &Arc<Network>, plan: &Plan, members: &mut [Member], diary: &Diary) {
    let until = network.clock.now() + 6 * TTL_MAX;
    while network.admitted() < plan.nodes && network.clock.now() < until {
        for member in members.iter_mut() {
            drop(member.leases.lock("other").ttl(200 * MS).try_acquire().await);
        }
        tokio::time::sleep(200 * MS).await;
    }
    if network.admitted() < plan.nodes {
        diary.complain(format!("only {} of {} nodes vote at the end", network.admitted(), plan.nodes));
    }
}

fn judge(plan: &Plan, diary: &Diary, confirmed: u64) -> Report {
    let (events, mut broken) = diary.take();
    let history = match History::from_events(events.clone()) {
        Ok(history) => history,
        Err(error) => return Report { broken: vec![error.to_string()], ..Report::default() },
    };
    let counts =
        |violation: &Violation| plan.trouble != Trouble::Vanishes || violation.lost_lease_at().is_none();
    broken.extend(check(&history).iter().filter(|found| counts(found)).map(ToString::to_string));
    Report { broken, granted: history.granted(), confirmed, events }
}
