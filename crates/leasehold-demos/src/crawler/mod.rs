//! Crawlers that are polite: many domains, several crawlers, and at most one request at a time to each domain.
//!
//! A crawler takes a domain with pages that nobody has fetched and asks for the domain's lock, without waiting: there are
//! other domains. The site itself measures whether two requests to one domain ever met.

mod crawl;
mod judge;
mod site;

use rusqlite::Connection;

use crate::{
    Demo, Result,
    database::number,
    part::Part,
    stage::{Options, Stage},
};

pub(crate) static DEMO: Demo = Demo {
    name: "crawler",
    line: "40 domains with 150 pages each, four crawlers, and one request at a time to a domain",
    without: "crawlers asked for pages of the same domain at the same time",
    has_outage: false,
    has_records: false,
    variants: &[],
    set_up,
    direct: |stage| Box::pin(direct(stage)),
    act: |part| Box::pin(act(part)),
    judge: judge::judge,
};

const DOMAINS: u64 = 40;
/// Of each domain.
const PAGES: u64 = 150;

const SITE: &str = "site";
const CRAWLER: &str = "crawler";

fn set_up(database: &mut Connection, _: &Options) -> Result<()> {
    database.execute_batch(
        "create table pages (domain text, page integer, crawler text);
         create index pages_of_domains on pages (domain, page);
         create index pages_to_fetch on pages (domain) where crawler is null;
         create table refusals (domain text, crawler text);
         create table site (port integer);
         create table requests (domain text, page integer, crawler text, served integer,
                                began_us integer, ended_us integer);",
    )?;
    // Where a crawl begins; the rest is found by following links.
    for domain in 1..=DOMAINS {
        database.execute("insert into pages (domain, page) values (?, 0)", [format!("site{domain}.test")])?;
    }
    Ok(())
}

async fn direct(stage: &mut Stage) -> Result<()> {
    let pages = DOMAINS * stage.options.scaled(PAGES);
    stage.tell(format!("{DOMAINS} domains, of which the first pages are known; {pages} pages to be found"));
    stage.start(SITE, 1)?;
    stage.until(|database| Ok(number(database, "select count(*) from site")? == 1)).await?;
    stage.start(CRAWLER, 4)?;
    let fetched = "select count(*) from pages where crawler is not null";
    stage.until_done(pages, CRAWLER, |database| number(database, fetched)).await?;
    // What the site has measured arrives a little later.
    stage.until(|database| Ok(number(database, judge::SERVED)? == pages)).await
}

async fn act(part: Part) -> Result<()> {
    match part.role.as_str() {
        SITE => site::serve(part).await,
        _ => crawl::crawl(part).await,
    }
}
