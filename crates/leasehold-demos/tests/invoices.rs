//! Invoices: with coordination, without, and with a store that stops in the middle.

mod play;

use leasehold_testkit::RedisServer;

const INVOICES: &str = env!("CARGO_BIN_EXE_invoices");

#[test]
fn no_invoice_is_filed_twice_and_an_outage_refuses() {
    let (held, shown) = play::whole(INVOICES, &["--scale", "10"]);
    assert!(held && shown.contains("uploads refused during the outage"), "{shown}");
}

#[test]
fn runs_that_go_on_in_an_outage_are_counted_exactly() {
    let (held, shown) = play::whole(INVOICES, &["--scale", "10", "--variant", "proceed"]);
    assert!(held && shown.contains("the same by the metric"), "{shown}");
}

#[test]
fn without_coordination_invoices_are_filed_twice() {
    let (held, shown) = play::whole(INVOICES, &["--scale", "20", "--unsafe"]);
    assert!(!held && shown.contains("THE INVARIANT BROKE"), "{shown}");
}

#[test]
fn the_same_on_a_redis_that_cannot_be_reached_for_a_while() {
    let Some(server) = RedisServer::builder().start_or_skip() else { return };
    for (variant, counted) in
        [("deny", "uploads refused during the outage"), ("proceed", "the same by the metric")]
    {
        let args = ["--scale", "10", "--variant", variant, "--store", &server.url()];
        let (held, shown) = play::whole(INVOICES, &args);
        assert!(held && shown.contains(counted), "{shown}");
    }
}
