//! Recovery by real processes on real stores: killed, stopped, and with the store gone between claim and acknowledgement.

#[macro_use]
mod every_store;

use std::{
    collections::BTreeMap,
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold::{Clock, Deadline, Deadlines, Due, Leasehold};
use leasehold_testkit::{Helper, eventually, eventually_async};

const LONG: Duration = Duration::from_secs(60);
const VISIBILITY: Duration = Duration::from_secs(6);
type Handled = leasehold::Result<()>;

#[test]
fn helper_process() {
    let Some(role) = Helper::role() else { return };
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(
        async {
            let leases = Leasehold::connect(env("STORE")).await.unwrap();
            match role.as_str() {
                "worker" => work(&leases).await,
                "slow worker" => work_slowly(&leases).await,
                other => panic!("no role {other}"),
            }
        },
    );
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set for the helper"))
}

/// Handles what is due until it is told to stop, and notes when it began and ended each.
async fn work(leases: &Leasehold) {
    let handler = async |due: Due| -> Handled {
        note(&format!("began {} {}", due.id(), due.hidden_for().as_nanos()));
        tokio::time::sleep(Duration::from_millis(50)).await;
        note(&format!("ended {} 0", due.id()));
        Ok(())
    };
    let recovery = leases.deadlines("payments").recover(handler);
    let recovery = recovery.every(Duration::from_millis(200)).visibility(VISIBILITY).parallelism(8);
    let recovery = recovery.await.unwrap();
    Helper::say("working");
    eventually_async(LONG, "the end", || async { Path::new(&env("DONE")).exists() }).await;
    assert!(recovery.stop().await);
    leases.close().await.unwrap();
    Helper::say("done");
}

/// Handles one deadline for as long as the parent wants.
async fn work_slowly(leases: &Leasehold) {
    let handler = async |_: Due| -> Handled {
        Helper::say("handling");
        eventually_async(LONG, "the end", || async { Path::new(&env("DONE")).exists() }).await;
        Ok(())
    };
    let recovery = leases.deadlines("payments").recover(handler).visibility(VISIBILITY);
    let recovery = recovery.every(LONG).await.unwrap();
    eventually_async(LONG, "a stale word", || async { leases.stats().deadlines_stale == 1 }).await;
    recovery.stop().await;
    Helper::say(&format!("stale, done={}", leases.stats().deadlines_done));
}

/// One line of the log, with the time and the process; written at once, so that lines do not mix.
fn note(what: &str) {
    let line = format!("{what} {} {}\n", Clock::system().now().as_nanos(), std::process::id());
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open(env("LOG")).unwrap();
    log.write_all(line.as_bytes()).unwrap();
}

struct Arena {
    store: String,
    dir: tempfile::TempDir,
}

struct Note {
    what: String,
    id: String,
    hidden_ns: u64,
    at_ns: u64,
    pid: u32,
}

impl Arena {
    fn new(store: impl Into<String>) -> Self {
        Self { store: store.into(), dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, file: &str) -> String {
        self.dir.path().join(file).to_str().unwrap().to_owned()
    }

    fn spawn(&self, role: &str) -> Helper {
        let (done, log) = (self.path("done"), self.path("log"));
        Helper::spawn(role, &[("STORE", &self.store), ("DONE", &done), ("LOG", &log)])
    }

    async fn client(&self) -> Leasehold {
        Leasehold::connect(&self.store).await.unwrap()
    }

    fn notes(&self) -> Vec<Note> {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        let lines = text.lines().map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            Note {
                what: words[0].into(),
                id: words[1].into(),
                hidden_ns: words[2].parse().unwrap(),
                at_ns: words[3].parse().unwrap(),
                pid: words[4].parse().unwrap(),
            }
        });
        lines.collect()
    }

    fn done(&self) {
        std::fs::write(self.path("done"), "").unwrap();
    }
}

async fn fill(pool: &Deadlines, many: usize) {
    let many: Vec<_> = (0..many).map(|n| Deadline::new(format!("tx:{n}"), Duration::ZERO)).collect();
    pool.set_many(&many).await.unwrap();
}

async fn until_empty(pool: &Deadlines) {
    eventually_async(LONG, "nothing is pending", || async {
        pool.stats().await.is_ok_and(|stats| stats.pending == 0)
    })
    .await;
}

async fn of_two_workers_one_is_killed_and_everything_is_handled(arena: Arena) {
    let leases = arena.client().await;
    let pool = leases.deadlines("payments");
    let (killed, other) = (arena.spawn("worker"), arena.spawn("worker"));
    for worker in [&killed, &other] {
        worker.wait_for_line("working", LONG);
    }
    // So many that the one that comes first cannot have done them all before the other comes.
    fill(&pool, 1_000).await;
    let begun_by = |pid: u32| arena.notes().iter().filter(|note| note.pid == pid).count();
    eventually(LONG, "both work", || begun_by(killed.pid()) > 20 && begun_by(other.pid()) > 20);
    let victim = killed.pid();
    killed.kill9();
    until_empty(&pool).await;
    arena.done();
    other.wait_for_line("done", LONG);

    let notes = arena.notes();
    let mut begun: BTreeMap<&str, Vec<&Note>> = BTreeMap::new();
    let mut ended = BTreeMap::<&str, usize>::new();
    for note in &notes {
        match note.what.as_str() {
            "began" => begun.entry(&note.id).or_default().push(note),
            _ => *ended.entry(&note.id).or_default() += 1,
        }
    }
    assert_eq!(ended.len(), 1_000, "each was handled to the end at least once");
    let twice: Vec<_> = begun.values().filter(|notes| notes.len() > 1).collect();
    assert!(!twice.is_empty(), "it was killed with something in its hands");
    for notes in twice {
        let [first, second] = notes[..] else { panic!("{} was begun {} times", notes[0].id, notes.len()) };
        assert_eq!(first.pid, victim, "only what the killed one had begun comes back");
        assert!(second.at_ns >= first.at_ns + first.hidden_ns, "{} was begun while it was hidden", first.id);
    }
    leases.close().await.unwrap();
}

