//! The engine on real files, and between real processes.

pub(super) mod host;

use std::{
    fs,
    io::Write,
    process::{Child, Command},
    time::Duration,
};

use tokio::sync::Notify;

use super::*;
use leasehold_core::{
    engine::{Fault, LinkChange, Mode, Queue, Wake},
    error::ErrorKind,
    owner::{Holder, Owner},
};

/// A directory of its own, removed at the end.
pub(super) struct TempDir(std::path::PathBuf);

impl TempDir {
    pub(super) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("leasehold-{:032x}", rand::random::<u128>()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self, below: &str) -> String {
        self.0.join(below).to_str().unwrap().to_owned()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(max_in_flight: usize) -> EngineOptions {
    EngineOptions {
        clock: Clock::system(),
        command_timeout: Duration::from_secs(10),
        prefix: String::new(),
        connections: 1,
        max_in_flight,
        client_name: "test".into(),
        max_ttl: Duration::from_secs(300),
    }
}

fn open(path: &str) -> Sqlite {
    Sqlite::open(path, &options(1000)).unwrap()
}

fn soon() -> Until {
    Clock::system().now() + Duration::from_secs(10)
}

const POLL: Duration = Duration::from_secs(5);

fn claim(name: &str, wait: Option<Duration>) -> Claim {
    Claim {
        name: Name::new(name).unwrap(),
        owner: Owner::new(rand::random(), &Holder::this_process("test", 0)),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(30),
        format: leasehold_core::engine::Format::Plain,
        lock_delay: Duration::ZERO,
        queue: wait.map(|wait| Queue { wait, poll_every: POLL }),
        acks: leasehold_core::engine::Acks::None,
    }
}

fn waiting(name: &str) -> Claim {
    claim(name, Some(Duration::from_secs(60)))
}

struct Notified(Notify);

impl WakeSink for Notified {
    fn wake(&self, wake: Wake) {
        assert!(matches!(wake, Wake::LookAgain { .. }));
        self.0.notify_one();
    }
    fn link(&self, _: LinkChange) {}
}

fn listening(engine: &Sqlite) -> Arc<Notified> {
    let told = Arc::new(Notified(Notify::new()));
    let sink: Arc<dyn WakeSink> = told.clone();
    engine.set_wake_sink(Arc::downgrade(&sink));
    told
}

/// What a client does: claims, waits for a hint or its poll, and claims again.
async fn acquire(engine: &Sqlite, claim: &Claim, told: &Notified) -> (leasehold_core::engine::Grant, bool) {
    let mut waited = false;
    loop {
        match engine.claim(claim, soon()).await.unwrap() {
            Answer::Granted(grant) => return (grant, waited),
            Answer::Queued { .. } => {
                waited = true;
                let _ = tokio::time::timeout(claim.queue.unwrap().poll_every, told.0.notified()).await;
            }
            refused => panic!("{refused:?}"),
        }
    }
}

#[tokio::test]
async fn two_engines_of_one_file_exclude_each_other_and_hand_over_by_hint() {
    let dir = TempDir::new();
    let (one, other) = (open(&dir.path("x.db")), open(&dir.path("x.db")));
    let (_, told) = (listening(&one), listening(&other));
    let (first, second) = (waiting("deal"), waiting("deal"));
    let Answer::Granted(held) = one.claim(&first, soon()).await.unwrap() else { panic!() };
    assert!(matches!(other.claim(&second, soon()).await.unwrap(), Answer::Queued { ahead: 0, .. }));
    let released = one.release(&first.hold(Fence::new(0)), soon()).await.unwrap();
    assert_eq!(released, Released::handed_over(None));
    tokio::time::timeout(Duration::from_secs(10), told.0.notified()).await.expect("a hint");
    let Answer::Granted(next) = other.claim(&second, soon()).await.unwrap() else { panic!() };
    assert!(next.fence > held.fence);
}

#[tokio::test]
async fn what_must_survive_a_power_loss_is_synced() {
    let dir = TempDir::new();
    let engine = open(&dir.path("x.db"));
    for _ in 0..2 {
        for (access, synchronous) in [(Access::Write, 1), (Access::WriteToLast, 2), (Access::Read, 1)] {
            let asked =
                engine.worker.call(soon(), Purpose::Ask, access, |store| store.pragma::<i64>("synchronous"));
            assert_eq!(asked.await.unwrap(), synchronous);
        }
    }
}

#[tokio::test]
async fn a_claim_that_waited_in_line_is_not_run_after_its_attempt_ended() {
    let dir = TempDir::new();
    let engine = open(&dir.path("x.db"));
    let claim = waiting("deal");
    let (resume, stop) = std::sync::mpsc::channel::<()>();
    let stopped = engine.worker.call(soon(), Purpose::Ask, Access::Write, move |_| {
        let _ = stop.recv();
        Ok(())
    });
    let asked = engine.claim(&claim, soon());
    let ended = async {
        tokio::task::yield_now().await;
        let abandoned = engine.abandon(&claim, soon());
        drop(resume);
        abandoned.await.unwrap();
    };
    let (_, asked, ()) = tokio::join!(stopped, asked, ended);
    assert_eq!(asked.unwrap_err().fault, Fault::Ended);
    assert_eq!(engine.inspect(&claim.name, soon()).await.unwrap().held(), None);
    assert_eq!(engine.claim(&claim, soon()).await.unwrap_err().fault, Fault::Ended);
}

#[tokio::test]
async fn the_number_of_calls_that_ask_is_bounded() {
    let dir = TempDir::new();
    let engine = Sqlite::open(&dir.path("x.db"), &options(1)).unwrap();
    let (resume, stop) = std::sync::mpsc::channel::<()>();
    let (began, begun) = tokio::sync::oneshot::channel();
    let stopped = engine.worker.call(soon(), Purpose::Ask, Access::Write, move |_| {
        let _ = began.send(());
        let _ = stop.recv();
        Ok(())
    });
    let name = Name::new("deal").unwrap();
    let crowd = async {
        begun.await.unwrap();
        let fits = engine.inspect(&name, soon());
        let too_many = async {
            let in_vain = Clock::system().now() + Duration::from_millis(20);
            let refused = engine.inspect(&name, in_vain).await.unwrap_err();
            assert_eq!(refused.fault, Fault::Overloaded);
            // What is held is kept and given back all the same.
            let held = waiting("held").hold(Fence::new(0));
            let kept = engine.leases().renew(std::slice::from_ref(&held), soon());
            let ended = engine.release(&held, soon());
            let (kept, ended, ()) = tokio::join!(kept, ended, async { drop(resume) });
            assert!(kept.is_ok() && ended.is_ok());
        };
        let (fits, ()) = tokio::join!(fits, too_many);
        fits.unwrap();
    };
    tokio::join!(stopped, crowd).0.unwrap();
}

#[tokio::test]
async fn a_file_locked_by_another_process_is_unreachable_in_the_callers_time() {
    let dir = TempDir::new();
    let engine = open(&dir.path("x.db"));
    engine.connect(soon()).await.unwrap();
    let other = rusqlite::Connection::open(dir.path("x.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut asked = 0;
    let locked = loop {
        let until = Clock::system().now() + Duration::from_millis(300);
        let locked = engine.claim(&waiting("deal"), until).await.unwrap_err();
        asked += 1;
        // Where the machine is busy, the reason may come too late.
        if locked.fault != Fault::NoAnswer || asked == 50 {
            break locked;
        }
    };
    assert_eq!(locked.fault, Fault::Unreachable);
    assert_eq!(locked.why, "the database is locked by another process");
    assert!(engine.inspect(&Name::new("deal").unwrap(), soon()).await.is_ok(), "readers are not kept out");
    other.execute_batch("ROLLBACK").unwrap();
    engine.connect(soon()).await.unwrap();
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_not_begun_but_an_end_is() {
    let dir = TempDir::new();
    let engine = open(&dir.path("x.db"));
    let held = waiting("deal");
    engine.claim(&held, soon()).await.unwrap();
    let past = Clock::system().now() - Duration::from_secs(1);
    let other = waiting("other");
    assert!(engine.claim(&other, past).await.is_err());
    assert!(engine.inspect(&other.name, soon()).await.unwrap().held().is_none());
    let _ = engine.release(&held.hold(Fence::new(0)), past).await;
    assert!(engine.inspect(&held.name, soon()).await.unwrap().held().is_none());
}

#[tokio::test]
async fn a_removed_file_is_noticed_and_its_leases_are_lost() {
    let dir = TempDir::new();
    let engine = open(&dir.path("x.db"));
    let held = waiting("deal");
    let Answer::Granted(first) = engine.claim(&held, soon()).await.unwrap() else { panic!() };
    for file in ["x.db", "x.db-wal", "x.db-shm"] {
        fs::remove_file(dir.path(file)).unwrap();
    }
    let other = open(&dir.path("x.db"));
    let Answer::Granted(second) = other.claim(&waiting("deal"), soon()).await.unwrap() else { panic!() };
    assert!(second.fence > first.fence);
    let renewed =
        engine.leases().renew(&[held.hold(Fence::new(0))], soon()).await.unwrap().remove(0).unwrap();
    assert_eq!(renewed, Renewed::Gone);
}

#[tokio::test]
async fn a_holder_keeps_its_lease_when_the_file_gets_a_second_name_and_new_clients_are_refused() {
    let dir = TempDir::new();
    let engine = open(&dir.path("x.db"));
    let held = waiting("deal");
    let Answer::Granted(grant) = engine.claim(&held, soon()).await.unwrap() else { panic!() };
    fs::hard_link(dir.path("x.db"), dir.path("copy.db")).unwrap();
    for name in ["x.db", "copy.db"] {
        let refused = open(&dir.path(name)).connect(soon()).await.unwrap_err();
        assert!(refused.why.contains("2 hard links"), "{refused}");
    }
    let renewed = engine.leases().renew(&[held.hold(grant.fence)], soon()).await.unwrap().remove(0).unwrap();
    assert!(matches!(renewed, Renewed::Kept { .. }), "{renewed:?}");
    let health = engine.health(soon()).await.unwrap();
    assert!(health.warnings.iter().any(|warning| warning.code == "file-refused"), "{health:?}");
}

#[tokio::test]
async fn a_store_that_cannot_be_is_refused_in_words() {
    let dir = TempDir::new();
    fs::write(dir.path("notes.txt"), "words ".repeat(1000)).unwrap();
    let refused = open(&dir.path("notes.txt")).connect(soon()).await.unwrap_err();
    assert!(matches!(refused.fault, Fault::Refused(_)), "{refused:?}");
    assert!(refused.why.contains("not a SQLite database"), "{refused}");
    #[cfg(target_os = "linux")]
    {
        let refused = open("/sys/leasehold.db").connect(soon()).await.unwrap_err();
        assert!(matches!(refused.fault, Fault::Refused(_)), "{refused:?}");
        assert!(refused.why.contains("cannot create /sys/leasehold.db"), "{refused}");
    }
    let invalid = Sqlite::open("", &options(1)).err().unwrap();
    assert_eq!(invalid.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn health_states_facts_and_what_to_change() {
    let dir = TempDir::new();
    let engine = open(&dir.path("x.db"));
    engine.claim(&waiting("deal"), soon()).await.unwrap();
    engine.claim(&waiting("deal"), soon()).await.unwrap();
    let health = engine.health(soon()).await.unwrap();
    let fact = |what: &str| health.facts.iter().find(|(name, _)| name == what).unwrap().1.clone();
    assert_eq!(fact("journal mode"), "wal");
    assert_eq!((fact("names held"), fact("waiters")), ("1".into(), "1".into()));
    assert!(health.warnings.is_empty(), "{health:?}");
    let writable_by_all = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
    fs::set_permissions(dir.path("x.db"), writable_by_all).unwrap();
    let health = engine.health(soon()).await.unwrap();
    assert!(health.warnings.iter().any(|warning| warning.code == "world-writable"));
}

#[tokio::test]
async fn a_closed_engine_gives_its_files_back_and_opens_them_again_when_asked() {
    let dir = TempDir::new();
    let engine = open(&dir.path("x.db"));
    let held = waiting("deal");
    engine.claim(&held, soon()).await.unwrap();
    engine.close(soon()).await.unwrap();
    assert!(!fs::exists(dir.path("x.db-wal")).unwrap(), "the last one out merges the log");
    assert_eq!(engine.release(&held.hold(Fence::new(0)), soon()).await.unwrap(), Released::Free);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_engines_may_create_the_file_at_once() {
    for _ in 0..10 {
        let dir = TempDir::new();
        let engines: Vec<_> = (0..8).map(|_| open(&dir.path("x.db"))).collect();
        let dials = engines.into_iter().map(|engine| {
            tokio::spawn(async move {
                engine.connect(soon()).await?;
                engine.claim(&claim("deal", None), soon()).await
            })
        });
        let mut grants = 0;
        for dial in dials.collect::<Vec<_>>() {
            grants += u32::from(matches!(dial.await.unwrap().unwrap(), Answer::Granted(_)));
        }
        assert_eq!(grants, 1);
    }
}

#[test]
fn opening_needs_no_runtime_and_creates_nothing() {
    let dir = TempDir::new();
    let path = dir.path("x.db");
    drop(open(&path));
    assert!(!fs::exists(&path).unwrap());
}

const ROUNDS: usize = 200;
/// Without hints each hand-over would wait for this.
const HANDOVER_POLL: Duration = Duration::from_millis(500);
const HELPER_DIR: &str = "LEASEHOLD_TEST_SQLITE_DIR";

/// Takes and returns the lock again and again, and holds it until the other process waits for it.
/// Answers how long each hand-over from the other process took.
async fn contend(dir: &str) -> Vec<Duration> {
    let (clock, path) = (Clock::system(), |below: &str| format!("{dir}/{below}"));
    let engine = open(&path("x.db"));
    let told = listening(&engine);
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let mut claim = waiting("deal");
        claim.queue.as_mut().unwrap().poll_every = HANDOVER_POLL;
        let (_, waited) = acquire(&engine, &claim, &told).await;
        let granted_at = clock.now();
        fs::File::create_new(path("inside")).expect("another process is inside");
        if waited {
            let released_at = fs::read_to_string(path("released_at")).unwrap().parse().unwrap();
            took.push(granted_at.since(leasehold_core::clock::BootInstant::from_nanos(released_at)));
        }
        // The other one may have finished: then nobody comes.
        for _ in 0..100 {
            if engine.inspect(&claim.name, soon()).await.unwrap().waiting > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        fs::remove_file(path("inside")).unwrap();
        fs::write(path("released_at"), clock.now().as_nanos().to_string()).unwrap();
        let _ = engine.release(&claim.hold(Fence::new(0)), soon()).await.unwrap();
    }
    took
}

/// Not a test of its own: the other process of the one below.
#[tokio::test]
async fn helper_process() {
    if let Ok(dir) = std::env::var(HELPER_DIR) {
        contend(&dir).await;
    }
}

/// Ends with the test, also when that fails.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn two_processes_exclude_each_other_and_hand_over_long_before_a_poll() {
    let dir = TempDir::new();
    let mut helper = Helper(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::helper_process", "--nocapture"])
            .env(HELPER_DIR, dir.path(""))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut took = contend(&dir.path("")).await;
    assert!(helper.0.wait().unwrap().success(), "the other process found the lock held twice");
    took.sort_unstable();
    assert!(took.len() > ROUNDS / 2, "only {} hand-overs were seen", took.len());
    let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    let _ = writeln!(
        std::io::stderr(),
        "hand-over between two processes: p50 {p50:?}, p99 {p99:?}, {} hand-overs",
        took.len()
    );
    assert!(p50 < HANDOVER_POLL / 10, "hints do not arrive: p50 {p50:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_waiters_than_places_outlast_a_file_that_is_locked_for_a_while() {
    let dir = TempDir::new();
    let url = format!("sqlite:{}", dir.path("x.db"));
    let holder = leasehold::Leasehold::connect(&url).await.unwrap();
    let crowded = leasehold::Leasehold::builder(&url)
        .configure(|config| config.max_in_flight = 1)
        .connect()
        .await
        .unwrap();
    let guard = holder.lock("deal").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 1..=5 {
        let lock = crowded.lock("deal").ttl(Duration::from_millis(300)).wait(Duration::from_secs(120));
        waiters.push(tokio::spawn(async move { lock.acquire().await?.release().await }));
        while holder.inspect("deal").await.unwrap().waiting < number {
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "one gave up");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let other = rusqlite::Connection::open(dir.path("x.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    other.execute_batch("ROLLBACK").unwrap();
    let _ = guard.release().await.unwrap();
    for waiter in waiters {
        let _ = waiter.await.unwrap().unwrap();
    }
}
