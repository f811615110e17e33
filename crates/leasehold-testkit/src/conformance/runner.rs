//! Runs cases, several at a time, each in its own namespace and with its own time limit.

use std::{
    any::Any,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use leasehold::engine::{Atomic, Capabilities, Handover};
use tokio::{runtime::Builder, sync::oneshot, task::JoinSet};

use super::{Case, Fixture, Namespace, Need, Report, TestContext, cases};

/// Cases at the same time. They mostly wait for time to pass.
const AT_ONCE: usize = 8;
/// Only cases with this text in their name run, if it is set.
const FILTER: &str = "LEASEHOLD_CASE";

/// Runs so far in this process: namespaces must differ between runs too, where a store is shared by name.
static RUNS: AtomicU32 = AtomicU32::new(0);

/// Runs all cases on an engine. `label` names it in the report. With `LEASEHOLD_CASE` in the environment, only those
/// with its text in their name.
///
/// # Panics
/// When the store cannot be reached.
pub async fn run(label: &str, fixture: impl Fixture) -> Report {
    let filter = std::env::var(FILTER).unwrap_or_default();
    let chosen: Vec<_> = cases().into_iter().filter(|case| case.name.contains(&filter)).collect();
    run_some(label, fixture, &chosen).await
}

/// Runs these cases on an engine.
///
/// # Panics
/// When the store cannot be reached.
pub async fn run_some(label: &str, fixture: impl Fixture, chosen: &[Case]) -> Report {
    let fixture: Arc<dyn Fixture> = Arc::new(fixture);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let mut run = Run {
        label,
        number,
        capabilities: Arc::new(capabilities(&*fixture, number).await),
        lacks: lacks(&*fixture, number),
        fixture,
        report: Report::of_one_engine(chosen.len()),
        under_way: JoinSet::new(),
    };
    let (alone, together): (Vec<_>, Vec<_>) =
        chosen.iter().enumerate().partition(|(_, case)| case.disturbs(&*run.fixture));
    for (number, case) in together {
        run.start(number, *case, AT_ONCE).await;
    }
    for (number, case) in alone {
        run.start(number, *case, 1).await;
    }
    run.finish(1).await;
    run.report
}

async fn capabilities(fixture: &dyn Fixture, run: u32) -> Capabilities {
    let client = fixture.builder(&Namespace::new(format!("run{run}"), false)).connect().await;
    let client = client.expect("the store can be reached");
    let capabilities = client.capabilities().clone();
    client.close().await.expect("a client that did nothing closes");
    capabilities
}

/// What the engine does not support, and why.
fn lacks(fixture: &dyn Fixture, run: u32) -> Vec<(Need, &'static str)> {
    if !fixture.offers().contains(&Need::Contract) {
        let needs = [Need::Records, Need::Deadlines, Need::Latches];
        return needs.map(|need| (need, "the fixture offers no engine")).into();
    }
    let engine = fixture.engine(&Namespace::new(format!("run{run}"), false));
    let records = engine.records().err().map(|why| (Need::Records, why));
    let deadlines = engine.deadlines().err().map(|why| (Need::Deadlines, why));
    let latches = engine.latches().err().map(|why| (Need::Latches, why));
    records.into_iter().chain(deadlines).chain(latches).collect()
}

struct Run<'a> {
    label: &'a str,
    number: u32,
    fixture: Arc<dyn Fixture>,
    capabilities: Arc<Capabilities>,
    lacks: Vec<(Need, &'static str)>,
    report: Report,
    under_way: JoinSet<(&'static str, Result<(), String>)>,
}

impl Run<'_> {
    /// Starts a case once fewer than `at_once` are under way.
    async fn start(&mut self, number: usize, case: Case, at_once: usize) {
        self.finish(at_once).await;
        if let Some(need) = case.needs.iter().find(|need| !self.has(**need)) {
            let why = self.lacks.iter().find(|(lacked, _)| lacked == need).map(|(_, why)| *why);
            let why = match need {
                Need::Shared => self.capabilities.no_shared,
                Need::Permits => self.capabilities.no_permits,
                Need::Convert => self.capabilities.no_convert,
                Need::HandTo => self.capabilities.no_hand_to,
                _ => why,
            };
            self.report.skip(self.label, case.name, *need, why);
            return;
        }
        let namespace =
            Namespace::new(format!("run{}case{number}", self.number), case.needs.contains(&Need::Outage));
        let test = TestContext::new(self.fixture.clone(), namespace, self.capabilities.clone());
        self.under_way.spawn(run_case(case, test, self.fixture.patience()));
    }

    /// Waits until fewer than `at_once` are under way.
    async fn finish(&mut self, at_once: usize) {
        while self.under_way.len() >= at_once {
            match self.under_way.join_next().await {
                Some(Ok((case, Ok(())))) => self.report.pass(self.label, case),
                Some(Ok((case, Err(why)))) => self.report.fail(self.label, case, &why),
                Some(Err(error)) => self.report.fail(self.label, "the runner", &error.to_string()),
                None => return,
            }
        }
    }

    fn has(&self, need: Need) -> bool {
        match need {
            Need::Push => self.capabilities.handover == Handover::Push,
            Need::Order => self.capabilities.ordered,
            Need::Durable => self.capabilities.durable,
            Need::LossReports => self.capabilities.reports_loss,
            Need::Shared => self.capabilities.no_shared.is_none(),
            Need::Permits => self.capabilities.no_permits.is_none(),
            Need::Convert => self.capabilities.no_convert.is_none(),
            Need::ClaimAll => self.capabilities.claim_all == Atomic::Store,
            Need::HandTo => self.capabilities.no_hand_to.is_none(),
            Need::Records | Need::Deadlines | Need::Latches => {
                self.lacks.iter().all(|(lacked, _)| *lacked != need)
            }
            offered => self.fixture.offers().contains(&offered),
        }
    }
}

async fn run_case(case: Case, test: TestContext, limit: Duration) -> (&'static str, Result<(), String>) {
    let (done, outcome) = oneshot::channel();
    let ends = test.clone();
    // Each case has its own thread and runtime: it may block, panic or hang without affecting others.
    std::thread::spawn(move || {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let ended = runtime.block_on(async {
            let ended = AssertUnwindSafe((case.run)(test.clone())).catch_unwind().await;
            test.close_clients().await;
            ended
        });
        runtime.shutdown_background();
        ends.end();
        let _nobody_waits_any_more = done.send(ended.map_err(|panic| message(&*panic)));
    });
    let ended = match tokio::time::timeout(limit, outcome).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(_)) => Err("its thread ended without a result".into()),
        Err(_) => Err(format!("did not end within {limit:?}")),
    };
    (case.name, ended)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked without a message").to_owned()
}
