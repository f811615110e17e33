//! Fences grow, whatever happens to clocks, rows and files.

use super::*;

#[test]
fn fences_grow_although_the_wall_clock_goes_back() {
    let mut host = Host::new();
    let first = fence(&host.claim(&trying(1)));
    let _ = host.release(&trying(1));
    host.wall_us -= DAY_US / 2;
    assert_eq!(fence(&host.claim(&trying(2))), first + 1);
}

#[test]
fn a_free_locks_row_stays_for_a_day_and_the_fence_grows_without_it() {
    let mut host = Host::new();
    let first = fence(&host.claim(&trying(1)));
    let _ = host.release(&trying(1));
    host.pass(Duration::from_secs(86_399));
    host.claim(&named("other", trying(2)));
    assert_eq!(host.rows("lock"), 2);
    host.pass(Duration::from_secs(1));
    host.claim(&named("third", trying(3)));
    assert_eq!(host.rows("lock"), 2, "the first name is forgotten");
    // The clock may even go back by almost the day that the row was kept.
    host.wall_us -= DAY_US - 1;
    assert!(fence(&host.claim(&trying(4))) > first);
}

#[test]
fn a_row_that_is_held_or_waited_for_is_never_swept() {
    let mut host = Host::new();
    host.claim(&Claim { ttl: Duration::from_secs(200_000), ..trying(1) });
    host.claim(&named("waited", trying(2)));
    host.pass(Duration::from_secs(86_401));
    host.claim(&Claim {
        queue: Some(leasehold_core::engine::Queue { wait: TTL, poll_every: POLL }),
        ..waiting(3)
    });
    host.db.execute("UPDATE waiter SET name = 'waited'", []).unwrap();
    host.claim(&named("other", trying(4)));
    assert!(is_busy(&host.claim(&trying(5))), "held");
    assert_eq!(host.rows("lock WHERE name = 'waited'"), 1, "kept for its waiter");
}

#[test]
fn fences_grow_after_an_old_copy_of_the_file_came_back() {
    let mut host = Host::new();
    host.claim(&trying(1));
    let _ = host.release(&trying(1));
    let copy = host.db.query_row("SELECT fence FROM lock", [], |row| row.get::<_, i64>(0)).unwrap();
    host.pass(Duration::from_millis(1));
    let lost = fence(&host.claim(&trying(2)));
    let _ = host.release(&trying(2));
    host.pass(Duration::from_micros(1));
    host.db.execute("UPDATE lock SET fence = ?1", [copy]).unwrap();
    assert!(fence(&host.claim(&trying(3))) > lost);
}

#[test]
fn a_fence_ends_before_two_to_the_53() {
    let mut host = Host::new();
    host.claim(&trying(1));
    let _ = host.release(&trying(1));
    host.db.execute("UPDATE lock SET fence = ?1", [(1i64 << 53) - 2]).unwrap();
    assert_eq!(fence(&host.claim(&trying(2))), (1 << 53) - 1);
    let _ = host.release(&trying(2));
    let since = host.now();
    let refused = EngineError::from(host.run(|store| store.claim(&trying(3), since, "engine")).unwrap_err());
    assert_eq!(refused.fault, Fault::Refused(Refusal::Other));
    assert!(refused.why.contains("fence exhausted"), "{refused}");
}

#[test]
fn a_restart_of_the_host_frees_everything_but_the_fence() {
    let mut host = Host::new();
    let first = fence(&host.claim(&waiting(1)));
    host.claim(&waiting(2));
    host.boot = "another boot";
    host.boot_ns = 5 * SECOND;
    host.wall_us = WALL_US - 1;
    assert_eq!(host.inspect("deal"), Inspection::unused(Name::new("deal").unwrap()));
    assert_eq!(host.renew(&waiting(1)), Renewed::Gone);
    assert_eq!(host.release(&waiting(1)), Released::Expired);
    assert_eq!(fence(&host.claim(&waiting(3))), first + 1);
    assert_eq!(ahead(&host.claim(&waiting(4))), 0);
    assert_eq!(host.rows("waiter"), 1, "waiters of the other boot are removed on the way");
}
