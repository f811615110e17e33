//! The demo `flash-sale`, as a user starts it.

use crate::demo_run::DemoRun;
use leasehold_testkit::SentinelSet;

const FLASH_SALE: &str = env!("CARGO_BIN_EXE_flash-sale");
const UNITS: &str = "units sold, of the stock";

#[test]
fn nothing_is_oversold_although_instances_are_killed() {
    DemoRun::start(FLASH_SALE, &["--scale", "10"]).end().held();
}

#[test]
fn without_coordination_units_are_sold_twice() {
    DemoRun::start(FLASH_SALE, &["--scale", "10", "--unsafe"]).end().broke(UNITS);
}

#[test]
fn a_lock_with_the_stock_in_its_name_protects_nothing() {
    let options = ["--scale", "10", "--kills", "3", "--variant", "stock-in-key"];
    let runs = [(); 3].map(|()| DemoRun::start(FLASH_SALE, &options));
    runs.into_iter().for_each(|run| run.end().broke(UNITS));
}

#[test]
fn a_variant_that_there_is_not_is_refused() {
    let ended = DemoRun::start(FLASH_SALE, &["--variant", "stock-in-kye"]).end();
    assert_eq!(ended.code, Some(64), "{}", ended.output);
    assert!(ended.output.contains("no variant \"stock-in-kye\": expected stock-in-key"), "{}", ended.output);
}

#[test]
fn a_fail_over_in_the_middle_of_the_sale_sells_nothing_twice() {
    let Some(set) = SentinelSet::builder().start_or_skip() else { return };
    let run = DemoRun::start(FLASH_SALE, &["--scale", "20", "--store", &set.url()]);
    run.until("select count(*) from orders", 40, 190);
    set.failover();
    run.end().held();
}
