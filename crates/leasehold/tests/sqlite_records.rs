//! Records and deadlines of one file between real processes: killed, stopped, waiting for each other.
#![cfg(feature = "sqlite")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::Duration,
};

use leasehold::{
    Clock, Fence, Holder, Leasehold, Name,
    clock::Until,
    engine::{
        Engine, LinkChange, Wake, WakeSink,
        deadlines::{Deadline, DueTime, Placement, Pool, PoolLayout, Settle as SettleDeadline},
        records::{Begin, Begun, Outcome, Settle, Settled},
    },
    owner::Owner,
};
use leasehold_testkit::{Helper, eventually_async, now};

const LONG: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(1);
const VISIBILITY: Duration = Duration::from_secs(2);
const DEADLINES: usize = 600;

#[test]
fn helper_process() {
    let Some(role) = Helper::role() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let fixture = Fixture { folder: std::env::var("FOLDER").expect("set for the helper").into() };
        match role.as_str() {
            "executor" => execute(&fixture).await,
            "watcher" => watch(&fixture).await,
            "worker" => work(&fixture).await,
            "hoarder" => hoard(&fixture).await,
            other => panic!("no role {other}"),
        }
    });
}

/// Begins, and settles when it is told to go on.
async fn execute(fixture: &Fixture) {
    let (engine, mine) = (fixture.engine(), attempt("executor"));
    let Begun::Yours(grant) = engine.records().unwrap().begin(&mine, soon()).await.unwrap() else {
        panic!("not the first")
    };
    Helper::say(&format!("began {}", grant.fence));
    eventually_async(LONG, "the word to go on", || async { fixture.has_flag("go on") }).await;
    let settled = engine.records().unwrap().settle(&end(&mine, grant.fence, "slow"), soon()).await.unwrap();
    Helper::say(&format!("settled {settled:?}"));
}

struct Told(mpsc::Sender<()>);

impl WakeSink for Told {
    fn wake(&self, wake: Wake) {
        if matches!(wake, Wake::LookAgain { .. }) {
            let _nobody_waits_any_more = self.0.send(());
        }
    }
    fn link(&self, _: LinkChange) {}
}

/// Waits for somebody else's end without asking.
async fn watch(fixture: &Fixture) {
    let engine = fixture.engine();
    let (tell, told) = mpsc::channel();
    let sink: Arc<dyn WakeSink> = Arc::new(Told(tell));
    engine.set_wake_sink(Arc::downgrade(&sink));
    let mine = Begin { wake: true, ..attempt("watcher") };
    let begun = engine.records().unwrap().begin(&mine, soon()).await.unwrap();
    assert!(matches!(begun, Begun::Running { .. }), "{begun:?}");
    Helper::say("watching");
    told.recv_timeout(LONG).unwrap();
    let begun = engine.records().unwrap().begin(&mine, soon()).await.unwrap();
    Helper::say(&format!("told {}", matches!(begun, Begun::Completed(_))));
}

/// Claims, works and acknowledges until it is enough.
async fn work(fixture: &Fixture) {
    let (engine, mut log) = (fixture.engine(), fixture.log());
    let deadlines = engine.deadlines().unwrap();
    Helper::say("ready");
    while !fixture.has_flag("enough") {
        let before = now();
        let claimed = deadlines.claim_due(&pool(), 2, VISIBILITY, soon()).await.unwrap();
        let mut done = Vec::new();
        for due in claimed.due {
            writeln!(log, "{} {} {before} {}", due.receipt.id, due.receipt.number, now()).unwrap();
            done.push((due.receipt, SettleDeadline::Done));
        }
        deadlines.settle(&pool(), &done, soon()).await.unwrap();
    }
}

/// Claims and never comes to the work.
async fn hoard(fixture: &Fixture) {
    let engine = fixture.engine();
    let mut claimed = 0;
    loop {
        let due = engine.deadlines().unwrap().claim_due(&pool(), 1, VISIBILITY, soon()).await.unwrap().due;
        claimed += due.len();
        if claimed > 20 {
            Helper::say("many");
        }
    }
}

struct Fixture {
    folder: PathBuf,
}

impl Fixture {
    fn engine(&self) -> Arc<dyn Engine> {
        Leasehold::builder(format!("sqlite:{}", self.folder.join("x.db").display())).into_engine().unwrap()
    }

    fn spawn(&self, role: &str) -> Helper {
        Helper::spawn(role, &[("FOLDER", self.folder.to_str().unwrap())])
    }

    fn flag(&self, name: &str) {
        fs::write(self.folder.join(name), "").unwrap();
    }

    fn has_flag(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    fn log(&self) -> File {
        File::create(self.folder.join(format!("log.{}", std::process::id()))).unwrap()
    }

    /// Every claim that somebody worked on: by id and receipt, from when to when it may have been.
    fn claims(&self) -> BTreeMap<String, BTreeMap<u64, (u64, u64)>> {
        let mut claims = BTreeMap::<String, BTreeMap<u64, (u64, u64)>>::new();
        let logs = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path());
        for log in logs.filter(|path| is_log(path)) {
            for line in fs::read_to_string(log).unwrap().lines() {
                let [id, receipt, before, after] = line.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("{line}")
                };
                let number = |text: &str| text.parse::<u64>().unwrap();
                let of_id = claims.entry(id.to_owned()).or_default();
                let twice = of_id.insert(number(receipt), (number(before), number(after)));
                assert!(twice.is_none(), "{id} was claimed twice with one receipt");
            }
        }
        claims
    }
}

