//! The recovery loop on `memory:` with tokio's time: what happens when is exact.
#![cfg(feature = "memory")]

mod stopping;

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Clock, Deadline, Deadlines, Due, ErrorKind, Event, Leasehold,
    clock::Until,
    deadlines::{PoolStats, Scans},
    engine::{EngineError, Fault, Fut, deadlines as contract},
};
use leasehold_testkit::conformance::{Tamper, Wrapped};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
type Handled = Result<(), String>;

async fn client(store: &str) -> Leasehold {
    client_at(store, &Clock::tokio()).await
}

/// Clients of one store need one clock: each of tokio's begins when it is made.
async fn client_at(store: &str, clock: &Clock) -> Leasehold {
    // Each with owner values of its own.
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let builder = Leasehold::builder(format!("memory:{store}")).clock(clock.clone());
    builder.seed(NEXT.fetch_add(1, Ordering::Relaxed)).connect().await.unwrap()
}

async fn fill(pool: &Deadlines, many: usize) {
    let many: Vec<_> = (0..many).map(|n| Deadline::new(format!("tx:{n}"), Duration::ZERO)).collect();
    pool.set_many(&many).await.unwrap();
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let limit = Instant::now() + 3600 * SECOND;
    while !condition().await {
        assert!(Instant::now() < limit, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn until_empty(pool: &Deadlines) {
    until("nothing is pending", async || pool.stats().await.unwrap().pending == 0).await;
}

/// Counts how often each deadline was handled.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, usize>>>);

impl Seen {
    fn add(&self, due: &Due) {
        *self.0.lock().unwrap().entry(due.id().into()).or_default() += 1;
    }

    fn counts(&self) -> Vec<usize> {
        self.0.lock().unwrap().values().copied().collect()
    }
}

#[tokio::test(start_paused = true)]
async fn everything_due_is_handled_once_and_acknowledged_without_waiting_for_the_next_scan() {
    let leases = client("").await;
    let pool = leases.deadlines("payments");
    fill(&pool, 1_000).await;
    let seen = Seen::default();
    let recovery = pool.recover({
        let seen = seen.clone();
        move |due: Due| {
            let seen = seen.clone();
            async move {
                seen.add(&due);
                Handled::Ok(())
            }
        }
    });
    let began = Instant::now();
    let recovery = recovery.parallelism(4).await.unwrap();
    until_empty(&pool).await;
    assert!(began.elapsed() < SECOND, "more was due, so the next scan followed at once");
    assert_eq!(seen.counts(), vec![1; 1_000]);
    assert_eq!(leases.stats().deadlines_done, 1_000);
    // What becomes due later is found by a later scan.
    pool.set("later", SECOND).await.unwrap();
    until_empty(&pool).await;
    assert!((4..6).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert!(recovery.stop().await);
}

#[tokio::test(start_paused = true)]
async fn not_more_handlers_run_at_once_than_asked_for() {
    let leases = client("").await;
    let pool = leases.deadlines("payments");
    fill(&pool, 50).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (now.clone(), most.clone());
    let handler = move |_: Due| {
        let (now, most) = counts.clone();
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(SECOND).await;
            now.fetch_sub(1, Ordering::Relaxed);
            Handled::Ok(())
        }
    };
    let recovery = pool.recover(handler).parallelism(3).await.unwrap();
    until_empty(&pool).await;
    assert_eq!(most.load(Ordering::Relaxed), 3);
    assert!(recovery.stop().await);
}

#[tokio::test(start_paused = true)]
async fn errors_panics_and_time_outs_are_tried_again_and_in_the_end_buried() {
    let buried = Arc::new(Mutex::new(Vec::new()));
    let told = buried.clone();
    let observer = move |event: &Event| {
        if let Event::Buried { id, .. } = event {
            told.lock().unwrap().push(id.to_string());
        }
    };
    let leases =
        Leasehold::builder("memory:").clock(Clock::tokio()).observer(observer).connect().await.unwrap();
    let pool = leases.deadlines("payments");
    for id in ["errs", "hangs", "heals", "panics"] {
        pool.set_with(id, Duration::ZERO, id.to_owned()).await.unwrap();
    }
    let handler = async |due: Due| match due.id() {
        "errs" => Err("no route".to_owned()),
        "panics" => panic!("division by zero"),
        "hangs" => pending().await,
        _ if due.attempt() < 3 => Err("not yet".into()),
        _ => Ok(()),
    };
    let recovery = pool
        .recover(handler)
        .attempts(3)
        .every(SECOND)
        .backoff(SECOND, MINUTE)
        .visibility(10 * SECOND)
        .handler_timeout(4 * SECOND)
        .await
        .unwrap();
    until_empty(&pool).await;
    assert!(recovery.stop().await);
    let dead = pool.dead_page(None, 10).await.unwrap().items;
    let reasons: Vec<_> = dead.iter().map(|dead| (&*dead.id, dead.attempts, &*dead.why)).collect();
    assert_eq!(
        reasons,
        [
            ("errs", 3, "attempt 3 failed: no route"),
            ("hangs", 3, "attempt 3 took longer than 4s"),
            ("panics", 3, "attempt 3 panicked: division by zero"),
        ]
    );
    assert_eq!(dead[0].context.as_deref(), Some(b"errs".as_slice()));
    let stats = leases.stats();
    assert_eq!((stats.deadlines_failed, stats.deadlines_panicked, stats.deadlines_timed_out), (5, 3, 3));
    assert_eq!((stats.deadlines_done, stats.deadlines_buried, stats.deadlines_stale), (1, 3, 0));
    let mut told = buried.lock().unwrap().clone();
    told.sort();
    assert_eq!(told, ["errs", "hangs", "panics"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_deadline_is_left_alone_for_its_backoff() {
    let leases = client("").await;
    let pool = leases.deadlines("payments");
    fill(&pool, 1).await;
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = times.clone();
    let handler = move |_: Due| {
        noted.lock().unwrap().push(Instant::now());
        async { Handled::Err("no".into()) }
    };
    let recovery = pool
        .recover(handler)
        .attempts(4)
        .every(Duration::from_millis(10))
        .backoff(8 * SECOND, 20 * SECOND)
        .await
        .unwrap();
    until_empty(&pool).await;
    assert!(recovery.stop().await);
    let times = times.lock().unwrap().clone();
    let pauses: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    let ranges = [(4.0, 8.1), (8.0, 16.1), (10.0, 20.1)];
    assert_eq!(pauses.len(), ranges.len());
    for (pause, (least, most)) in pauses.iter().zip(ranges) {
        assert!((least..most).contains(pause), "{pauses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_no_claimer_ever_settled_is_buried_unhandled() {
    let leases = client("").await;
    let pool = leases.deadlines("payments");
    fill(&pool, 1).await;
    for _ in 0..3 {
        assert_eq!(pool.claim().limit(1).visibility(SECOND).await.unwrap().due.len(), 1);
        tokio::time::advance(SECOND).await;
    }
    let recovery = pool.recover(async |_| -> Handled { unreachable!("it would kill the process") });
    let recovery = recovery.attempts(3).await.unwrap();
    until_empty(&pool).await;
    assert!(recovery.stop().await);
    let dead = pool.dead_page(None, 1).await.unwrap().items;
    assert_eq!(dead[0].why, "claimed 3 times, and no claimer said how it ended");
    assert_eq!(leases.stats().deadlines_panicked, 0);
}

#[tokio::test(start_paused = true)]
async fn several_clients_share_the_work_and_nothing_is_handled_twice() {
    let (url, clock) = ("several clients share the work", Clock::tokio());
    let seen = Seen::default();
    let (mut clients, mut recoveries) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let leases = client_at(url, &clock).await;
        let seen = seen.clone();
        let handler = move |due: Due| {
            seen.add(&due);
            async {
                tokio::time::sleep(SECOND).await;
                Handled::Ok(())
            }
        };
        recoveries.push(leases.deadlines("payments").recover(handler).parallelism(2).await.unwrap());
        clients.push(leases);
    }
    let pool = clients[0].deadlines("payments");
    fill(&pool, 200).await;
    until_empty(&pool).await;
    assert_eq!(seen.counts(), vec![1; 200]);
    for (recovery, leases) in recoveries.into_iter().zip(&clients) {
        assert!(recovery.stop().await);
        assert!(leases.stats().deadlines_done >= 20, "{:?}", leases.stats());
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_too_long_for_its_turn_is_hidden_again_before_it_is_handled() {
    let (url, clock) = ("what waits too long for its turn", Clock::tokio());
    let (slow, other) = (client_at(url, &clock).await, client_at(url, &clock).await);
    let pool = slow.deadlines("payments");
    fill(&pool, 10).await;
    let seen = Seen::default();
    let noted = seen.clone();
    let handler = move |due: Due| {
        noted.add(&due);
        async {
            tokio::time::sleep(7 * SECOND).await;
            Handled::Ok(())
        }
    };
    let recovery = pool.recover(handler).parallelism(1).visibility(10 * SECOND).every(SECOND);
    let recovery = recovery.handler_timeout(8 * SECOND).await.unwrap();
    until("the first is begun", async || seen.counts().len() == 1).await;
    // The other client takes whatever it can.
    let (taken, stolen) = (Seen::default(), other.deadlines("payments"));
    until("all are begun or taken", async || {
        stolen
            .claim()
            .limit(100)
            .visibility(3600 * SECOND)
            .await
            .unwrap()
            .due
            .iter()
            .for_each(|due| taken.add(due));
        seen.counts().len() + taken.counts().len() >= 10
    })
    .await;
    tokio::time::sleep(MINUTE).await;
    assert!(recovery.stop().await);
    // The second one waited for 7 s of its 10, and was hidden for 10 more; the others came to light meanwhile.
    assert_eq!((seen.counts(), taken.counts()), (vec![1; 2], vec![1; 8]));
    assert!(seen.0.lock().unwrap().keys().all(|id| !taken.0.lock().unwrap().contains_key(id)));
    let (stats, counted) = (pool.stats().await.unwrap(), slow.stats());
    assert_eq!((stats.pending, counted.deadlines_done, counted.deadlines_timed_out), (8, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_settles_its_deadline_itself_has_the_last_word() {
    let leases = client("").await;
    let pool = leases.deadlines("payments");
    for id in ["buries", "postpones"] {
        pool.set(id, Duration::ZERO).await.unwrap();
    }
    let handler = async |due: Due| match due.id() {
        "buries" => due.bury("hopeless").await.map(drop),
        _ => due.postpone(3600 * SECOND).await.map(drop),
    };
    let recovery = pool.recover(handler).await.unwrap();
    until("one is buried", async || pool.stats().await.unwrap().dead == 1).await;
    tokio::time::sleep(MINUTE).await;
    assert!(recovery.stop().await);
    let expected = PoolStats { pending: 1, tried: 1, dead: 1, ..PoolStats::default() };
    assert_eq!(pool.stats().await.unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn one_client_per_interval_scans_and_the_others_skip() {
    let (url, clock) = ("one client per interval scans", Clock::tokio());
    let (mut clients, mut recoveries) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let leases = client_at(url, &clock).await;
        let recovery = leases.deadlines("payments").recover(async |_| Handled::Ok(()));
        recoveries.push(recovery.scans(Scans::SingleWinner).every(5 * SECOND).await.unwrap());
        clients.push(leases);
        tokio::time::sleep(SECOND).await;
    }
    let pool = clients[0].deadlines("payments");
    fill(&pool, 100).await;
    tokio::time::sleep(96 * SECOND).await;
    assert_eq!(pool.stats().await.unwrap().pending, 0);
    let (mut scans, mut skipped, mut failed) = (0, 0, 0);
    for (recovery, leases) in recoveries.into_iter().zip(&clients) {
        assert!(recovery.stop().await);
        scans += leases.stats().recovery_scans;
        skipped += leases.stats().recovery_skipped;
        failed += leases.stats().failed;
    }
    assert!((19..=21).contains(&scans), "{scans}");
    assert!((38..=41).contains(&skipped), "{skipped}");
    assert_eq!(failed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_plan_out_of_range_is_refused() {
    let leases = client("").await;
    let recover = || leases.deadlines("payments").recover(async |_: Due| Handled::Ok(()));
    let plans = [
        recover().every(Duration::ZERO),
        recover().parallelism(0),
        recover().limit(1_001),
        recover().visibility(Duration::from_millis(50)),
        recover().attempts(0),
        recover().backoff(2 * SECOND, SECOND),
        recover().handler_timeout(MINUTE),
        recover().grace(Duration::MAX),
    ];
    for plan in plans {
        assert_eq!(plan.start().await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    let pool = leases.deadlines("payments");
    assert!(pool.claim().limit(1).visibility(MINUTE).await.unwrap().due.is_empty());
    let other = pool.buckets(4).recover(async |_: Due| Handled::Ok(()));
    assert_eq!(other.start().await.unwrap_err().kind(), ErrorKind::Invalid);
}
