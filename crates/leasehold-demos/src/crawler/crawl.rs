//! One crawler: locks a domain, fetches some of its pages one after the other, then moves on to another domain.

use std::{fmt::Display, io::Write, net::SocketAddr, time::Duration};

use hyper::{Method, StatusCode};
use rand::RngExt;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior::Immediate};

use crate::{
    Result,
    http::Client,
    protection::{Pass, Protection},
    worker::Worker,
};

/// Pages of a domain in one go.
const VISIT: u64 = 10;
/// The first pause after a refusal, doubled with every further one in a row: a thirtieth of 100 ms.
const PAUSE: Duration = Duration::from_millis(3);
/// Refusals in a row after which a crawler begins anew with the first pause.
const RETRIES_MAX: u32 = 6;

struct Crawler {
    name: String,
    database: Connection,
    site: Client,
    protection: Protection,
}

pub(super) async fn crawl(worker: Worker) -> Result<()> {
    let database = worker.database()?;
    let port: u16 = database.query_row("select port from site", [], |row| row.get(0))?;
    let mut crawler = Crawler {
        name: worker.name(),
        site: Client::new(SocketAddr::from(([127, 0, 0, 1], port))),
        protection: worker.protection().await?,
        database,
    };
    let mut refusals = 0;
    loop {
        let crawled = crawler.take_a_domain().await.unwrap_or_else(|error| {
            // The store may be unreachable for a while: keep trying.
            log(error);
            false
        });
        refusals = if crawled { 0 } else { refusals % RETRIES_MAX + 1 };
        if refusals > 0 {
            tokio::time::sleep(pause(refusals)).await;
        }
    }
}

/// Into the log of this process, which `--keep` keeps.
fn log(line: impl Display) {
    let _nobody_reads = writeln!(std::io::stderr(), "{line}");
}

/// Random, so that crawlers that were refused together do not retry together.
fn pause(refusals: u32) -> Duration {
    let most = PAUSE * (1 << (refusals - 1));
    most.mul_f64(rand::rng().random_range(0.5..1.0))
}

impl Crawler {
    /// False if there was nothing to do, or another crawler holds the domain.
    async fn take_a_domain(&mut self) -> Result<bool> {
        let Some(domain) = self.domain_to_crawl()? else { return Ok(false) };
        let key = [("domain", &domain)];
        let pass = self.protection.try_lock(|leases| Ok(leases.lock_policy("domain")?.key(key))).await?;
        let Some(pass) = pass else {
            log(format_args!("domain {domain} locked by another worker"));
            let sql = "insert into refusals (domain, crawler) values (?, ?)";
            self.database.execute(sql, (&domain, &self.name))?;
            return Ok(false);
        };
        let fetched = pass.while_held(self.fetch_some(&domain, &pass)).await;
        pass.release().await?;
        fetched.unwrap_or(Ok(()))?;
        Ok(true)
    }

    fn domain_to_crawl(&self) -> Result<Option<String>> {
        let sql = "select domain from (select distinct domain from pages where crawler is null)
                   order by random() limit 1";
        Ok(self.database.query_row(sql, [], |row| row.get(0)).optional()?)
    }

    async fn fetch_some(&mut self, domain: &str, pass: &Pass) -> Result<()> {
        for _ in 0..VISIT {
            let sql = "select page from pages where domain = ? and crawler is null order by page limit 1";
            let page = self.database.query_row(sql, [domain], |row| row.get::<_, u64>(0)).optional()?;
            let Some(page) = page else { break };
            // A process that was stopped continues here without knowing for how long.
            if !pass.is_held() {
                break;
            }
            let headers = [("user-agent", self.name.as_str())];
            let path = format!("/{domain}/{page}");
            let (status, html) = self.site.ask(Method::GET, &path, &headers, "").await?;
            if status != StatusCode::OK {
                return Err(format!("{path}: {status}").into());
            }
            self.write_down(domain, page, &links(&html, domain))?;
        }
        Ok(())
    }

    /// Stores a fetched page and the links on it atomically, so that no link is lost with a crawler.
    fn write_down(&mut self, domain: &str, page: u64, links: &[u64]) -> Result<()> {
        let change = self.database.transaction_with_behavior(Immediate)?;
        for link in links {
            change.execute(
                "insert into pages (domain, page) select ?1, ?2
                 where not exists (select 1 from pages where domain = ?1 and page = ?2)",
                (domain, link),
            )?;
        }
        let sql = "update pages set crawler = ? where domain = ? and page = ?";
        change.execute(sql, (&self.name, domain, page))?;
        Ok(change.commit()?)
    }
}

/// The pages of the same domain that a page leads to.
fn links(html: &[u8], domain: &str) -> Vec<u64> {
    let start = format!("/{domain}/");
    let html = String::from_utf8_lossy(html);
    let targets = html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    targets.filter_map(|target| target.strip_prefix(&start)?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_the_same_domain_are_followed() {
        let html = br#"<a href="/a.test/7">x</a> <a href="/b.test/8">y</a><a href="/a.test/9">z</a> <a href="/a.test/z">"#;
        assert_eq!(links(html, "a.test"), [7, 9]);
        assert!(links(b"href=\"", "a.test").is_empty());
    }

    #[test]
    fn pauses_grow_and_stay_bounded() {
        assert!((PAUSE / 2..=PAUSE).contains(&pause(1)));
        assert!((2 * PAUSE..=4 * PAUSE).contains(&pause(3)));
        assert!(pause(RETRIES_MAX) <= 32 * PAUSE);
    }
}
