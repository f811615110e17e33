//! The suite itself: it fails engines that are wrong on purpose, and it names what hangs or panics.

use std::{sync::Arc, time::Duration};

use leasehold::{
    Builder, Leasehold,
    engine::{Engine, memory::Memory},
};
use leasehold_testkit::conformance::{
    Case, Fixture, Namespace, Need, Report, Slow, Wrapped,
    broken::{
        BareCounter, acknowledge_without_receipt, fence_from_a_counter, one_permit_too_many,
        readers_apart_from_writers, release_without_compare, released_before_the_body_ended,
        settle_without_compare, validity_from_the_reply,
    },
    cases, run_some,
};

/// `memory:` behind an engine that is wrong.
struct Broken<F>(F);

impl<F: Fn(Arc<dyn Engine>, &Namespace) -> Arc<dyn Engine> + Send + Sync + 'static> Fixture for Broken<F> {
    fn builder(&self, namespace: &Namespace) -> Builder {
        let builder = Leasehold::builder("memory:").clock(namespace.clock.clone());
        builder.engine(self.engine(namespace))
    }

    fn offers(&self) -> &[Need] {
        &[Need::Contract]
    }

    fn engine(&self, namespace: &Namespace) -> Arc<dyn Engine> {
        (self.0)(Arc::new(Memory::open(&namespace.name, namespace.clock.clone())), namespace)
    }
}

async fn failures_of(
    wrong: impl Fn(Arc<dyn Engine>, &Namespace) -> Arc<dyn Engine> + Send + Sync + 'static,
    names: &[&str],
) -> Vec<String> {
    let chosen: Vec<_> = cases().into_iter().filter(|case| names.contains(&case.name)).collect();
    assert_eq!(chosen.len(), names.len(), "a case was renamed: {names:?}");
    names_of(&run_some("broken", Broken(wrong), &chosen).await)
}

fn names_of(report: &Report) -> Vec<String> {
    let mut names: Vec<_> = report.failed().map(|(case, _)| case.replace("broken: ", "")).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_release_without_compare_is_found() {
    let names =
        ["a_late_release_leaves_the_second_holder_alone", "releasing_a_taken_lock_reports_the_holder"];
    assert_eq!(failures_of(|engine, _| release_without_compare(engine), &names).await, names);
}

#[tokio::test]
async fn a_settlement_without_compare_is_found() {
    let names = [
        "a_slow_execution_is_fenced_off_by_a_later_one",
        "a_slow_execution_is_fenced_off_by_one_that_has_ended",
        "a_slow_execution_is_fenced_off_by_one_that_left_nothing",
        "a_stranger_settles_nothing",
    ];
    assert_eq!(failures_of(|engine, _| settle_without_compare(engine), &names).await, names);
}

#[tokio::test]
async fn an_acknowledgement_without_receipt_is_found() {
    let names = [
        "a_receipt_is_void_after_it_was_set_again",
        "a_receipt_is_void_after_the_next_claim",
        "a_receipt_that_nobody_got_is_void",
        "of_many_receipts_each_is_answered",
    ];
    assert_eq!(failures_of(|engine, _| acknowledge_without_receipt(engine), &names).await, names);
}

#[tokio::test]
async fn validity_counted_from_the_reply_is_found() {
    let late = Duration::from_millis(300);
    let slow = move |engine| Arc::new(Wrapped::new(engine, Slow::claims(late)));
    let wrong =
        move |engine, namespace: &Namespace| validity_from_the_reply(slow(engine), namespace.clock.clone());
    let names = ["a_lease_never_outlives_the_store"];
    assert_eq!(failures_of(wrong, &names).await, names);
    let right = move |engine, _: &Namespace| -> Arc<dyn Engine> { slow(engine) };
    assert!(failures_of(right, &names).await.is_empty(), "a slow engine is not wrong");
}

#[tokio::test]
async fn a_fence_from_a_bare_counter_is_found() {
    let names = ["a_fence_grows_after_every_client_has_gone", "fences_grow_with_every_grant_of_a_name"];
    let wrong = |engine, _: &Namespace| fence_from_a_counter(engine, BareCounter::default());
    assert_eq!(failures_of(wrong, &names).await, names);
}

#[tokio::test]
async fn one_permit_too_many_is_found() {
    let names = ["a_permit_is_given_back_once", "no_more_permits_are_held_than_there_are"];
    assert_eq!(failures_of(|engine, _| one_permit_too_many(engine), &names).await, names);
}

#[tokio::test]
async fn readers_counted_apart_from_writers_are_found() {
    let names = ["many_readers_hold_at_once_and_no_writer", "readers_and_writers_never_meet"];
    assert_eq!(failures_of(|engine, _| readers_apart_from_writers(engine), &names).await, names);
}

#[tokio::test]
async fn a_leader_released_before_its_body_ended_is_found() {
    let names = ["a_hundred_candidates_lead_one_after_the_other"];
    assert_eq!(failures_of(|engine, _| released_before_the_body_ended(engine), &names).await, names);
}

#[tokio::test]
async fn a_wrapper_that_changes_nothing_passes() {
    let names =
        ["a_late_release_leaves_the_second_holder_alone", "ten_waiters_are_served_in_the_order_they_came"];
    assert!(failures_of(|engine, _| engine, &names).await.is_empty());
}

/// A fixture that gives up soon.
struct Impatient;

impl Fixture for Impatient {
    fn builder(&self, namespace: &Namespace) -> Builder {
        Leasehold::builder(format!("memory:{}", namespace.name))
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(1)
    }
}

#[tokio::test]
async fn a_case_that_hangs_or_panics_fails_by_name() {
    let odd = [
        Case::new("hangs", &[], |_| Box::pin(std::future::pending())),
        Case::new("panics", &[], |_| Box::pin(async { std::panic::resume_unwind(Box::new("on purpose")) })),
        Case::new("passes", &[], |_| Box::pin(async {})),
        Case::new("needs more", &[Need::Wipe], |_| Box::pin(async {})),
    ];
    assert_eq!(
        run_some("memory", Impatient, &odd).await.lines(),
        [
            "skipped: 1 x memory: the fixture cannot delete everything in the store",
            "failed: memory: panics: on purpose",
            "failed: memory: hangs: did not end within 1s",
            "conformance: 4 cases x 1 engines, 1 passed, 2 failed, 1 skipped",
        ]
    );
}
