//! Locks that count only once replicas have them, on a real primary with real replicas.
#![cfg(feature = "redis")]

mod connections;
#[path = "../security_md/mod.rs"]
mod security_md;

use std::{
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use leasehold::{Acks, Attempt, Error, ErrorKind, Leasehold, Refusal, engine::Released};
use leasehold_testkit::{RedisServer, eventually, eventually_async};

const LONG: Duration = Duration::from_secs(40);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Its locks outlast every wait of a test, so one that goes away was given back.
async fn client(url: impl AsRef<str>, command_timeout: Duration) -> Leasehold {
    let builder = Leasehold::builder(url).command_timeout(command_timeout);
    builder.configure(|config| config.ttl = secs(200)).connect().await.unwrap()
}

struct ReplicaSet {
    primary: RedisServer,
    replicas: Vec<RedisServer>,
}

impl ReplicaSet {
    fn start(replicas: usize) -> Option<Self> {
        // Replicas follow at once, instead of some seconds later.
        let primary = RedisServer::builder().arg("repl-diskless-sync-delay", "0");
        Self::with(primary.start_or_skip()?, replicas)
    }

    fn with(primary: RedisServer, replicas: usize) -> Option<Self> {
        let mut set = Self { primary, replicas: Vec::new() };
        set.join(replicas);
        Some(set)
    }

    /// Adds replicas; returns when they acknowledge what the primary writes. It calls them online before that.
    fn join(&mut self, more: usize) {
        for _ in 0..more {
            let origin = format!("127.0.0.1 {}", self.primary.port());
            let replica = RedisServer::builder().arg("replicaof", &origin).start().unwrap();
            self.replicas.push(replica);
        }
        let all = self.replicas.len();
        let mut primary = self.primary.connect().unwrap();
        eventually(LONG, "replicas that follow", || {
            primary.command(&["PUBLISH", "is", "anybody there"]).unwrap();
            primary.command(&["WAIT", &all.to_string(), "100"]).unwrap().int() == all as i64
        });
    }

    /// Stops a replica, and makes sure that it lacks something from now on.
    fn freeze(&self, replica: usize) {
        self.replicas[replica].stop();
        self.primary.cli(&["PUBLISH", "is", "anybody there"]);
    }

    /// How many lines of a section of INFO contain a text.
    fn info(&self, section: &str, text: &str) -> usize {
        let info = self.primary.cli(&["INFO", section]).text().to_owned();
        info.lines().filter(|line| line.contains(text)).count()
    }

    fn has(&self, name: &str) -> bool {
        self.primary.cli(&["EXISTS", &format!("lock:{name}")]).int() == 1
    }

    async fn client(&self, command_timeout: Duration) -> Leasehold {
        client(self.primary.url(), command_timeout).await
    }

    /// How often the server was asked to wait for replicas.
    fn waits(&self) -> String {
        let stats = self.primary.cli(&["INFO", "commandstats"]).text().to_owned();
        let line = stats.lines().find(|line| line.starts_with("cmdstat_wait:")).unwrap_or_default();
        line.split(',').next().unwrap_or_default().to_owned()
    }

    async fn is_given_back(&self, name: &str) {
        eventually_async(LONG, "the lock to be given back", || async { !self.has(name) }).await;
    }

    /// Until so many connections are blocked by a WAIT.
    async fn blocks(&self, count: usize) {
        let line = format!("blocked_clients:{count}");
        eventually_async(LONG, &line, || async { self.info("clients", &line) == 1 }).await;
    }

    async fn is_taken(&self, name: &str) {
        eventually_async(LONG, "the lock to be taken", || async { self.has(name) }).await;
    }
}

#[track_caller]
fn too_few(error: &Error, counted: &str) {
    assert!(matches!(error, Error::StoreRefused { refusal: Refusal::TooFewAcks, .. }), "{error}");
    assert!(error.to_string().ends_with(&format!("{counted} replicas acknowledged")), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn the_guard_tells_how_many_replicas_have_the_lock() {
    let Some(set) = ReplicaSet::start(2) else { return };
    let leases = set.client(secs(30)).await;
    let guard = leases.lock("x").acks(2).acquire().await.unwrap();
    assert_eq!(guard.acks(), 2);
    let value = set.primary.cli(&["GET", "lock:x"]).text().to_owned();
    for replica in &set.replicas {
        assert_eq!(replica.cli(&["GET", "lock:x"]).text(), value);
    }
    let _ = guard.release().await.unwrap();

    let Attempt::Held(guard) = leases.lock("x").acks(1).try_acquire().await.unwrap() else { panic!("busy") };
    assert!((1..=2).contains(&guard.acks()));
    let _ = guard.release().await.unwrap();
    let guard = leases.lock("x").acks(0).acquire().await.unwrap();
    assert_eq!(guard.acks(), 0);
    let _ = guard.release().await.unwrap();

    // The scripts are forgotten while a connection waits for its next use.
    set.primary.cli(&["SCRIPT", "FLUSH"]);
    let guard = leases.lock("x").acks(2).acquire().await.unwrap();
    assert_eq!(guard.acks(), 2);
    leases.close().await.unwrap();
}

#[tokio::test]
async fn neither_renewal_nor_release_waits_for_replicas() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let leases = set.client(secs(10)).await;
    let guard = leases.lock("x").acks(1).ttl(secs(6)).keep_alive().acquire().await.unwrap();
    let waits = set.waits();
    assert!(!waits.is_empty());
    set.freeze(0);
    let renewed = leases.stats().renewed;
    eventually_async(LONG, "renewals", || async { leases.stats().renewed >= renewed + 2 }).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Released::Free);
    assert_eq!(set.waits(), waits);
}

#[tokio::test]
async fn a_claim_that_is_not_granted_is_told_so_without_waiting_for_replicas() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let (holder, leases) = (set.client(secs(60)).await, set.client(secs(60)).await);
    let guard = holder.lock("x").acquire().await.unwrap();
    set.freeze(0);
    let began = Instant::now();
    // More than there are connections, together and one after the other.
    let tries = (0..40).map(|_| leases.lock("x").acks(1).try_acquire());
    for tried in join_all(tries).await {
        assert!(matches!(tried.unwrap(), Attempt::Busy { .. }));
    }
    let waiters: Vec<_> =
        (0..20).map(|_| tokio::spawn(leases.lock("x").acks(1).wait(secs(300)).into_future())).collect();
    eventually_async(LONG, "waiters in the queue", || async {
        holder.inspect("x").await.unwrap().waiting == 20
    })
    .await;
    // The WAIT behind each of them would take a minute.
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    set.blocks(0).await;
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    for waiter in waiters {
        assert!(waiter.await.unwrap_err().is_cancelled());
    }
    let _ = guard.release().await.unwrap();
    leases.close().await.unwrap();
    assert!(!set.has("x"));
}

