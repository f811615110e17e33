//! What only the contract shows: who is woken without asking, foreign participants, and renewals.

use std::time::Duration;

use leasehold::{
    engine::{
        Fault, Renewed,
        latches::{Answer, Kind, Op, Request, Said, Standing},
    },
    owner::Owner,
};

use super::{TestContext, ms};
use crate::conformance::{
    context::sleep,
    engine_client::{EngineClient, owner},
    eventually,
};

cases! {
    one_message_wakes_all_who_wait: Latches Contract,
    a_latch_that_breaks_wakes_all_who_wait: Latches Contract,
    one_who_did_not_ask_for_it_is_not_woken: Latches Contract,
    a_stranger_counts_for_nothing: Latches Contract,
    a_join_that_comes_again_is_one_participant: Latches Contract,
    a_join_that_comes_after_its_end_is_refused: Latches Contract,
    a_renewal_of_a_participant_brings_nothing_back: Latches Contract,
    a_participant_of_a_latch_that_is_over_is_not_renewed: Latches Contract,
}

const LONG: Duration = ms(60_000);

fn request(client: &EngineClient, owner: &Owner, op: Op) -> Request {
    let (name, count) = (client.name("migration"), 2.try_into().unwrap());
    Request { name, kind: Kind::Latch, count, owner: owner.clone(), op }
}

impl EngineClient {
    async fn ask(&self, owner: &Owner, op: Op) -> Answer {
        self.latches().ask(&request(self, owner, op), self.until()).await.unwrap()
    }

    async fn takes_part(&self, label: &str) -> (Owner, u64) {
        let owner = owner(label);
        let answer = self.ask(&owner, Op::Join { ttl: LONG }).await;
        assert_eq!(answer.said, Said::Joined);
        (owner, answer.generation)
    }

    /// One who waits, and is to be told.
    async fn waits(&self, generation: u64, wake: bool) -> Owner {
        let owner = owner("waits");
        let answer = self.ask(&owner, Op::Look { generation: Some(generation), wake }).await;
        assert!(matches!(answer.said, Said::Stands(Standing::Armed { .. })), "{answer:?}");
        owner
    }

    async fn renew_party(&self, owner: &Owner, generation: u64) -> Renewed {
        let hold = request(self, owner, Op::Leave { breaks: false }).hold(generation, LONG);
        self.leases().renew(&[hold], self.until()).await.unwrap().remove(0).unwrap()
    }
}

/// Nobody asks again here: what wakes them are messages.
async fn one_message_wakes_all_who_wait(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let ((first, generation), (last, _)) = (one.takes_part("first").await, two.takes_part("last").await);
    let mut waiting = Vec::new();
    for number in 0..100 {
        let client = if number % 4 == 0 { &one } else { &two };
        waiting.push((client, client.waits(generation, true).await));
    }
    one.ask(&first, Op::CountDown { generation }).await;
    sleep(ms(50)).await;
    assert!(waiting.iter().all(|(client, owner)| !client.was_woken(owner)), "not all have counted down");
    two.ask(&last, Op::CountDown { generation }).await;
    for (client, owner) in &waiting {
        eventually("a waiter is woken", async || client.was_woken(owner)).await;
        let answer = client.ask(owner, Op::Look { generation: Some(generation), wake: true }).await;
        assert_eq!(answer.said, Said::Stands(Standing::Opened));
    }
}

async fn a_latch_that_breaks_wakes_all_who_wait(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let (first, generation) = one.takes_part("first").await;
    let waiting = [two.waits(generation, true).await, two.waits(generation, true).await];
    one.ask(&first, Op::Leave { breaks: true }).await;
    for owner in &waiting {
        eventually("a waiter is woken", async || two.was_woken(owner)).await;
    }
    // So does whoever finds that a lease has ended.
    let answer = one.ask(&first, Op::Rearm { generation }).await;
    assert_eq!(answer.said, Said::Rearmed);
    let generation = answer.generation;
    let dead = owner("dead");
    assert_eq!(one.ask(&dead, Op::Join { ttl: ms(200) }).await.said, Said::Joined);
    let waits = two.waits(generation, true).await;
    sleep(ms(250)).await;
    let finder = owner("finds it");
    let answer = one.ask(&finder, Op::Look { generation: None, wake: false }).await;
    assert_eq!(answer.said, Said::Stands(Standing::Broken { who: Some(dead.holder()) }));
    eventually("a waiter is woken", async || two.was_woken(&waits)).await;
}

