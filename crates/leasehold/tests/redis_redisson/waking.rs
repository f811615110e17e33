//! Whom a message of Redisson wakes.

use std::sync::{Arc, Mutex};

use leasehold::{
    engine::{Answer, Claim, Engine, LinkChange, Queue, Wake, WakeSink},
    owner::OwnerId,
};
use leasehold_testkit::eventually;

use super::{
    Redisson,
    every_server::{LONG, Servers, open, soon},
    store::claim,
};

/// The attempts that were told to look again.
#[derive(Default)]
struct Woken(Mutex<Vec<OwnerId>>);

impl WakeSink for Woken {
    fn wake(&self, wake: Wake) {
        if let Wake::LookAgain { owner } = wake {
            self.0.lock().unwrap().push(owner);
        }
    }

    fn link(&self, _: LinkChange) {}
}

impl Woken {
    /// Waits until so many were woken.
    fn take(&self, count: usize) -> Vec<OwnerId> {
        eventually(LONG, "wake-ups", || self.0.lock().unwrap().len() >= count);
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

async fn waits(engine: &dyn Engine, random: u128) -> Claim {
    let queue = Some(Queue { wait: LONG, poll_every: LONG });
    let claim = Claim { queue, ..claim(random, "x") };
    let answer = engine.leases().claim(&claim, soon()).await.unwrap();
    assert!(matches!(answer, Answer::Queued { ahead: 0, .. }), "{answer:?}");
    claim
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_the_one_that_waits_longest() {
    for servers in Servers::all() {
        let (engine, woken) = (open(servers.url()), Arc::new(Woken::default()));
        let sink: Arc<dyn WakeSink> = woken.clone();
        engine.set_wake_sink(Arc::downgrade(&sink));
        let java = Redisson::new(&servers, "lock:x");
        assert!(java.take(LONG));
        let (first, second) = (waits(&*engine, 1).await, waits(&*engine, 2).await);
        assert_eq!(java.listeners(), 1);
        let [one, other] = [&first, &second].map(|claim| claim.owner.id());

        assert_eq!(java.release("1"), Some(1));
        assert_eq!(woken.take(1), [one]);
        // It asks too late, and stays the first.
        assert!(java.take(LONG));
        waits(&*engine, 1).await;
        for noise in ["7", "", "free", "00"] {
            java.announce(noise);
        }
        java.announce("1");
        assert_eq!(woken.take(2), [one, other], "all of them, and none by noise");

        // One that gave up leaves the message to the next.
        engine.leases().abandon(&first, soon()).await.unwrap();
        java.announce("0");
        assert_eq!(woken.take(1), [other]);
        assert_eq!(java.release("2"), Some(1));
        assert_eq!(woken.take(1), [other]);
        let answer = engine.leases().claim(&second, soon()).await.unwrap();
        let Answer::Granted(grant) = answer else { panic!("{answer:?}") };
        let _ = engine.leases().release(&second.hold(grant.fence), soon()).await.unwrap();
        // Nobody waits any more.
        java.announce("1");
        let third = claim(3, "x");
        assert!(matches!(engine.leases().claim(&third, soon()).await, Ok(Answer::Granted(_))));
        assert!(woken.0.lock().unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_ours_wakes_a_waiter_of_ours() {
    for servers in Servers::all() {
        let (engine, woken) = (open(servers.url()), Arc::new(Woken::default()));
        let sink: Arc<dyn WakeSink> = woken.clone();
        engine.set_wake_sink(Arc::downgrade(&sink));
        let holder = claim(1, "x");
        let Answer::Granted(grant) = engine.leases().claim(&holder, soon()).await.unwrap() else {
            panic!("it is free")
        };
        let waiter = waits(&*engine, 2).await;
        let _ = engine.leases().release(&holder.hold(grant.fence), soon()).await.unwrap();
        assert_eq!(woken.take(1), [waiter.owner.id()]);
    }
}
