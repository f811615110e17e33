//! The API without `async`.
#![cfg(all(feature = "memory", feature = "blocking"))]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Error, ErrorKind, Mode, OnOutage, Policies, Retry, RunError,
    blocking::{Attempt, Leasehold, Protection},
    election::{Observed, Yielded},
    engine::Released,
};

const MS: Duration = Duration::from_millis(1);
/// Long enough that a busy machine does not lose what should be kept.
const SECOND: Duration = Duration::from_secs(1);

fn client() -> Leasehold {
    Leasehold::connect("memory:").unwrap()
}

#[track_caller]
fn eventually(what: &str, is_true: impl FnMut() -> bool) {
    leasehold_testkit::eventually(Duration::from_secs(60), what, is_true);
}

#[test]
fn a_lock_excludes_other_threads_and_fences_grow() {
    let leases = client();
    let inside = AtomicU32::new(0);
    let fences = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let guard = leases.lock("x").acquire().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    fences.lock().unwrap().push(guard.fence());
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let _ = guard.release().unwrap();
                }
            });
        }
    });
    let fences = fences.into_inner().unwrap();
    assert!(fences.len() == 80 && fences.is_sorted_by(|a, b| a < b));
    leases.close().unwrap();
}

#[test]
fn a_held_lock_is_busy_then_times_out_then_is_handed_over() {
    let leases = client();
    let guard = leases.lock("x").label("holder").acquire().unwrap();
    assert!(guard.is_held() && guard.remaining() > Duration::from_secs(29));
    assert_eq!(guard.name().as_str(), "x");
    let Attempt::Busy { holder, .. } = leases.lock("x").try_acquire().unwrap() else { panic!("two holders") };
    assert!(format!("{holder:?}").contains("holder"));
    let error = leases.lock("x").wait(30 * MS).acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let asked = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let asked = asked.clone();
            leases.lock("x").on_wait(move |_| asked.store(true, Ordering::SeqCst)).acquire().unwrap()
        });
        eventually("a waiter", || leases.inspect("x").unwrap().waiting == 1);
        assert!(matches!(guard.release().unwrap(), Released::HandedOver { .. }));
        assert_eq!(waiter.join().unwrap().release().unwrap(), Released::Free);
    });
    assert!(asked.load(Ordering::SeqCst));
    assert_eq!(leases.stats().handed_over, 1);
}

#[test]
fn dropping_a_guard_gives_the_lock_back() {
    let leases = client();
    drop(leases.lock("x").acquire().unwrap());
    eventually("the lock is free", || leases.lock("x").try_acquire().unwrap().held().is_some());
}

#[test]
fn a_fixed_lease_is_lost_and_a_kept_one_is_not() {
    let leases = client();
    let kept = leases.lock("kept").ttl(SECOND).keep_alive().acquire().unwrap();
    let fixed = leases.lock("fixed").ttl(SECOND).acquire().unwrap();
    assert!(!fixed.wait_lost(MS).unwrap());
    fixed.extend().unwrap();
    assert!(fixed.wait_lost(Duration::from_secs(10)).unwrap());
    assert!(!fixed.is_held() && fixed.remaining().is_zero());
    assert_eq!(fixed.extend().unwrap_err().kind(), ErrorKind::Lost);
    assert!(!kept.wait_lost(500 * MS).unwrap() && kept.is_held());
    let lease = kept.lease();
    let _ = kept.release().unwrap();
    assert!(!lease.is_held());
}

#[test]
fn run_keeps_the_lock_while_the_body_blocks() {
    let leases = client();
    let (began, ttl) = (Instant::now(), 2 * SECOND);
    let fence = leases.lock("x").ttl(ttl).run(|lease| {
        eventually("it lasts longer than its ttl", || began.elapsed() > ttl);
        assert!(lease.is_held());
        assert!(leases.lock("x").try_acquire().unwrap().held().is_none());
        // Calls that wait work inside of the body.
        leases.lock("y").run(|inner| inner.extend().map(|()| lease.fence())).unwrap().unwrap()
    });
    assert!(fence.is_ok());
    assert!(leases.lock("x").try_acquire().unwrap().held().is_some());
}

