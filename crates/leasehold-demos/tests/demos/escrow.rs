//! The demo `escrow`, as a user starts it.

use leasehold_testkit::redis_or_skip;

use crate::demo_run::DemoRun;

const ESCROW: &str = env!("CARGO_BIN_EXE_escrow");
const ENDED: &str = "select count(*) from ended";

#[test]
fn a_store_that_will_not_do_is_told_at_once() {
    let stores = [
        ("redis://127.0.0.1:1", "127.0.0.1:1"),
        ("rdis://127.0.0.1", "rdis"),
        ("memory:", "one process"),
        ("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "idempotency"),
    ];
    for (store, words) in stores {
        let began = std::time::Instant::now();
        let ended = DemoRun::start(ESCROW, &["--scale", "5", "--store", store]).end();
        assert_eq!(ended.code, Some(70), "{}", ended.output);
        assert!(
            ended.output.contains("the demo escrow failed: ") && ended.output.contains(words),
            "{}",
            ended.output
        );
        // Not only because nothing moved for a long time.
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{}", ended.output);
    }
}

#[test]
fn money_is_paid_once_although_instances_are_killed() {
    DemoRun::start(ESCROW, &["--scale", "15"]).end().held();
}

#[test]
fn without_coordination_money_is_paid_twice() {
    let ended = DemoRun::start(ESCROW, &["--scale", "20", "--unsafe"]).end();
    ended.broke("deals with a deposit, payout or refund too many");
}

#[test]
fn money_is_paid_once_on_a_redis_that_is_killed_and_forgets_everything() {
    let Some(server) = redis_or_skip() else { return };
    let deals = 60;
    let run = DemoRun::start(ESCROW, &["--scale", "30", "--kills", "6", "--store", &server.url()]);
    run.until(ENDED, deals / 8, deals / 2);
    server.restart();
    run.until(ENDED, deals / 4, deals - 1);
    run.end().held_after("6");
}
