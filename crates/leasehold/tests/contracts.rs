//! What the types promise to the compiler.

use leasehold::{
    Attempt, Deadlines, Due, Error, Guard, Handle, Lease, Leasehold, Lock, Protection, RunError, Stats,
    deadlines::Recovery,
};

fn is_send_and_sync<T: Send + Sync + 'static>() {}
fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
fn is_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn public_types_cross_threads_and_errors_are_errors() {
    is_send_and_sync::<(Leasehold, Lock, Guard, Lease, Handle)>();
    is_send_and_sync::<(Attempt, Protection, Stats)>();
    is_send_and_sync::<(leasehold::Latch, leasehold::Participant, leasehold::Barrier, leasehold::Party)>();
    is_send_and_sync::<(Deadlines, Due, Recovery, leasehold::deadlines::Claimed)>();
    is_error::<Error>();
    is_error::<RunError<u8>>();
}

/// The one line of an error has its cause in it; programs find it as the source.
#[tokio::test]
#[cfg(feature = "redis")]
async fn an_error_of_a_store_has_the_engines_error_as_its_source() {
    use leasehold::engine::{EngineError, Fault};
    use std::error::Error as _;

    let leases = Leasehold::builder("redis://127.0.0.1:1").connect_lazy().unwrap();
    let error = leases.lock("x").try_acquire().await.unwrap_err();
    let source = error.source().unwrap().downcast_ref::<EngineError>().unwrap();
    assert_eq!(source.fault, Fault::Unreachable);
    let text = error.to_string();
    assert!(text.contains("acquiring \"x\"") && text.ends_with(&source.to_string()), "{text}");
    let not_run = leases.lock("x").run(async |_| ()).await.unwrap_err();
    assert!(not_run.source().unwrap().is::<EngineError>());
}

#[tokio::test]
#[cfg(feature = "memory")]
async fn every_future_can_be_spawned() {
    let leases = Leasehold::connect("memory:").await.unwrap();
    assert!(is_send(leases.lock("x").run(async |lease| lease.is_held())).await.unwrap());
    let guard = is_send(leases.lock("x").acquire()).await.unwrap();
    is_send(guard.extend()).await.unwrap();
    drop(is_send(guard.lost()));
    assert!(is_send(guard.release()).await.unwrap().was_held());
    drop(is_send(leases.lock("x").try_acquire()).await.unwrap());
    drop(is_send(leases.lock("x").acquire_or_proceed()));
    drop((
        is_send(leases.inspect("x")),
        is_send(leases.list_page("", None, 1)),
        is_send(leases.list("")),
        is_send(leases.health()),
    ));
    let participant = is_send(leases.latch("x", 2).join()).await.unwrap().joined().unwrap();
    drop(is_send(leases.latch("x", 2).wait(std::time::Duration::ZERO)));
    drop((is_send(participant.count_down()), is_send(participant.wait(std::time::Duration::ZERO))));
    is_send(participant.leave()).await.unwrap();
    let party = is_send(leases.barrier("y", 1).join()).await.unwrap().joined().unwrap();
    drop(is_send(party.arrive()));
    is_send(party.leave()).await.unwrap();
    let pool = leases.deadlines("x");
    is_send(pool.set("x", std::time::Duration::ZERO)).await.unwrap();
    for due in is_send(pool.claim().into_future()).await.unwrap() {
        drop(is_send(due.clone().postpone(std::time::Duration::ZERO)));
        drop(is_send(due.clone().bury("why")));
        is_send(due.acknowledge()).await.unwrap();
    }
    drop((
        is_send(pool.cancel("x")),
        is_send(pool.peek(1)),
        is_send(pool.dead_page(None, 1)),
        is_send(pool.stats()),
    ));
    let recovery = is_send(pool.recover(async |_| leasehold::Result::<()>::Ok(())).start()).await.unwrap();
    is_send(recovery.stop()).await;
    is_send(leases.close()).await.unwrap();
}