#[tokio::test]
async fn a_waiter_gets_a_lock_that_is_handed_over_once_replicas_have_it() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let (holder, leases) = (set.client(secs(30)).await, set.client(secs(5)).await);
    for (stopped, by_delete) in [(false, false), (false, true), (true, false), (true, true)] {
        let guard = holder.lock("x").acquire().await.unwrap();
        let asked = Arc::new(AtomicU32::new(0));
        let lock = leases.lock("x").acks(1).wait(secs(120)).on_wait({
            let asked = asked.clone();
            move |_| _ = asked.fetch_add(1, Ordering::Relaxed)
        });
        let waiter = tokio::spawn(lock.into_future());
        // Without acks, a message would be a grant after such a poll.
        eventually_async(LONG, "a poll", || async { asked.load(Ordering::Relaxed) >= 2 }).await;
        if stopped {
            set.freeze(0);
        }
        if by_delete {
            // No message: it finds out by asking.
            set.primary.cli(&["DEL", "lock:x"]);
            let _kept = guard.detach();
        } else {
            assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
        }
        let got = waiter.await.unwrap();
        if stopped {
            too_few(&got.unwrap_err(), "0 of 1");
            set.is_given_back("x").await;
            set.replicas[0].cont();
        } else {
            let got = got.unwrap();
            assert_eq!(got.acks(), 1);
            let value = set.primary.cli(&["GET", "lock:x"]).text().to_owned();
            assert_eq!(set.replicas[0].cli(&["GET", "lock:x"]).text(), value);
            assert_eq!(got.release().await.unwrap(), Released::Free);
        }
    }
}

#[tokio::test]
async fn a_majority_counts_every_replica_that_was_seen() {
    let Some(mut set) = ReplicaSet::start(1) else { return };
    let leases = set.client(secs(6)).await;
    let majority = || leases.lock("x").acks(Acks::Majority).wait(LONG).into_future();
    let guard = majority().await.unwrap();
    assert_eq!(guard.acks(), 1);
    let _ = guard.release().await.unwrap();

    // Four copies by now: it takes three of them, as the next claim finds out by itself.
    set.join(2);
    set.freeze(0);
    set.freeze(1);
    too_few(&majority().await.unwrap_err(), "1 of 2");
    set.is_given_back("x").await;
    set.replicas[0].cont();
    let guard = majority().await.unwrap();
    assert_eq!(guard.acks(), 2);
    let _ = guard.release().await.unwrap();

    // Copies that are down are copies.
    set.replicas[0].kill();
    set.replicas[1].kill();
    eventually(LONG, "one replica", || set.info("replication", "connected_slaves:1") == 1);
    too_few(&majority().await.unwrap_err(), "1 of 2");
    set.is_given_back("x").await;
}

#[tokio::test]
async fn a_majority_without_replicas_is_refused_before_anything_is_claimed() {
    let Some(set) = ReplicaSet::start(0) else { return };
    let leases = set.client(secs(4)).await;
    for error in [
        leases.lock("x").acks(Acks::Majority).acquire().await.unwrap_err(),
        leases.lock("x").acks(Acks::Majority).try_acquire().await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("no replica is known"), "{error}");
        assert_eq!(error.kind(), ErrorKind::StoreRefused);
    }
    assert_eq!(set.primary.cli(&["DBSIZE"]).int(), 0);
    // A number is tried, for as long as a command may take: replicas may come.
    too_few(&leases.lock("x").acks(1).try_acquire().await.unwrap_err(), "0 of 1");
    set.is_given_back("x").await;
}

