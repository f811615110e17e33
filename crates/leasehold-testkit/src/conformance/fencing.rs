//! Fences: unique, growing in grant order, whatever happens to the store.

use leasehold::{Fence, Leasehold, fence::FENCE_LIMIT};

use super::{
    TestContext,
    context::{is_closed, ms},
    eventually,
};

cases! {
    fences_grow_with_every_grant_of_a_name,
    fences_stay_below_two_to_the_53,
    a_fence_grows_after_expiry,
    a_fence_grows_after_a_force_release,
    a_fence_grows_after_a_dropped_guard,
    a_fence_stays_while_its_lease_is_extended,
    the_fence_shown_is_the_holders_fence,
    a_fence_reads_as_name_mode_and_number,
    a_fence_grows_after_every_client_has_gone,
    a_fence_grows_after_its_side_state_was_deleted: SideState,
    a_fence_grows_after_everything_was_wiped: Wipe,
    a_fence_grows_after_an_old_state_was_restored: Rewind,
}

async fn one_grant(client: &Leasehold) -> Fence {
    let guard = client.lock("job").wait(ms(20_000)).acquire().await.unwrap();
    let fence = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    fence
}

async fn fences_grow_with_every_grant_of_a_name(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let mut last = one_grant(&one).await;
    for _ in 0..20 {
        for client in [&two, &one] {
            let next = one_grant(client).await;
            assert!(next > last, "{next} after {last}");
            last = next;
        }
    }
}

async fn fences_stay_below_two_to_the_53(test: TestContext) {
    let fence = one_grant(&test.client().await).await;
    assert!((1..FENCE_LIMIT).contains(&fence.get()));
    assert_eq!(fence.to_string().parse::<Fence>().unwrap(), fence);
}

async fn a_fence_grows_after_expiry(test: TestContext) {
    let client = test.client().await;
    let expired = client.lock("job").ttl(ms(150)).acquire().await.unwrap().detach();
    eventually("the lease expires", async || !is_closed(&client, "job").await).await;
    assert!(one_grant(&client).await > expired.fence());
}

async fn a_fence_grows_after_a_force_release(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").acquire().await.unwrap();
    assert!(client.force_release("job", guard.fence()).await.unwrap().was_held());
    assert!(one_grant(&client).await > guard.fence());
}

async fn a_fence_grows_after_a_dropped_guard(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").acquire().await.unwrap();
    let fence = guard.fence();
    drop(guard);
    assert!(one_grant(&client).await > fence);
}

async fn a_fence_stays_while_its_lease_is_extended(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").acquire().await.unwrap();
    let fence = guard.fence();
    for _ in 0..3 {
        guard.extend().await.unwrap();
        assert_eq!(guard.fence(), fence);
        assert_eq!(client.inspect("job").await.unwrap().held().unwrap().fence, fence);
    }
}

async fn the_fence_shown_is_the_holders_fence(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    assert_eq!(two.inspect("job").await.unwrap().held().unwrap().fence, guard.fence());
    let listed = two.list_page("job", None, 10).await.unwrap().items;
    assert_eq!(listed[0].held().as_ref().unwrap().fence, guard.fence());
}

async fn a_fence_reads_as_name_mode_and_number(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("deal:42").acquire().await.unwrap();
    let expected = format!("deal:42:exclusive:{}", guard.fence().get());
    assert_eq!(guard.fence().token(guard.name()), expected);
}

async fn a_fence_grows_after_every_client_has_gone(test: TestContext) {
    let mut last = Fence::new(0);
    for _ in 0..5 {
        let client = test.builder().connect().await.unwrap();
        let fence = one_grant(&client).await;
        client.close().await.unwrap();
        drop(client);
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
}

async fn a_fence_grows_after_its_side_state_was_deleted(test: TestContext) {
    let client = test.client().await;
    let before = one_grant(&client).await;
    test.delete_side_state().await;
    assert!(one_grant(&client).await > before);
    let guard = client.lock("job").acquire().await.unwrap();
    test.delete_side_state().await;
    guard.extend().await.expect("a holder needs no side state");
    let fence = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    assert!(one_grant(&client).await > fence);
}

async fn a_fence_grows_after_everything_was_wiped(test: TestContext) {
    let client = test.client().await;
    let mut last = one_grant(&client).await;
    for _ in 0..10 {
        last = last.max(one_grant(&client).await);
    }
    test.wipe().await;
    assert!(one_grant(&client).await > last);
}

async fn a_fence_grows_after_an_old_state_was_restored(test: TestContext) {
    let client = test.client().await;
    one_grant(&client).await;
    test.save().await;
    let mut last = one_grant(&client).await;
    for _ in 0..10 {
        last = last.max(one_grant(&client).await);
    }
    test.rewind().await;
    assert!(one_grant(&client).await > last);
}
