//! Every transaction was completed or refunded once, and no two pods had one at the same time.

use rusqlite::{Connection, OptionalExtension};

use super::{BATCH, RATE};
use crate::{Result, database::number, show::grouped, verdict::Verdict, worker::Worker};

/// Attempts that began while another one was under way: not ended, and hidden from everybody else. One of a pod that was
/// killed never ends, but it is not hidden for ever either.
const MET: &str = "
    select count(*) from attempts as first, attempts as second
    where first.tx = second.tx and first.id < second.id
      and second.began_us < min(coalesce(first.ended_us, first.hidden_until_us), first.hidden_until_us)";

const TWICE: &str = "select count(*) from (select 1 from refunds group by tx having count(*) > 1)";

pub(super) fn judge(worker: &Worker) -> Result<Verdict> {
    let (database, options) = (&worker.database()?, &worker.options);
    let number = |sql| number(database, sql);
    let bars = |sql| -> Result<Vec<(String, u64)>> {
        let mut found = database.prepare(sql)?;
        let bars = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        Ok(bars)
    };
    let verdict =
        costs(database)?.iter().fold(Verdict::default(), |verdict, (what, each)| verdict.reports(what, each));
    let verdict = match cycle(database)? {
        Some(us) => verdict.reports(
            "lock, scan of 16 buckets, release: median of 20",
            format!("{:.1} ms", us as f64 / 1000.0),
        ),
        None => verdict,
    };
    let verdict = if options.r#unsafe {
        verdict
    } else {
        verdict
            .reports("scans by either pod", number("select sum(done) from scans")?)
            .reports("scans that a pod left to the other", number("select sum(skipped) from scans")?)
    };
    Ok(verdict
        .reports("transactions begun", number("select count(*) from transactions")?)
        .reports(&format!("of these each second, of {} asked for", grouped(RATE)), rate(database)?)
        .reports(
            "transactions that completed",
            number("select count(*) from transactions where state = 'completed'")?,
        )
        .reports("attempts to refund", number("select count(*) from attempts")?)
        .reports(
            "of these refused by the bank",
            number("select count(*) from attempts where outcome = 'refused'")?,
        )
        .reports(
            "of these cut off, because the pod was killed",
            number("select count(*) from attempts where ended_us is null")?,
        )
        .expects(
            "transactions that timed out and were refunded",
            number("select count(*) from transactions where state <> 'completed'")?,
            number("select count(distinct tx) from refunds")?,
        )
        .expects("transactions refunded more than once", 0, number(TWICE)?)
        .damage(number(TWICE)?, "refunded twice")
        .expects(
            "euros refunded",
            number("select sum(euros) from transactions where state <> 'completed'")?,
            number("select sum(euros) from refunds")?,
        )
        .expects("attempts while another had the same transaction", 0, number(MET)?)
        .expects(
            "transactions completed and refunded",
            0,
            number(
                "select count(*) from transactions where cancelled_us is not null
                     and id in (select tx from refunds)",
            )?,
        )
        .expects(
            "deadlines claimed after they were cancelled",
            0,
            number(
                "select count(*) from attempts join transactions on transactions.id = tx
                 where claimed_us > cancelled_us",
            )?,
        )
        .chart(
            "how late transactions were refunded",
            bars(
                "with late as (select (min(at_us) - due_us) / 1000 as ms from refunds
                               join transactions on transactions.id = tx group by tx),
                      steps (label, least, most) as (values
                          ('up to 250 ms', -1000000, 250), ('up to 500 ms', 250, 500), ('up to 1 s', 500, 1000),
                          ('up to 2 s', 1000, 2000), ('up to 4 s', 2000, 4000), ('later', 4000, 1000000))
                 select label, (select count(*) from late where ms >= least and ms < most) from steps",
            )?,
        )
        .chart("refunded by each pod", bars("select pod, count(*) from refunds group by pod order by pod")?))
}

/// The median time of a cycle, in microseconds; none with `--unsafe`.
fn cycle(database: &Connection) -> Result<Option<u64>> {
    let sql = "select us from cycles order by us limit 1 offset (select count(*) / 2 from cycles)";
    Ok(database.query_row(sql, [], |row| row.get(0)).optional()?)
}

/// As begun: a busy machine does not reach what was asked of it. From the first batch to the last, which is not counted.
fn rate(database: &Connection) -> Result<u64> {
    let count = number(database, "select count(*) from transactions")?.saturating_sub(BATCH);
    let us = number(database, "select max(due_us) - min(due_us) from transactions")?;
    Ok((count * 1_000_000).checked_div(us).unwrap_or(count))
}

/// The average cost of a scan, a line for each kind; none with `--unsafe`.
fn costs(database: &Connection) -> Result<Vec<(String, String)>> {
    let mut found = database.prepare("select scan, round_trips, scans from costs order by rowid")?;
    let costs = found.query_map([], |row| {
        let (scan, trips, scans): (String, f64, f64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let each = (10.0 * trips / scans).round() / 10.0;
        Ok((format!("round trips of a scan {scan}"), each.to_string()))
    })?;
    Ok(costs.collect::<Result<_, _>>()?)
}