#[test]
fn run_says_lost_and_hands_the_value_over_when_the_body_outlives_its_lease() {
    let leases = client();
    let lost = leases.lock("x").ttl(500 * MS).without_keep_alive().run(|lease| {
        let mut steps = 0;
        while lease.is_held() {
            steps += 1;
            thread::sleep(MS);
        }
        steps
    });
    let Err(RunError::Lost { value: Some(steps), name, .. }) = lost else { panic!("{lost:?}") };
    assert!(steps > 0 && name.as_str() == "x");
}

#[test]
fn run_gives_the_lock_back_when_the_body_panics() {
    let leases = client();
    let body = std::panic::AssertUnwindSafe(|| leases.lock("x").run(|_| panic!("on purpose")));
    let panic = std::panic::catch_unwind(body).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    assert!(leases.lock("x").try_acquire().unwrap().held().is_some());
}

#[test]
fn run_does_not_run_without_the_lock() {
    let leases = client();
    let _guard = leases.lock("x").acquire().unwrap();
    let out = leases.lock("x").wait(Duration::ZERO).run(|_| panic!("ran"));
    assert!(matches!(out, Err(RunError::NotRun(Error::TimedOut { .. }))));
}

#[test]
fn the_builder_passes_everything_on() {
    let leases = client();
    let bad = |error: Error, what: &str| assert!(error.to_string().contains(what), "{error}");
    let lock = || leases.lock("x");
    bad(lock().ttl(Duration::ZERO).acquire().unwrap_err(), "ttl");
    bad(lock().wait(Duration::MAX).acquire().unwrap_err(), "wait");
    bad(lock().max_attempts(0).acquire().unwrap_err(), "max attempts");
    bad(lock().retry(Retry::fixed(Duration::ZERO)).acquire().unwrap_err(), "retry interval");
    bad(lock().label("x".repeat(999)).acquire().unwrap_err(), "label");
    bad(lock().lock_delay(Duration::MAX).acquire().unwrap_err(), "lock delay");
    bad(lock().max_lifetime(Duration::ZERO).acquire().unwrap_err(), "maximum lifetime");
    bad(lock().hold_at_least(Duration::MAX).acquire().unwrap_err(), "minimum hold time");
    let held = lock().on_outage(OnOutage::Proceed).wait_forever().acquire_or_proceed().unwrap();
    assert!(matches!(held, Protection::Held(_)));
}

#[test]
fn policies_and_the_rest_of_the_client_are_there() {
    let policies = Policies::parse("[locks.a]\nkey = \"a:{x}\"\n[locks.b]\nkey = \"b\"", "p.toml").unwrap();
    let leases = Leasehold::build(leasehold::Leasehold::builder("memory:").policies(policies)).unwrap();
    let guard = leases.lock_policy("a").unwrap().key([("x", 1)]).acquire().unwrap();
    let _other = leases.lock_policy("b").unwrap().lock().acquire().unwrap();
    assert_eq!(leases.policies().locks().count(), 2);
    assert_eq!(leases.lock_policy("b").unwrap().policy().name, "b");
    assert_eq!(leases.list_page("a:", None, 10).unwrap().items.len(), 1);
    let fence = guard.fence();
    assert_eq!(leases.force_release("a:1", fence).unwrap(), Released::Free);
    leases.health().unwrap();
    assert_eq!((leases.store(), leases.capabilities().name_max_bytes > 0), ("memory:", true));
    let lazy = Leasehold::build_lazy(leasehold::Leasehold::builder("memory:")).unwrap();
    let _ = lazy.lock("x").acquire().unwrap().release().unwrap();
    lazy.close().unwrap();
    assert!(lazy.lock("x").acquire().is_err());
}

