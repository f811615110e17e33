//! A thousand marks at once.

use std::time::Instant;

use leasehold::{engine::records::MarkOp, name::Name};

use super::{Bench, LIMIT, Store};
use crate::{Failure, report::Figures};

const MARKS: usize = 1000;

pub(super) async fn measure(bench: &Bench) -> Result<Figures, Failure> {
    let store = Store::open(&bench.server.url())?;
    let names = (0..MARKS).map(|n| Name::new(format!("bench:mark:{n}"))).collect::<Result<Vec<_>, _>>()?;
    // The server has the script then.
    store.records()?.on_marks(&names, MarkOp::Set(LIMIT), store.until()).await?;
    let times = bench.count(200, 5);
    let (before, began) = (calls(bench), Instant::now());
    for _ in 0..times {
        if store.records()?.on_marks(&names, MarkOp::Test, store.until()).await?.contains(&false) {
            return Err("a mark is missing".into());
        }
    }
    let each_us = began.elapsed().as_secs_f64() * 1e6 / times as f64;
    let calls = (calls(bench) - before) as f64 / times as f64;
    Ok(vec![("calls_per_1000_marks", calls), ("test_of_1000_marks_us", each_us)])
}

/// Calls of scripts so far.
fn calls(bench: &Bench) -> u64 {
    let stats = bench.server.cli(&["INFO", "commandstats"]);
    let calls = |line: &str| {
        let numbers =
            line.strip_prefix("cmdstat_evalsha:calls=").or(line.strip_prefix("cmdstat_eval:calls="))?;
        numbers.split(',').next()?.parse::<u64>().ok()
    };
    stats.text().lines().filter_map(calls).sum()
}