#[tokio::test]
async fn a_grant_that_was_lost_with_its_primary_was_never_given() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let leases = set.client(secs(20)).await;
    let replica = &set.replicas[0];
    set.freeze(0);
    // Or what was sent to it would wait in its socket.
    set.primary.cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    let with_acks = tokio::spawn(leases.lock("x").acks(1).wait(secs(5)).into_future());
    let without = leases.lock("y").acquire().await.unwrap();
    set.is_taken("x").await;
    set.primary.kill();
    replica.cont();
    replica.cli(&["REPLICAOF", "NO", "ONE"]);

    let error = with_acks.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnreachable, "{error}");
    let after = Leasehold::connect(replica.url()).await.unwrap();
    for name in ["x", "y"] {
        assert!(matches!(after.lock(name).try_acquire().await.unwrap(), Attempt::Held(_)));
    }
    // Without acknowledgement two believe that they hold it.
    assert!(without.is_held());
}

#[tokio::test]
async fn a_future_dropped_while_it_waits_for_replicas_leaves_nothing_behind() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let leases = set.client(secs(60)).await;
    set.freeze(0);
    for queued in [true, false] {
        let lock = leases.lock("x").acks(1);
        let claim = if queued {
            tokio::spawn(async move { lock.wait(secs(300)).acquire().await.map(drop) })
        } else {
            tokio::spawn(async move { lock.try_acquire().await.map(drop) })
        };
        set.is_taken("x").await;
        claim.abort();
        assert!(claim.await.unwrap_err().is_cancelled());
        set.is_given_back("x").await;
        set.blocks(0).await;
    }
    leases.close().await.unwrap();
    assert_eq!(set.primary.cli(&["KEYS", "lock:*"]).list().len(), 0);
}

#[tokio::test]
async fn giving_back_an_unacknowledged_lock_spares_the_next_holder() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let leases = set.client(secs(4)).await;
    set.freeze(0);
    let claim = tokio::spawn(leases.lock("x").acks(1).wait(LONG).into_future());
    set.is_taken("x").await;
    set.primary.cli(&["SET", "lock:x", "another", "PX", "600000"]);
    too_few(&claim.await.unwrap().unwrap_err(), "0 of 1");
    leases.close().await.unwrap();
    assert_eq!(set.primary.cli(&["GET", "lock:x"]).text(), "another");
}

/// The user of SECURITY.md, with these rights besides.
async fn user(set: &ReplicaSet, rights: &[&str]) -> Leasehold {
    let line = security_md::locks();
    let rules = line.split(' ').skip(2).chain(rights.iter().copied());
    let words: Vec<_> = ["ACL", "SETUSER", "leasehold", "reset"].into_iter().chain(rules).collect();
    assert_eq!(set.primary.cli(&words).error(), None);
    client(set.primary.url().replace("redis://", "redis://leasehold:pw@"), secs(30)).await
}

#[tokio::test]
async fn a_user_who_may_not_wait_for_replicas_is_told_so_and_holds_nothing() {
    let Some(set) = ReplicaSet::start(1) else { return };
    for (rights, acks) in [(&["+wait"][..], Acks::Majority), (&["+info"], Acks::AtLeast(1))] {
        let leases = user(&set, rights).await;
        let error = leases.lock("x").acks(acks).acquire().await.unwrap_err();
        assert!(matches!(error, Error::StoreRefused { refusal: Refusal::Acl, .. }), "{error}");
        set.is_given_back("x").await;
    }
    let leases = user(&set, &["+wait", "+info"]).await;
    assert_eq!(leases.lock("x").acks(Acks::Majority).acquire().await.unwrap().acks(), 1);
}

#[cfg(feature = "blocking")]
#[test]
fn without_async_it_is_the_same() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let leases = leasehold::blocking::Leasehold::connect(set.primary.url()).unwrap();
    let guard = leases.lock("x").acks(Acks::Majority).acquire().unwrap();
    assert_eq!(guard.acks(), 1);
    let _ = guard.release().unwrap();
}

#[tokio::test]
async fn stores_without_replicas_refuse_to_wait_for_them() {
    let mut stores = Vec::new();
    if cfg!(feature = "memory") {
        stores.push(("memory:".to_owned(), "memory has no replicas"));
    }
    let folder = tempfile::tempdir().unwrap();
    if cfg!(feature = "sqlite") {
        let path = folder.path().join("locks.db");
        stores.push((format!("sqlite:{}", path.display()), "a file has no replicas"));
    }
    for (url, why) in stores {
        let leases = Leasehold::connect(&url).await.unwrap();
        let error = leases.lock("x").acks(Acks::Majority).acquire().await.unwrap_err();
        assert_eq!(error.to_string(), format!("waiting for replicas is not supported: {why}"));
    }
}
