//! What people see of locks.

use std::num::NonZeroU32;

use tokio_postgres::{Row, types::Type};

use super::{
    Postgres, Result,
    pool::{Param, Purpose},
    reply,
};
use leasehold_core::{
    clock::Until,
    engine::{Cursor, Fut, Inspect, Inspection, Page},
    name::Name,
};

/// Names that one page looks at, held or not.
const NAMES_PER_PAGE: i32 = 500;

impl Inspect for Postgres {
    fn inspect<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Inspection> {
        Box::pin(async move {
            let params: [Param<'_>; 1] = [(&name.as_str(), Type::TEXT)];
            let sql = "SELECT * FROM leasehold.inspect($1)";
            let row = reply::one(self.pool.query(until, Purpose::Ask, sql, &params).await?)?;
            inspection(name.clone(), &row)
        })
    }

    fn page<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Inspection>> {
        Box::pin(async move {
            let after = from.as_ref().map_or("", Cursor::as_str);
            let params: [Param<'_>; 3] =
                [(&prefix, Type::TEXT), (&after, Type::TEXT), (&NAMES_PER_PAGE, Type::INT4)];
            let sql = "SELECT * FROM leasehold.names($1, $2, $3)";
            let rows = self.pool.query(until, Purpose::Ask, sql, &params).await?;
            let (mut items, mut last, is_full) = (Vec::new(), None, rows.len() == NAMES_PER_PAGE as usize);
            for row in &rows {
                let text: &str = reply::get(row, "name")?;
                if items.len() >= limit as usize {
                    return Ok(Page { items, next: last.map(Cursor::new) });
                }
                last = Some(text);
                if let Ok(name) = Name::new(text) {
                    items.push(inspection(name, row)?);
                    items.truncate(items.len() - usize::from(!items[items.len() - 1].is_in_use()));
                }
            }
            Ok(Page { items, next: last.filter(|_| is_full).map(Cursor::new) })
        })
    }
}

fn inspection(name: Name, row: &Row) -> Result<Inspection> {
    let held_by: Option<Vec<String>> = reply::get(row, "held_by")?;
    let waiters: Option<Vec<String>> = reply::get(row, "waiters")?;
    let (total, free_in) = (reply::get(row, "holders")?, reply::get(row, "free_in_us")?);
    let limit: Option<i32> = reply::get(row, "permit_limit")?;
    let taken: Option<i64> = reply::get(row, "permits_taken")?;
    let waiting: i32 = reply::get(row, "waiting")?;
    Ok(Inspection {
        name,
        holders: reply::holders(total, free_in, held_by.as_deref()),
        limit: limit.and_then(|limit| NonZeroU32::new(limit.max(0).unsigned_abs())),
        permits_taken: u32::try_from(taken.unwrap_or_default().max(0)).unwrap_or(u32::MAX),
        waiters: waiters.unwrap_or_default().iter().filter_map(|line| reply::waiter(line)).collect(),
        waiting: waiting.max(0).unsigned_abs(),
    })
}