fn is_log(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_str().unwrap().starts_with("log."))
}

fn soon() -> Until {
    Clock::system().now() + LONG
}

fn attempt(label: &str) -> Begin {
    let random = u128::from(std::process::id()) << 64 | u128::from(now());
    Begin {
        key: Name::new("idempotency:payout:42").unwrap(),
        owner: Owner::new(random, &Holder::this_process(label, Clock::system().wall_us())),
        fingerprint: None,
        lease: LEASE,
        wake: false,
    }
}

fn end(begin: &Begin, fence: Fence, result: &'static str) -> Settle {
    let outcome = Outcome::Completed(result.into());
    Settle { hold: begin.hold(fence), fingerprint: None, outcome, keep: LONG }
}

fn pool() -> Pool {
    let layout = PoolLayout { buckets: 4, placement: Placement::Spread };
    Pool { name: Name::new("payments").unwrap(), layout }
}

fn fence_in(line: &str) -> Fence {
    line.parse().unwrap()
}

/// Begins once the one before has run out.
async fn take_over(engine: &dyn Engine, mine: &Begin) -> Fence {
    let give_up = Clock::system().now() + LONG;
    loop {
        match engine.records().unwrap().begin(mine, soon()).await.unwrap() {
            Begun::Yours(grant) => return grant.fence,
            Begun::Running { .. } => assert!(Clock::system().now() < give_up, "its lease never ends"),
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn fixture() -> (tempfile::TempDir, Fixture) {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture { folder: folder.path().to_owned() };
    (folder, fixture)
}

#[tokio::test]
async fn a_killed_execution_costs_its_lease_and_no_more() {
    let (_folder, fixture) = fixture();
    let executor = fixture.spawn("executor");
    let first = fence_in(&executor.wait_for_line("began ", LONG));
    executor.kill9();
    let (engine, mine) = (fixture.engine(), attempt("parent"));
    assert!(take_over(&*engine, &mine).await > first);
}

#[tokio::test]
async fn a_stopped_execution_does_not_overwrite_the_result_of_a_later_one() {
    let (_folder, fixture) = fixture();
    let executor = fixture.spawn("executor");
    let first = fence_in(&executor.wait_for_line("began ", LONG));
    executor.stop();
    let (engine, mine) = (fixture.engine(), attempt("parent"));
    let fence = take_over(&*engine, &mine).await;
    assert!(fence > first);
    let settled = engine.records().unwrap().settle(&end(&mine, fence, "later"), soon()).await.unwrap();
    assert_eq!(settled, Settled::Stored);
    fixture.flag("go on");
    executor.cont();
    assert!(executor.wait_for_line("settled ", LONG).starts_with("FencedOff"));
    let begun = engine.records().unwrap().begin(&attempt("reader"), soon()).await.unwrap();
    assert_eq!(begun, Begun::Completed("later".into()));
}

#[tokio::test]
async fn whoever_waits_in_another_process_is_told() {
    let (_folder, fixture) = fixture();
    let (engine, mine) = (fixture.engine(), Begin { lease: LONG, ..attempt("parent") });
    let fence = take_over(&*engine, &mine).await;
    let watcher = fixture.spawn("watcher");
    watcher.wait_for_line("watching", LONG);
    engine.records().unwrap().settle(&end(&mine, fence, "paid"), soon()).await.unwrap();
    assert_eq!(watcher.wait_for_line("told ", LONG), "true");
}

#[tokio::test]
async fn what_a_killed_process_had_claimed_comes_back_and_is_shared_with_nobody_before() {
    let (_folder, fixture) = fixture();
    let engine = fixture.engine();
    let deadlines = engine.deadlines().unwrap();
    deadlines.layout(&pool(), soon()).await.unwrap();
    let id = |number| format!("deal:{number}");
    let due = DueTime::In(Duration::ZERO);
    let all: Vec<_> =
        (0..DEADLINES).map(|number| Deadline { id: id(number).into(), due, context: None }).collect();
    deadlines.set(&pool(), &all, soon()).await.unwrap();
    let hoarder = fixture.spawn("hoarder");
    hoarder.wait_for_line("many", LONG);
    hoarder.kill9();
    let workers = [fixture.spawn("worker"), fixture.spawn("worker")];
    workers.iter().for_each(|worker| drop(worker.wait_for_line("ready", LONG)));
    eventually_async(LONG, "all are done", || async {
        deadlines.stats(&pool(), soon()).await.unwrap().pending == 0
    })
    .await;
    fixture.flag("enough");
    workers.iter().for_each(|worker| assert!(worker.wait(LONG).success()));
    let claims = fixture.claims();
    let worked_on: BTreeSet<_> = claims.keys().cloned().collect();
    assert_eq!(worked_on, (0..DEADLINES).map(id).collect());
    for (id, claims) in claims {
        for (one, next) in claims.values().zip(claims.values().skip(1)) {
            let apart = Duration::from_nanos(next.1.saturating_sub(one.0));
            assert!(apart >= VISIBILITY, "{id} was claimed again after {apart:?}");
        }
    }
}
