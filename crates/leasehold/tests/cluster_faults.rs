//! What goes wrong with the nodes of a real cluster, and who notices.
#![cfg(feature = "redis")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leasehold::{Error, Leasehold};
use leasehold_testkit::{
    ClusterSet, eventually_async,
    history::{Event, History, check},
    load::Kind,
    now,
};
use rand::RngExt;

const LONG: Duration = Duration::from_secs(60);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn client(set: &ClusterSet, command: Duration) -> Leasehold {
    Leasehold::builder(set.url()).command_timeout(command).connect().await.unwrap()
}

async fn waiting(leases: &Leasehold, name: &str, count: u32) {
    eventually_async(LONG, "waiters", || async { leases.inspect(name).await.unwrap().waiting == count })
        .await;
}

/// Gets and gives back a lock again and again; counts how often, and how long the longest took.
struct Load {
    over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<Duration>,
}

impl Load {
    fn start(leases: &Leasehold, name: String) -> Self {
        let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let task = tokio::spawn({
            let (leases, over, count) = (leases.clone(), over.clone(), count.clone());
            async move {
                let mut longest = Duration::ZERO;
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let _ = leases.lock(&name).acquire().await.unwrap().release().await.unwrap();
                    longest = longest.max(began.elapsed());
                    count.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(ms(2)).await;
                }
                longest
            }
        });
        Self { over, count, task }
    }

    async fn runs_on(&self) {
        let before = self.count.load(Ordering::Relaxed);
        eventually_async(LONG, "locks of another shard", || async {
            self.count.load(Ordering::Relaxed) > before + 20
        })
        .await;
    }

    async fn end(self) -> Duration {
        self.over.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_is_replaced_under_the_same_client_and_others_never_notice() {
    let Some(set) = ClusterSet::builder().node_timeout(ms(1000)).start_or_skip() else { return };
    let [first, second, third] = set.primaries()[..] else { panic!("three primaries") };
    let leases = client(&set, Duration::from_secs(2)).await;
    let (lost, kept, busy) =
        (set.name_on(first, "lost"), set.name_on(second, "kept"), set.name_on(third, "busy"));
    let holder = leases.lock(&lost).ttl(Duration::from_secs(2)).acquire().await.unwrap();
    let fence = holder.fence();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let waiter = leases.lock(&lost).wait(LONG).into_future();
            tokio::spawn(async {
                let guard = waiter.await.unwrap();
                let fence = guard.fence();
                guard.release().await.map(|_| fence).unwrap()
            })
        })
        .collect();
    waiting(&leases, &lost, 3).await;
    let kept = leases.lock(&kept).ttl(Duration::from_secs(3)).keep_alive().acquire().await.unwrap();
    let load = Load::start(&leases, busy);
    load.runs_on().await;

    tokio::task::block_in_place(|| {
        first.kill();
        set.await_new_primary_of(&format!("lock:{lost}"), first);
    });
    // Its holder's lease ends by itself or is given back; then all who waited get it, on the new node.
    let _unknown = holder.release().await;
    let mut fences = vec![fence];
    for waiter in waiters {
        // Whoever has it now gives it back; the others come before or after.
        fences.push(tokio::time::timeout(LONG, waiter).await.unwrap().unwrap());
    }
    assert!(fences[1..].iter().all(|next| *next > fence), "{fences:?}");
    load.runs_on().await;
    let longest = load.end().await;
    assert!(longest < LONG / 2, "{longest:?}");
    assert!(kept.is_held());
    let _ = kept.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_primary_costs_only_its_own_locks() {
    // So patient that nobody takes its place meanwhile.
    let Some(set) = ClusterSet::builder().replicas(0).node_timeout(LONG).start_or_skip() else { return };
    let [first, second, third] = set.primaries()[..] else { panic!("three primaries") };
    let leases = client(&set, ms(500)).await;
    let ttl = Duration::from_secs(3);
    let mut kept = Vec::new();
    for primary in [second, third] {
        for n in 0..20 {
            let name = set.name_on(primary, &format!("kept{n}:"));
            kept.push(leases.lock(name).ttl(ttl).keep_alive().acquire().await.unwrap());
        }
    }
    let name = set.name_on(first, "stopped");
    let doomed = leases.lock(&name).ttl(ttl).keep_alive().acquire().await.unwrap();
    let load = Load::start(&leases, set.name_on(second, "busy"));
    load.runs_on().await;

    first.stop();
    // It is told in time that it can no longer be sure.
    tokio::time::timeout(LONG, doomed.lost()).await.unwrap();
    let error = leases.lock(&name).wait(ms(300)).acquire().await.unwrap_err();
    assert!(matches!(error, Error::StoreUnreachable { .. }), "{error}");
    load.runs_on().await;
    let renewed = leases.stats().renewed;
    eventually_async(LONG, "two rounds of renewals", || async { leases.stats().renewed > renewed + 80 })
        .await;
    assert!(kept.iter().all(|guard| guard.is_held()));
    first.cont();
    // And it works again without anybody's doing.
    eventually_async(LONG, "the stopped shard", || async {
        match leases.lock(&name).wait(ms(500)).acquire().await {
            Ok(guard) => guard.release().await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_that_were_dropped_are_given_back_although_many_of_a_stopped_primary_are_owed() {
    let Some(set) = ClusterSet::builder().replicas(0).node_timeout(LONG).start_or_skip() else { return };
    let [stopped, healthy, ..] = set.primaries()[..] else { panic!("three primaries") };
    let leases = client(&set, Duration::from_secs(5)).await;
    let name = set.name_on(healthy, "x");
    let kept = leases.lock(&name).ttl(LONG).acquire().await.unwrap();
    // More than are given back at the same time.
    let lock = |n: u32| leases.lock(set.name_on(stopped, &format!("owed{n}:"))).ttl(LONG).into_future();
    let owed = futures_util::future::try_join_all((0..320).map(lock)).await.unwrap();
    stopped.stop();
    drop(owed);
    // One command has timed out: by now as many releases are under way as may be.
    assert!(leases.inspect(set.name_on(stopped, "owed")).await.is_err());
    drop(kept);
    let key = format!("lock:{name}");
    eventually_async(LONG / 4, "the lock of a healthy primary", || async {
        healthy.cli(&["EXISTS", &key]).int() == 0
    })
    .await;
    stopped.cont();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_fail_over_loses_no_lock_and_no_waiter() {
    let Some(set) = ClusterSet::builder().start_or_skip() else { return };
    let first = set.primaries()[0];
    let leases = client(&set, Duration::from_secs(2)).await;
    let name = set.name_on(first, "x");
    let guard = leases.lock(&name).ttl(Duration::from_secs(5)).keep_alive().acquire().await.unwrap();
    let waiter = tokio::spawn(leases.lock(&name).wait(LONG).into_future());
    waiting(&leases, &name, 1).await;
    let new = tokio::task::block_in_place(|| set.failover_of(first));
    let channels = || new.cli(&["PUBSUB", "SHARDCHANNELS", "leasehold:wake:*"]).list().len();
    eventually_async(LONG, "the subscription on the new primary", || async { channels() == 1 }).await;
    assert!(guard.is_held());
    let fence = guard.fence();
    let _ = guard.release().await.unwrap();
    let next = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap().unwrap();
    assert!(next.fence() > fence);
    let _ = next.release().await.unwrap();
}

#[derive(Default)]
struct Story {
    events: Mutex<Vec<Event>>,
    attempts: AtomicU64,
    over: AtomicBool,
}

impl Story {
    fn tell(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

async fn tenures(leases: Leasehold, kind: Kind, name: String, process: String, story: Arc<Story>) {
    while !story.over.load(Ordering::Relaxed) {
        let attempt = story.attempts.fetch_add(1, Ordering::Relaxed);
        let (who, mode) = (process.clone(), kind.mode(attempt));
        story.tell(Event::Invoked { process: who.clone(), attempt, name: name.clone(), at: now() });
        story.tell(Event::Asked { process: who.clone(), attempt, mode });
        let (patience, kept, held_for) = {
            let mut rng = rand::rng();
            (ms(rng.random_range(0..3000)), rng.random_bool(0.5), ms(rng.random_range(0..60)))
        };
        let lock = leases.lock(&name).mode(mode).ttl(ms(1500)).wait(Duration::from_secs(5));
        let lock = if kept { lock.keep_alive() } else { lock };
        // The caller may give up at any moment.
        let guard = match tokio::time::timeout(patience, lock.acquire()).await {
            Err(_) => continue,
            Ok(Err(Error::TimedOut { .. } | Error::StoreUnreachable { .. })) => {
                tokio::time::sleep(ms(5)).await;
                continue;
            }
            Ok(Err(other)) => panic!("{other}"),
            Ok(Ok(guard)) => guard,
        };
        let until = |left: Duration| now() + left.as_nanos() as u64;
        let (fence, valid_until) = (guard.fence().get(), until(guard.remaining()));
        story.tell(Event::Granted { process: who.clone(), attempt, fence, at: now(), valid_until });
        tokio::select! {
            () = tokio::time::sleep(held_for) => {}
            () = guard.lost() => {}
        }
        if guard.is_held() {
            let valid_until = until(guard.remaining());
            story.tell(Event::Renewed { process: who.clone(), attempt, valid_until });
        }
        story.tell(Event::Released { process: who, attempt, at: now() });
        let patience = ms(rand::random_range(0..100));
        let _ = tokio::time::timeout(patience, guard.release()).await;
    }
}

/// Moves slots there and back, halts half-way, replaces primaries, forgets scripts and cuts connections.
fn stir(set: &ClusterSet, names: &[String], lasts: Duration) {
    let began = Instant::now();
    while began.elapsed() < lasts {
        let (name, what, pause) = {
            let mut rng = rand::rng();
            (&names[rng.random_range(0..names.len())], rng.random_range(0..8), ms(rng.random_range(5..300)))
        };
        let key = format!("lock:{name}");
        let (slot, from) = (ClusterSet::slot(&key), set.primary_of(&key));
        let primaries = set.primaries();
        let others: Vec<_> = primaries.iter().filter(|node| node.port() != from.port()).collect();
        let to = others[pause.as_millis() as usize % others.len()];
        match what {
            0..=1 => set.move_slot(slot, to),
            2..=4 => {
                set.begin_move(slot, from, to);
                std::thread::sleep(pause);
                set.migrate_keys(from, to, &[&key]);
                std::thread::sleep(pause);
                set.migrate_slot(slot, from, to);
                std::thread::sleep(pause / 4);
                // What was made meanwhile on the old node comes along.
                set.migrate_slot(slot, from, to);
                set.end_move(slot, to);
            }
            5 => drop(set.failover_of(from)),
            6 => drop(from.cli(&["SCRIPT", "FLUSH"])),
            _ => drop(from.cli(&["CLIENT", "KILL", "TYPE", "normal"])),
        }
        std::thread::sleep(pause);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_slots_and_fail_overs_never_make_two_holders_or_leave_anything_behind() {
    let Some(set) = ClusterSet::builder().start_or_skip() else { return };
    let names: Vec<_> = set.primaries().iter().map(|primary| set.name_on(primary, "x")).collect();
    let kinds = [Kind::Exclusive, Kind::ReadWrite, Kind::Permits];
    let story = Arc::<Story>::default();
    let (mut clients, mut tasks) = (Vec::new(), Vec::new());
    for number in 0..3 {
        let leases = client(&set, ms(800)).await;
        for task in 0..6 {
            let (name, kind) = (names[task % names.len()].clone(), kinds[task % names.len()]);
            let process = format!("p{number}");
            tasks.push(tokio::spawn(tenures(leases.clone(), kind, name, process, story.clone())));
        }
        clients.push(leases);
    }
    tokio::task::block_in_place(|| stir(&set, &names, Duration::from_secs(10)));
    story.over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let history = History::from_events(story.events.lock().unwrap().drain(..)).unwrap();
    let violations = check(&history);
    assert!(violations.is_empty(), "{} of {}: {}", violations.len(), history.granted(), violations[0]);
    assert!(history.granted() > 50, "{} grants", history.granted());
    for leases in clients {
        leases.close().await.unwrap();
    }
    let side_keys = ["waiters", "seen", "ends", "members"].map(|kind| format!("leasehold:{kind}:*"));
    for pattern in ["lock:*"].into_iter().chain(side_keys.iter().map(String::as_str)) {
        let left = || -> usize {
            set.primaries().iter().map(|node| node.cli(&["KEYS", pattern]).list().len()).sum()
        };
        eventually_async(LONG, pattern, || async { left() == 0 }).await;
    }
}
