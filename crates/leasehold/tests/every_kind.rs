//! One of each kind under the faults that all of them meet: forgotten scripts, a full server, another primary, a dead shard.
#![cfg(feature = "redis")]

use std::time::Duration;

use leasehold::{
    Error, Fence, Format, Guard, GuardSet, Leadership, Leasehold, Lock, LockSet, Participant, ReentrantGuard,
    Refusal, Released,
    election::{Election, Leaders, Observed},
    latch::{Awaited, CountedDown, Join},
};
use leasehold_testkit::{ClusterSet, SentinelSet, eventually_async};

/// For things that take a moment on a busy machine.
const LONG: Duration = Duration::from_secs(60);

async fn client(url: impl AsRef<str>) -> Leasehold {
    Leasehold::builder(url).command_timeout(Duration::from_secs(5)).connect().await.unwrap()
}

fn election(leases: &Leasehold, ttl: Duration) -> Election {
    leases.election("election").ttl(ttl).poll_every(Duration::from_millis(20))
}

fn set(leases: &Leasehold) -> LockSet {
    leases.lock_all([
        leases.lock("set a"),
        leases.read_lock("set b"),
        leases.semaphore("set c", 2).permits(2),
    ])
}

async fn join(leases: &Leasehold, ttl: Duration) -> Participant {
    match leases.latch("latch", 2).ttl(ttl).join().await.unwrap() {
        Join::Joined(participant) => participant,
        other => panic!("{other:?}"),
    }
}

/// What somebody else wants and does not get beside [`Held`].
fn excluded(leases: &Leasehold) -> [Lock; 8] {
    [
        leases.write_lock("read"),
        leases.semaphore("permits", 5).permits(3),
        leases.lock("redisson").format(Format::Redisson),
        leases.lock("owned"),
        leases.lock("election"),
        leases.lock("set a"),
        leases.write_lock("set b"),
        leases.semaphore("set c", 2),
    ]
}

/// One of each kind.
struct Held {
    guards: [Guard; 3],
    owned: [ReentrantGuard; 2],
    set: GuardSet,
    leadership: Leadership,
    participant: Participant,
}

impl Held {
    async fn acquire(leases: &Leasehold, ttl: Duration, before_each: impl Fn()) -> Self {
        let mut guards = Vec::new();
        let redisson = leases.lock("redisson").format(Format::Redisson);
        for lock in [leases.read_lock("read"), leases.semaphore("permits", 5).permits(3), redisson] {
            before_each();
            guards.push(lock.ttl(ttl).keep_alive().acquire().await.unwrap());
        }
        let me = leases.owner();
        before_each();
        let outer = me.lock("owned").ttl(ttl).keep_alive().acquire().await.unwrap();
        let owned = [outer, me.lock("owned").acquire().await.unwrap()];
        before_each();
        let set = set(leases).ttl(ttl).keep_alive().acquire().await.unwrap();
        before_each();
        let leadership = election(leases, ttl).label("first").campaign().await.unwrap();
        before_each();
        let participant = join(leases, ttl).await;
        let guards = guards.try_into().expect("three");
        Self { guards, owned, set, leadership, participant }
    }

    fn assert_held(&self) {
        let guards = self.guards.iter().map(|guard| (guard.name().to_string(), guard.is_held()));
        let owned = self.owned.iter().map(|guard| ("owned".to_owned(), guard.is_held()));
        let others = [
            ("set".to_owned(), self.set.is_held()),
            ("election".to_owned(), self.leadership.is_held()),
            ("latch".to_owned(), self.participant.is_held()),
        ];
        let lost: Vec<_> = guards.chain(owned).chain(others).filter(|(_, is_held)| !is_held).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    /// Until each of them has been renewed twice.
    async fn renewed(&self, leases: &Leasehold) {
        let before = leases.stats().renewed;
        eventually_async(LONG, "renewals", || async { leases.stats().renewed >= before + 20 }).await;
        self.assert_held();
    }

    /// Gives all back. `other` takes part in the latch, too.
    async fn release(self, other: Participant, before_each: impl Fn()) {
        let Self { guards, owned, set, leadership, participant } = self;
        for guard in guards {
            before_each();
            assert!(guard.release().await.unwrap().was_held());
        }
        for guard in owned {
            before_each();
            let _last = guard.release().await.unwrap();
        }
        before_each();
        assert!(set.release().await.was_held());
        before_each();
        assert!(leadership.resign().await.unwrap().was_held());
        before_each();
        assert_eq!(participant.count_down().await.unwrap(), CountedDown::Counted { missing: 1 });
        before_each();
        assert!(matches!(other.count_down().await.unwrap(), CountedDown::Opened { .. }));
        before_each();
        assert!(matches!(participant.wait(LONG).await.unwrap(), Awaited::Opened { .. }));
    }
}

#[tokio::test]
async fn forgotten_scripts_are_sent_again_unnoticed() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let (leases, others) = (client(server.url()).await, client(server.url()).await);
    let forget = || drop(server.cli(&["SCRIPT", "FLUSH"]));
    let held = Held::acquire(&leases, Duration::from_secs(3), forget).await;
    forget();
    held.renewed(&leases).await;
    for lock in excluded(&others) {
        forget();
        assert!(lock.try_acquire().await.unwrap().held().is_none());
    }
    forget();
    let other = join(&others, LONG).await;
    held.release(other, forget).await;
    for lock in excluded(&others) {
        forget();
        assert!(lock.try_acquire().await.unwrap().held().is_some());
    }
}

