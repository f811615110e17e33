//! No money came or went on its own, everything was paid once, and every deal took a legal path.

use std::collections::BTreeMap;

use super::{
    database::{Database, Statements},
    reconciliation::{THERE, WRONG_ACCOUNTS},
    state::State,
};
use crate::{Result, verdict::Verdict, worker::Worker};

pub(super) fn judge(worker: &Worker) -> Result<Verdict> {
    let database = &Database::open(worker)?;
    let number = |sql| database.number(sql);
    Ok(Verdict::default()
        .reports("deliveries of messages", number("select sum(deliveries) from messages")?)
        .reports(
            "of them for something done before",
            number("select count(*) from messages where outcome = 'again'")?,
        )
        .reports(
            "orders refused because of a later one",
            number("select count(*) from messages where outcome = 'stale'")?,
        )
        .reports("answers \"409, busy\"", number("select sum(busy) from ended")?)
        .expects(
            "money in accounts and escrow, of what came in",
            number("select sum(amount) from bank")?,
            number(THERE)?,
        )
        .expects("accounts that are not the sum of their entries", 0, number(WRONG_ACCOUNTS)?)
        .expects("deals with a deposit, payout or refund too many", 0, number(TOO_MANY)?)
        .damage(number(TOO_MANY)?, "deals paid twice")
        .expects("deals both paid out and refunded", 0, number(BOTH)?)
        .expects("deals without an end, or on no legal path to it", 0, wrong_paths(database)?)
        .expects("outbox rows not notified exactly once", 0, number(NOT_NOTIFIED_ONCE)?)
        .expects("reconcilers at work beside another", 0, number(BESIDE_ANOTHER)?)
        .expects(
            "reconciliations that found a difference",
            0,
            number("select count(*) from reconciliations where difference <> 0 or wrong <> 0")?,
        )
        .chart(
            "deals by how they ended",
            bars(database, "select state, count(*) from deals group by 1 order by 1")?,
        )
        .chart(
            "payments by each instance",
            bars(database, "select by, count(*) from entries where kind <> 'fee' group by 1 order by 1")?,
        ))
}

const TOO_MANY: &str = "select count(distinct deal) from
    (select deal from entries group by deal, kind having count(*) > 1) as more";

const BOTH: &str = "select count(*) from deals
    where exists (select 1 from entries where deal = deals.id and kind = 'payout')
      and exists (select 1 from entries where deal = deals.id and kind = 'refund')";

const NOT_NOTIFIED_ONCE: &str = "select count(*) from outbox where kind = 'notify'
    and 1 <> (select count(*) from notifications where outbox_id = outbox.id)";

/// The pages of a run are consecutive; pages of another run in between were written at the same time.
const BESIDE_ANOTHER: &str = "with runs as
    (select run, min(id) as first, max(id) as last from reconciliations group by run)
    select count(*) from runs where exists
    (select 1 from runs as other where other.run <> runs.run and other.first between runs.first and runs.last)";

fn wrong_paths(database: &Database) -> Result<u64> {
    let mut paths: BTreeMap<u64, Vec<(String, String)>> = BTreeMap::new();
    for deal in database.rows("select id from deals", &[])? {
        paths.insert(deal.count(0)?, Vec::new());
    }
    for step in database.rows("select deal, was, became from history order by id", &[])? {
        paths.entry(step.count(0)?).or_default().push((step.text(1)?, step.text(2)?));
    }
    let is_whole = |path: &Vec<(String, String)>| {
        let steps = path.iter().map(|(was, became)| State::parse(was).zip(State::parse(became)));
        steps.collect::<Option<Vec<_>>>().is_some_and(|steps| State::is_whole_path(&steps))
    };
    Ok(paths.values().filter(|path| !is_whole(path)).count() as u64)
}

fn bars(database: &Database, sql: &str) -> Result<Vec<(String, u64)>> {
    database.rows(sql, &[])?.iter().map(|row| Ok((row.text(0)?, row.count(1)?))).collect()
}
