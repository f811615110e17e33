//! No two requests to one domain overlapped, and every page was fetched.

use super::{DOMAINS, PAGES};
use crate::{Result, database::number, verdict::Verdict, worker::Worker};

/// Pages that the site has served at least once.
pub(super) const SERVED: &str =
    "select count(*) from (select distinct domain, page from requests where served)";

/// How many requests each domain had at the same time: one more when a request begins, one less when it ends.
const AT_ONCE: &str = "
    create temp view at_once as
    with steps as (select domain, began_us as at, 1 as step from requests
                   union all select domain, ended_us, -1 from requests)
    select domain, step,
           sum(step) over (partition by domain order by at, step rows unbounded preceding) as requests
    from steps";

const MET: &str = "select count(*) from at_once where step = 1 and requests > 1";

pub(super) fn judge(worker: &Worker) -> Result<Verdict> {
    let (database, options) = (worker.database()?, &worker.options);
    database.execute_batch(AT_ONCE)?;
    let number = |sql| number(&database, sql);
    let bars = |sql| -> Result<Vec<(String, u64)>> {
        let mut found = database.prepare(sql)?;
        let bars = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        Ok(bars)
    };
    let pages = DOMAINS * options.scaled(PAGES);
    Ok(Verdict::default()
        .reports("requests, as the site counts them", number("select count(*) from requests")?)
        .reports(
            "of these cut off, because a crawler was killed",
            number("select count(*) from requests where not served")?,
        )
        .reports("times a domain was locked by another worker", number("select count(*) from refusals")?)
        .expects("requests while the domain had another one", 0, number(MET)?)
        .damage(number(MET)?, "requests overlap")
        .expects("pages that the site served", pages, number(SERVED)?)
        .expects(
            "pages that crawlers have",
            pages,
            number("select count(*) from pages where crawler is not null")?,
        )
        .chart(
            "domains, by the most requests they had at once",
            bars(
                "select most || ' at once', count(*) from
                     (select max(requests) as most from at_once group by domain)
                 group by most order by most",
            )?,
        )
        .chart(
            "pages fetched by each crawler",
            bars(
                "select crawler, count(*) from pages where crawler is not null
                 group by crawler order by crawler",
            )?,
        ))
}
