//! Behaviour that only the engine contract shows: repeated claims, foreign owners, ended attempts.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Clock, Fence, Holder, Name,
    clock::Until,
    engine::{
        Acks, Answer, Claim, Engine, Fault, Grant, Handover, LinkChange, Mode, Queue, Released, Renewed,
        Wake, WakeSink,
    },
    owner::Owner,
};

use super::{
    Slow, TestContext, Wrapped,
    context::{ms, sleep},
    eventually,
};

cases! {
    the_same_owner_claims_twice_and_holds_once: Contract,
    a_claim_by_the_holder_refreshes_its_lease: Contract,
    an_attempt_that_has_ended_is_never_granted: Contract,
    a_waiter_that_asks_again_keeps_its_place: Contract,
    an_owner_value_is_compared_in_full: Contract,
    a_stranger_neither_renews_nor_releases: Contract,
    a_waiter_whose_time_is_over_is_passed_over: Contract,
    an_ended_waiter_is_passed_over: Contract,
    an_expired_lock_goes_to_its_waiter_and_not_to_a_newcomer: Contract,
    abandoning_a_queued_claim_leaves_the_queue: Contract,
    abandoning_a_granted_claim_gives_it_back: Contract,
    a_renewal_brings_nothing_back: Contract,
    renewals_of_many_are_answered_one_by_one: Contract,
    a_pushed_grant_is_the_one_the_store_holds: Contract Push,
    a_late_answer_shortens_the_lease: Contract,
    a_mode_that_the_store_lacks_is_refused: Contract,
}

/// An engine with a sink that records wake-ups, and claims for one name.
struct Bare {
    engine: Arc<dyn Engine>,
    sink: Arc<Woken>,
    clock: Clock,
}

#[derive(Default)]
struct Woken {
    wakes: Mutex<Vec<Wake>>,
}

impl WakeSink for Woken {
    fn wake(&self, wake: Wake) {
        self.wakes.lock().unwrap().push(wake);
    }
    fn link(&self, _: LinkChange) {}
}

impl Bare {
    async fn new(test: &TestContext) -> Self {
        let (engine, sink, clock) = (test.engine(), Arc::<Woken>::default(), Clock::system());
        let dynamic: Arc<dyn WakeSink> = sink.clone();
        engine.set_wake_sink(Arc::downgrade(&dynamic));
        let bare = Self { engine, sink, clock };
        bare.engine.connect(bare.until()).await.unwrap();
        bare
    }

    fn until(&self) -> Until {
        self.clock.now() + ms(5_000)
    }

    async fn ask(&self, claim: &Claim) -> Answer {
        self.engine.leases().claim(claim, self.until()).await.unwrap()
    }

