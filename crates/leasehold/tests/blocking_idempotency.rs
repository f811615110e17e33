//! Idempotency keys without `async`.
#![cfg(feature = "blocking")]

use std::time::Duration;

use leasehold::{
    ErrorKind,
    blocking::{Begun, Leasehold},
    idempotency::{Idempotent, OnFailure, Settled},
};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_body_runs_once_and_may_block_itself() {
    let leases = Leasehold::connect("memory:").unwrap();
    let run = |result: u32| {
        leases.idempotency("payout").key(42).run(|lease| {
            assert!(lease.is_held());
            // A blocking call of its own.
            leases.lock("account").run(|_| Ok::<_, String>(result)).unwrap()
        })
    };
    assert!(matches!(run(1).unwrap(), Idempotent::Executed(1)));
    assert!(matches!(run(2).unwrap(), Idempotent::Replayed(1)));
    leases.close().unwrap();
}

#[test]
fn threads_wait_for_the_one_that_executes() {
    let leases = Leasehold::connect("memory:").unwrap();
    let execution = leases.idempotency("payout").key(1).begin::<u32>().unwrap().yours().unwrap();
    let waiting = {
        let key = leases.idempotency("payout").key(1).wait(LONG);
        std::thread::spawn(move || key.begin::<u32>().unwrap())
    };
    assert!(matches!(leases.idempotency("payout").key(1).begin::<u32>().unwrap(), Begun::InProgress { .. }));
    assert!(execution.fence().get() > 0);
    assert_eq!(execution.complete(&7).unwrap(), Settled::Stored);
    assert!(matches!(waiting.join().unwrap(), Begun::Completed(7)));
}

#[test]
fn a_failure_is_kept_and_a_panic_is_the_next_ones() {
    let leases = Leasehold::connect("memory:").unwrap();
    let key = || leases.idempotency("payout").key(1).on_failure(OnFailure::Replay);
    key().begin::<u32>().unwrap().yours().unwrap().fail("no funds").unwrap();
    assert!(matches!(key().begin::<u32>().unwrap(), Begun::Failed { why } if why == "no funds"));
    assert!(key().get().unwrap().is_some() && key().remove().unwrap());
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        key().run(|_| -> Result<u32, String> { panic!("as the test wants") })
    }));
    assert!(panics.is_err());
    let run = key().wait(LONG).run(|_| Ok::<_, String>(3)).unwrap();
    assert!(matches!(run, Idempotent::Executed(3)));
    assert!(leases.idempotency("mail").key(1).at_most_once().unwrap().is_first());
    assert!(!leases.idempotency("mail").key(1).at_most_once().unwrap().is_first());
}

#[tokio::test]
async fn in_async_code_it_is_refused() {
    let leases = tokio::task::spawn_blocking(|| {
        std::thread::spawn(|| Leasehold::connect("memory:").unwrap()).join().unwrap()
    });
    let leases = leases.await.unwrap();
    let error = leases.idempotency("payout").key(1).at_most_once().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let ran = leases.idempotency("payout").key(1).run(|_| Ok::<_, String>(1));
    assert_eq!(ran.unwrap_err().kind(), ErrorKind::Unsupported);
}
