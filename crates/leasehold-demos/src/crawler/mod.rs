//! Polite crawlers: many domains, several crawlers, and at most one request at a time to each domain.
//!
//! A crawler chooses a domain with pages that are not fetched yet and tries to lock it, without waiting: there are other
//! domains. The site itself measures whether two requests to one domain ever overlapped.

mod crawl;
mod judge;
mod site;

use crate::{
    Demo, Result, Topology, database::number, policy::PolicyFile, show::grouped, supervisor::Supervisor,
    worker::Worker,
};

pub(crate) static DEMO: Demo = Demo {
    name: "crawler",
    line: "40 domains with 150 pages each, four crawlers, and one request at a time to a domain",
    protects: "one request per domain",
    without: "crawlers asked for pages of the same domain at the same time",
    has_outage: false,
    has_records: false,
    policies: PolicyFile {
        name: "crawler.toml",
        text: include_str!("../../policies/crawler.toml"),
        ttl_variable: None,
    },
    topologies: &[Topology::Quorum, Topology::Etcd],
    variants: &[],
    set_up,
    supervise: |supervisor| Box::pin(supervise(supervisor)),
    work: |worker| Box::pin(work(worker)),
    judge: judge::judge,
    tear_down: |_| Ok(()),
};

const DOMAINS: u64 = 40;
/// Of each domain.
const PAGES: u64 = 150;

const SITE: &str = "site";
const CRAWLER: &str = "crawler";

fn set_up(worker: &Worker) -> Result<()> {
    let database = worker.database()?;
    database.execute_batch(
        "create table pages (domain text, page integer, crawler text);
         create index pages_of_domains on pages (domain, page);
         create index pages_to_fetch on pages (domain) where crawler is null;
         create table refusals (domain text, crawler text);
         create table site (port integer);
         create table requests (domain text, page integer, crawler text, served integer,
                                began_us integer, ended_us integer);",
    )?;
    // The start of the crawl; the other pages are found by following links.
    for domain in 1..=DOMAINS {
        database.execute("insert into pages (domain, page) values (?, 0)", [format!("site{domain}.test")])?;
    }
    Ok(())
}

async fn supervise(supervisor: &mut Supervisor) -> Result<()> {
    let (database, pages) = (supervisor.database()?, DOMAINS * supervisor.options.scaled(PAGES));
    supervisor.print(format!(
        "{DOMAINS} domains, of which the first pages are known; {} pages to be found",
        grouped(pages)
    ));
    supervisor.start(SITE, 1)?;
    supervisor.until(|| Ok(number(&database, "select count(*) from site")? == 1)).await?;
    supervisor.start(CRAWLER, 4)?;
    let fetched = "select count(*) from pages where crawler is not null";
    supervisor.until_done(pages, CRAWLER, || number(&database, fetched)).await?;
    // The measurements of the site arrive a little later.
    supervisor.until(|| Ok(number(&database, judge::SERVED)? == pages)).await
}

async fn work(worker: Worker) -> Result<()> {
    match worker.role.as_str() {
        SITE => site::serve(worker).await,
        _ => crawl::crawl(worker).await,
    }
}
