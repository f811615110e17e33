//! Locks between real processes: killed, stopped, with a wrong wall clock, in order of arrival.

#[macro_use]
mod every_store;

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use leasehold::{ErrorKind, Fence, Leasehold, engine::Released};
use leasehold_testkit::{Admission, Helper, Register, eventually_async};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn helper_process() {
    let Some(role) = Helper::role() else { return };
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(
        async {
            let leases = Leasehold::builder(env("STORE"))
                .configure(|config| config.label = std::env::var("LABEL").unwrap_or_default())
                .connect()
                .await
                .unwrap();
            match role.as_str() {
                "holder" => hold(&leases).await,
                "taker" => take_once(&leases).await,
                "reader" | "permits" | "leader" => hold_as(&leases, &role).await,
                other => panic!("no role {other}"),
            }
        },
    );
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set for the helper"))
}

/// Holds the lock, then writes late: says what its guard and the register say to it.
async fn hold(leases: &Leasehold) {
    let ttl = Duration::from_millis(env("TTL_MS").parse().unwrap());
    let register = Register::open(Path::new(&env("REGISTER")), "shared", Admission::AtLeastHighest).unwrap();
    let guard = leases.lock("shared").ttl(ttl).keep_alive().acquire().await.unwrap();
    assert!(register.write(guard.fence().get(), "holder").unwrap());
    Helper::say(&format!("holding {}", guard.fence()));
    // Busy with work that never looks at the guard, until the parent wrote its part.
    let done = env("DONE");
    eventually_async(LONG, "the other's write", || async { Path::new(&done).exists() }).await;
    let accepted = register.write(guard.fence().get(), "holder").unwrap();
    Helper::say(&format!("late held={} accepted={accepted}", guard.is_held()));
    Helper::say(&format!(
        "wall {}",
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
    ));
}

/// Holds the name of its role, in its own way, until it is killed.
async fn hold_as(leases: &Leasehold, role: &str) {
    let ttl = Duration::from_millis(env("TTL_MS").parse().unwrap());
    if role == "leader" {
        let body = async |leadership: leasehold::Leadership| {
            Helper::say(&format!("holding {}", leadership.fence()));
            std::future::pending::<()>().await;
        };
        return leases.election(role).ttl(ttl).lead(body).await.unwrap();
    }
    let lock = if role == "reader" { leases.read_lock(role) } else { leases.semaphore(role, 5).permits(3) };
    let guard = lock.ttl(ttl).keep_alive().acquire().await.unwrap();
    Helper::say(&format!("holding {}", guard.fence()));
    guard.lost().await;
}

/// Waits for the lock, says so, and gives it back when told.
async fn take_once(leases: &Leasehold) {
    let ttl = Duration::from_millis(env("TTL_MS").parse().unwrap());
    let guard =
        leases.lock("shared").ttl(ttl).wait(LONG).on_wait(|_| Helper::say("queued")).acquire().await.unwrap();
    Helper::say(&format!("got {} held={}", guard.fence(), guard.is_held()));
    assert_ne!(guard.release().await.unwrap(), Released::Expired);
    leases.close().await.unwrap();
}

struct Arena {
    store: String,
    dir: tempfile::TempDir,
}

