//! The demo `invoices`, as a user starts it.

use crate::demo_run::DemoRun;
use leasehold_testkit::RedisServer;

const INVOICES: &str = env!("CARGO_BIN_EXE_invoices");

/// What each variant counts in an outage.
const VARIANTS: [(&str, &str); 2] =
    [("deny", "that were refused with 503"), ("proceed", "that went on without protection")];

#[test]
fn no_invoice_is_filed_twice_and_what_an_outage_does_is_counted() {
    let start = |variant| DemoRun::start(INVOICES, &["--scale", "10", "--variant", variant]);
    let runs = VARIANTS.map(|(variant, counted)| (start(variant), counted));
    for (run, counted) in runs {
        let ended = run.end();
        ended.held();
        assert!(ended.output.contains(counted), "{}", ended.output);
        assert!(ended.output.contains("has started without the store, and answers"), "{}", ended.output);
        let of_started = ended.number("of these at an instance that started in the outage");
        assert!(of_started > 0, "{}", ended.output);
        assert!(ended.number("409, this file is being processed") > 0, "{}", ended.output);
    }
}

#[test]
fn without_coordination_invoices_are_filed_twice() {
    DemoRun::start(INVOICES, &["--scale", "10", "--unsafe"]).end().broke("invoices filed twice");
}

#[test]
fn the_same_on_a_redis_that_cannot_be_reached_for_a_while() {
    let Some(server) = RedisServer::builder().start_or_skip() else { return };
    let runs = VARIANTS.map(|(variant, counted)| {
        let args = ["--scale", "10", "--kills", "4", "--variant", variant, "--store", &server.url()];
        (DemoRun::start(INVOICES, &args), counted)
    });
    for (run, counted) in runs {
        let ended = run.end();
        ended.held_after("4");
        assert!(ended.output.contains(counted), "{}", ended.output);
    }
}
