//! Wake-ups that come late.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    clock::Clock,
    engine::{Answer, Engine, Queue, memory::Memory},
    name::Name,
    owner::{Holder, Owner},
};

#[tokio::test]
async fn a_lock_handed_to_an_attempt_that_gave_up_moves_on() {
    let engine: Arc<dyn Engine> = Arc::new(Memory::open("", Clock::system()));
    let soon = || Clock::system().now() + Duration::from_secs(10);
    let claim = Claim {
        name: Name::new("x").unwrap(),
        owner: Owner::new(1, &Holder::Foreign),
        mode: crate::engine::Mode::Exclusive,
        ttl: Duration::from_secs(60),
        format: crate::engine::Format::Plain,
        lock_delay: Duration::ZERO,
        queue: Some(Queue { wait: Duration::from_secs(60), poll_every: Duration::from_secs(5) }),
        acks: crate::engine::Acks::None,
    };
    let Ok(Answer::Granted(grant)) = engine.leases().claim(&claim, soon()).await else {
        panic!("it was free")
    };
    let reaper = Reaper::new(engine.clone(), Clock::system(), Duration::from_secs(2));
    let (telemetry, closed) = (Arc::new(Telemetry::new(None, Vec::new())), CancellationToken::new());
    let timeout = Duration::from_secs(2);
    let keeper = Keeper::start(engine.clone(), Clock::system(), timeout, closed);
    let waiting = Waiting::new(reaper.clone(), keeper, telemetry);
    waiting.ended(claim.clone());
    waiting.wake(Wake::Granted { owner: claim.owner.id(), fence: grant.fence, link: 0 });
    reaper.drained().await;
    assert_eq!(engine.inspector().inspect(&claim.name, soon()).await.unwrap().held(), None);
}

#[test]
fn a_lease_that_was_handed_over_began_after_the_last_answer_over_the_same_link_with_a_lower_fence() {
    let asked_at = BootInstant::from_nanos(5_000);
    let bound = Bound { link: 1, last: Fence::new(10), asked_at };
    assert_eq!(bound.start_of(Fence::new(11), 1), Some(asked_at));
    assert_eq!(bound.start_of(Fence::new(10), 1), None);
    assert_eq!(bound.start_of(Fence::new(11), 2), None);
}
