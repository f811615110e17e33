//! Leases that are kept alive.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures_util::{StreamExt as _, future::join_all, stream};
use leasehold::{
    ErrorKind,
    clock::Until,
    engine::{EngineError, Fut, Hold, Leases, Renewed},
};

use super::{
    Slow, Tamper, TestContext, Wrapped,
    context::{ms, sleep, soon},
    eventually,
};

cases! {
    a_thousand_leases_are_kept_alive_at_once,
    a_kept_alive_lease_outlives_several_ttls,
    a_kept_alive_lease_ends_with_its_release,
    a_force_released_holder_learns_that_it_lost,
    a_force_released_holder_learns_of_it_long_before_its_next_renewal: LossReports,
    a_handed_over_lease_is_kept_alive_too,
    leases_of_different_ttls_are_kept_side_by_side,
    a_renewal_answered_after_the_loss_revives_nothing: Contract,
    no_renewal_is_sent_after_a_release: Contract,
}

async fn a_thousand_leases_are_kept_alive_at_once(test: TestContext) {
    const LEASES: u64 = 1_000;
    let client = test.client().await;
    let locks = (0..LEASES).map(|number| {
        // Long enough for a busy machine; the test checks how often each is renewed.
        client.lock(format!("many:{number}")).ttl(ms(6_000)).keep_alive().acquire()
    });
    // A few at a time: a file on a busy disk would not answer all of them in time.
    let guards: Vec<_> = stream::iter(locks).buffered(50).map(Result::unwrap).collect().await;
    eventually("each is renewed twice", async || client.stats().renewed >= 2 * LEASES).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert_eq!(client.stats().lost, 0);
    for outcome in join_all(guards.into_iter().map(|guard| guard.release())).await {
        assert!(outcome.unwrap().was_held());
    }
    assert_eq!(client.stats().released, LEASES);
}

async fn a_kept_alive_lease_outlives_several_ttls(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(1_500)).keep_alive().acquire().await.unwrap();
    for _ in 0..15 {
        sleep(ms(300)).await;
        assert!(guard.is_held(), "lost after {} renewals", one.stats().renewed);
        assert!(two.lock("job").try_acquire().await.unwrap().held().is_none());
    }
    assert!(one.stats().renewed >= 4);
    assert!(guard.release().await.unwrap().was_held());
}

async fn a_kept_alive_lease_ends_with_its_release(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(2_000)).keep_alive().acquire().await.unwrap();
    eventually("it is renewed", async || one.stats().renewed >= 1).await;
    assert!(guard.release().await.unwrap().was_held());
    let renewed = one.stats().renewed;
    let next = two.lock("job").try_acquire().await.unwrap().held().expect("a free lock");
    sleep(ms(900)).await;
    assert_eq!(one.stats().renewed, renewed, "renewed after its release");
    assert!(next.release().await.unwrap().was_held());
}

async fn a_force_released_holder_learns_that_it_lost(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(1_000)).keep_alive().acquire().await.unwrap();
    assert!(two.force_release("job", guard.fence()).await.unwrap().was_held());
    let next = two.lock("job").acquire().await.unwrap();
    soon("the loss is reported", guard.lost()).await;
    assert!(!guard.is_held());
    drop(guard);
    one.close().await.unwrap();
    next.extend().await.expect("the next holder keeps it");
}

async fn a_force_released_holder_learns_of_it_long_before_its_next_renewal(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(300_000)).keep_alive().acquire().await.unwrap();
    eventually("its first renewal, which comes soon", async || one.stats().renewed >= 1).await;
    assert!(two.force_release("job", guard.fence()).await.unwrap().was_held());
    soon("the report of the loss", guard.lost()).await;
}

async fn a_handed_over_lease_is_kept_alive_too(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let lock = two.lock("job").ttl(ms(1_500)).keep_alive();
    let waiter = super::context::enqueue(&one, lock, "job", 0).await;
    assert!(guard.release().await.unwrap().was_held());
    let next = soon("its turn", waiter).await.unwrap();
    for _ in 0..8 {
        sleep(ms(300)).await;
        assert!(next.is_held());
    }
    assert!(next.release().await.unwrap().was_held());
}

async fn leases_of_different_ttls_are_kept_side_by_side(test: TestContext) {
    let client = test.client().await;
    let locks = [1_500, 2_000, 20_000]
        .map(|ttl| client.lock(format!("ttl:{ttl}")).ttl(ms(ttl)).keep_alive().acquire());
    let guards: Vec<_> = join_all(locks).await.into_iter().map(Result::unwrap).collect();
    let fixed = client.lock("fixed").ttl(ms(500)).acquire().await.unwrap();
    soon("the fixed one is lost", fixed.lost()).await;
    sleep(ms(2_000)).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert_eq!(client.stats().lost, 1);
}

async fn a_renewal_answered_after_the_loss_revives_nothing(test: TestContext) {
    let slow = Arc::new(Wrapped::new(test.engine(), Slow::renewals(ms(1_500))));
    let client = test.client_with(|builder| builder.engine(slow)).await;
    let guard = client.lock("job").ttl(ms(900)).keep_alive().acquire().await.unwrap();
    // The store renews it twice; the replies come too late.
    let (extended, ()) = tokio::join!(guard.extend(), guard.lost());
    assert_eq!(extended.unwrap_err().kind(), ErrorKind::Lost);
    sleep(ms(1_000)).await;
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert_eq!(client.stats().lost, 1);
}

/// Counts the calls that renew something.
#[derive(Clone, Default)]
struct Renewals(Arc<AtomicU64>);

impl Tamper for Renewals {
    fn renew<'a>(
        &'a self,
        inner: &'a dyn Leases,
        holds: &'a [Hold],
        until: Until,
    ) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        inner.renew(holds, until)
    }
}

async fn no_renewal_is_sent_after_a_release(test: TestContext) {
    let renewals = Renewals::default();
    let counted = Arc::new(Wrapped::new(test.engine(), renewals.clone()));
    let client = test.client_with(|builder| builder.engine(counted)).await;
    for drops in [false, true] {
        let guard = client.lock("job").ttl(ms(2_000)).wait(ms(15_000)).keep_alive().acquire().await.unwrap();
        let before = client.stats().renewed;
        eventually("it is renewed", async || client.stats().renewed > before).await;
        if drops {
            drop(guard);
        } else {
            assert!(guard.release().await.unwrap().was_held());
        }
        let sent = renewals.0.load(Ordering::SeqCst);
        sleep(ms(900)).await;
        assert_eq!(renewals.0.load(Ordering::SeqCst), sent, "renewed after its release");
    }
}