#[test]
fn in_async_code_it_is_an_error_and_not_a_panic() {
    let leases = client();
    let guard = leases.lock("held").acquire().unwrap();
    let dropped = leases.lock("dropped").acquire().unwrap();
    let released = leases.lock("released").acquire().unwrap();
    let runtimes =
        [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()];
    let refused = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("async code"), "{error}");
    };
    for mut builder in runtimes {
        builder.enable_all().build().unwrap().block_on(async {
            refused(Leasehold::connect("memory:").unwrap_err());
            refused(leases.lock("x").acquire().unwrap_err());
            refused(leases.lock("x").try_acquire().unwrap_err());
            refused(leases.lock("x").run(|_| panic!("ran")).unwrap_err().into());
            refused(guard.extend().unwrap_err());
            refused(guard.wait_lost(MS).unwrap_err());
            refused(leases.inspect("x").unwrap_err());
            assert!(guard.is_held());
        });
    }
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        drop(dropped);
        refused(released.release().unwrap_err());
    });
    for name in ["dropped", "released"] {
        eventually(name, || leases.lock(name).try_acquire().unwrap().held().is_some());
    }
}

#[test]
fn all_clients_share_one_thread() {
    let count = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim() == "leasehold").count()
    };
    let clients: Vec<_> = (0..10).map(|_| client()).collect();
    for leases in &clients {
        let _ = leases.lock("x").acquire().unwrap().release().unwrap();
    }
    if cfg!(target_os = "linux") {
        assert_eq!(count(), 1);
    }
}

#[test]
fn clients_and_guards_can_be_sent_to_threads() {
    let (send, receive) = mpsc::channel();
    let leases = client();
    send.send((leases.clone(), leases.lock("x").acquire().unwrap())).unwrap();
    thread::spawn(move || {
        let (leases, guard) = receive.recv().unwrap();
        let _ = guard.release().unwrap();
        let _ = leases.lock("x").acquire().unwrap().release().unwrap();
    })
    .join()
    .unwrap();
}

#[test]
fn an_owner_re_enters_its_lock() {
    let leases = client();
    let me = leases.owner();
    let outer = me.own(leases.lock("x")).keep_alive().acquire().unwrap();
    let fence = me.lock("x").run(|lease| lease.fence()).unwrap();
    assert_eq!(fence, outer.fence());
    let Attempt::Busy { .. } = leases.lock("x").try_acquire().unwrap() else { panic!("a stranger") };
    let inner = me.lock("x").try_acquire().unwrap().held().expect("its own lock");
    assert!(outer.release().unwrap().was_held() && inner.is_held());
    assert!(inner.release().unwrap().was_held());
    leases.close().unwrap();
}

