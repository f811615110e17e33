//! A bad network between some clients and a real Redis, while callers give up at any moment; the history is judged.
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
    FaultProxy, RedisServer, eventually_async,
    history::{Event, History, check},
    load::Kind,
    now,
};
use rand::RngExt;

const CLIENTS: usize = 4;
const TASKS: usize = 9;
/// What the tasks compete for, each under a name of its own.
const KINDS: [Kind; 3] = [Kind::Exclusive, Kind::ReadWrite, Kind::Permits];
const TTL: Duration = Duration::from_millis(800);
const LASTS: Duration = Duration::from_secs(8);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
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

async fn tenures(leases: Leasehold, kind: Kind, process: String, story: Arc<Story>) {
    let name = kind.name().to_owned();
    while !story.over.load(Ordering::Relaxed) {
        let attempt = story.attempts.fetch_add(1, Ordering::Relaxed);
        let (who, mode) = (process.clone(), kind.mode(attempt));
        story.tell(Event::Invoked { process: who.clone(), attempt, name: name.clone(), at: now() });
        story.tell(Event::Asked { process: who.clone(), attempt, mode });
        let (patience, kept, held_for) = {
            let mut rng = rand::rng();
            (ms(rng.random_range(0..1500)), rng.random_bool(0.5), ms(rng.random_range(0..60)))
        };
        let lock = leases.lock(&name).mode(mode).ttl(TTL).wait(Duration::from_secs(3));
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
        let patience = ms(rand::random_range(0..50));
        let _ = tokio::time::timeout(patience, guard.release()).await;
    }
}

/// Breaks one thing after another.
async fn break_things(server: &RedisServer, proxies: &[FaultProxy]) {
    let began = Instant::now();
    while began.elapsed() < LASTS {
        let (proxy, what, pause) = {
            let mut rng = rand::rng();
            (&proxies[rng.random_range(0..proxies.len())], rng.random_range(0..9), rng.random_range(5..700))
        };
        match what {
            0 => proxy.cut(),
            1 => proxy.hold(),
            2 => proxy.hold_replies(),
            3 => proxy.delay(ms(pause / 4)),
            4 => proxy.refuse(),
            5 => drop(server.cli(&["SCRIPT", "FLUSH"])),
            6 => drop(server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"])),
            7 => drop(server.cli(&["CLIENT", "PAUSE", &pause.to_string()])),
            _ => server.stop(),
        }
        tokio::time::sleep(ms(pause)).await;
        if what == 8 {
            server.cont();
        }
        if pause % 3 == 0 {
            proxy.cut();
        }
        proxy.pass();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_network_and_hasty_callers_never_make_two_holders_or_leave_anything_behind() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxies: Vec<_> = (0..CLIENTS).map(|_| FaultProxy::start(server.addr())).collect();
    let story = Arc::<Story>::default();
    let mut clients = Vec::new();
    let mut tasks = Vec::new();
    for (number, proxy) in proxies.iter().enumerate() {
        let leases = Leasehold::builder(proxy.url()).command_timeout(ms(400)).connect().await.unwrap();
        for task in 0..TASKS {
            let (kind, process) = (KINDS[task % KINDS.len()], format!("p{number}"));
            tasks.push(tokio::spawn(tenures(leases.clone(), kind, process, story.clone())));
        }
        clients.push(leases);
    }
    break_things(&server, &proxies).await;
    story.over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let history = History::from_events(story.events.lock().unwrap().drain(..)).unwrap();
    let violations = check(&history);
    assert!(violations.is_empty(), "{} of {}: {}", violations.len(), history.granted(), violations[0]);
    assert!(history.granted() > 50, "{} grants", history.granted());
    for leases in clients {
        // Right after the last fault the time may be too short to release all; the rest ends with its ttl.
        let closed = leases.close().await;
        assert!(matches!(closed, Ok(()) | Err(Error::StoreUnreachable { .. })), "{closed:?}");
    }
    let side_keys = ["waiters", "seen", "ends", "members"].map(|kind| format!("leasehold:{kind}:*"));
    for pattern in ["lock:*"].into_iter().chain(side_keys.iter().map(String::as_str)) {
        eventually_async(TTL * 3, pattern, || async { server.cli(&["KEYS", pattern]).list().is_empty() })
            .await;
    }
}