    async fn granted(&self, claim: &Claim) -> Grant {
        match self.ask(claim).await {
            Answer::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    async fn ahead(&self, claim: &Claim) -> u32 {
        match self.ask(claim).await {
            Answer::Queued { ahead, .. } => ahead,
            other => panic!("not queued: {other:?}"),
        }
    }

    async fn release(&self, claim: &Claim) -> Released {
        self.engine.leases().release(&claim.hold(Fence::new(0)), self.until()).await.unwrap()
    }

    async fn renew(&self, claim: &Claim) -> Renewed {
        let answers = self.engine.leases().renew(&[claim.hold(Fence::new(0))], self.until()).await.unwrap();
        answers.into_iter().next().expect("one answer for one lease").unwrap()
    }

    async fn held_fence(&self) -> Option<leasehold::Fence> {
        let inspection = self.engine.inspector().inspect(&job(), self.until()).await.unwrap();
        inspection.held().map(|held| held.fence)
    }

    /// On a quorum also without the votes of a minority, which a renewal would prolong.
    async fn is_free(&self) -> bool {
        let holders = self.engine.inspector().inspect(&job(), self.until()).await.unwrap().holders;
        holders.total == 0 && holders.free_in.is_none()
    }

    async fn expires_in(&self) -> Duration {
        let inspection = self.engine.inspector().inspect(&job(), self.until()).await.unwrap();
        inspection.held().expect("held").expires_in.expect("a lease ends")
    }

    async fn waiting(&self) -> u32 {
        self.engine.inspector().inspect(&job(), self.until()).await.unwrap().waiting
    }
}

fn job() -> Name {
    Name::new("job").unwrap()
}

fn claim(wait: Option<Duration>) -> Claim {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let random = u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64 | u128::from(std::process::id());
    Claim {
        name: job(),
        owner: Owner::new(random, &Holder::this_process("bare", Clock::system().wall_us())),
        mode: Mode::Exclusive,
        ttl: ms(10_000),
        format: leasehold::engine::Format::Plain,
        lock_delay: Duration::ZERO,
        queue: wait.map(|wait| Queue { wait, poll_every: ms(3_000) }),
        acks: Acks::None,
    }
}

fn waiting_claim() -> Claim {
    claim(Some(ms(30_000)))
}

async fn the_same_owner_claims_twice_and_holds_once(test: TestContext) {
    let bare = Bare::new(&test).await;
    let mine = waiting_claim();
    let first = bare.granted(&mine).await;
    let again = bare.granted(&mine).await;
    assert!(again.fence >= first.fence);
    assert_eq!(bare.held_fence().await, Some(again.fence));
    assert_eq!(bare.waiting().await, 0);
    assert_eq!(bare.release(&mine).await, Released::Free, "one release ends one hold");
    assert_eq!(bare.held_fence().await, None);
}

async fn a_claim_by_the_holder_refreshes_its_lease(test: TestContext) {
    let bare = Bare::new(&test).await;
    let mine = waiting_claim();
    let first = bare.granted(&mine).await;
    sleep(ms(300) + test.step()).await;
    assert!(bare.expires_in().await <= ms(9_700));
    let again = bare.granted(&mine).await;
    assert!(again.since > first.since, "validity is counted from the first claim only");
    assert!(bare.expires_in().await > ms(9_700), "the answer was repeated without a refresh");
}

async fn an_attempt_that_has_ended_is_never_granted(test: TestContext) {
    let bare = Bare::new(&test).await;
    let mine = waiting_claim();
    bare.engine.leases().abandon(&mine, bare.until()).await.unwrap();
    let error = bare.engine.leases().claim(&mine, bare.until()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Ended);
    assert_eq!(bare.held_fence().await, None);
}

async fn a_waiter_that_asks_again_keeps_its_place(test: TestContext) {
    let bare = Bare::new(&test).await;
    let (holder, first, second) = (waiting_claim(), waiting_claim(), waiting_claim());
    bare.granted(&holder).await;
    assert_eq!((bare.ahead(&first).await, bare.ahead(&second).await), (0, 1));
    for _ in 0..3 {
        assert_eq!((bare.ahead(&first).await, bare.ahead(&second).await), (0, 1));
    }
    assert_eq!(bare.waiting().await, 2, "a repeated claim was queued twice");
}

async fn an_owner_value_is_compared_in_full(test: TestContext) {
    let bare = Bare::new(&test).await;
    let with = |random| Owner::new(random, &Holder::this_process("abc", 5_000));
    let mine = Claim { owner: with(0xabcd), ..claim(None) };
    let fence = bare.granted(&mine).await.fence;
    for nearly in [0xabcc, 0xabcd << 4, 0x1_0000_abcd, 1 << 127 | 0xabcd] {
        let nearly = Claim { owner: with(nearly), ..claim(None) };
        assert!(matches!(bare.ask(&nearly).await, Answer::Busy { .. }));
        assert_eq!(bare.renew(&nearly).await, Renewed::Gone);
        assert_eq!(bare.release(&nearly).await, Released::Taken { by: Some(fence) });
    }
    assert_eq!(bare.held_fence().await, Some(fence));
}

async fn a_stranger_neither_renews_nor_releases(test: TestContext) {
    let bare = Bare::new(&test).await;
    let (mine, stranger) = (waiting_claim(), waiting_claim());
    let fence = bare.granted(&mine).await.fence;
    let before = bare.expires_in().await;
    assert_eq!(bare.renew(&stranger).await, Renewed::Gone);
    assert!(bare.expires_in().await <= before);
    assert_eq!(bare.release(&stranger).await, Released::Taken { by: Some(fence) });
    assert!(matches!(bare.renew(&mine).await, Renewed::Kept { .. }));
}

async fn a_waiter_whose_time_is_over_is_passed_over(test: TestContext) {
    let bare = Bare::new(&test).await;
    let (holder, short) = (waiting_claim(), Claim { ttl: ms(300), ..claim(Some(ms(150))) });
    bare.granted(&holder).await;
    bare.ahead(&short).await;
    sleep(ms(300)).await;
    if !test.step().is_zero() {
        // It is there for as long as the shortest lease.
        eventually("the waiter is gone", async || bare.waiting().await == 0).await;
    }
    assert_eq!(bare.release(&holder).await, Released::Free);
    assert_eq!(bare.held_fence().await, None);
    let next = waiting_claim();
    bare.granted(&next).await;
}

async fn an_ended_waiter_is_passed_over(test: TestContext) {
    let bare = Bare::new(&test).await;
    let (holder, gone, live) = (waiting_claim(), waiting_claim(), waiting_claim());
    bare.granted(&holder).await;
    bare.ahead(&gone).await;
    bare.ahead(&live).await;
    bare.engine.leases().abandon(&gone, bare.until()).await.unwrap();
    assert!(matches!(bare.release(&holder).await, Released::HandedOver { .. }));
    bare.granted(&live).await;
    let reported = bare.sink.wakes.lock().unwrap();
    // A hint may have been in flight; it does no harm.
    let was_given =
        reported.iter().any(|wake| matches!(wake, Wake::Granted { owner, .. } if *owner == gone.owner.id()));
    assert!(!was_given, "an attempt that gave up was given the lock");
}

async fn an_expired_lock_goes_to_its_waiter_and_not_to_a_newcomer(test: TestContext) {
    let bare = Bare::new(&test).await;
    let (short, waiter) = (Claim { ttl: ms(1_000), ..claim(None) }, waiting_claim());
    let fence = bare.granted(&short).await.fence;
    bare.ahead(&waiter).await;
    eventually("the lease expires", async || bare.held_fence().await != Some(fence)).await;
    let newcomer = bare.ask(&claim(None)).await;
    assert!(matches!(newcomer, Answer::Busy { .. }), "{newcomer:?}");
    bare.granted(&waiter).await;
}

async fn abandoning_a_queued_claim_leaves_the_queue(test: TestContext) {
    let bare = Bare::new(&test).await;
    let (holder, waiter) = (waiting_claim(), waiting_claim());
    let fence = bare.granted(&holder).await.fence;
    bare.ahead(&waiter).await;
    bare.engine.leases().abandon(&waiter, bare.until()).await.unwrap();
    assert_eq!((bare.waiting().await, bare.held_fence().await), (0, Some(fence)));
}

async fn abandoning_a_granted_claim_gives_it_back(test: TestContext) {
    let bare = Bare::new(&test).await;
    let mine = waiting_claim();
    bare.granted(&mine).await;
    bare.engine.leases().abandon(&mine, bare.until()).await.unwrap();
    assert_eq!(bare.held_fence().await, None);
}

async fn a_renewal_brings_nothing_back(test: TestContext) {
    let bare = Bare::new(&test).await;
    let short = Claim { ttl: ms(100), ..claim(None) };
    bare.granted(&short).await;
    eventually("the lease expires", async || bare.is_free().await).await;
    // A quorum gives its nodes a part of the ttl to answer.
    let longer = Claim { ttl: ms(30_000), ..short };
    assert_eq!(bare.renew(&longer).await, Renewed::Gone);
    assert_eq!(bare.held_fence().await, None, "a renewal revived an expired lease");
}

async fn renewals_of_many_are_answered_one_by_one(test: TestContext) {
    let bare = Bare::new(&test).await;
    let named = |name: &str| Claim { name: Name::new(name).unwrap(), ..claim(None) };
    let claims: Vec<_> = (0..20).map(|number| named(&format!("many:{number}"))).collect();
    for claim in claims.iter().step_by(2) {
        bare.granted(claim).await;
    }
    let holds: Vec<_> = claims.iter().map(|claim| claim.hold(Fence::new(0))).collect();
    let answers = bare.engine.leases().renew(&holds, bare.until()).await.unwrap();
    let kept: Vec<_> = answers.iter().map(|answer| matches!(answer, Ok(Renewed::Kept { .. }))).collect();
    let expected: Vec<_> = (0..20).map(|number| number % 2 == 0).collect();
    assert_eq!(kept, expected);
    assert!(bare.engine.leases().renew(&[], bare.until()).await.unwrap().is_empty());
}

async fn a_pushed_grant_is_the_one_the_store_holds(test: TestContext) {
    assert_eq!(test.capabilities().handover, Handover::Push);
    let bare = Bare::new(&test).await;
    let (holder, waiter) = (waiting_claim(), waiting_claim());
    let first = bare.granted(&holder).await;
    bare.ahead(&waiter).await;
    let Released::HandedOver { to: 1, next: Some(next) } = bare.release(&holder).await else {
        panic!("not handed over")
    };
    assert!(next > first.fence);
    eventually("the grant arrives", async || !bare.sink.wakes.lock().unwrap().is_empty()).await;
    let wakes = bare.sink.wakes.lock().unwrap().clone();
    let [Wake::Granted { owner, fence, .. }] = &wakes[..] else { panic!("{wakes:?}") };
    assert_eq!((*owner, *fence), (waiter.owner.id(), next));
    assert_eq!(bare.held_fence().await, Some(next));
}

async fn a_late_answer_shortens_the_lease(test: TestContext) {
    let late = ms(400);
    let slow = Arc::new(Wrapped::new(test.engine(), Slow::claims(late)));
    let client = test.client_with(|builder| builder.engine(slow)).await;
    let guard = client.lock("job").ttl(ms(2_000)).acquire().await.unwrap();
    let remaining = guard.remaining();
    assert!(remaining <= ms(2_000) - late, "{remaining:?} is counted from the answer");
    assert!(guard.release().await.unwrap().was_held());
}

async fn a_mode_that_the_store_lacks_is_refused(test: TestContext) {
    let bare = Bare::new(&test).await;
    let (one, capabilities) = (std::num::NonZeroU32::MIN, test.capabilities());
    let modes = [
        (Mode::Shared, capabilities.no_shared),
        (Mode::Permits { take: one, of: one }, capabilities.no_permits),
    ];
    for (mode, lacks) in modes {
        let Some(why) = lacks else { continue };
        let claim = Claim { mode, ..claim(None) };
        let error = bare.engine.leases().claim(&claim, bare.until()).await.unwrap_err();
        assert_eq!((error.fault, &*error.why), (Fault::Unsupported, why));
        let seen = bare.engine.inspector().inspect(&claim.name, bare.until()).await.unwrap();
        assert!(!seen.is_in_use(), "{seen:?}");
    }
}