#[test]
fn several_locks_are_held_at_once() {
    let leases = client();
    let set = || leases.lock_all([leases.lock("b"), leases.read_lock("a")]);
    let guards = set().keep_alive().acquire().unwrap();
    assert_eq!(guards.leases().iter().map(|lease| lease.name().as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(guards.is_held() && set().wait(MS).acquire().is_err());
    assert!(guards.release().unwrap().was_held());
    let fences = set().run(|leases| leases.fences()).unwrap();
    assert_eq!(fences.len(), 2);
    assert!(set().try_acquire().unwrap().held().expect("free").release().unwrap().was_held());
    leases.close().unwrap();
}

#[test]
fn threads_wait_for_each_other_at_latches_and_barriers() {
    use leasehold::latch::{Arrived, Awaited, CountedDown};
    let leases = client();
    let latch = leases.latch("migration", 2).ttl(Duration::from_secs(60)).label("thread");
    let waiting = thread::spawn({
        let latch = latch.clone();
        move || latch.wait(Duration::from_secs(60)).unwrap()
    });
    let one = latch.join().unwrap().joined().unwrap();
    assert!(one.is_held() && one.name().as_str() == "migration");
    assert_eq!(one.count_down().unwrap(), CountedDown::Counted { missing: 1 });
    let generation = one.generation();
    assert_eq!(latch.state().unwrap().unwrap().generation, generation);
    let other = latch.join().unwrap().joined().unwrap();
    assert_eq!(other.count_down().unwrap(), CountedDown::Opened { generation });
    assert_eq!(waiting.join().unwrap(), Awaited::Opened { generation });
    assert!(matches!(latch.rearm(generation).unwrap(), leasehold::latch::Rearmed::Done { .. }));

    let barrier = leases.barrier("phase", 2).ttl(Duration::from_secs(60)).label("thread");
    let parties = [barrier.join().unwrap().joined().unwrap(), barrier.join().unwrap().joined().unwrap()];
    let threads = parties.map(|party| {
        thread::spawn(move || {
            for _ in 0..3 {
                assert!(matches!(party.arrive().unwrap(), Arrived::Passed { .. }));
            }
            party
        })
    });
    for party in threads.map(|thread| thread.join().unwrap()) {
        party.leave().unwrap();
    }
    leases.close().unwrap();
}

#[test]
fn a_leader_resigns_once_its_body_has_ended() {
    let leases = client();
    let election = || leases.election("scheduler").poll_every(10 * MS);
    let mut leaders = election().observe().unwrap();
    assert!(matches!(leaders.next(), Some(Observed::Vacant { .. })));
    let (send, leads) = mpsc::channel();
    let has_ended = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let led = scope.spawn(|| {
            election().label("me").lead(|leadership| {
                assert_eq!(leadership.resign().unwrap_err().kind(), ErrorKind::Unsupported);
                send.send(leadership.clone()).unwrap();
                while !leadership.is_resigning() {
                    thread::sleep(MS);
                }
                thread::sleep(50 * MS);
                has_ended.store(true, Ordering::SeqCst);
                7
            })
        });
        let leadership = leads.recv().unwrap();
        assert!(
            matches!(leaders.next(), Some(Observed::Leader { fence, .. }) if fence == leadership.fence())
        );
        assert!(leadership.resign().unwrap().was_held());
        assert!(has_ended.load(Ordering::SeqCst));
        assert_eq!(led.join().unwrap().unwrap(), 7);
    });
    let leadership = election().campaign().unwrap();
    assert!(election().candidates().unwrap().is_empty());
    assert_eq!(leadership.prefer(|_| true).unwrap(), Yielded::NotWaiting);
    assert!(leadership.resign().unwrap().was_held());
    leases.close().unwrap();
    assert_eq!(leaders.last(), None);
}

#[test]
fn locks_are_shared_and_permits_taken_by_name_and_by_policy() {
    let text = "[locks.look]\nkey = \"config\"\nkind = \"read\"\n[locks.gpu]\nkey = \"gpu\"\nkind = \"permits\"\nof = 3";
    let policies = Policies::parse(text, "p.toml").unwrap();
    let builder = leasehold::Leasehold::builder("memory:").policies(policies);
    let leases = Leasehold::build(builder).unwrap();
    let readers = [leases.lock_policy("look").unwrap().lock(), leases.lock("config").mode(Mode::Shared)];
    let readers = readers.map(|reader| reader.acquire().unwrap());
    assert!(readers.iter().all(|reader| reader.mode() == Mode::Shared));
    assert_eq!(leases.inspect("config").unwrap().mode(), Some(Mode::Shared));
    let two = leases.semaphore("gpu", 3).permits(2).acquire().unwrap();
    let one = leases.lock_policy("gpu").unwrap().lock().acquire().unwrap();
    let seen = leases.inspect("gpu").unwrap();
    assert_eq!((seen.permits_used(), seen.permits_free()), (Some(3), Some(0)));
    assert!(two.release().unwrap().was_held() && one.release().unwrap().was_held());
    assert_eq!(leases.inspect("gpu").unwrap().permits_used(), Some(0), "the limit is remembered");
    drop(readers);
    leases.close().unwrap();
}