#[tokio::test]
async fn a_full_server_refuses_newcomers_and_keeps_what_it_has() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let (leases, others) = (client(server.url()).await, client(server.url()).await);
    let held = Held::acquire(&leases, Duration::from_secs(3), || ()).await;
    let other = join(&others, LONG).await;
    let is_full = |error: Error| {
        assert!(matches!(error, Error::StoreRefused { refusal: Refusal::OutOfMemory, .. }), "{error}");
    };
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    held.renewed(&leases).await;
    is_full(others.lock("new").format(Format::Redisson).acquire().await.unwrap_err());
    is_full(others.owner().lock("new").acquire().await.unwrap_err());
    is_full(others.election("new").campaign().await.unwrap_err());
    is_full(others.lock_all([others.lock("x"), others.semaphore("y", 3)]).acquire().await.unwrap_err());
    is_full(others.latch("new", 2).join().await.unwrap_err());
    is_full(others.barrier("new barrier", 2).join().await.unwrap_err());
    held.release(other, || ()).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    for lock in excluded(&others) {
        assert!(lock.try_acquire().await.unwrap().held().is_some());
    }
}

/// The leader that comes next; contact may be lost in between.
async fn next_leader(leaders: &mut Leaders, label: &str) -> Fence {
    loop {
        match tokio::time::timeout(LONG, leaders.next()).await.expect("a leader") {
            Some(Observed::Leader { holder, fence, .. }) => {
                assert_eq!(holder.label(), label);
                return fence;
            }
            Some(Observed::Unknown { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_was_copied_outlives_the_primary() {
    let Some(set) = SentinelSet::builder().down_after(Duration::from_millis(1500)).start_or_skip() else {
        return;
    };
    let (leases, others) = (client(set.url()).await, client(set.url()).await);
    let ttl = Duration::from_secs(30);
    let mut leaders = election(&others, ttl).observe().unwrap();
    assert!(matches!(leaders.next().await, Some(Observed::Vacant { .. })));
    let held = Held::acquire(&leases, ttl, || ()).await;
    assert_eq!(next_leader(&mut leaders, "first").await, held.leadership.fence());
    let next = tokio::spawn(election(&others, ttl).label("second").campaign());
    let waits = || async { others.inspect("election").await.is_ok_and(|found| found.waiting == 1) };
    eventually_async(LONG, "a candidate", waits).await;
    let other = join(&others, ttl).await;
    let replicas = set.replicas().len().to_string();
    eventually_async(LONG, "the copies", || async {
        set.primary().cli(&["WAIT", &replicas, "100"]).int() as usize == set.replicas().len()
    })
    .await;

    let old = set.primary();
    old.kill();
    set.await_primary_other_than(old.port());
    eventually_async(LONG, "the candidate to wait again", waits).await;
    held.assert_held();
    for lock in excluded(&others) {
        assert!(lock.wait(Duration::ZERO).acquire().await.is_err());
    }
    let first = held.leadership.fence();
    held.release(other, || ()).await;
    let second = next.await.unwrap().unwrap();
    assert_eq!(next_leader(&mut leaders, "second").await, second.fence());
    assert!(second.fence() > first);
    assert!(second.resign().await.unwrap().was_held());
    assert!(matches!(leaders.next().await, Some(Observed::Vacant { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_with_a_lock_on_a_stopped_shard_holds_none_of_the_others() {
    // So patient that nobody takes its place meanwhile.
    let Some(set) = ClusterSet::builder().replicas(0).node_timeout(LONG).start_or_skip() else { return };
    let [stopped, healthy, ..] = set.primaries()[..] else { panic!("three primaries") };
    let leases =
        Leasehold::builder(set.url()).command_timeout(Duration::from_secs(1)).connect().await.unwrap();
    // The order of names decides which one is asked for first: once the stopped one, once the other.
    for (first, second) in [("a", "b"), ("b", "a")] {
        let (away, here) = (set.name_on(stopped, first), set.name_on(healthy, second));
        let both = || leases.lock_all([leases.lock(&away), leases.lock(&here)]).ttl(LONG);
        let before = both().acquire().await.unwrap();
        assert!(before.release().await.was_held());
        stopped.stop();
        let error = both().wait(Duration::from_secs(3)).acquire().await.unwrap_err();
        assert!(matches!(&error, Error::StoreUnreachable { .. }), "{error}");
        let other = leases.lock(&here).ttl(LONG).wait(Duration::from_secs(20)).acquire().await.unwrap();
        assert_eq!(other.release().await.unwrap(), Released::Free);
        stopped.cont();
        eventually_async(LONG, "the stopped shard", || async {
            match both().acquire().await {
                Ok(guards) => guards.release().await.was_held(),
                Err(_) => false,
            }
        })
        .await;
    }
}