impl Arena {
    fn new(store: impl Into<String>) -> Self {
        Self { store: store.into(), dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, file: &str) -> String {
        self.dir.path().join(file).to_str().unwrap().to_owned()
    }

    fn spawn(&self, role: &str, more: &[(&str, &str)]) -> Helper {
        let (register, done) = (self.path("register"), self.path("done"));
        let mut env = vec![
            ("STORE", self.store.as_str()),
            ("REGISTER", &register),
            ("DONE", &done),
            ("TTL_MS", "1000"),
        ];
        env.extend_from_slice(more);
        Helper::spawn(role, &env)
    }

    async fn client(&self) -> Leasehold {
        Leasehold::connect(&self.store).await.unwrap()
    }

    async fn waiting(&self, leases: &Leasehold, count: u32) {
        eventually_async(LONG, "waiters", || async {
            leases.inspect("shared").await.unwrap().waiting == count
        })
        .await;
    }
}

fn fence_in(line: &str) -> Fence {
    line.split(' ').next().unwrap().parse().unwrap()
}

async fn four_processes_are_served_in_the_order_they_came(arena: Arena) {
    let leases = arena.client().await;
    let guard = leases.lock("shared").keep_alive().acquire().await.unwrap();
    let mut takers = Vec::new();
    for number in 1..=4 {
        takers.push(arena.spawn("taker", &[("TTL_MS", "5000")]));
        arena.waiting(&leases, number).await;
    }
    let _ = guard.release().await.unwrap();
    let fences: Vec<_> = takers.iter().map(|taker| fence_in(&taker.wait_for_line("got ", LONG))).collect();
    assert!(fences.is_sorted(), "{fences:?}");
}

async fn a_killed_holder_costs_its_ttl_and_no_more(arena: Arena) {
    let holder = arena.spawn("holder", &[]);
    let first = fence_in(&holder.wait_for_line("holding ", LONG));
    holder.kill9();
    let leases = arena.client().await;
    let guard = leases.lock("shared").wait(LONG).acquire().await.unwrap();
    assert!(guard.fence() > first);
    let _ = guard.release().await.unwrap();
}

async fn a_killed_reader_permit_holder_and_leader_are_replaced_within_the_ttl(arena: Arena) {
    let roles = ["reader", "permits", "leader"];
    let holders = roles.map(|role| arena.spawn(role, &[]));
    let fences = holders.each_ref().map(|holder| fence_in(&holder.wait_for_line("holding ", LONG)));
    let leases = arena.client().await;
    let locks =
        [leases.write_lock("reader"), leases.semaphore("permits", 5).permits(3), leases.lock("leader")];
    let waiters = locks.map(|lock| tokio::spawn(lock.wait(LONG).into_future()));
    for role in roles {
        let has_come = || async { leases.inspect(role).await.unwrap().waiting == 1 };
        eventually_async(LONG, "a waiter", has_come).await;
    }
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    holders.iter().for_each(Helper::kill9);
    let killed = Instant::now();
    for (waiter, fence) in waiters.into_iter().zip(fences) {
        let guard = waiter.await.unwrap().unwrap();
        assert!(guard.fence() > fence, "{}: {} after {fence}", guard.name(), guard.fence());
        assert!(killed.elapsed() < Duration::from_secs(4), "{} after {:?}", guard.name(), killed.elapsed());
        let _ = guard.release().await.unwrap();
    }
}

/// Stops a process while others can use the store: one that is stopped in the middle of a transaction keeps SQLite locked.
async fn stop(helper: &Helper, leases: &Leasehold) {
    loop {
        helper.stop();
        match leases.lock("probe").acquire().await {
            Ok(probe) => return assert!(probe.release().await.unwrap().was_held()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::StoreUnreachable, "{error}"),
        }
        helper.cont();
    }
}

async fn a_stopped_holder_is_refused_by_its_fence_and_told_that_it_lost(arena: Arena) {
    let register =
        Register::open(Path::new(&arena.path("register")), "shared", Admission::AtLeastHighest).unwrap();
    let holder = arena.spawn("holder", &[]);
    let first = fence_in(&holder.wait_for_line("holding ", LONG));
    let leases = arena.client().await;
    stop(&holder, &leases).await;
    let guard = leases.lock("shared").wait(LONG).acquire().await.unwrap();
    assert!(guard.fence() > first);
    assert!(register.write(guard.fence().get(), "parent").unwrap());
    std::fs::write(arena.path("done"), "").unwrap();
    holder.cont();
    assert_eq!(holder.wait_for_line("late ", LONG), "held=false accepted=false");
    assert!(guard.is_held());
    let _ = guard.release().await.unwrap();
}

/// The message waits in the socket of a stopped process; by the time it is read the lock is somebody else's.
async fn a_stopped_waiter_does_not_use_a_late_hand_over(arena: Arena) {
    let leases = arena.client().await;
    let guard = leases.lock("shared").keep_alive().acquire().await.unwrap();
    let taker = arena.spawn("taker", &[]);
    taker.wait_for_line("queued", LONG);
    arena.waiting(&leases, 1).await;
    stop(&taker, &leases).await;
    let _ = guard.release().await.unwrap();
    // Whatever the stopped process was handed runs out, and then it is ours.
    let mine = leases.lock("shared").keep_alive().wait(LONG).acquire().await.unwrap();
    taker.cont();
    arena.waiting(&leases, 1).await;
    assert!(mine.is_held());
    let fence = mine.fence();
    let _ = mine.release().await.unwrap();
    let got = taker.wait_for_line("got ", LONG);
    assert!(fence_in(&got) > fence && got.ends_with("held=true"), "{got}");
}

fn wall_clock_shim(arena: &Arena) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wall_clock.c");
    let shim = arena.path("wall_clock.so");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o", &shim]).arg(source).arg("-ldl").status().unwrap();
    assert!(built.success(), "cc builds the shim");
    shim
}

async fn a_process_whose_wall_clock_is_an_hour_off_changes_nothing(arena: Arena) {
    let shim = wall_clock_shim(&arena);
    let leases = arena.client().await;
    let mut last = Fence::new(0);
    for offset in ["3600", "-3600"] {
        let _ = std::fs::remove_file(arena.path("done"));
        let holder = arena.spawn("holder", &[("LD_PRELOAD", &shim), ("WALL_CLOCK_OFFSET_S", offset)]);
        let fence = fence_in(&holder.wait_for_line("holding ", LONG));
        assert!(fence > last, "{offset}");
        assert!(leases.lock("shared").try_acquire().await.unwrap().held().is_none());
        std::fs::write(arena.path("done"), "").unwrap();
        assert_eq!(holder.wait_for_line("late ", LONG), "held=true accepted=true");
        let wall: i64 = holder.wait_for_line("wall ", LONG).parse().unwrap();
        let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
        assert!((wall - here - offset.parse::<i64>().unwrap()).abs() < 60, "the shim worked");
        assert!(holder.wait(LONG).success());
        let guard = leases.lock("shared").wait(LONG).acquire().await.unwrap();
        assert!(guard.fence() > fence, "{offset}");
        last = guard.fence();
        let _ = guard.release().await.unwrap();
    }
}

on_every_store!(
    etcd and postgres too:
    four_processes_are_served_in_the_order_they_came,
    a_killed_holder_costs_its_ttl_and_no_more,
    a_killed_reader_permit_holder_and_leader_are_replaced_within_the_ttl,
    a_stopped_holder_is_refused_by_its_fence_and_told_that_it_lost,
    a_stopped_waiter_does_not_use_a_late_hand_over,
    a_process_whose_wall_clock_is_an_hour_off_changes_nothing,
);
