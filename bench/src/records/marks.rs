//! A thousand marks at once.

use std::time::Instant;

use leasehold::{engine::records::MarkOp, name::Name};

use super::{Bench, LIMIT, Store};
use crate::{Failure, report::Figures, server};

const MARKS: usize = 1000;

pub(super) async fn measure(bench: &Bench) -> Result<Figures, Failure> {
    let store = Store::open(&bench.server.url())?;
    let names = (0..MARKS).map(|n| Name::new(format!("bench:mark:{n}"))).collect::<Result<Vec<_>, _>>()?;
    // The server has the script then.
    store.records()?.on_marks(&names, MarkOp::Set(LIMIT), store.until()).await?;
    let times = bench.count(200, 5);
    let (before, began) = (server::script_calls(&bench.server), Instant::now());
    for _ in 0..times {
        if store.records()?.on_marks(&names, MarkOp::Test, store.until()).await?.contains(&false) {
            return Err("a mark is missing".into());
        }
    }
    let each_us = began.elapsed().as_secs_f64() * 1e6 / times as f64;
    let calls = (server::script_calls(&bench.server) - before) as f64 / times as f64;
    Ok(vec![("calls_per_1000_marks", calls), ("test_of_1000_marks_us", each_us)])
}
