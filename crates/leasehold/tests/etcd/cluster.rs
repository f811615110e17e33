//! Three members: one is killed, the leader is killed, a majority is gone and comes back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use leasehold::{ErrorKind, Leasehold};
use leasehold_testkit::{EtcdMember, EtcdSet, eventually, eventually_async};

use super::{LONG, builder, secs};

async fn patient(etcd: &EtcdSet) -> Leasehold {
    builder(etcd, "cluster").command_timeout(secs(2)).connect().await.unwrap()
}

/// Cycles of one lock in the background, whose fences must grow.
struct Traffic {
    ends: Arc<AtomicBool>,
    cycles: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Traffic {
    fn start(leases: &Leasehold) -> Self {
        let (ends, cycles) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (leases, ended, counted) = (leases.clone(), ends.clone(), cycles.clone());
        let task = tokio::spawn(async move {
            let mut last = leasehold::Fence::new(0);
            while !ended.load(Ordering::SeqCst) {
                // While there is no leader nobody is granted anything.
                let Ok(guard) = leases.lock("traffic").ttl(secs(5)).wait(secs(20)).acquire().await else {
                    continue;
                };
                assert!(guard.fence() > last, "{} after {last}", guard.fence());
                last = guard.fence();
                counted.fetch_add(1, Ordering::SeqCst);
                drop(guard.release().await);
            }
        });
        Self { ends, cycles, task }
    }

    async fn goes_on(&self) {
        let before = self.cycles.load(Ordering::SeqCst);
        let more = || async { self.cycles.load(Ordering::SeqCst) > before + 20 };
        eventually_async(LONG, "more cycles", more).await;
    }

    async fn stop(self) {
        self.ends.store(true, Ordering::SeqCst);
        self.task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_outlive_any_member_and_their_leader() {
    let Some(etcd) = EtcdSet::builder(3).start_or_skip() else { return };
    let leases = patient(&etcd).await;
    let guard = leases.lock("kept").ttl(secs(20)).keep_alive().acquire().await.unwrap();
    let traffic = Traffic::start(&leases);
    traffic.goes_on().await;
    for round in 0..4 {
        let leader = etcd.leader().expect("a leader").addr();
        let victim =
            etcd.members().iter().find(|member| (member.addr() == leader) == (round % 2 == 0)).unwrap();
        victim.kill();
        traffic.goes_on().await;
        let renewed = leases.stats().renewed;
        eventually_async(LONG, "a renewal", || async { leases.stats().renewed > renewed }).await;
        assert!(guard.is_held(), "round {round}");
        victim.restart();
        victim.wait();
        eventually(LONG, "a leader", || etcd.leader().is_some());
    }
    traffic.stop().await;
    assert!(guard.release().await.unwrap().was_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_member_is_left_and_one_without_a_majority_grants_nothing() {
    let Some(etcd) = EtcdSet::builder(3).start_or_skip() else { return };
    let leases = patient(&etcd).await;
    let traffic = Traffic::start(&leases);
    traffic.goes_on().await;
    for member in etcd.members() {
        member.stop();
        traffic.goes_on().await;
        member.cont();
        member.wait();
    }
    traffic.stop().await;

    let guard = leases.lock("kept").ttl(secs(4)).keep_alive().acquire().await.unwrap();
    let [one, two, _] = etcd.members() else { panic!("three members") };
    one.kill();
    two.kill();
    let error = leases.lock("other").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnreachable, "{error}");
    tokio::time::timeout(LONG, guard.lost()).await.expect("lost in time, without a majority");
    one.restart();
    etcd.members().iter().filter(|member| member.addr() != two.addr()).for_each(EtcdMember::wait);
    let again = leases.lock("kept").wait(LONG).acquire().await.unwrap();
    assert!(again.fence() > guard.fence());
    assert!(again.release().await.unwrap().was_held());
}
