//! Locks on a real etcd: how they lie there, what they decide, and what faults do to them.
#![cfg(feature = "etcd")]

mod cluster;
mod faults;
mod health;
mod layout;
mod login;

use std::{sync::OnceLock, time::Duration};

use leasehold::{Builder, Leasehold};
use leasehold_testkit::{EtcdSet, Helper, eventually_async, walk};

/// For things that take a moment on a busy machine.
const LONG: Duration = Duration::from_secs(60);

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// One member for all tests that do not break it, or nothing where there is no etcd.
fn shared() -> Option<&'static EtcdSet> {
    static SHARED: OnceLock<Option<EtcdSet>> = OnceLock::new();
    SHARED.get_or_init(|| EtcdSet::builder(1).start_or_skip()).as_ref()
}

/// A client of a test, whose locks have a prefix of their own.
fn builder(etcd: &EtcdSet, prefix: &str) -> Builder {
    let prefix = format!("{prefix}:");
    Leasehold::builder(etcd.url()).configure(|config| config.prefix = prefix)
}

async fn client(etcd: &EtcdSet, prefix: &str) -> Leasehold {
    builder(etcd, prefix).command_timeout(secs(5)).connect().await.unwrap()
}

async fn until_waiting(leases: &Leasehold, name: &str, count: u32) {
    let arrived = || async { leases.inspect(name).await.unwrap().waiting == count };
    eventually_async(LONG, "waiters", arrived).await;
}

/// The keys of a test.
fn keys(etcd: &EtcdSet, prefix: &str) -> Vec<String> {
    let keys = etcd.ctl(&["get", "--prefix", "--keys-only", &format!("{prefix}:")]);
    keys.lines().filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

#[test]
fn helper_process() {
    match Helper::role().as_deref() {
        None => {}
        Some("holder") => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let leases = Leasehold::connect(std::env::var("STORE").unwrap()).await.unwrap();
                let guard = leases.lock("killed").ttl(secs(3)).keep_alive().acquire().await.unwrap();
                Helper::say(&format!("held {}", guard.fence()));
                std::future::pending::<()>().await;
            });
        }
        Some(role) => panic!("no such role: {role}"),
    }
}

#[cfg(feature = "memory")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_decides_as_the_pure_decider_does() {
    let Some(etcd) = shared() else { return };
    for seed in 0..12 {
        let engine = builder(etcd, &format!("walk{seed}")).command_timeout(LONG).into_engine().unwrap();
        let memory = Leasehold::builder("memory:").into_engine().unwrap();
        walk::compare(engine, memory, seed).await;
    }
}
