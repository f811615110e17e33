//! The flash sale: with coordination, without, and with a fail-over of the store in the middle.

mod play;

use leasehold_testkit::SentinelSet;

const FLASH_SALE: &str = env!("CARGO_BIN_EXE_flash-sale");

#[test]
fn nothing_is_oversold_although_instances_are_killed() {
    let (held, shown) = play::whole(FLASH_SALE, &["--scale", "10"]);
    assert!(held, "{shown}");
    assert!(shown.contains("12 workers killed with -9") && shown.contains("the invariant held"), "{shown}");
}

#[test]
fn without_coordination_units_are_sold_twice() {
    let (held, shown) = play::whole(FLASH_SALE, &["--scale", "20", "--unsafe"]);
    assert!(!held && shown.contains("THE INVARIANT BROKE"), "{shown}");
}

#[test]
fn a_lock_with_the_stock_in_its_name_protects_nothing() {
    let (held, shown) = play::whole(FLASH_SALE, &["--scale", "20", "--variant", "stock-in-key"]);
    assert!(!held, "{shown}");
}

#[test]
fn a_fail_over_in_the_middle_of_the_sale_sells_nothing_twice() {
    let Some(set) = SentinelSet::builder().start_or_skip() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = set.url();
    let play = play::begin(FLASH_SALE, folder.path(), &["--scale", "20", "--store", &store]);
    play.await_number("select count(*) from orders", 60);
    set.failover();
    let (held, shown) = play.end();
    assert!(held, "{shown}");
}