async fn one_who_did_not_ask_for_it_is_not_woken(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let (first, generation) = client.takes_part("first").await;
    let (quiet, told) = (client.waits(generation, false).await, client.waits(generation, true).await);
    client.ask(&first, Op::Leave { breaks: true }).await;
    eventually("the other is woken", async || client.was_woken(&told)).await;
    assert!(!client.was_woken(&quiet));
}

async fn a_stranger_counts_for_nothing(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let (_, generation) = client.takes_part("first").await;
    let stranger = owner("stranger");
    assert_eq!(client.ask(&stranger, Op::CountDown { generation }).await.said, Said::Stranger);
    assert_eq!(client.ask(&stranger, Op::Leave { breaks: true }).await.said, Said::Left);
    for other in [generation - 1, generation + 1] {
        let said = client.ask(&stranger, Op::CountDown { generation: other }).await.said;
        assert_eq!(said, Said::Stands(Standing::Broken { who: None }));
    }
    client.waits(generation, false).await;
}

async fn a_join_that_comes_again_is_one_participant(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let (first, generation) = client.takes_part("first").await;
    for _ in 0..2 {
        let again = client.ask(&first, Op::Join { ttl: LONG }).await;
        assert_eq!((again.said, again.generation), (Said::Joined, generation));
    }
    let state = client.latches().state(&client.name("migration"), client.until()).await.unwrap().unwrap();
    assert_eq!((state.joined, state.participants.len(), state.count), (1, 1, 2));
    assert_eq!(state.participants[0].holder, first.holder());
    client.takes_part("second").await;
}

async fn a_join_that_comes_after_its_end_is_refused(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let late = owner("late");
    let join = request(&client, &late, Op::Join { ttl: LONG });
    // Polled once, so that it is on its way, and dropped: nobody knows whether it arrives before the end.
    drop(futures_util::future::FutureExt::now_or_never(client.latches().ask(&join, client.until())));
    client.ask(&late, Op::Leave { breaks: false }).await;
    sleep(ms(100)).await;
    let state = client.latches().state(&client.name("migration"), client.until()).await.unwrap();
    assert!(state.is_none_or(|state| state.joined == 0));
    match client.latches().ask(&join, client.until()).await {
        Ok(answer) => assert_eq!(answer.said, Said::Joined, "a store without calls under way"),
        Err(error) => assert_eq!(error.fault, Fault::Ended, "{error}"),
    }
}

async fn a_renewal_of_a_participant_brings_nothing_back(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let dead = owner("dead");
    let generation = client.ask(&dead, Op::Join { ttl: ms(200) }).await.generation;
    sleep(ms(250)).await;
    assert_eq!(client.renew_party(&dead, generation).await, Renewed::Gone);
    assert_eq!(client.renew_party(&owner("stranger"), generation).await, Renewed::Gone);
    let said = client.ask(&owner("waits"), Op::Look { generation: None, wake: false }).await.said;
    assert_eq!(said, Said::Stands(Standing::Broken { who: Some(dead.holder()) }));
    assert_eq!(client.renew_party(&dead, generation).await, Renewed::Gone);
}

async fn a_participant_of_a_latch_that_is_over_is_not_renewed(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let ((one, generation), (other, _)) = (client.takes_part("one").await, client.takes_part("other").await);
    assert!(matches!(client.renew_party(&one, generation).await, Renewed::Kept { .. }));
    client.ask(&other, Op::Leave { breaks: true }).await;
    assert_eq!(client.renew_party(&one, generation).await, Renewed::Gone);
}
