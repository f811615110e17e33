//! Each invoice is filed once. If instances continue during an outage, their metric counts exactly how often.

use super::{DENY, IN_OUTAGE, NEW};
use crate::{Result, database::number, verdict::Verdict, worker::Worker};

/// Runs without protection that instances had counted when they were scraped.
const COUNTED: &str = "select count(*) from unprotected join metrics using (intake, life) where phase < 3";

const REFUSED: &str = "select count(*) from in_outage where status = 503";

pub(super) fn judge(worker: &Worker) -> Result<Verdict> {
    let (database, options) = (worker.database()?, &worker.options);
    let number = |sql: &str| number(&database, sql);
    // A run without protection may file an invoice twice: that is the price of continuing.
    let twice = number(
        "select count(*) from
             (select 1 from invoices group by account, vendor, plain_number having sum(protected) > 1)",
    )?;
    let unprotected = number("select count(*) from unprotected")?;
    let in_outage = number(&format!("select count(*) from unprotected where invoice >= {NEW}"))?;
    let denies = options.variant.as_deref() == Some(DENY);
    let verdict = Verdict::default()
        .reports("uploads that got an answer", number("select count(*) from uploads")?)
        .reports("409, this file is being processed", number("select sum(file_busy) from uploads")?)
        .reports("409, another upload is being processed", number("select sum(invoice_busy) from uploads")?)
        .reports("invoices filed, those of the outage included", number("select count(*) from invoices")?)
        .expects("invoices filed twice", 0, twice)
        .damage(twice, "filed twice")
        .expects(
            "invoices uploaded and not filed",
            0,
            number(
                "select count(distinct invoice) from uploads where not exists
                     (select 1 from invoices where cents = 100 + uploads.invoice)",
            )?,
        );
    let had_outage = number("select had_outage from phases")? == 1;
    let of_started = number("select count(*) from in_outage join started_in_outage using (intake)")?;
    let verdict = match (had_outage && !options.r#unsafe, denies) {
        (false, _) => verdict,
        (true, false) => verdict
            .expects("uploads in the outage that went on without protection", IN_OUTAGE, in_outage)
            .reports("of these at an instance that started in the outage", of_started)
            .reports("others without protection, because the store was slow", unprotected - in_outage)
            .expects(
                "runs without protection, by the instances' metric",
                number(COUNTED)?,
                number("select sum(unprotected) from metrics")?,
            ),
        (true, true) => verdict
            .expects("uploads in the outage that were refused with 503", IN_OUTAGE, number(REFUSED)?)
            .reports("of these at an instance that started in the outage", of_started)
            .expects("runs without protection", 0, unprotected),
    };
    let mut answers = database.prepare("select answer, count(*) from uploads group by answer order by 1")?;
    let answers = answers.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    Ok(verdict.chart("answers", answers))
}
