//! A quorum on virtual time: whole clients, simulated nodes, a bad network, and everything repeatable from a seed.
//!
//! `LEASEHOLD_SEEDS=5000` tries more seeds, as `cargo xtask faults` does; `LEASEHOLD_SEEDS=4711..4712` tries one of them.
#![expect(clippy::print_stdout, reason = "says how much was judged")]

mod fleet;
mod hasty;
mod memory;
mod network;
mod node;
mod plan;
mod run;
mod scenarios;

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use node::Flaw;
use plan::Plan;
use run::{Report, run};

/// The seeds to try.
fn seeds() -> Range<u64> {
    const DEFAULT: u64 = 100;
    let Ok(text) = std::env::var("LEASEHOLD_SEEDS") else { return 0..DEFAULT };
    let number =
        |text: &str| text.trim().parse().expect("LEASEHOLD_SEEDS is a number, or two with .. between");
    match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&text),
    }
}

/// Runs seeds on all cores until `judge` has seen enough.
fn each(seeds: Range<u64>, flaw: Option<Flaw>, judge: impl Fn(u64, Report) -> bool + Sync) {
    let (next, enough) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let work = || {
        while !enough.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if judge(seed, run(seed, flaw)) {
                enough.store(true, Ordering::Relaxed);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
}

#[test]
fn promises_are_kept_whatever_the_network_and_the_nodes_do() {
    let (seeds, total) = (seeds(), Mutex::new((0, 0)));
    each(seeds.clone(), None, |seed, report| {
        assert!(
            report.broken.is_empty(),
            "seed {seed}: {}\nrepeat it with LEASEHOLD_SEEDS={seed}..{}\n{:#?}",
            report.broken.join("\n"),
            seed + 1,
            Plan::of(seed),
        );
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        *total = (total.0 + report.granted, total.1 + report.confirmed);
        false
    });
    let (granted, confirmed) = total.into_inner().unwrap();
    println!("{} seeds, {granted} grants, {confirmed} second phases", seeds.end - seeds.start);
    let tried = (seeds.end - seeds.start) as usize;
    assert!(tried < 100 || (granted > tried * 5 && confirmed > 0), "too little happened");
}

#[test]
fn a_seed_always_gives_the_same_run() {
    for seed in 0..8 {
        assert_eq!(run(seed, None).events, run(seed, None).events, "seed {seed}");
    }
}

/// Finds a seed that shows a flaw by a broken promise with these words.
fn is_caught(flaw: Flaw, words: &[&str]) {
    let found = Mutex::new(None);
    each(0..1000, Some(flaw), |seed, report| {
        let is_it = |broken: &&String| words.iter().any(|word| broken.contains(word));
        let Some(broken) = report.broken.iter().find(is_it) else { return false };
        *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("seed {seed}: {broken}"));
        true
    });
    let found = found.into_inner().unwrap().unwrap_or_else(|| panic!("{flaw:?} goes unnoticed"));
    println!("{flaw:?} in {found}");
}

const OVERLAP: &str = "overlaps";
const FENCES: [&str; 2] = ["was granted to", "is below"];

#[test]
fn a_node_that_votes_whatever_it_forgot_is_caught() {
    is_caught(Flaw::NoAbstention, &[OVERLAP, FENCES[0], FENCES[1]]);
}

#[test]
fn a_grant_of_different_votes_without_a_second_phase_is_caught() {
    is_caught(Flaw::NoSecondPhase, &FENCES);
}

#[test]
fn a_withdrawal_that_a_late_vote_undoes_is_caught() {
    is_caught(Flaw::NoTombstone, &["still holds"]);
}

#[test]
fn a_reader_beside_a_writer_is_caught() {
    is_caught(Flaw::ReadsBesideAWriter, &[OVERLAP]);
}

#[test]
fn a_writer_beside_readers_is_caught() {
    is_caught(Flaw::WritesBesideReaders, &[OVERLAP]);
}

#[test]
fn a_reader_that_is_not_above_the_last_writer_is_caught() {
    is_caught(Flaw::ReadsUnderTheLastFence, &FENCES);
}

#[test]
fn validity_that_counts_from_the_answer_is_caught() {
    is_caught(Flaw::ValidFromTheAnswer, &[OVERLAP]);
}