async fn a_stopped_worker_has_no_say_about_what_was_claimed_since(arena: Arena) {
    let leases = arena.client().await;
    let pool = leases.deadlines("payments");
    fill(&pool, 1).await;
    let worker = arena.spawn("slow worker");
    worker.wait_for_line("handling", LONG);
    worker.stop();
    eventually_async(LONG, "it is visible again", || async { pool.stats().await.unwrap().due == 1 }).await;
    let mine = pool.claim().limit(1).visibility(LONG).await.unwrap().due.remove(0);
    assert_eq!(mine.attempt(), 2);
    arena.done();
    worker.cont();
    assert_eq!(worker.wait_for_line("stale, ", LONG), "done=0");
    let stats = pool.stats().await.unwrap();
    assert_eq!((stats.pending, stats.due), (1, 0), "it is still claimed");
    assert!(mine.acknowledge().await.unwrap().is_settled());
    leases.close().await.unwrap();
}

async fn a_stop_takes_no_attempt_from_what_was_not_begun(arena: Arena) {
    let leases = arena.client().await;
    let pool = leases.deadlines("payments").buckets(1);
    fill(&pool, 3).await;
    let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let recover = || {
        let (begun, gate) = (begun.clone(), gate.clone());
        let handler = move |_: Due| {
            begun.fetch_add(1, Ordering::SeqCst);
            let gate = gate.clone();
            async move { gate.acquire().await.map(drop) }
        };
        pool.recover(handler).parallelism(1).attempts(1).every(Duration::from_millis(100))
    };
    let recovery = recover().await.unwrap();
    eventually_async(LONG, "one handler runs and another deadline waits for its turn", || async {
        begun.load(Ordering::SeqCst) == 1 && pool.stats().await.unwrap().tried == 2
    })
    .await;
    let (ended, ()) = tokio::join!(recovery.stop(), async { gate.add_permits(1_000) });
    assert!(ended);
    let recovery = recover().await.unwrap();
    until_empty(&pool).await;
    assert!(recovery.stop().await);
    assert_eq!((begun.load(Ordering::SeqCst), pool.stats().await.unwrap().dead), (3, 0));
    leases.close().await.unwrap();
}

on_every_store!(
    a_stop_takes_no_attempt_from_what_was_not_begun,
    of_two_workers_one_is_killed_and_everything_is_handled,
    a_stopped_worker_has_no_say_about_what_was_claimed_since,
);

/// All handlers are under way when the server dies, and end while it is gone.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_between_claim_and_acknowledgement_costs_nothing() {
    let server =
        leasehold_testkit::RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always");
    let Some(server) = server.start_or_skip() else { return };
    let leases = Leasehold::connect(server.url()).await.unwrap();
    let pool = leases.deadlines("payments");
    fill(&pool, 40).await;
    let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let (counted, open) = (begun.clone(), gate.clone());
    let handler = move |_: Due| {
        counted.fetch_add(1, Ordering::SeqCst);
        let open = open.clone();
        async move { open.acquire().await.map(drop) }
    };
    let recovery = pool.recover(handler).parallelism(40).every(Duration::from_millis(100));
    let recovery = recovery.await.unwrap();
    eventually_async(LONG, "all are begun", || async { begun.load(Ordering::SeqCst) == 40 }).await;
    server.kill();
    gate.add_permits(1_000);
    eventually_async(LONG, "the outage is noticed", || async { leases.stats().disconnected > 0 }).await;
    server.restart_with_data();
    until_empty(&pool).await;
    assert_eq!(begun.load(Ordering::SeqCst), 40, "none was handled twice");
    // And it goes on.
    fill(&pool, 40).await;
    until_empty(&pool).await;
    assert!(recovery.stop().await);
    let stats = leases.stats();
    assert_eq!((begun.load(Ordering::SeqCst), stats.deadlines_buried), (80, 0));
    leases.close().await.unwrap();
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_recovery_that_starts_before_its_store_waits_for_it() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    server.kill();
    let leases = Leasehold::connect_lazy(server.url()).unwrap();
    let pool = leases.deadlines("payments");
    let recovery = pool.recover(async |_: Due| Handled::Ok(())).every(Duration::from_millis(100));
    let recovery = recovery.scans(leasehold::deadlines::Scans::SingleWinner).await.unwrap();
    server.restart();
    eventually_async(LONG, "a scan", || async { leases.stats().recovery_scans > 0 }).await;
    fill(&pool, 10).await;
    until_empty(&pool).await;
    assert!(recovery.stop().await);
    leases.close().await.unwrap();
}
