//! Each invoice is filed once. If instances continue during an outage, their metric counts exactly how often.

use rusqlite::Connection;

use super::{IN_OUTAGE, NEW, PROCEED};
use crate::{Result, database::number, supervisor::Options, verdict::Verdict};

/// Runs without protection that instances had counted when they were scraped.
const COUNTED: &str = "select count(*) from unprotected join metrics using (intake, life) where phase < 3";

pub(super) fn judge(database: &Connection, options: &Options) -> Result<Verdict> {
    let number = |sql: &str| number(database, sql);
    // A run without protection may file an invoice twice: that is the price of continuing.
    let twice = number(
        "select count(*) from
             (select 1 from invoices group by account, vendor, plain_number having sum(protected) > 1)",
    )?;
    let unprotected = number("select count(*) from unprotected")?;
    let in_outage = number(&format!("select count(*) from unprotected where invoice >= {NEW}"))?;
    let proceeds = options.variant.as_deref() == Some(PROCEED);
    let verdict = Verdict::default()
        .reports("uploads that got an answer", number("select count(*) from uploads")?)
        .reports("invoices filed", number("select count(*) from invoices")?)
        .expects("invoices filed twice", 0, twice)
        .expects(
            "invoices uploaded and not filed",
            0,
            number(
                "select count(distinct invoice) from uploads where not exists
                     (select 1 from invoices where cents = 100 + uploads.invoice)",
            )?,
        );
    let had_outage = number("select had_outage from phases")? == 1;
    let verdict = match (had_outage, proceeds) {
        (false, _) => verdict,
        (true, true) => verdict
            .reports("runs without protection because the store was slow", unprotected - in_outage)
            .expects("runs without protection during the outage", IN_OUTAGE, in_outage)
            .expects(
                "the same by the metric of the instances",
                number(COUNTED)?,
                number("select sum(unprotected) from metrics")?,
            ),
        (true, false) => verdict
            .expects("uploads refused during the outage", IN_OUTAGE, number("select count(*) from refusals")?)
            .expects("runs without protection", 0, unprotected),
    };
    let mut answers = database.prepare("select answer, count(*) from uploads group by answer order by 1")?;
    let answers = answers.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    Ok(verdict.chart("answers", answers))
}
